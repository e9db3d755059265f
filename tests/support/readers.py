"""A reader without scripts: what an unmodified browser shows and announces of a snapshot."""

import asyncio
from pathlib import Path

from prerender.browser.devtools import DevTools, Session
from prerender.content.accessibility import announced

SHOWN = (Path(__file__).parent.parent / "sites/wild/shown.js").read_text("utf-8")
_SECONDS = 30.0


class Reader:
    """A page of a browser, without scripts. ``site``: the URL that relative URLs refer to."""

    def __init__(self, browser: DevTools, site: str = "") -> None:
        self.site = site
        self._browser = browser
        self._page: Session | None = None
        self._turn = asyncio.Lock()

    async def read(self, html: str) -> tuple[list[str], list[str]]:
        """What is visible of a document (shown.js), and what a screen reader announces."""
        async with self._turn, asyncio.timeout(_SECONDS):
            page = await self._opened()
            loaded = page.expect("Page.loadEventFired")
            frame = await page.call("Page.navigate", url=f"{self.site}/empty.js")
            await loaded
            loaded = page.expect("Page.loadEventFired")
            await page.call("Page.setDocumentContent", frameId=frame["frameId"], html=html)
            await loaded
            shown: list[str] = await page.evaluate(SHOWN)
            tree = await page.call("Accessibility.getFullAXTree")
        return shown, [str(one) for one in announced(tree["nodes"])]

    async def _opened(self) -> Session:
        if self._page is None:
            target = await self._browser.call("Target.createTarget", url="about:blank")
            self._page = page = await self._browser.attach(target["targetId"])
            await page.call("Page.enable")
            await page.call("Emulation.setScriptExecutionDisabled", value=True)
        return self._page
