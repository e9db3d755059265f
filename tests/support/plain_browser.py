"""An unmodified Chromium: without the proxy's flags, gateway, scripts and virtual time."""

import asyncio
import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from prerender.browser import chromium
from prerender.browser.devtools import DevTools

START_SECONDS = 30.0


@asynccontextmanager
async def plain_browser(*flags: str) -> AsyncIterator[DevTools]:
    """Start one. At the end, stop all its processes."""
    ours, its = socket.socketpair()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", 'exec "$@" 3<&0 4<&0 </dev/null', "sh", chromium.find()),
            *("--headless", "--no-sandbox", "--no-first-run", "--remote-debugging-pipe"),
            *(f"--user-data-dir={folder}", *flags),
            stdin=its.fileno(),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        its.close()
        devtools = await DevTools.over(ours)
        try:
            await devtools.call("Browser.getVersion", START_SECONDS)
            yield devtools
        finally:
            await devtools.close()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
