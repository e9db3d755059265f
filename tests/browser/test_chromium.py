"""The browser as a child process: its environment, its files and its end."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from prerender.browser import chromium, defaults, guardian
from prerender.browser.chromium import CannotStart, Chromium
from prerender.errors import BrowserGone, ConfigError
from prerender.gateway.gateway import Gateway
from tests.conftest import proxied, settings_for
from tests.support import processes, raw
from tests.support.commands import ROOT, in_
from tests.support.pools import gateway_of, launch_browser


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
async def gateway(no_shared_browser: None) -> AsyncIterator[Gateway]:
    async with gateway_of() as gateway:
        yield gateway


def names_in(folder: Path) -> list[str]:
    """The files and folders in a folder."""
    return sorted(path.name for path in folder.iterdir())


@asynccontextmanager
async def launched(gateway: Gateway) -> AsyncIterator[tuple[Chromium, int]]:
    """A browser and the id of its session. At the end, nothing of it may be left."""
    browser = await launch_browser(gateway)
    (session,) = processes.sessions()
    try:
        # It may start after the connection, because no tab is open.
        async with asyncio.timeout(raw.SECONDS):
            while not processes.of_kind(session, "zygote"):
                await asyncio.sleep(0.01)
        yield browser, session
    finally:
        await browser.close()
        assert processes.members(session) == []


async def test_no_tab_is_open_after_the_start(gateway: Gateway) -> None:
    """It would draw 60 frames per second."""
    async with launched(gateway) as (browser, _):
        assert (await browser.devtools.call("Target.getTargets"))["targetInfos"] == []


async def test_launch_and_close_leave_nothing(gateway: Gateway, folder: Path) -> None:
    before = asyncio.all_tasks()
    async with launched(gateway) as (browser, session):
        kinds = {processes.kind(process) for process in processes.members(session)}
        assert {"guardian", "browser", "zygote"} <= kinds
        assert [name.startswith("prerender-chromium-") for name in names_in(folder)] == [True]
        assert re.fullmatch(r"[\d.]+", browser.version)
        assert repr(browser) == f"Chromium {browser.version}, process {session}"
    assert names_in(folder) == []
    await browser.close()
    async with asyncio.timeout(raw.SECONDS):
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)


async def test_close_is_not_stopped_by_a_cancelled_caller(gateway: Gateway, folder: Path) -> None:
    async with launched(gateway) as (browser, session):
        closing = asyncio.create_task(browser.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert processes.members(session) == []
        assert names_in(folder) == []


@pytest.mark.parametrize("milliseconds", [0, 1, 5, 20, 50, 90, 130])
async def test_a_cancelled_launch_leaves_nothing(
    gateway: Gateway, folder: Path, milliseconds: int
) -> None:
    """Cancelled at moments from the first to the last step of a launch."""
    launching = asyncio.create_task(launch_browser(gateway))
    await asyncio.wait([launching], timeout=milliseconds / 1000)
    started = processes.sessions()
    launching.cancel()
    await asyncio.wait([launching])
    if not launching.cancelled():
        await launching.result().close()
    await processes.all_gone([*started, *processes.sessions()], folder)
    assert names_in(folder) == []


async def test_chromium_gets_none_of_our_secrets(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "a-secret-of-ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-ours")
    with socket.create_server(("127.0.0.1", 0)) as ours, tempfile.TemporaryFile() as file:
        ours.set_inheritable(True)
        os.set_inheritable(file.fileno(), True)
        secret_files = {
            os.readlink(f"/proc/self/fd/{number}") for number in (ours.fileno(), file.fileno())
        }
        async with launched(gateway) as (_, session):
            looked_at = set()
            for process in processes.members(session):
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                    environment, open_files = _inherited(process.pid)
                    looked_at.add(processes.kind(process))
                    assert "a-secret-of-ours" not in environment
                    assert not secret_files & open_files
            assert {"guardian", "browser", "zygote"} <= looked_at


def _inherited(pid: int) -> tuple[str, set[str]]:
    """The environment and the open files of a process."""
    folder = Path(f"/proc/{pid}")
    opened = set()
    for entry in (folder / "fd").iterdir():
        with suppress(OSError):
            opened.add(os.readlink(entry))
    return (folder / "environ").read_text(errors="replace"), opened


async def test_the_browser_listens_nowhere(gateway: Gateway) -> None:
    """Other users of the machine, and pages, could control the browser through a DevTools port."""
    async with launched(gateway) as (_, session):
        members = processes.members(session)
        assert len(members) > 3
        sockets = []
        for process in members:
            with suppress(psutil.NoSuchProcess):  # it has ended since
                sockets += process.net_connections(kind="inet")
        assert [one.laddr for one in sockets if one.status == psutil.CONN_LISTEN] == []


def _program(folder: Path, script: str, *, mode: int = 0o755) -> str:
    path = folder / "browser"
    path.write_text(script)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("#!/bin/sh\necho no display >&2\nexit 3\n", r"exit status 3; no display$"),
        ("#!/bin/sh\nkill -SEGV $$\n", r"exit status 245; it printed nothing$"),
        ("#!/bin/sh\nexec sleep 60\n", r"not ready in 0\.5 s; it printed nothing$"),
        ("#!/bin/sh\ntrap '' TERM HUP\nsleep 60 &\nexec sleep 60\n", r"not ready in 0\.5 s"),
        ("#!/bin/sh\nsleep 60 &\nexit 0\n", r"exit status 0; it printed nothing$"),
        ("#!/bin/sh\nyes | tr -d '\\n' >&2\n", r"not ready in 2(\.0)? s; y+$"),
        ("#!/nonexistent/interpreter\n", r"exit status 127; .*No such file or directory$"),
        ("no program at all", r"exit status 127; .*Exec format error$"),
    ],
)
async def test_programs_that_are_no_browser(
    gateway: Gateway, folder: Path, tmp_path_factory: pytest.TempPathFactory, script: str, told: str
) -> None:
    program = _program(tmp_path_factory.mktemp("bin"), script)
    # Until it has printed something, if it does.
    limit = 2.0 if told.endswith("y+$") else 0.5 if "not ready" in told else 10.0
    launching = asyncio.create_task(
        Chromium.launch(program, gateway, sandbox=False, start_seconds=limit)
    )
    started: set[int] = set()
    while not launching.done():
        started |= set(processes.sessions())
        await asyncio.wait([launching], timeout=0.02)
    with pytest.raises(BrowserGone, match=told):
        await launching
    await processes.all_gone(started, folder)


_FULL_CHROME = """#!/usr/bin/env python3
import json, os
while asked := os.read(3, 65536):
    for text in asked.split(b"\\0")[:-1]:
        answer = {"id": json.loads(text)["id"], "result": {"product": "Chrome/156.0.8078.79"}}
        os.write(4, json.dumps(answer).encode() + b"\\0")
