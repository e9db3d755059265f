"""``prerender`` as the program that people start: what it prints, where, and how it ends."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

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
) -> AsyncIterator[Process]:
    """``prerender`` with these arguments and a clean environment, gone at the end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PRERENDER_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prerender", *arguments),
        env=kept | QUIET | (environ or {}),
        stdin=DEVNULL,
        stdout=stdout,
        stderr=stderr,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ended(process: Process) -> Ended:
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out or b"", err.decode())


async def run(*arguments: str, environ: dict[str, str] | None = None, stdout: int = PIPE) -> Ended:
    async with started(*arguments, environ=environ, stdout=stdout) as process:
        return await ended(process)
