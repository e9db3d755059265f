"""A browser of the tests' own, for what people use: it clicks, types, reads, takes pictures."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from prerender.rendering.devtools import Session
from tests.plain_browser import plain_browser

_SECONDS = 20.0


class Tab:
    """A window. ``complaints``: what was logged or thrown; ``asked``: the URLs it asked for."""

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
        """Set the size of the window, and whether the system is dark."""
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

    async def run(self, expression: str) -> Any:
        """The value of an expression; promises are awaited."""
        return await self.session.evaluate(expression, awaitPromise=True)

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true; its value."""
        wanted = (
            f"(() => {{ try {{ const value = {expression}; "
            "return value instanceof Node ? true : value } catch {} })()"
        )
        async with asyncio.timeout(_SECONDS):
            while not (value := await self.run(wanted)):
                await asyncio.sleep(0.05)
            return value

    async def sees(self, text: str, within: str = "body") -> None:
        """Wait until a text is shown."""
        where = json.dumps(within)
        try:
            await self.until(
                f"document.querySelector({where}).innerText.includes({json.dumps(text)})"
            )
        except TimeoutError:
            shown = await self.run(f"document.querySelector({where})?.innerText")
            raise AssertionError(f"{text!r} is not shown, but {shown!r}") from None

    async def click(self, selector: str, text: str = "") -> None:
        """Click on what has a selector, and a text if one is given, where a person would click."""
        found = (
            f"[...document.querySelectorAll({json.dumps(selector)})].find("
            f"(one) => one.textContent.includes({json.dumps(text)}) && one.getClientRects().length"
            " && !one.disabled)"
        )
        box = await self.until(
            f"(() => {{ const one = {found}; one.scrollIntoView({{ block: 'center' }}); "
            "const box = one.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.session.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box[0],
                y=box[1],
                button="left",
                clickCount=1,
            )

    async def type(self, text: str) -> None:
        """Type a text where the focus is."""
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
        """Take a picture, of the whole page or of what is in the window."""
        found = await self.session.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=whole
        )
        await asyncio.to_thread(file.write_bytes, base64.b64decode(found["data"]))


@asynccontextmanager
async def browsing() -> AsyncIterator[Tab]:
    """A browser with one tab."""
    async with plain_browser("--disable-dev-shm-usage", "--hide-scrollbars") as devtools:
        target = await devtools.call("Target.createTarget", url="about:blank")
        session = await devtools.attach(target["targetId"])
        tab = Tab(session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await session.call(f"{domain}.enable")
        # As if a person had it in front.
        await session.call("Emulation.setFocusEmulationEnabled", enabled=True)
        await tab.shape(1280, 900)
        yield tab
