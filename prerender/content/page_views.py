"""What people, screen readers and crawlers get of a page in the browser, which a pool lends."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from prerender.browser.emulation import window_of
from prerender.browser.page import Page
from prerender.browser.settling.decision import SHOWN_MS
from prerender.config.settings import RenderSettings
from prerender.content.accessibility import Announcement, announced
from prerender.errors import RenderError, RenderTimeout
from prerender.gateway.document import PAGE_STATUSES
from prerender.gateway.visit import Visit
from prerender.snapshots.variants import ORDINARY, Variant

# Of a screenshot, in CSS pixels.
_HIGHEST = 6000
_STATUS_AND_TEXT = """[
  performance.getEntriesByType("navigation")[0]?.responseStatus ?? 0,
  document.body ? document.body.innerText.slice(0, 200000) : "",
]"""
_READ = (files("prerender.content") / "visible_text.js").read_text("utf-8")


class Removed(NamedTuple):
    """An element that a selector of [snapshot] remove matches, and the beginning of its text."""

    selector: str
    text: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a visitor sees of a page: its texts, whether each is visible, and its links.

    ``removed``: elements that snapshots lack ([snapshot] remove), which are not in ``texts``.
    """

    url: str
    title: str
    texts: tuple[tuple[str, bool], ...]
    links: tuple[str, ...]
    removed: tuple[Removed, ...] = ()


@dataclass(frozen=True, slots=True)
class Screenshot:
    """A screenshot: a PNG, the visible text, and what a screen reader announces.

    ``removed``: elements that the snapshot lacks ([snapshot] remove).
    """

    png: bytes
    text: str
    announced: tuple[Announcement, ...] = ()
    removed: tuple[Removed, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The approximate size in memory."""
        return len(self.png) + 4 * len(self.text) + 500 * len(self.announced)


async def look(
    page: Page,
    url: str,
    visit: Visit,
    limits: RenderSettings,
    *,
    scripts: bool,
    height: int = 0,
    variant: Variant = ORDINARY,
    remove: Sequence[str] = (),
) -> Screenshot:
    """Open ``url`` and take a screenshot. The caller sets a timeout, and the page is not used again.

    Without ``scripts``, none of the page's run. ``height`` in CSS pixels; 0: the height of the page.
    ``remove``: selectors of elements to be listed. Raises RenderError.
    """
    page.broken = True
    window = window_of(variant)
    async with page.lent(url, visit, limits, scripts=scripts, variant=variant) as tab:
        metrics = await tab.session.call("Page.getLayoutMetrics")
        height = height or int(metrics["cssContentSize"]["height"])
        height = min(max(height, window.height // 4), _HIGHEST)
        # A window of the screenshot's height, so that lazy content loads.
        await page.resize(window, height)
        await tab.frames.make(drawn=True)
        await (await page.clock.start(SHOWN_MS, wait_for_network=True))
        picture = await tab.frames.picture()
        status, text = await tab.session.evaluate(_STATUS_AND_TEXT, contextId=await page.world())
        if status not in PAGE_STATUSES:
            raise RenderError(f"shows a document with status {status}", about=url)
        removed = (await read(page, remove)).removed if remove else ()
        return Screenshot(picture, str(text), await announcements(page), removed)


async def listen(
    page: Page, url: str, visit: Visit, limits: RenderSettings, *, timeout: float
) -> tuple[Announcement, ...]:
    """Open ``url`` without the page's scripts, and return what a screen reader announces.

    Raises RenderTimeout after ``timeout`` seconds, and RenderError.
    """
    try:
        async with (
            asyncio.timeout(timeout),
            page.lent(url, visit, limits, scripts=False),
        ):
            return await announcements(page)
    except TimeoutError:
        raise RenderTimeout("the page does not settle", about=url) from None


async def announcements(page: Page) -> tuple[Announcement, ...]:
    """What a screen reader announces on the current page. Raises RenderError."""
    tree = await page.tab.session.call("Accessibility.getFullAXTree")
    return announced(tree["nodes"])


async def read(page: Page, remove: Sequence[str] = ()) -> Seen:
    """The texts of the page after a render, without elements that the selectors ``remove`` match.

    Raises RenderError.
    """
    content = await page.tab.session.evaluate(
        f"{_READ}({json.dumps(remove)})", contextId=await page.world()
    )
    texts = tuple((text, shown) for text, shown in content["texts"])
    removed = tuple(Removed(selector, text) for selector, text in content["removed"])
    return Seen(content["url"], content["title"], texts, tuple(content["links"]), removed)
