"""The distributions, and what ``make run`` needs."""

import asyncio
import email.parser
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path

import psutil
import pytest
from aiohttp import ClientSession
from packaging.requirements import Requirement

from prerender import __version__
from tests.conftest import StartOrigin, StartProxy, pages
from tests.support import raw
from tests.support.commands import ROOT, SEARCHED, answered, in_, running


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from nothing but the sdist."""
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
    assert "prerender/browser/guardian.py" in packed
    assert "prerender/browser/scripts/probe/lazy_content.js" in packed


def test_the_version_is_the_same_everywhere(distributions: tuple[Path, Path]) -> None:
    sdist, wheel = distributions
    assert sdist.name == f"prerender_proxy-{__version__}.tar.gz"
    assert wheel.name == f"prerender_proxy-{__version__}-py3-none-any.whl"
    metadata = f"prerender_proxy-{__version__}.dist-info/METADATA"
    parsed = email.parser.Parser().parsestr(zipfile.ZipFile(wheel).read(metadata).decode())
    assert parsed["Version"] == __version__
    printed = in_(wheel.parent, sys.executable, "-m", "prerender", "--version")
    assert printed == f"prerender {__version__}\n"


def test_links_of_the_readme_work_on_pypi(
    tmp_path: Path, distributions: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the project's URL they are links; without it they are text."""
    monkeypatch.setenv("PROJECT_URL", "https://git.example/prerender/")
    in_(ROOT, sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    (published,) = tmp_path.glob("*.whl")
    with_url, without = map(_metadata, (published, distributions[1]))
    assert "(https://git.example/prerender/blob/main/docs/quickstart.md)" in with_url
    assert "Project-URL: Source, https://git.example/prerender" in with_url
    assert "Project-URL: " not in without
    for text in (with_url, without):
        assert "Description-Content-Type: text/markdown" in text
        assert set(re.findall(r"\]\((?!https:|#)", text)) == set()


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        return content.read(name).decode()


@pytest.mark.long
@pytest.mark.timeout(400)  # all that it depends on is installed
async def test_the_wheel_in_a_clean_environment(
    distributions: tuple[Path, Path],
    tmp_path: Path,
    start_origin: StartOrigin,
    client: ClientSession,
) -> None:
    """Installed with its dependencies from the package index, and started by its command."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv/bin"
    in_(tmp_path, programs / "pip", "install", "--quiet", distributions[1], seconds=300)
    assert in_(tmp_path, programs / "prerender", "--version") == f"prerender {__version__}\n"
    assert in_(tmp_path, programs / "pip", "check") == "No broken requirements found.\n"

    origin = await pages(start_origin, {"/": "<script>document.write('from a wheel')</script>"})
    command = (programs / "prerender", "render", origin.url)
    assert "from a wheel" in await asyncio.to_thread(in_, tmp_path, *command)
    public, admin = raw.free_ports(2)
    settings = {
        "PATH": SEARCHED,
        "PRERENDER_ORIGIN_URL": origin.url,
        "PRERENDER_SERVER_PORT": str(public),
        "PRERENDER_ADMIN_PORT": str(admin),
    }
    url = f"http://127.0.0.1:{public}/?_escaped_fragment_="
    async with running(programs / "prerender", "serve", cwd=tmp_path, env=settings) as process:
        await answered(client, url)
        async with client.get(url) as answer:
            assert "from a wheel" in await answer.text()
    assert process.returncode == 0


# scripts/run takes the virtual environment that make has made.
MADE = pytest.mark.skipif(
    not (ROOT / ".venv/bin/python").exists(), reason="needs the .venv that make install makes"
)


@MADE
async def test_run_starts_the_example_and_the_proxy_and_stops_both(
    start_origin: StartOrigin, start_proxy: StartProxy, client: ClientSession
) -> None:
    example, public, admin = raw.free_ports(3)
    environ = os.environ | {
        "EXAMPLE_PORT": str(example),
        "PRERENDER_BROWSER_PAGES": "1",
        "PRERENDER_SERVER_PORT": str(public),
        "PRERENDER_ADMIN_PORT": str(admin),
    }
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
        f"Port {port} is in use. Give the example site another one with "
        f"EXAMPLE_PORT=3001, or render the site on that port: ORIGIN=http://127.0.0.1:{port}\n"
    )


# What the standard library lacks there.
ON_MACOS = """
import os, sys
sys.platform = "darwin"
del os.sched_getaffinity, os.memfd_create
from prerender.cli.program import main
sys.exit(main(["serve"]))
"""


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A PATH with what a shell script needs, but without a package manager."""
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
    done = packages(SEARCHED, "python", "headless-shell", "nginx", PYTHON=sys.executable)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_cannot_be_installed_is_said_in_one_line(bare_path: str) -> None:
    done = packages(bare_path, "python", "headless-shell", "nginx", PYTHON=sys.executable)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Missing; please install (names of Debian packages): chromium-headless-shell nginx\n"
    )


