"""``prerender`` as a program: its output, its exit status and its terminal."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tests.support.prestarted import Forked, fork

Program = Process | Forked
# Chromium sometimes dies of SIGSEGV at its start (once in some hundred starts), and is started again.
_STARTED_AGAIN = re.compile(r"^.* browser_start_failed .*exit status 139.*\n", re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    """The output and exit status of a program."""

    status: int
    out: bytes
    err: str


@asynccontextmanager
async def started(
    *arguments: str,
    environ: dict[str, str] | None = None,
    stdout: int = PIPE,
    stderr: int = PIPE,
    stdin: bytes | None = None,
) -> AsyncIterator[Forked]:
    """``prerender`` with these arguments and a clean environment; killed at the end."""
    with tempfile.TemporaryFile() as given:
        given.write(stdin or b"")
        given.seek(0)
        streams = (given.fileno(), stdout, stderr)
        process = await fork(arguments, _environment(environ), streams, terminal=False)
    async with _gone_at_the_end(process):
        yield process


@asynccontextmanager
async def newly_started(
    *arguments: str, environ: dict[str, str] | None = None
) -> AsyncIterator[Process]:
    """The same in a new interpreter, including its imports."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prerender", *arguments),
        env=_environment(environ),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    async with _gone_at_the_end(process):
        yield process


@asynccontextmanager
async def _gone_at_the_end(process: Program) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _environment(environ: dict[str, str] | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PRERENDER_")}
    # A page of a browser takes a third of a second of CPU time to start.
    return kept | {"PRERENDER_BROWSER_PAGES": "1"} | (environ or {})


async def ended(process: Program) -> Ended:
    """Wait for its end. Returns what it left."""
    async with asyncio.timeout(60):
        out, err = await asyncio.gather(
            *(
                stream.read() if stream else _nothing()
                for stream in (process.stdout, process.stderr)
            )
        )
        return Ended(await process.wait(), out, _STARTED_AGAIN.sub("", err.decode()))


async def _nothing() -> bytes:
    return b""


async def run(
    *arguments: str,
    environ: dict[str, str] | None = None,
    stdout: int = PIPE,
    stdin: bytes | None = None,
) -> Ended:
    """Run ``prerender`` with these arguments to its end."""
    async with started(*arguments, environ=environ, stdout=stdout, stdin=stdin) as process:
        return await ended(process)


@dataclass
class Terminal:
    """The other end of a program's terminal: its screen and its keyboard."""

    process: Forked
    _side: int
    shown: bytes = b""

    async def until(self, pattern: bytes) -> None:
        """Wait until it has shown a text."""
        async with asyncio.timeout(30):
            while not re.search(pattern, self.shown):
                self.shown += await asyncio.to_thread(os.read, self._side, 65536)

    def press(self, keys: bytes) -> None:
        os.write(self._side, keys)

    async def rest(self) -> int:
        """Wait for its exit status."""
        async with asyncio.timeout(30):
            with suppress(OSError):  # EIO: the other end is closed
                while part := await asyncio.to_thread(os.read, self._side, 65536):
                    self.shown += part
            return await self.process.wait()


@asynccontextmanager
async def at_terminal(
    *arguments: str, environ: dict[str, str] | None = None, columns: int = 100
) -> AsyncIterator[Terminal]:
    """``prerender`` at its own terminal, where Ctrl-C sends SIGINT."""
    side, terminal = pty.openpty()
    fcntl.ioctl(
        terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0)
    )
    process = await fork(arguments, _environment(environ), (terminal,) * 3, terminal=True)
    os.close(terminal)
    try:
        async with _gone_at_the_end(process):
            yield Terminal(process, side)
    finally:
        os.close(side)
