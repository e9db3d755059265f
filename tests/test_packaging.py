"""What is delivered: the distributions, the container's files, nginx's configuration, make run."""

import asyncio
import email.parser
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from aiohttp import ClientConnectionError, ClientSession

from prerender import __version__
from prerender.config import load
from tests import raw
from tests.conftest import StartOrigin, StartProxy, pages

ROOT = Path(__file__).parent.parent
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin"


def in_(folder: Path, *command: str | Path) -> str:
    """What a command prints that is run in a folder and succeeds."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is made of nothing but the sdist."""
    folder = tmp_path_factory.mktemp("distributions")
    in_(ROOT, sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder)
    (sdist,) = folder.glob("*.tar.gz")
    in_(folder, "tar", "-xzf", sdist)
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    in_(unpacked, sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def test_the_wheel_has_the_whole_package(distributions: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(distributions[1]).namelist()
    packed = {name for name in names if ".dist-info/" not in name}
    files = (ROOT / "prerender").rglob("*")
    assert packed == {
        str(file.relative_to(ROOT))
        for file in files
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert "prerender/rendering/guardian.py" in packed
    assert "prerender/rendering/scripts/probe/sight.js" in packed


def test_the_version_is_the_same_everywhere(distributions: tuple[Path, Path]) -> None:
    sdist, wheel = distributions
    assert sdist.name == f"prerender_proxy-{__version__}.tar.gz"
    assert wheel.name == f"prerender_proxy-{__version__}-py3-none-any.whl"
    metadata = f"prerender_proxy-{__version__}.dist-info/METADATA"
    parsed = email.parser.Parser().parsestr(zipfile.ZipFile(wheel).read(metadata).decode())
    assert parsed["Version"] == __version__
    printed = in_(wheel.parent, sys.executable, "-m", "prerender", "--version")
    assert printed == f"prerender {__version__}\n"


async def test_the_wheel_renders(
    distributions: tuple[Path, Path], tmp_path: Path, start_origin: StartOrigin
) -> None:
    origin = await pages(start_origin, {"/": "<script>document.write('from a wheel')</script>"})
    zipfile.ZipFile(distributions[1]).extractall(tmp_path)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prerender", "render", origin.url),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode == 0
    assert b"from a wheel" in out


def compose() -> dict[str, Any]:
    content = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    services: dict[str, Any] = content["services"]
    return services


def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", "")


def nginx_file() -> str:
    return (ROOT / "deploy" / "nginx.conf").read_text("utf-8")


def test_compose_has_nginx_the_proxy_and_an_origin() -> None:
    services = compose()
    assert set(services) == {"nginx", "prerender", "origin"}
    environ = services["prerender"]["environment"]
    settings = load(None, dict(re.findall(r"(PRERENDER_\w+)=(\S+)", dockerfile())) | environ)
    assert settings.server.host == "0.0.0.0"
    assert settings.admin.host == "127.0.0.1"
    assert f"server prerender:{settings.server.port};" in nginx_file()
    assert settings.origin_url.host in services
    for volume in (*services["nginx"]["volumes"], *services["origin"]["volumes"]):
        assert (ROOT / volume.partition(":")[0]).exists()


def test_whoever_waits_waits_longer() -> None:
    settings = load(None, {"PRERENDER_ORIGIN": "http://origin:3000"})
    grace = int(compose()["prerender"]["stop_grace_period"].removesuffix("s"))
    assert grace > settings.server.grace
    (patience,) = re.findall(r"proxy_read_timeout (\d+)s;", nginx_file())
    assert int(patience) > settings.origin.timeout + settings.render.timeout


def test_the_image_is_built_of_files_that_are_sent_to_docker() -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile(), re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert copied == sent
    assert all((ROOT / source).exists() for source in copied)


async def test_the_health_check_of_the_image(
    start_origin: StartOrigin, start_proxy: StartProxy, unused_port: int
) -> None:
    (found,) = re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])$", dockerfile(), re.MULTILINE)
    command = json.loads(found)
    assert command[0] == "python3"
    assert command[-1].count("8081") == 1
    origin = await pages(start_origin, {})
    proxy = await start_proxy(origin.url)
    for port, status in ((proxy.running.admin_port, 0), (unused_port, 1)):
        checked = command[-1].replace("8081", str(port))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command[1:-1], checked), stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(30):
            assert await process.wait() == status


NGINX = """
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/client_body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  include {folder}/site.conf;
}}
"""


