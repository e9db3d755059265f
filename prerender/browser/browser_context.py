"""A browser context and its process, for one render after another.

A new context for each render would be clean by construction, but its process alone costs 60 ms of CPU
time. What outlives a tab is cleared between two renders, and verified. If something cannot be cleared
with certainty, the context is not used again: a worker, for example, may run for seconds after its
page.
"""

import asyncio
from contextlib import suppress
from typing import Any

import structlog

from prerender.browser.chromium import Chromium
from prerender.browser.cpu_priority import PageProcess
from prerender.browser.devtools import Session
from prerender.browser.emulation import DESKTOP
from prerender.browser.virtual_clock import VirtualClock
from prerender.errors import RenderError

BLANK = "about:blank"
# A tab opened with this URL does not navigate, so its first page is the first of its history, unlike
# after about:blank.
NOWHERE = "nowhere:"
# Clearing named kinds is faster, but leaves empty storage buckets.
STORAGE = "all"
# Chromium collects garbage when a page is idle, by the page's clock, which is paused then. Without
# this, an empty page grew to 150 MiB and its renders became slower. With it, all processes of six pages
# take 540 MiB after 1,000 renders. Each collection takes the CPU time of a render.
_COLLECT_EVERY_RENDERS = 30
_CLOSE_SECONDS = 2.0

log = structlog.get_logger(__name__)


class Context:
    """Create it with ``await Context.open(...)``. ``clock``: of its process, so of all its tabs.
    ``proxy``: its only network."""

    def __init__(self, browser: Chromium) -> None:
        self.devtools = browser.devtools
        self.proxy = browser.open_proxy()
        self._browser = browser
        self.user_agent = ""
        self.language = browser.language
        self.clock = VirtualClock()
        self.renders = 0
        self.process: PageProcess | None = None
        self._id = ""
        # Keeps the process alive between two tabs.
        self._keeper: Session
        # Types of targets by id: tabs, windows opened by pages, workers.
        self._targets: dict[str, str] = {}
        self._unfit = ""

    @classmethod
    async def open(cls, browser: Chromium) -> "Context":
        """A new context. Raises BrowserGone or CommandFailed."""
        context = cls(browser)
        try:
            await context._prepare()
        except BaseException:
            await context.close()
            raise
        return context

    async def _prepare(self) -> None:
        version = await self.devtools.call("Browser.getVersion")
        self.user_agent = version["userAgent"]
        made = await self.devtools.call(
            "Target.createBrowserContext",
            disposeOnDetach=True,
            proxyServer=self.proxy.url,
            proxyBypassList="<-loopback>",  # requests for this machine, too, go to the proxy
        )
        self._id = made["browserContextId"]
        self.devtools.on("Target.targetCreated", self._target_created)
        self._keeper, _ = await self._tab(BLANK)
        # This event precedes the fetch of the worker's script; its target appears later.
        self._keeper.on("ServiceWorker.workerRegistrationUpdated", self._service_worker)
        await asyncio.gather(
            self._keeper.call("ServiceWorker.enable"),
            self.devtools.call(
                "Browser.setDownloadBehavior", behavior="deny", browserContextId=self._id
            ),
        )

    async def tab(self) -> tuple[Session, str]:
        """A new tab and its target. Raises BrowserGone or CommandFailed."""
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

    def find_process(self, others: set[int]) -> None:
        """Find its process: the only page of the browser that is not among the ``others``."""
        with suppress(OSError, ValueError):
            (pid,) = self._browser.page_processes() - others
            self.process = PageProcess(pid)

    async def clear(self) -> None:
        """Clear the state that outlives a tab. Raises RenderError if that is impossible."""
        await self.check_fit()
        await asyncio.gather(
            self._keeper.call("Storage.clearDataForOrigin", origin="*", storageTypes=STORAGE),
            self.devtools.call("Storage.clearCookies", browserContextId=self._id),
        )
        if self.renders % _COLLECT_EVERY_RENDERS == 0:
            await self.collect_garbage()

    async def check_fit(self) -> None:
        """Raise RenderError if something of the previous page may still run."""
        if kind := self._unfit or next(iter(self._targets.values()), ""):
            await self._stop_service_workers()
            raise RenderError(f"a {kind} of the previous page may still run")

    async def collect_garbage(self) -> None:
        """Free the memory of pages that are gone."""
        await self._keeper.call("HeapProfiler.collectGarbage")

    async def check_empty(self, origin: str) -> None:
        """Raise RenderError if there are cookies, or storage of ``origin``, after clearing.

        Chromium may handle what the last page wrote while it was left only after clearing. The later
        this is called, the less can follow.
        """
        jar, storage = await asyncio.gather(
            self.devtools.call("Storage.getCookies", browserContextId=self._id),
            self._keeper.call("Storage.getUsageAndQuota", origin=origin),
        )
        if jar["cookies"]:
            raise RenderError("cookies come back")
        if storage["usage"]:
            raise RenderError("storage comes back")

    async def close(self) -> None:
        """Dispose of the context with its process. Safe to call twice. Ignores errors: it may be gone
        already."""
        context_id, self._id = self._id, ""
        try:
            if context_id:
                self.devtools.remove_listener("Target.targetCreated", self._target_created)
                await self._stop_service_workers()
                await self.devtools.call(
                    "Target.disposeBrowserContext", _CLOSE_SECONDS, browserContextId=context_id
                )
        except RenderError as error:
            log.debug("context_not_closed", error=str(error))
        finally:
            await self._browser.close_proxy(self.proxy)

    async def _stop_service_workers(self) -> None:
        """Chromium 156 keeps listing one whose script arrives while its context is disposed of."""
        if self._unfit:
            with suppress(RenderError):
                await self._keeper.call("ServiceWorker.stopAllWorkers", _CLOSE_SECONDS)

    def _target_created(self, params: dict[str, Any]) -> None:
        info = params["targetInfo"]
        if info.get("browserContextId") == self._id:
            self._targets[info["targetId"]] = info["type"]

    def _service_worker(self, params: dict[str, Any]) -> None:
        if params["registrations"]:
            self._unfit = "service worker"
