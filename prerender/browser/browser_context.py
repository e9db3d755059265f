"""A browser context and its process: each render has a tab of its own in one.

A new context for each render would be clean by construction, but its process alone costs 60 ms of CPU
time. A new tab costs 5 ms and has no history, no name and no emulation of the last one; the rest is
cleared here between two tabs, and seen to be gone. What cannot be cleared for certain makes the context
unfit for another tab: a worker, for one, may run on for seconds after its page.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from prerender.browser.clock import VirtualClock
from prerender.browser.device import DESKTOP
from prerender.browser.devtools import DevTools, Session
from prerender.errors import RenderError

if TYPE_CHECKING:
    from prerender.browser.fair_share import PageProcess

BLANK = "about:blank"
# A tab that opens here goes nowhere: its first page is the first of its history, as after a blank
# one it would not be.
NOWHERE = "nowhere:"
# Named kinds would be cleared sooner, but then storage buckets stay, empty.
STORAGE = "all"
# Chromium collects garbage when a page is idle, by the page's clock: which stands still then. Left to
# itself a page of nothing grew to 150 MiB, and its renders took more time; so it stays at 20.
_COLLECT_EVERY_TABS = 10
_CLOSE_SECONDS = 2.0

log = structlog.get_logger(__name__)


class Context:
    """Make it with ``await Context.open(...)``. ``clock`` is that of its process, so of all tabs."""

    def __init__(self, devtools: DevTools, context_id: str, user_agent: str) -> None:
        self.devtools = devtools
        self.user_agent = user_agent
        self.clock = VirtualClock()
        self.tabs = 0
        self.process: PageProcess | None = None
        self._id = context_id
        # Keeps the process between two tabs.
        self._keeper: Session
        # The kinds of targets by their ids: tabs, windows that pages opened, workers.
        self._targets: dict[str, str] = {}
        self._unfit = ""

    @classmethod
    async def open(cls, devtools: DevTools) -> "Context":
        """A new context. Raises BrowserGone or CommandFailed."""
        version = await devtools.call("Browser.getVersion")
        made = await devtools.call("Target.createBrowserContext", disposeOnDetach=True)
        context = cls(devtools, made["browserContextId"], version["userAgent"])
        devtools.on("Target.targetCreated", context._target_created)
        try:
            await context._prepare()
        except BaseException:
            await context.close()
            raise
        return context

    async def _prepare(self) -> None:
        self._keeper, _ = await self._tab(BLANK)
        # Told before the worker's script is fetched, while its target appears later.
        self._keeper.on("ServiceWorker.workerRegistrationUpdated", self._service_worker)
        await asyncio.gather(
            self._keeper.call("ServiceWorker.enable"),
            self.devtools.call(
                "Browser.setDownloadBehavior", behavior="deny", browserContextId=self._id
            ),
        )

    async def tab(self) -> tuple[Session, str]:
        """A new tab and its target. Raises BrowserGone or CommandFailed."""
        self.tabs += 1
        return await self._tab(NOWHERE)

    async def _tab(self, url: str) -> tuple[Session, str]:
        target = await self.devtools.call(
            "Target.createTarget",
            url=url,
            browserContextId=self._id,
            width=DESKTOP.width,
            height=DESKTOP.height,
            enableBeginFrameControl=True,
        )
        target_id: str = target["targetId"]
        session = await self.devtools.attach(target_id)
        self._targets.pop(target_id, None)
        return session, target_id

    async def clear(self, *, large: bool) -> None:
        """Clear what outlives a tab, after the tab. Raises RenderError when something may be left.

        ``large``: it was a page that should not be in memory together with the next one.
        """
        if unfit := self._unfit or next(iter(self._targets.values()), ""):
            raise RenderError(f"a {unfit} may go on")
        await asyncio.gather(
            self._keeper.call("Storage.clearDataForOrigin", origin="*", storageTypes=STORAGE),
            self.devtools.call("Storage.clearCookies", browserContextId=self._id),
        )
        left = await self.devtools.call("Storage.getCookies", browserContextId=self._id)
        if left["cookies"]:
            raise RenderError("cookies come back")
        if large or self.tabs % _COLLECT_EVERY_TABS == 0:
            await self._keeper.call("HeapProfiler.collectGarbage")

    async def close(self) -> None:
        """Dispose of the context with its process. Errors do not matter: it may be gone already."""
        self.devtools.remove_listener("Target.targetCreated", self._target_created)
        try:
            await self.devtools.call(
                "Target.disposeBrowserContext", _CLOSE_SECONDS, browserContextId=self._id
            )
        except RenderError as error:
            log.debug("context not closed", error=str(error))

    def _target_created(self, params: dict[str, Any]) -> None:
        info = params["targetInfo"]
        if info.get("browserContextId") == self._id:
            self._targets[info["targetId"]] = info["type"]

    def _service_worker(self, params: dict[str, Any]) -> None:
        if params["registrations"]:
            self._unfit = "service worker"
