"""Runs programs: to their end, or until the test is over."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import ClientConnectionError, ClientSession

ROOT = Path(__file__).parents[2]
SITES = ROOT / "tests" / "sites"
# Debian keeps servers in sbin, out of an ordinary user's PATH.
SEARCHED = f"{os.environ.get('PATH', '')}:/usr/sbin"


def in_(folder: Path, *command: str | Path, seconds: float = 60) -> str:
    """The output of a command that is run in a folder and must succeed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def answered(client: ClientSession, url: str) -> None:
    """Wait until a URL responds."""
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
    """A program in its own session, interrupted at the end as by Ctrl-C."""
    options = {"stdin": asyncio.subprocess.DEVNULL} | options
    process = await asyncio.create_subprocess_exec(*command, start_new_session=True, **options)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        async with asyncio.timeout(30):
            await process.wait()
