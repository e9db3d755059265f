"""A tab of the browser. Pages that follow one another see nothing of each other.

The next page gets a new tab. Under load, when renders wait or more than three quarters of the pages
are in use, the tab is kept, which takes a quarter less CPU time for each render: the headers of the
next document replace the last document, and its body is held back (gateway/visit.py) until all state is
cleared. A tab is not kept after a page that has done anything to it that cannot be cleared with
certainty: frames, navigations, another size or language.
"""

import asyncio
import time
from typing import Any

from prerender.browser import probe
from prerender.browser.browser_context import BLANK, Context
from prerender.browser.devtools import Params, Session, ignore_failure
from prerender.browser.emulation import user_agent_override
from prerender.browser.frame_drawing import Frames
from prerender.errors import BrowserGone, RenderError
from prerender.gateway.visit import Visit
from prerender.snapshots.variants import ORDINARY, Variant

# Virtual time runs ahead of real time and cannot be set back. Beyond this, a page's Date is corrected.
CORRECTED_LEAD_SECONDS = 1.0
# Chromium allows a tab 200 changes of its URL or history, and ignores further ones. More than ten
# seconds after the tab was opened, it begins to count again after these 200.
_ALLOWED_URL_CHANGES = 200
_AGED_SECONDS = 9.0
# After this many, a tab is not kept.
_MOST_URL_CHANGES = 40
# What belongs to the tab, before any script of its next page runs. A sandboxed page has no storage.
_LEFT = """(() => {
  globalThis.name = "";
  let items = 0;
  try {
    // Clearing advances the clock by 10 ms of the next budget, even if there is nothing to clear.
    if (sessionStorage.length) sessionStorage.clear();
    items = sessionStorage.length;
  } catch {}
  return [history.length, globalThis.name, items];
})()"""
_NOTHING = [1, "", 0]
_FORGET_ATTEMPTS = 3
# Whether Chromium ignores changes of the URL: then there is no event. The change itself is cancelled,
# and scripts of the page do not learn of it. A sandboxed page has no events.
_IGNORES_CHANGES = """(() => {
  const before = location.href;
  let ignored = true;
  const cancel = (event) => {
    ignored = false;
    event.stopImmediatePropagation();
    event.preventDefault();
  };
  navigation.addEventListener("navigate", cancel, { capture: true });
  try {
    history.replaceState(history.state, "", before.split("#")[0] + "#" + Math.random());
  } catch { ignored = false; }
  navigation.removeEventListener("navigate", cancel, { capture: true });
  return ignored && location.href === before;
})()"""


