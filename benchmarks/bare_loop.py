"""The baselines: the same Chromium, driven by a bare loop without a proxy.

Its pages are reused without cleaning; nothing is isolated, checked or stored; and the page itself
signals when it is complete. It is not usable for crawlers, but nothing can be faster. One baseline
draws frames like a browser, the other draws none.
"""

import asyncio
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from prerender.browser import chromium

# Waits for the text of #out, and returns the page.
_WHEN_FINISHED = """new Promise((resolve) => {
  const html = () => "<!DOCTYPE html>" + document.documentElement.outerHTML;
  const out = document.getElementById("out");
  if (out.textContent) return resolve(html());
  new MutationObserver(() => resolve(html())).observe(out, {childList: true});
})"""


class BareLoop:
    """A pool of pages of one Chromium, with hand-written DevTools messages."""

    def __init__(
        self, socket: ClientWebSocketResponse, site: str, pid: int, *, frames: bool
    ) -> None:
        self.pid = pid
        self._frames = frames
        self._socket = socket
        self._site = site
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._loads: dict[str, asyncio.Future[None]] = {}
        self._free: asyncio.Queue[str] = asyncio.Queue()

    @classmethod
    @asynccontextmanager
    async def running(
        cls, site: str, pages: int, *, frames: bool = True
    ) -> AsyncIterator["BareLoop"]:
        """Run Chromium with this many pages. ``frames``: it draws frames by itself."""
        profile = Path(tempfile.mkdtemp())
        # The same flags, except those of the connection and of frames on demand.
        other = ("--remote-debugging", *(chromium.FRAME_FLAGS if frames else ()))
        flags = [flag for flag in chromium._FLAGS if not flag.startswith(other)]
        flags.append("--remote-debugging-port=0")
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        process = await asyncio.create_subprocess_exec(
            *(chromium.find(), *flags, f"--user-data-dir={profile}", "about:blank"),
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(ClientSession())
                socket = await stack.enter_async_context(
                    client.ws_connect(await _address(profile), max_msg_size=0)
                )
                loop = cls(socket, site, process.pid, frames=frames)
                reader = asyncio.create_task(loop._read())
                stack.callback(reader.cancel)
                for _ in range(pages):
                    await loop._open_page()
                yield loop
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            shutil.rmtree(profile, ignore_errors=True)

    async def html(self, path: str) -> str:
        """Render when a page is free."""
        session = await self._free.get()
        try:
            loaded = self._loads[session] = asyncio.get_running_loop().create_future()
            await self._call("Page.navigate", session, url=self._site + path)
            await loaded
            result = await self._call(
                "Runtime.evaluate", session,
                expression=_WHEN_FINISHED, awaitPromise=True, returnByValue=True,
            )  # fmt: skip
            return str(result["result"]["value"])
        finally:
            self._free.put_nowait(session)

    async def _open_page(self) -> None:
        context = (await self._call("Target.createBrowserContext"))["browserContextId"]
        target = await self._call(
            "Target.createTarget",
            url="about:blank",
            browserContextId=context,
            enableBeginFrameControl=not self._frames,
        )
        attached = await self._call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        await self._call("Page.enable", attached["sessionId"])
        self._free.put_nowait(attached["sessionId"])

    async def _call(self, method: str, session: str = "", **params: Any) -> Any:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(message)
        return await answer

    async def _read(self) -> None:
        async for message in self._socket:
            content = message.json()
            if "id" in content:
                self._waiting.pop(content["id"]).set_result(content.get("result", content))
            elif content["method"] == "Page.domContentEventFired":
                loaded = self._loads.get(content["sessionId"])
                if loaded is not None and not loaded.done():
                    loaded.set_result(None)


async def _address(profile: Path) -> str:
    """Wait until Chromium listens, and return its address."""
    file = profile / "DevToolsActivePort"
    async with asyncio.timeout(30):
        while not file.exists() or len(lines := file.read_text("ascii").splitlines()) < 2:
            await asyncio.sleep(0.01)
    return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
