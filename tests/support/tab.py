"""A browser for tests of what visitors use: it clicks, types, reads, and takes screenshots."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from prerender.browser.devtools import CommandFailed, DevTools, Session
from tests.support.plain_browser import plain_browser

_SECONDS = 60.0
# Where the middle of an element is, once it is in the window.
_TO_CLICK = """(() => {{
  const one = {found};
  one.scrollIntoView({{ block: "center", behavior: "instant" }});
  const box = one.getBoundingClientRect();
  const place = [box.x + box.width / 2, box.y + box.height / 2];
  if (!one.contains(document.elementFromPoint(...place))) return null;
  globalThis.isClicked = false;
  const clicked = () => {{ globalThis.isClicked = true; }};
  one.addEventListener("click", clicked, {{ once: true, capture: true }});
  return place;
}})()"""


class Tab:
    """A window. ``complaints``: console messages and errors; ``asked``: the URLs it requested."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.complaints: list[str] = []
        self.asked: list[str] = []
        session.on("Runtime.exceptionThrown", self._thrown)
        session.on("Log.entryAdded", self._logged)
        session.on("Network.requestWillBeSent", lambda p: self.asked.append(p["request"]["url"]))

    def _thrown(self, params: dict[str, Any]) -> None:
        details = params["exceptionDetails"]
        self.complaints.append(details.get("exception", {}).get("description", details["text"]))

    def _logged(self, params: dict[str, Any]) -> None:
        entry = params["entry"]
        if entry["level"] in ("error", "warning"):
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}")

    async def shape(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window, and whether the system uses dark mode."""
        await self.session.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.session.call("Emulation.setEmulatedMedia", features=[scheme])

    async def go(self, url: str) -> None:
        """Open a URL."""
        await self.session.call("Page.navigate", url=url)

    async def reload(self) -> None:
        """Load the URL again, and wait for the new document."""
        loaded = self.session.future("a page that was loaded again")

        def done(_: dict[str, Any]) -> None:
            if not loaded.done():
                loaded.set_result(None)

        self.session.on("Page.loadEventFired", done)
        try:
            async with asyncio.timeout(_SECONDS):
                await self.session.call("Page.reload")
                await loaded
        finally:
            self.session.remove_listener("Page.loadEventFired", done)

    async def run(self, expression: str) -> Any:
        """The value of an expression; promises are awaited."""
        return await self.session.evaluate(expression, awaitPromise=True)

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true. Returns its value."""
        wanted = (
            f"(() => {{ try {{ const value = {expression}; "
            "return value instanceof Node ? true : value } catch {} })()"
        )
        pause = 0.02
        try:
            async with asyncio.timeout(_SECONDS):
                while True:
                    with suppress(CommandFailed):  # between two documents there is nothing to ask
                        if value := await self.run(wanted):
                            return value
                    # To read the text of a page costs it a layout.
                    await asyncio.sleep(pause)
                    pause = min(1.5 * pause, 0.25)
        except TimeoutError:
            shown = await self.run("[location.href, document.body?.innerText]")
            raise AssertionError(f"{expression} does not come true; shown is {shown}") from None

    async def sees(self, text: str, within: str = "body") -> None:
        """Wait until a text is visible."""
        where = json.dumps(within)
        await self.until(f"document.querySelector({where}).innerText.includes({json.dumps(text)})")

    async def click(self, selector: str, text: str = "") -> None:
        """Click on the element with a selector and, if given, a text."""
        found = (
            f"[...document.querySelectorAll({json.dumps(selector)})].find("
            f"(one) => one.textContent.includes({json.dumps(text)}) && one.getClientRects().length"
            " && !one.disabled)"
        )
        async with asyncio.timeout(_SECONDS):
            # What has moved away or been replaced meanwhile has not been clicked on.
            while not await self._clicked(await self.until(_TO_CLICK.format(found=found))):
                pass

    async def _clicked(self, place: list[float]) -> bool:
        for kind in ("mousePressed", "mouseReleased"):
            await self.session.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )
        try:
            return await self.run("globalThis.isClicked") is not False
        except CommandFailed:
            return True  # it led to another document

    async def type(self, text: str) -> None:
        """Type a text into the focused element."""
        await self.session.call("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """Press a key, such as Tab or Enter."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        more = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.session.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=codes[key], **(more if kind == "keyDown" else {}),
            )  # fmt: skip

    async def picture(self, file: Path, *, whole: bool = True) -> None:
        """Take a screenshot of the window or of the whole page."""
        found = await self.session.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=whole
        )
        await asyncio.to_thread(file.write_bytes, base64.b64decode(found["data"]))


@asynccontextmanager
async def persons_browser() -> AsyncIterator[DevTools]:
    """A browser for many tabs."""
    flags = (
        *("--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"),
        # Processes and pages that no test uses cost CPU time.
        "--disable-features=BackForwardCache,SpareRendererForSitePerProcess",
    )
    async with plain_browser(*flags) as devtools:
        yield devtools


@asynccontextmanager
async def browsing(devtools: DevTools) -> AsyncIterator[Tab]:
    """A tab in its own profile."""
    context = (await devtools.call("Target.createBrowserContext"))["browserContextId"]
    try:
        target = await devtools.call(
            "Target.createTarget", url="about:blank", browserContextId=context
        )
        session = await devtools.attach(target["targetId"])
        tab = Tab(session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await session.call(f"{domain}.enable")
        # As if a person had it in front.
        await session.call("Emulation.setFocusEmulationEnabled", enabled=True)
        await tab.shape(1280, 900)
        yield tab
    finally:
        await devtools.call("Target.disposeBrowserContext", browserContextId=context)
