"""Ctrl-C at a terminal ends every long command at once, quietly and completely."""

import asyncio
import os
import tempfile
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from tests.conftest import StartOrigin
from tests.support.programs import at_terminal

PAGE = "<!DOCTYPE html><title>Page</title><script>fetch('/never')</script><a href='#!/a'>a</a>"


@pytest.mark.parametrize(
    "command",
    [
        ["check", "URL"],
        ["warm", "URL", "--follow", "1"],
        ["export", "URL", "--to", "DIR"],
        ["sitemap", "URL"],
        ["render", "URL"],
        ["doctor"],
    ],
    ids=lambda command: command[0],
)
async def test_an_interruption(
    start_origin: StartOrigin, tmp_path: Path, command: list[str]
) -> None:
    hangs, never = asyncio.Event(), asyncio.Event()
    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        # The first answers let a command begin; what it does then never ends.
        if asked > 1 or command[0] in ("doctor", "render"):
            hangs.set()
            await never.wait()
        return web.Response(text=PAGE, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    origin = await start_origin(application)
    words = {"URL": f"{origin.url}/#!", "DIR": str(tmp_path / "export")}
    if command[0] == "export":
        asked = 1
    with tempfile.TemporaryDirectory() as folder:
        environ = {
            "TMPDIR": folder,
            "PRERENDER_ORIGIN": origin.url,
            "PRERENDER_SERVER_PORT": "0",
            "PRERENDER_ADMIN_PORT": "0",
        }
        arguments = [words.get(word, word) for word in command]
        async with at_terminal(*arguments, environ=environ) as terminal:
            async with asyncio.timeout(30):
                await hangs.wait()
            children = psutil.Process(terminal.process.pid).children(recursive=True)
            terminal.press(b"\x03")
            assert await terminal.rest() == 130
        never.set()
        assert b"Traceback" not in terminal.shown, terminal.shown
        _, alive = await asyncio.to_thread(psutil.wait_procs, children, 10)
        assert alive == []
        assert os.listdir(folder) == []
