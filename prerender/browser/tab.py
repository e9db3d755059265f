"""A tab of the browser, for one page.

A kept tab would take a quarter less CPU time for a small page. But its next page could observe its past
in more ways than can be hidden, and the last page goes on in it while the next one arrives.
"""

import time
from asyncio import Future, gather
from contextlib import suppress
from typing import Any

from prerender.browser import probe
from prerender.browser.browser_context import BLANK, Context
from prerender.browser.devtools import Params, Session, ignore_failure
from prerender.browser.emulation import user_agent_override
from prerender.browser.frame_drawing import FrameDrawing
from prerender.errors import RenderError
from prerender.snapshots.variants import ORDINARY, Variant

# Virtual time runs ahead of real time and cannot be set back. Beyond this, a page's Date is corrected.
CORRECTED_LEAD_SECONDS = 1.0
# Chromium allows a tab 200 changes of its URL or history, and ignores further ones. More than ten
# seconds after the tab was opened, it begins to count again after these 200.
_ALLOWED_URL_CHANGES = 200
_AGED_SECONDS = 9.0
_CATCH_UP_SECONDS = 1.0


class Tab:
    """Open it with ``await Tab.open(...)``. ``inner_frames``: how many its page has created."""

    def __init__(self, context: Context, session: Session, target_id: str) -> None:
        self.session = session
        self.target_id = target_id
        self.frames = FrameDrawing(session, context)
        self.inner_frames = 0
        self._url_changes = 0
        self._was_old = False
        self._context = context
        self._opened = (time.monotonic(), context.clock.granted_seconds)

    @classmethod
    async def open(cls, context: Context, number: int) -> "Tab":
        """A new tab for the page with this number. Raises BrowserGone or CommandFailed."""
        tab = cls(context, *await context.tab())
        session = tab.session
        session.on("Page.javascriptDialogOpening", tab._dismiss)
        session.on("Page.navigatedWithinDocument", tab._url_changed)
        context.clock.attach(session)
        await gather(
            session.call("Page.enable"),
            session.call("Page.addScriptToEvaluateOnNewDocument", source=probe.SCRIPT),
            tab.name(number, ORDINARY),
        )
        return tab

    async def name(self, number: int, variant: Variant) -> None:
        """Let the gateway know the page by its number, and the site the browser by its variant."""
        variant = variant.speaking(self._context.language)
        override = user_agent_override(self._context.user_agent, number, variant)
        await self.session.call("Emulation.setUserAgentOverride", **override)

    def _disable_scripts(self) -> Future[Params]:
        return self.session.call("Emulation.setScriptExecutionDisabled", value=True)

    async def navigate(self, url: str, timeout: float, *, scripts: bool) -> str:
        """Open the page. Returns the id of its frame.

        ``timeout``: seconds. Raises RenderError if it cannot be opened.
        """
        self._was_old = self.is_old
        if (lead := self._context.clock.lead_seconds) > CORRECTED_LEAD_SECONDS:
            await self.session.call(
                "Page.addScriptToEvaluateOnNewDocument", source=probe.lead(lead)
            )
        if not scripts:
            await self._disable_scripts()
        # Nothing of the page begins before its first budget of virtual time.
        await self._context.clock.pause()
        navigation = await self.session.call("Page.navigate", timeout, url=url)
        if error := navigation.get("errorText"):
            raise RenderError(str(error), about=url)
        frame_id: str = navigation["frameId"]
        return frame_id

    @property
    def is_old(self) -> bool:
        """Whether Chromium may allow its page more changes of its URL than in a new tab."""
        opened, granted = self._opened
        real_seconds = time.monotonic() - opened
        return max(real_seconds, self._context.clock.granted_seconds - granted) > _AGED_SECONDS

    @property
    def allowed_more(self) -> bool:
        """Whether the page may have changed its URL more often than in a tab that was just opened."""
        return self._was_old and self._url_changes >= _ALLOWED_URL_CHANGES

    async def catch_up(self) -> None:
        """Wait until all events that the page has caused so far have been handled: its process sends
        the response behind them. Not long: a script may keep the page busy."""
        with suppress(RenderError):
            await self.session.call("Page.getFrameTree", _CATCH_UP_SECONDS)

    async def close(self) -> None:
        """Close the tab, and wait until it is gone, so that no script of its page runs."""
        await self.frames.finish()
        await self._disable_scripts()
        clock = self._context.clock
        if clock.has_budget:
            await self.session.call("Page.navigate", url=BLANK)
            await clock.finish()
        await self._context.devtools.call("Target.closeTarget", targetId=self.target_id)
        await self.session.ended.wait()

    def _url_changed(self, _: dict[str, Any]) -> None:
        self._url_changes += 1

    def _dismiss(self, params: dict[str, Any]) -> None:
        """Close a dialog at once: it blocks the page."""
        accept = params["type"] == "beforeunload"
        ignore_failure(self.session.send("Page.handleJavaScriptDialog", {"accept": accept}))