def test_a_chrome_is_not_enough(bare_path: str, tmp_path: Path) -> None:
    shell = shutil.which("chromium-headless-shell") or shutil.which("chrome-headless-shell")
    assert shell
    for name in ("chromium", "google-chrome"):
        (tmp_path / name).symlink_to(shell)
    assert packages(bare_path, "headless-shell").returncode == 1
    done = packages(bare_path, "headless-shell", PRERENDER_BROWSER_PATH=shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_other_systems_are_told_of_the_container(bare_path: str) -> None:
    done = packages(bare_path, "python", PYTHON=sys.executable, OSTYPE="darwin23")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(".* Linux, not on darwin23: .* docker compose up --build\n", done.stderr)
    started = subprocess.run(
        [sys.executable, "-c", ON_MACOS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert started.returncode == 1
    assert re.fullmatch(".* Linux, not on darwin: .* docker compose up --build\n", started.stderr)


def test_the_lack_of_a_python_is_said_in_one_line(bare_path: str) -> None:
    done = packages(bare_path, "python", PYTHON="")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Python 3.11 or newer is required: install it, or run make PYTHON=/path/to/python\n"
    )


def test_a_python_that_is_none_is_said_in_one_line(bare_path: str) -> None:
    done = packages(bare_path, "python", PYTHON="/nonexistent")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "PYTHON=/nonexistent: is not Python 3.11 or newer\n"


def test_what_is_locked_is_what_is_asked_for() -> None:
    """The lock files have every dependency in an allowed version, with hashes. If not: make lock."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = content["project"]
    asked = [
        *project["dependencies"],
        *project["optional-dependencies"]["otel"],
        *project["optional-dependencies"]["s3"],
    ]
    _check_lock("requirements.lock", asked)
    _check_lock("requirements-dev.lock", [*asked, *content["dependency-groups"]["dev"]])
    assert "--require-hashes --requirement requirements.lock" in (ROOT / "Dockerfile").read_text()
    assert "--require-hashes --requirement requirements-dev.lock" in (ROOT / "Makefile").read_text()


def _check_lock(name: str, asked: list[str]) -> None:
    lock = (ROOT / name).read_text("utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    for requirement in map(Requirement, asked):
        assert requirement.specifier.contains(locked[requirement.name.lower()]), requirement
    entries = re.split(r"^(?=[\w.-]+==)", lock, flags=re.MULTILINE)[1:]
    assert len(entries) >= len(locked)
    assert all("--hash=sha256:" in entry for entry in entries)


def test_all_dependencies_work_with_the_pins_of_pyppeteer() -> None:
    """pyppeteer needs websockets<11 and urllib3<2, which also affects users of this package.

    All tests run with these versions. Here, the installed versions meet every requirement of every
    dependency.
    """
    for pin in map(Requirement, ("websockets<11", "urllib3<2")):
        assert pin.specifier.contains(version(pin.name))
    left, seen = [Requirement("prerender-proxy[otel,s3]")], set[str]()
    while left:
        needed = left.pop()
        assert needed.specifier.contains(version(needed.name)), needed
        if (line := str(needed)) not in seen:
            seen.add(line)
            left += _requirements(needed)
    assert len(seen) > 40


def _requirements(parent: Requirement) -> Iterator[Requirement]:
    for requirement in map(Requirement, requires(parent.name) or ()):
        marker, extras = requirement.marker, parent.extras or {""}
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            yield requirement


def test_the_wheel_is_typed(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as wheel:
        names = set(wheel.namelist())
        assert "prerender/py.typed" in names
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        text = wheel.read(metadata).decode()
    for line in (
        "Author: the prerender-proxy authors",
        "Classifier: Typing :: Typed",
        "Keywords: ",
    ):
        assert line in text
    assert "Provides-Extra: dev" not in text