def nginx_command(folder: Path, port: int, proxy_port: int) -> list[str]:
    """nginx with the delivered configuration, but for its addresses."""
    nginx = shutil.which("nginx", path=SEARCHED)
    assert nginx, "nginx is not installed; make test installs it"
    site = nginx_file()
    for name, address in (
        ("listen 80;", f"listen 127.0.0.1:{port};"),
        ("server prerender:8080;", f"server 127.0.0.1:{proxy_port};"),
    ):
        assert site.count(name) == 1
        site = site.replace(name, address)
    (folder / "site.conf").write_text(site)
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, user=user))
    return [nginx, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


async def answered(client: ClientSession, url: str) -> None:
    """Wait until somebody listens."""
    async with asyncio.timeout(30):
        while True:
            with suppress(ClientConnectionError):
                async with client.get(url):
                    return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running(
    *command: str | Path, **options: Any
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program in a session of its own, interrupted at the end as by Ctrl-C."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True, **options
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        async with asyncio.timeout(30):
            await process.wait()


async def test_the_configuration_of_nginx(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path, unused_port: int
) -> None:
    origin = await pages(start_origin, {"/": "<p>plain<script>document.write('+')</script>"})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    command = nginx_command(tmp_path, unused_port, proxy.running.public_port)
    in_(tmp_path, *command, "-t")
    url = f"http://127.0.0.1:{unused_port}"
    async with running(*command):
        await answered(proxy.client, url)
        spoofed = {
            "Host": "www.example.com:8000",
            "X-Forwarded-For": "1.2.3.4",
            "X-Forwarded-Host": "evil.example",
            "X-Forwarded-Proto": "gopher",
        }
        async with proxy.client.get(f"{url}/", headers=spoofed) as answer:
            assert "plain" in await answer.text()
        asked = origin.requests[-1].headers
        assert asked["Host"] == asked["X-Forwarded-Host"] == "www.example.com:8000"
        assert asked["X-Forwarded-Proto"] == "http"
        assert asked["X-Forwarded-For"] == "127.0.0.1, 127.0.0.1"
        async with proxy.client.get(f"{url}/?_escaped_fragment_=") as answer:
            assert "plain+" in await answer.text()
            assert "prerender; " in answer.headers["Cache-Status"]


@pytest.fixture
def unused_port() -> int:
    return raw.free_port()


# scripts/run takes the virtual environment that make has made.
MADE = pytest.mark.skipif(
    not (ROOT / ".venv/bin/python").exists(), reason="needs the .venv that make install makes"
)


@MADE
async def test_run_starts_the_example_and_the_proxy_and_stops_both(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    example, public, admin = raw.free_ports(3)
    environ = os.environ | {
        "EXAMPLE_PORT": str(example),
        "PRERENDER_SERVER_PORT": str(public),
        "PRERENDER_ADMIN_PORT": str(admin),
    }
    async with ClientSession() as client:
        async with running(ROOT / "scripts/run", cwd=ROOT, env=environ) as process:
            await answered(client, f"http://127.0.0.1:{public}/")
            snapshot = f"http://127.0.0.1:{public}/?_escaped_fragment_=/items/1"
            async with client.get(snapshot) as answer:
                assert "Paper Globe Lamp" in await answer.text()
            children = psutil.Process(process.pid).children(recursive=True)
        assert process.returncode == 0
    assert len(children) > 3
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


@MADE
def test_run_says_when_the_port_of_the_example_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [ROOT / "scripts/run"],
            cwd=ROOT,
            env=os.environ | {"EXAMPLE_PORT": str(port)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        f"Port {port} is taken, and the example site needs it; give it another with "
        f"EXAMPLE_PORT=3001, or name the site that listens there: ORIGIN=http://127.0.0.1:{port}\n"
    )


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with what a shell script needs, but without any package manager."""
    for name in ("bash", "env", "id"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    return str(tmp_path)


def packages(path: str, *names: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts/system-packages", *names],
        env={"PATH": path} | environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_what_is_there_is_not_installed() -> None:
    done = packages(SEARCHED, "python", "chromium", "nginx", PYTHON=sys.executable)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_cannot_be_installed_is_said_in_one_line(bare_path: str) -> None:
    done = packages(bare_path, "python", "headless-shell", "nginx", PYTHON=sys.executable)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Missing; please install (by their names in Debian): chromium-headless-shell nginx\n"
    )


def test_the_lack_of_a_python_is_said_in_one_line(bare_path: str) -> None:
    done = packages(bare_path, "python", PYTHON="")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Python 3.11 or newer is needed: install it, or give make PYTHON=/path/to/python\n"
    )