"""


async def test_a_full_chrome(gateway: Gateway, folder: Path) -> None:
    """It draws frames by itself, and ignores that frames are on request."""
    program = _program(folder, _FULL_CHROME)
    with pytest.raises(CannotStart, match=r"Chrome/156.* a full Chrome.* install chromium-head"):
        await Chromium.launch(program, gateway, sandbox=False)


async def test_a_program_that_cannot_be_started(
    gateway: Gateway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BrowserGone):
        await Chromium.launch("/nonexistent", gateway, sandbox=False)
    assert names_in(folder) == []
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    with pytest.raises(BrowserGone, match="cannot create a folder for"):
        await Chromium.launch(chromium.find(), gateway, sandbox=False)


def test_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _program(tmp_path, "", mode=0o644)
    for path in (plain, str(tmp_path), "/nonexistent/chromium", "no-such-program"):
        with pytest.raises(BrowserGone, match=r"\[browser\] path"):
            chromium.find(path)
    Path(plain).chmod(0o755)
    assert chromium.find(plain) == plain
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chromium.find("browser") == plain
    with pytest.raises(BrowserGone, match="no headless Chromium found: install chromium-"):
        chromium.find()
    (tmp_path / "google-chrome").symlink_to(plain)
    with pytest.raises(BrowserGone, match="no headless Chromium found"):
        chromium.find()
    for name in ("chrome-headless-shell", "chromium-headless-shell"):
        (tmp_path / name).symlink_to(plain)
        assert chromium.find() == str(tmp_path / name)


def test_the_sandbox_is_known_to_work_or_not() -> None:
    """It does not work as root. As another user, it works where the kernel lets unshare(1) create
    its namespaces.
    """
    if os.geteuid() == 0:
        assert chromium.sandbox_problem() == "it cannot run as root"
        return
    command = ["unshare", "--user", "--pid", "--fork", "--net", "true"]
    possible = subprocess.run(command, check=False, capture_output=True).returncode == 0
    assert (chromium.sandbox_problem() == "") == possible


def test_a_missing_sandbox_is_logged_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(chromium, "_TRY_NAMESPACES", "raise SystemExit(1)")
    assert not defaults.sandbox(settings_for("http://127.0.0.1:9"), serves=True)
    (line,) = [record.msg for record in caplog.records if "sandbox_unavailable" in str(record.msg)]
    assert isinstance(line, dict)
    assert line["reason"] == "the kernel or container does not allow unprivileged user namespaces"
    assert "seccomp" in line["remedy"]


@pytest.mark.skipif(not chromium.sandbox_problem(), reason="the sandbox works here")
async def test_a_sandbox_that_is_required_but_does_not_work() -> None:
    with pytest.raises(ConfigError, match=r"^\[browser\] sandbox: \"on\", but (it|the kernel) "):
        async with proxied(web.Application(), {"browser": {"sandbox": "on"}}):
            pass


DEATHS = {
    "browser": r"exit status|connection lost|process died",
    "wrapper": r"exit status|connection lost|process died",
    "guardian": r"exit status -9",
}


@pytest.mark.parametrize("victim", DEATHS)
async def test_a_killed_browser_is_noticed(gateway: Gateway, folder: Path, victim: str) -> None:
    async with launched(gateway) as (browser, session):
        if not processes.of_kind(session, victim):
            pytest.skip(f"this browser has no {victim}")
        gone = asyncio.create_task(browser.gone())
        processes.kill(session, victim)
        async with asyncio.timeout(raw.SECONDS):
            assert re.search(DEATHS[victim], await gone)
        started = time.monotonic()
        await browser.close()
        assert time.monotonic() - started < guardian.TERM_SECONDS + guardian.KILL_SECONDS / 2
        assert processes.members(session) == []
        assert names_in(folder) == []


async def test_a_stopped_browser_is_noticed(gateway: Gateway, folder: Path) -> None:
    async with launched(gateway) as (browser, session):
        (process,) = processes.of_kind(session, "browser")
        os.kill(process.pid, signal.SIGSTOP)
        waiting = browser.devtools.call("Target.getTargets", 60.0)
        async with asyncio.timeout(10):
            # It is killed, because nothing would resume it. Its children die with it, in any order.
            reason = await browser.gone()
            assert re.fullmatch(
                "no answer|connection lost|exit status .*|its .* process died", reason
            )
        started = time.monotonic()
        with pytest.raises(BrowserGone):
            await waiting
        await browser.close()
        assert time.monotonic() - started < guardian.TERM_SECONDS + guardian.KILL_SECONDS / 2
        assert processes.members(session) == []
        assert names_in(folder) == []


SILENT = f"""#!{sys.executable} -IS
import json, os, time
received = b""
for answer in {{"product": "HeadlessChrome/1"}}, {{}}, {{"targetInfos": []}}:
    while b"\\0" not in received:
        received += os.read(3, 9999)
    command, _, received = received.partition(b"\\0")
    message = {{"id": json.loads(command)["id"], "result": answer}}
    os.write(4, json.dumps(message).encode() + b"\\0")
