"""The pages that render, and the browser they live in.

One browser at a time, watched: when it dies or goes silent its pages are dropped and another is
started, with a growing and jittered delay while that fails. ``page()`` lends a page, or waits in a
bounded queue for one. Every page that is lent comes back, whatever happened to it.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

from prerender.errors import BrowserGone, PoolBusy, RenderError
from prerender.rendering.chromium import Chromium
from prerender.rendering.page import Page
from prerender.rendering.trial import Trial

_FIRST_DELAY_SECONDS = 0.1
_LONGEST_DELAY_SECONDS = 15.0
_HEALTHY_SECONDS = 10.0

log = structlog.get_logger(__name__)


class Pool:
    """``size`` pages of the browser that ``launch`` starts, each tried out by ``try_out``.

    Use it with ``async with``.
    """

    def __init__(
        self,
        launch: Callable[[], Coroutine[Any, Any, Chromium]],
        *,
        size: int,
        queue: int,
        try_out: Trial,
    ) -> None:
        self._launch = launch
        self._try_out = try_out
        self._size = size
        self._queue = queue
        self._browser: Chromium | None = None
        self._idle: deque[Page] = deque()
        self._busy: set[Page] = set()
        self._waiters: deque[asyncio.Future[Page]] = deque()
        self._problem = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_number = 0
        self.browsers_started = 0

    def __repr__(self) -> str:
        return (
            f"<Pool of {self._size}: {len(self._idle)} idle, {len(self._busy)} busy, "
            f"{len(self._waiters)} waiting, {self._browser or 'no browser'}>"
        )

    async def __aenter__(self) -> "Pool":
        self._spawn(self._supervise(), "browser supervisor")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._fail("the proxy is shutting down")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def ready(self) -> bool:
        """Whether a page can be had, now or when one comes back."""
        return bool(self._idle or self._busy)

    @asynccontextmanager
    async def page(self, timeout: float) -> AsyncIterator[Page]:
        """Borrow a page, waiting at most ``timeout`` seconds.

        Raises PoolBusy when the queue is full or the wait too long, BrowserGone when no browser can
        be started.
        """
        page = await self._borrow(timeout)
        try:
            yield page
        finally:
            # In the background: the snapshot does not wait until the page is clean again.
            self._spawn(self._take_back(page), f"take back {page!r}")

    async def _borrow(self, timeout: float) -> Page:
        while self._idle:
            page = self._idle.pop()  # the one used last: its caches are warm
            # The supervisor hears of a lost browser a little later.
            page.broken = page.broken or page.devtools.closed.is_set()
            if not page.broken:
                self._busy.add(page)
                return page
            self._spawn(self._take_back(page), f"replace {page!r}")
        if self._problem:
            raise BrowserGone(self._problem)
        if len(self._waiters) >= self._queue:
            raise PoolBusy(f"{self._queue} renders are waiting already")
        waiter: asyncio.Future[Page] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # Handed over in the moment in which the caller stopped waiting.
                self._offer(waiter.result())
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            if isinstance(error, TimeoutError):
                raise PoolBusy(f"no page came free in {timeout:.1f} s") from None
            raise

    def _offer(self, page: Page) -> None:
        """Give a clean page to whoever has waited longest, or keep it for the next."""
        if page.broken:
            self._spawn(self._take_back(page), f"replace {page!r}")
            return
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._busy.add(page)
                waiter.set_result(page)
                return
        self._busy.discard(page)
        self._idle.append(page)

    async def _take_back(self, page: Page) -> None:
        browser = self._browser
        if not page.broken and not page.worn:
            try:
                await page.clean()
            except RenderError as error:
                log.info("page thrown away", page=repr(page), reason=str(error))
            except Exception:
                page.broken = True
                log.exception("page not cleaned", page=repr(page))
        if page.broken or page.worn:
            self._busy.discard(page)
            if browser is not None and page.devtools is browser.devtools:
                await page.close()
                await self._open_page(browser)
        elif browser is self._browser and page in self._busy:
            self._offer(page)

    async def _open_page(self, browser: Chromium) -> None:
        self._last_number += 1
        try:
            page = await Page.open(browser.devtools, self._last_number)
            await self._try_out(page)
        except RenderError as error:
            # A browser without a page that works is not worth keeping.
            log.warning("no page can be opened", error=str(error))
            browser.devtools.abandon()
            return
        if browser is self._browser:
            self._offer(page)
        else:
            await page.close()

    async def _supervise(self) -> None:
        delay = _FIRST_DELAY_SECONDS
        while True:
            started = time.monotonic()
            try:
                await self._run_browser()
            except BrowserGone as error:
                self._fail(str(error))
                log.error("browser not started", error=str(error))
            except Exception as error:
                # A fault of ours must not leave the proxy without a browser for ever.
                self._fail(repr(error))
                log.exception("browser given up")
            if time.monotonic() - started > _HEALTHY_SECONDS:
                delay = _FIRST_DELAY_SECONDS
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))  # noqa: S311 (jitter)
            delay = min(delay * 2, _LONGEST_DELAY_SECONDS)

    async def _run_browser(self) -> None:
        """Start a browser, lend its pages until it is gone, and clear up behind it."""
        browser = await self._launch()
        self.browsers_started += 1
        log.info("browser started", browser=repr(browser))
        try:
            self._browser, self._problem = browser, ""
            await asyncio.gather(*(self._open_page(browser) for _ in range(self._size)))
            reason = await browser.gone()
            log.warning("browser gone", browser=repr(browser), reason=reason)
        finally:
            self._browser = None
            for page in (*self._idle, *self._busy):
                page.broken = True
            self._idle.clear()
            self._busy.clear()
            await browser.close()

    def _fail(self, problem: str) -> None:
        """No browser for now: whoever waits is told at once, and so is whoever asks."""
        self._problem = problem
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(BrowserGone(problem))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