class Tab:
    """Open it with ``await Tab.open(...)``.

    ``kept``: it still shows the document of the last page. ``follows``: its page is not its first.
    ``inner_frames``, ``navigations``: those of its pages. Navigations within a document do not count.
    """

    def __init__(self, context: Context, session: Session, target_id: str) -> None:
        self.session = session
        self.target_id = target_id
        self.frames = Frames(session, context)
        self.kept = False
        self.follows = False
        self.inner_frames = 0
        self.navigations = 0
        self._shares_agent_cluster = False
        self._url_changes = 0
        self._aged_at_start = False
        self._context = context
        self._opened = (time.monotonic(), context.clock.granted_seconds)
        # The script by which documents correct their Date.
        self._correction = ""

    @classmethod
    async def open(cls, context: Context, number: int) -> "Tab":
        """A new tab for the page with this number. Raises BrowserGone or CommandFailed."""
        tab = cls(context, *await context.tab())
        session = tab.session
        session.on("Page.javascriptDialogOpening", tab._dismiss)
        session.on("Page.navigatedWithinDocument", tab._url_changed)
        context.clock.attach(session)
        await asyncio.gather(
            session.call("Page.enable"),
            session.call("Page.addScriptToEvaluateOnNewDocument", source=probe.SCRIPT),
            tab.name(number, ORDINARY),
        )
        return tab

    async def name(self, number: int, variant: Variant) -> None:
        """Let the gateway know the page by its number, and the site the browser by its variant."""
        override = user_agent_override(self._context.user_agent, number, variant)
        await self.session.call("Emulation.setUserAgentOverride", **override)

    def run_scripts(self, run: bool) -> asyncio.Future[Params]:
        """Whether scripts of pages run. Await the response."""
        return self.session.call("Emulation.setScriptExecutionDisabled", value=not run)

    async def navigate(self, url: str, visit: Visit, timeout: float, *, scripts: bool) -> str:
        """Open a page. Returns the id of its frame.

        ``timeout``: seconds. Raises RenderError if it cannot be opened, and BrowserGone if something of
        the last page remains.
        """
        self._aged_at_start = self.aged
        await self._correct_date()
        document = visit.document
        self._shares_agent_cluster = document is not None and document.shares_agent_cluster
        if self.kept:
            answer = await self._follow(url, visit, timeout, scripts=scripts)
        else:
            if not scripts:
                await self.run_scripts(False)
            # As in a kept tab, nothing of the page begins before its first budget of virtual time.
            await self._context.clock.pause()
            answer = await self._navigate(url, timeout)
        frame_id: str = answer["frameId"]
        return frame_id

    async def _correct_date(self) -> None:
        """Let the next document correct its Date, if its clock is far ahead of real time."""
        if self._correction:
            await self.session.call(
                "Page.removeScriptToEvaluateOnNewDocument", identifier=self._correction
            )
            self._correction = ""
        if (lead := self._context.clock.lead_seconds) > CORRECTED_LEAD_SECONDS:
            added = await self.session.call(
                "Page.addScriptToEvaluateOnNewDocument", source=probe.lead(lead)
            )
            self._correction = added["identifier"]

    async def _navigate(self, url: str, timeout: float) -> dict[str, Any]:
        answer = await self.session.call("Page.navigate", timeout, url=url)
        if error := answer.get("errorText"):
            raise RenderError(f"{url}: {error}")
        return answer

    async def _follow(
        self, url: str, visit: Visit, timeout: float, *, scripts: bool
    ) -> dict[str, Any]:
        """Navigate, and clear the state of the last page before the next document begins."""
        assert visit.document is not None, "the body of a response of the site is not held back"
        if self._shares_agent_cluster:
            raise BrowserGone("the agent cluster of the last page has one origin")
        cookies = visit.document.cookies
        visit.hold()
        try:
            if cookies:
                # They come with the headers, and must not be cleared.
                await self._commit(BLANK, timeout)
                await self._context.clear()
            answer = await self._commit(url, timeout)
            clearing = () if cookies else (self._context.clear(),)
            _, left, *_ = await asyncio.gather(self.run_scripts(True), self._forget(), *clearing)
            await self._context.check_empty(str(visit.public.origin()), cookies)
            if not scripts:
                await self.run_scripts(False)
        except RenderError as error:
            raise BrowserGone(str(error)) from error
        if left != _NOTHING:
            raise BrowserGone(f"the state of the last page remains: {left}")
        self.kept = False
        visit.release()
        return answer

    async def _commit(self, url: str, timeout: float) -> dict[str, Any]:
        """Navigate, and wait until the last document is gone."""
        committed = self.session.expect("Page.frameNavigated")
        answer = await self._navigate(url, timeout)
        if "loaderId" not in answer:
            # Only the fragments of the URLs differ, so the last document would stay.
            committed.cancel()
            await self._commit(BLANK, timeout)
            return await self._commit(url, timeout)
        if (await committed)["frame"]["loaderId"] != answer["loaderId"]:
            raise BrowserGone("the last page navigated at the same time")
        return answer

    async def _forget(self) -> object:
        """Clear the history and the storage of the tab, by a script. Returns what is left."""
        left: object = None
        for _ in range(_FORGET_ATTEMPTS):
            # The page may know of its document before the browser, and its entry then follows.
            await self.session.call("Page.resetNavigationHistory")
            left = await self.session.evaluate(_LEFT)
            if left == _NOTHING:
                break
        return left

    @property
    def aged(self) -> bool:
        """Whether it may be so old that Chromium allows its page more changes of the URL."""
        opened, granted = self._opened
        real_seconds = time.monotonic() - opened
        return max(real_seconds, self._context.clock.granted_seconds - granted) > _AGED_SECONDS

    @property
    def url_change_test(self) -> str:
        """An expression that tells ``url_changes_differ`` whether changes of the URL are ignored."""
        return _IGNORES_CHANGES if self.follows else "false"

    def url_changes_differ(self, *, ignored: bool) -> bool:
        """Whether the page made more or fewer changes of its URL than a new tab would have allowed."""
        old = self._aged_at_start or (self.follows and self.aged)
        if old and self._url_changes >= _ALLOWED_URL_CHANGES:
            return True  # Chromium may have begun to count again, for the page or for the test
        self._url_changes += self.follows  # Chromium counts that of the test, too
        return ignored

    async def keep(self) -> bool:
        """Stop the page, and keep the tab for the next one. Returns whether that is possible."""
        await self.frames.finish()
        await self.run_scripts(False)
        # A script may have begun a navigation.
        await self.session.call("Page.stopLoading")
        await self._context.check_fit()
        self.kept = self.follows = not (
            self.inner_frames
            or self.navigations
            or self._shares_agent_cluster
            or self._url_changes > _MOST_URL_CHANGES
            or self._context.clock.has_budget
        )
        return self.kept

    async def close(self) -> None:
        """Close the tab, and wait until it is gone, so that no script of its page runs."""
        await self.frames.finish()
        await self.run_scripts(False)
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