"""


@pytest.mark.parametrize(("goes_on", "least"), [("time.sleep(60)", 0.0), ("while True: pass", 1.0)])
async def test_a_silent_browser_has_more_time_while_it_is_busy(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: str, least: float
) -> None:
    monkeypatch.setattr(chromium, "_PROBE_SECONDS", 0.1)
    monkeypatch.setattr(chromium, "_BUSY_SECONDS", least or 60.0)
    program = _program(tmp_path, SILENT + goes_on)
    browser = await Chromium.launch(program, gateway, sandbox=False)
    try:
        started = time.monotonic()
        async with asyncio.timeout(raw.SECONDS):
            assert await browser.gone() == "no answer"
        assert time.monotonic() - started >= least
    finally:
        await browser.close()


async def test_a_stopped_guardian_is_ended_too(
    gateway: Gateway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chromium, "_GUARDIAN_SECONDS", 0.2)
    async with launched(gateway) as (browser, session):
        os.kill(session, signal.SIGSTOP)
        await browser.close()
        assert processes.members(session) == []
        assert names_in(folder) == []


# The contract with Chromium.


_REMOVED = """
import os, sys
from prerender.browser import guardian
def told(event, arguments):
    if event == "os.remove": print(os.path.basename(arguments[0]))
sys.addaudithook(told)
guardian.remove(sys.argv[1])
"""


def test_the_lock_of_a_profile_is_removed_last(tmp_path: Path) -> None:
    """Otherwise the next start would not know an incompletely removed profile."""
    profile = tmp_path / "profile"
    (profile / "folder").mkdir(parents=True)
    names = [guardian.LOCK, "folder/inner", "zzz", "aaa"]
    for name in names:
        (profile / name).touch()
    (profile / "link").symlink_to(tmp_path)
    removed = in_(ROOT, sys.executable, "-c", _REMOVED, str(profile)).split()
    assert sorted(removed) == sorted([guardian.LOCK, "inner", "zzz", "aaa", "link"])
    assert removed[-1] == guardian.LOCK
    assert not profile.exists()
    assert tmp_path.exists()


_IMPORTED = """
import sys
sys.path.append(sys.argv[1])
from prerender.browser import guardian
print(*sys.modules)
"""


def test_the_guardian_imports_little() -> None:
    """It starts with every browser, so each module costs time and memory."""
    imported = set(in_(ROOT, sys.executable, "-I", "-S", "-c", _IMPORTED, str(ROOT)).split())
    assert {name for name in imported if name.startswith("prerender.")} == {
        "prerender.browser",
        *(f"prerender.browser.{name}" for name in ("guardian", "memory_limit", "proc")),
    }
    assert not imported & {"asyncio", "dataclasses", "inspect", "pathlib", "subprocess", "typing"}
