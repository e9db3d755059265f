"""``prerender`` as the program that people start: what it prints, where, and how it ends."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

# As root there would be a warning that the sandbox is off.
QUIET = {"PRERENDER_BROWSER_SANDBOX": "off"} if os.geteuid() == 0 else {}


@dataclass(frozen=True)
class Ended:
    """What a program left behind."""

    status: int
    out: bytes
    err: str


@asynccontextmanager
async def started(
    *arguments: str,
    environ: dict[str, str] | None = None,
    stdout: int = PIPE,
    stderr: int = PIPE,
    stdin: int = DEVNULL,
) -> AsyncIterator[Process]:
    """``prerender`` with these arguments and a clean environment, gone at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prerender", *arguments),
        env=_environment(environ),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _environment(environ: dict[str, str] | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PRERENDER_")}
    return kept | QUIET | (environ or {})


async def ended(process: Process, stdin: bytes | None = None) -> Ended:
    async with asyncio.timeout(60):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return Ended(process.returncode, out or b"", err.decode())


async def run(
    *arguments: str,
    environ: dict[str, str] | None = None,
    stdout: int = PIPE,
    stdin: bytes | None = None,
) -> Ended:
    async with started(
        *arguments, environ=environ, stdout=stdout, stdin=DEVNULL if stdin is None else PIPE
    ) as process:
        return await ended(process, stdin)


@dataclass
class Terminal:
    """The other side of a terminal at which a program runs: what it shows, and its keyboard."""

    process: Process
    _side: int
    shown: bytes = b""

    async def until(self, pattern: bytes) -> None:
        """Wait until it has shown something."""
        async with asyncio.timeout(30):
            while not re.search(pattern, self.shown):
                self.shown += await asyncio.to_thread(os.read, self._side, 65536)

    def press(self, keys: bytes) -> None:
        os.write(self._side, keys)

    async def rest(self) -> int:
        """Its exit status, when it has ended."""
        async with asyncio.timeout(30):
            with suppress(OSError):  # EIO: nobody is at the other side any more
                while part := await asyncio.to_thread(os.read, self._side, 65536):
                    self.shown += part
            return await self.process.wait()


@asynccontextmanager
async def at_terminal(
    *arguments: str, environ: dict[str, str] | None = None, columns: int = 100
) -> AsyncIterator[Terminal]:
    """``prerender`` at a terminal of its own, where Ctrl-C is SIGINT."""
    side, terminal = pty.openpty()
    fcntl.ioctl(
        terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24 if columns else 0, columns, 0, 0)
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prerender", *arguments),
        env=_environment(environ),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        preexec_fn=partial(_take, terminal),
    )
    os.close(terminal)
    try:
        yield Terminal(process, side)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(side)


def _take(terminal: int) -> None:
    """Make it the terminal of a new session, as login does."""
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
