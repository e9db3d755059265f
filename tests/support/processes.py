"""The processes of a browser, as the kernel sees them.

A guardian and everything below it are one session, so nothing that escapes its parent is overlooked.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from prerender.browser import guardian
from prerender.browser.processes import kind_of
from tests.support.prestarted import Forked

SECONDS = 20.0


def sessions(parent: int | None = None) -> list[int]:
    """The sessions of all browsers that a process (by default this one) has started."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(parent).children()
        return [child.pid for child in children if guardian.family_of(command(child))]
    return []


def members(session: int) -> list[psutil.Process]:
    """The living processes of a session."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kind(process: psutil.Process) -> str:
    """The role of a process in a browser's session."""
    return kind_of(command(process))


def of_kind(session: int, wanted: str) -> list[psutil.Process]:
    """The processes of a session with the role ``wanted``."""
    found = []
    for process in members(session):
        with suppress(psutil.Error):
            if kind(process) == wanted and not _is_fork_of_browser(process):
                found.append(process)
    return found


def _is_fork_of_browser(process: psutil.Process) -> bool:
    """Whether it still has the browser's command line, and will soon execute another program."""
    parent = process.parent()
    return kind(process) == "browser" and parent is not None and kind(parent) == "browser"


class CpuWait:
    """How long this process and its browsers wait for a CPU from now on: the kernel's run delays.

    Those of threads that have ended are not known, so they do not count.
    """

    def __init__(self) -> None:
        self._before = _run_delays()

    @property
    def seconds(self) -> float:
        """The sum of all threads; 0 if the kernel does not keep it."""
        return sum(now - self._before.get(file, 0) for file, now in _run_delays().items()) / 1e9


def _run_delays() -> dict[Path, int]:
    """Nanoseconds by thread."""
    delays = {}
    browsers = [process for session in sessions() for process in members(session)]
    for process in [psutil.Process(), *browsers]:
        with suppress(OSError):  # it has ended since
            for file in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
                with suppress(OSError):
                    delays[file] = int(file.read_text("ascii").split()[1])
    return delays


class ServerProcess:
    """A server process; ``start`` of a subclass sets it."""

    _process: asyncio.subprocess.Process | Forked | None = None

    def signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None and self._process.returncode is None:
            self.signal(signal.SIGKILL)
            await self._process.wait()


class Stopwatch:
    """Seconds since its start, without those in which this process waited for a CPU."""

    def __init__(self) -> None:
        self._started, self._wait = time.monotonic(), CpuWait()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started - self._wait.seconds


def kill(session: int, wanted: str) -> None:
    """kill -9 all processes of a kind; there has to be one."""
    victims = of_kind(session, wanted)
    assert victims, f"no {wanted} among {[kind(process) for process in members(session)]}"
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)


async def all_gone(ended: Iterable[int], *folders: Path, seconds: float = SECONDS) -> None:
    """Wait until no process of some sessions, and no file of a browser in some folders, is left."""
    left: object = None
    try:
        async with asyncio.timeout(seconds):
            while left := [
                *(process for session in ended for process in members(session)),
                *(path for folder in folders for path in folder.glob("prerender-*")),
            ]:
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"still there: {left}") from None


def command(process: psutil.Process) -> list[str]:
    """The command line of a process; empty if it has ended."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


@asynccontextmanager
async def busy_loops(count: int) -> AsyncIterator[None]:
    """Processes that each keep a CPU busy."""
    loops = [
        await asyncio.create_subprocess_exec("sh", "-c", "while :; do :; done")
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            await loop.wait()
