"""The image is built and run with the restrictions of a cluster: `make image-test`.

Buildah builds it, and chroot(2) runs it in its own namespaces, which needs root but no daemon: an
arbitrary user, no capabilities, a read-only root, and a small writable /tmp. Where its base image
cannot be pulled: `BASE=mmdebstrap make image-test`.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import ClientSession

from tests.conftest import StartOrigin, pages
from tests.support import raw
from tests.support.commands import ROOT, answered

pytestmark = [pytest.mark.image, pytest.mark.timeout(1200)]

USER = 54321
SECONDS = 30
LARGEST = 450 * 1000**2
# The image has no program for that: PR_CAPBSET_DROP (24), PR_SET_NO_NEW_PRIVS (38).
UNPRIVILEGED = f"""
import ctypes, os, sys
prctl = ctypes.CDLL(None).prctl
for capability in range(64):
    prctl(24, capability, 0, 0, 0)
prctl(38, 1, 0, 0, 0)
os.setgroups([])
os.setresgid(*[{USER}] * 3)
os.setresuid(*[{USER}] * 3)
os.execvp(sys.argv[1], sys.argv[1:])
"""
WRAPPER = """
set -e
mount --rbind "$1" "$2"
mount -o remount,bind,ro "$2"
mount -t proc proc "$2/proc"
mount --rbind /dev "$2/dev"
mount -t tmpfs -o size=256m,mode=1777 tmpfs "$2/tmp"
cd /
root=$2
shift 2
exec chroot "$root" python3 "$@"
"""
PAGE = """<p id="out"></p><script>
  const gl = document.createElement("canvas").getContext("webgl");
  const text = document.createElement("canvas").getContext("2d");
  const wide = (letters) => text.measureText(letters).width > 0;
  out.textContent = `WebGL: ${gl !== null}, text: ${["a", "ä", "я", "中", "ह", "😀"].every(wide)}`;
</script>"""


@dataclass(frozen=True)
class Image:
    """A built image and a mounted container of it."""

    config: dict[str, Any]
    size: int
    root: Path
    mounted: Path

    def command(self, *arguments: str) -> list[str]:
        """The command that runs a program in it, with the image's environment."""
        isolated = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", WRAPPER)
        environment = ("/usr/bin/env", "-i", *self.config["Env"])
        unprivileged = ("-c", UNPRIVILEGED)
        roots = (str(self.root), str(self.mounted))
        return [*isolated, "image", *roots, *unprivileged, *environment, *arguments]

    def run(self, *arguments: str) -> str:
        """The output of a program, which must succeed."""
        return run(*self.command(*arguments))


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    name = "localhost/prerender-proxy-test"
    run(str(ROOT / "scripts/image"), name, ENGINE="buildah")
    (described,) = json.loads(run("buildah", "images", "--json", name))
    inspected = json.loads(run("buildah", "inspect", "--type", "image", name))
    container = run("buildah", "from", "--pull-never", name).strip()
    try:
        yield Image(
            inspected["Docker"]["config"],
            _bytes(described["size"]),
            Path(run("buildah", "mount", container).strip()),
            tmp_path_factory.mktemp("root"),
        )
    finally:
        run("buildah", "rm", container)


def _bytes(text: str) -> int:
    number, unit = text.split()
    return int(float(number) * 1000 ** ["B", "KB", "MB", "GB"].index(unit.upper()))


@asynccontextmanager
async def running(
    command: Sequence[str],
) -> AsyncIterator[tuple[psutil.Process, asyncio.subprocess.Process]]:
    """A container: its process 1, and the process that waits for it."""
    process = await asyncio.create_subprocess_exec(*command, start_new_session=True)
    try:
        async with asyncio.timeout(SECONDS):
            while not (children := psutil.Process(process.pid).children()):
                await asyncio.sleep(0.05)
        yield children[0], process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def test_it_is_small_and_has_nothing_to_build_with(image: Image) -> None:
    print(f"size: {image.size / 1000**2:.0f} MB")
    assert image.size < LARGEST
    found = [
        path.name
        for folder in ("usr/bin", "opt/prerender/bin")
        for path in (image.root / folder).iterdir()
        if re.fullmatch(
            r"(gcc|cc|c\+\+|make|as|ld|pip3?|git|curl|wget|apt|dpkg|perl)(-[\d.]+)?", path.name
        )
    ]
    assert found == []


def test_what_is_in_it_can_be_listed(image: Image) -> None:
    """SBOM tools read dpkg's database and the metadata of Python distributions."""
    assert "chromium-headless-shell" in (image.root / "var/lib/dpkg/status").read_text("utf-8")
    names = {path.name for path in image.root.glob("opt/prerender/lib/*/site-packages/*.dist-info")}
    assert any(name.startswith("prerender_proxy-") for name in names)
    assert any(name.startswith("aiohttp-") for name in names)
    assert image.config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_the_command_line(image: Image) -> None:
    printed = run(sys.executable, "-m", "prerender", "--version")
    assert image.run(*image.config["Entrypoint"], "--version") == printed


async def test_it_serves_and_stops(image: Image, start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    public, admin = raw.free_ports(2)
    settings = (
        f"PRERENDER_ORIGIN_URL={origin.url}",
        f"PRERENDER_SERVER_PORT={public}",
        f"PRERENDER_ADMIN_PORT={admin}",
        "PRERENDER_CACHE_URL=file:///tmp/snapshots",
    )
    entrypoint = image.config["Entrypoint"] + image.config["Cmd"]
    url = f"http://127.0.0.1:{public}/?_escaped_fragment_="
    async with (
        running(image.command("env", *settings, *entrypoint)) as (first, process),
        ClientSession() as client,
    ):
        await answered(client, url)
        async with client.get(url) as answer:
            assert answer.status == 200
            assert "WebGL: true, text: true" in await answer.text()
        # tini is process 1, and nothing in there is root's or has a capability.
        assert first.name() == "tini"
        everyone = [first, *first.children(recursive=True)]
        assert len(everyone) > 5
        for one in everyone:
            assert one.uids().effective == USER
            assert _has_no_capability(one) or _in_a_sandbox(one)

        kind, *check = image.config["Healthcheck"]["Test"]
        assert kind == "CMD"
        await asyncio.to_thread(image.run, *(part.replace("8081", str(admin)) for part in check))

        first.terminate()
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0
    _, alive = psutil.wait_procs(everyone, timeout=5)
    assert alive == []


def _has_no_capability(process: psutil.Process) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text("ascii")
    return re.search(r"^CapBnd:\s0+$", status, re.MULTILINE) is not None


def _in_a_sandbox(process: psutil.Process) -> bool:
    """Chromium's sandbox has all capabilities, but in its own user namespace."""
    return os.readlink(f"/proc/{process.pid}/ns/user") != os.readlink("/proc/self/ns/user")
