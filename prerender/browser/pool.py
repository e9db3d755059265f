"""The pool of pages: assigns them to renders, and cleans or replaces them afterwards.

``place()`` admits a render to the queue; ``page()`` lends it a page when its turn comes. Every place
and every page is returned, whatever happens. supervisor.py starts and replaces the browsers.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog

from prerender.background import cancel_all
from prerender.browser.chromium import Chromium
from prerender.browser.page import Page
from prerender.browser.queue import FairQueue, Place
from prerender.browser.supervisor import Limits, ReplacementCause, Supervisor
from prerender.browser.warm_up import Trial
from prerender.errors import BrowserGone, NeedsNewContext, PageOverLimit, PoolBusy, RenderError

# A page's process can die at any time, even while it starts.
_OPEN_ATTEMPTS = 2
_WEIGH_EVERY_SECONDS = 0.1

log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class _Stock:
    """A browser, its idle pages, and how often its pages were lent."""

    browser: Chromium
    idle: deque[Page] = field(default_factory=deque)
    lent: int = 0
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    replacing: int = 0


class PoolState(NamedTuple):
    """Pages: their maximum (``size``), the idle ones, and those that render or are being cleaned
    (``busy``). Renders: those that wait for a page, those admitted to the queue, which wait for a page
    or for their document, and the maximum of the latter."""

    size: int
    idle: int
    busy: int
    waiting: int
    admitted: int
    queue_limit: int

    @property
    def wanted(self) -> int:
        """The number of pages that could be used now."""
        return self.busy + self.waiting

    @property
    def queued(self) -> int:
        """Renders admitted beyond the number of pages. At ``queue_limit``, new ones are refused."""
        return self.busy + self.admitted - self.size


class Pool:
    """``size`` pages of the browser that ``launch`` starts. ``try_out`` tests each page.

    ``queue``: how many renders may wait for a page. Use the pool with ``async with``.
    """

    def __init__(
        self,
        launch: Callable[[], Coroutine[Any, Any, Chromium]],
        *,
        size: int,
        queue: int,
        try_out: Trial,
        limits: Limits,
    ) -> None:
        self._try_out = try_out
        self._size = size
        self._queue = FairQueue(queue)
        # The browser in use, and its successor while that is starting.
        self._stock: _Stock | None = None
        self._next: _Stock | None = None
        self._busy: dict[Page, _Stock] = {}
        self._returned = asyncio.Event()
        self._problem = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._supervisor = Supervisor(self, launch, limits)

    def __repr__(self) -> str:
        state = self.state
        browser = self._stock.browser if self._stock else "no browser"
        return (
            f"<Pool of {state.size}: {state.idle} idle, {state.busy} busy, "
            f"{state.waiting} waiting, {browser}>"
        )

    async def __aenter__(self) -> "Pool":
        self.spawn(self._supervisor.run(), "browser supervisor")
        self.spawn(self._weigh(), "fair shares")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.fail("the proxy is shutting down")
        while tasks := list(self._tasks):
            await cancel_all(tasks)
        self._busy.clear()

    @property
    def ready(self) -> bool:
        """Whether there are pages, idle or in use."""
        stock = self._stock
        return bool(stock and (stock.idle or stock.replacing or stock in self._busy.values()))

    @property
    def state(self) -> PoolState:
        """The current state."""
        idle = len(self._stock.idle) if self._stock else 0
        queue = self._queue
        return PoolState(self._size, idle, len(self._busy), len(queue), queue.admitted, queue.size)

    @property
    def memory_bytes(self) -> int:
        """The memory of the browser in use; 0 if there is none."""
        return self._stock.browser.memory_bytes if self._stock else 0

    @property
    def replacements(self) -> Counter[ReplacementCause]:
        """The number of replaced browsers by reason."""
        return self._supervisor.replacements

    @property
    def browsers_started(self) -> int:
        """The number of browsers since the start."""
        return self._supervisor.browsers_started

    @property
    def browser_version(self) -> str:
        """The version of the newest browser; "" before the first one."""
        return self._supervisor.browser_version

    @asynccontextmanager
    async def place(self, section: str = "") -> AsyncIterator[Place]:
        """A place in the queue, for a render of a section of the site (queue.section_of).

        Raises PoolBusy if the queue is full, or later if the place is given to another section, and
        BrowserGone, also later, if no browser can be started.
        """
        if self._problem:
            raise BrowserGone(self._problem)
        place = self._queue.enter(section, room=max(0, self._size - len(self._busy)))
        try:
            async with place.limit:
                yield place
        except TimeoutError:
            if place.error is not None:
                raise place.error from None
            raise
        finally:
            self._queue.leave(place)

    @asynccontextmanager
    async def page(
        self, place: Place, timeout: float, *, first: bool = False
    ) -> AsyncIterator[Page]:
        """Borrow a page, waiting up to ``timeout`` seconds for it.

        ``first``: the first one of its browser context, in a new tab. Raises PoolBusy if the wait is
        too long, and BrowserGone if no browser can be started, or at the end if the browser was lost
        meanwhile: then the page's content cannot be trusted. After BrowserGone the caller may call this
        again.
        """
        page = await self._borrow(place, timeout)
        try:
            browser = self._browser_of(page)
            try:
                if first and not page.is_new:
                    page = await self._exchange(page)
                yield page
                browser.check()
            except NeedsNewContext:
                raise
            except BrowserGone:
                if await browser.ended_for_memory(self._processes_but_of(page)):
                    reason = "its page took more memory than [browser] max_memory"
                    raise PageOverLimit(reason) from None
                raise
        finally:
            # In the background: the snapshot does not wait for the cleaning of the page.
            self.spawn(self._take_back(page), f"take back {page!r}")

    async def _borrow(self, place: Place, timeout: float) -> Page:
        if self._problem:
            raise BrowserGone(self._problem)
        turn = self._queue.wait(place)
        self._lend()
        try:
            async with asyncio.timeout(timeout):
                return await turn
        except BaseException as error:
            self._queue.leave(place)
            if turn.done() and not turn.cancelled():
                # The page was assigned at the moment when the caller stopped waiting.
                page = turn.result()
                self._put_back(page)
            if isinstance(error, TimeoutError):
                raise PoolBusy(f"no page became free in {timeout:.1f} s") from None
            raise

    def _lend(self) -> None:
        """Assign idle pages to waiting renders."""
        # While a browser is replaced, pages of two browsers can be in use.
        while self._stock and self._stock.idle and len(self._busy) < self._size and self._queue:
            stock = self._stock
            page = stock.idle.pop()  # the last one used: its caches are warm
            # The supervisor notices a lost browser a little later.
            page.broken = page.broken or page.devtools.closed.is_set()
            if page.broken:
                self._busy[page] = stock
                self.spawn(self._take_back(page), f"replace {page!r}")
            elif (place := self._queue.next()) is None:
                stock.idle.append(page)
            else:
                assert place.turn is not None
                stock.lent += 1
                self._busy[page] = stock
                place.turn.set_result(page)

    async def _take_back(self, page: Page) -> None:
        stock = self._busy.get(page)
        if stock is None:
            return  # its browser is gone
        renewed = stock is self._stock and await self._renewed(page)
        if renewed and stock is self._stock:
            self._put_back(page)
        else:
            await self._replace(page, stock)

    async def _renewed(self, page: Page) -> bool:
        """Renew a page if it can be used again. Returns whether it can."""
        if page.broken or page.worn:
            return False
        try:
            await page.renew()
        except RenderError as error:
            log.info("page_discarded", page=page.number, reason=str(error))
            return False
        except Exception:
            log.exception("page_reset_failed", page=page.number)
            return False
        return True

    def _put_back(self, page: Page) -> None:
        """Take back a page that can be used again."""
        if stock := self._free(page):
            stock.idle.append(page)
        self._lend()

    async def _exchange(self, page: Page) -> Page:
        """Replace a borrowed page by one in a new browser context. Raises BrowserGone."""
        stock = self._busy[page]
        page.kill()
        self.spawn(page.close(), f"close {page!r}")
        new = await self._make_page(stock)
        if self._busy.pop(page, None) is None:
            await new.close()
            raise BrowserGone("the browser is gone")
        self._busy[new] = stock
        return new

    async def _replace(self, page: Page, stock: _Stock) -> None:
        """Close a page, and open another one if its browser is still in use."""
        page.kill()
        stock.replacing += 1
        self._free(page)
        self._lend()
        try:
            if stock is self._stock:
                try:
                    await page.close()
                except Exception:
                    log.exception("page_close_failed", page=page.number)
                await self._open_page(stock)
        finally:
            stock.replacing -= 1

    def _processes_but_of(self, page: Page) -> set[int]:
        """The processes of the other pages, as far as they are known."""
        idle = self._stock.idle if self._stock else ()
        others = {*self._busy, *idle} - {page}
        return {other.context.process.pid for other in others if other.context.process is not None}

    def _browser_of(self, page: Page) -> Chromium:
        if stock := self._busy.get(page):
            return stock.browser
        raise BrowserGone(self._problem or "the browser is gone")

    def _free(self, page: Page) -> _Stock | None:
        """Release the slot of a page."""
        self._returned.set()
        return self._busy.pop(page, None)

    async def _open_page(self, stock: _Stock) -> None:
        devtools = stock.browser.devtools
        for _ in range(_OPEN_ATTEMPTS):
            if devtools.closed.is_set():
                return
            try:
                page = await self._make_page(stock, self._try_out)
            except Exception as error:
                log.warning("page_open_failed", error=str(error) or type(error).__name__)
            else:
                stock.idle.append(page)
                self._lend()
                return
        # A browser without a working page is replaced.
        devtools.abandon()

    async def _make_page(self, stock: _Stock, try_out: Trial | None = None) -> Page:
        async with stock.making:
            page = await Page.open(stock.browser)
        try:
            if try_out is not None:
                await try_out(page)
            # The browser's processes must be registered before the page is used.
            stock.browser.look()
        except BaseException:
            await page.close()
            raise
        return page

    async def _weigh(self) -> None:
        """Limit the pages in use."""
        while True:
            await asyncio.sleep(_WEIGH_EVERY_SECONDS)
            for page in self._busy:
                page.weigh()

    # Calls of the supervisor.

    async def take_in(self, browser: Chromium) -> None:
        """Open the pages of a new browser, and use them instead of the current one's.

        Raises BrowserGone on failure; then the current browser stays in use.
        """
        stock = self._next = _Stock(browser)
        if self._stock is None:
            self._stock, self._problem = stock, ""
        # Open the first one alone, so that it is ready soon.
        await self._open_page(stock)
        others = [self._open_page(stock) for _ in range(self._size - 1)]
        if self._stock is stock:
            for opening in others:
                self.spawn(opening, "open a page")
        else:
            await asyncio.gather(*others)
        if browser.devtools.closed.is_set():
            raise BrowserGone("the browser died while its pages were opened")
        self._stock, self._problem = stock, ""
        self._lend()

    def drop(self, browser: Chromium) -> None:
        """Remove the pages of a browser that is gone. Those in use release their slots."""
        for page in [page for page, stock in self._busy.items() if stock.browser is browser]:
            page.broken = True
            self._free(page)
        if self._next and self._next.browser is browser:
            self._next = None
        if self._stock and self._stock.browser is browser:
            self._stock = self._next
            self._lend()

    async def drained(self, browser: Chromium) -> None:
        """Wait until no page of this browser is in use. The caller sets a timeout."""
        while any(stock.browser is browser for stock in self._busy.values()):
            self._returned.clear()
            await self._returned.wait()

    def lent(self, browser: Chromium) -> int:
        """How often pages of this browser, the current one, were used."""
        stock = self._stock
        return stock.lent if stock and stock.browser is browser else 0

    def fail(self, problem: str) -> None:
        """Fail all waiting and new renders at once, as there is no browser for now."""
        self._problem = problem
        self._queue.take_all_away(problem)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that ends with the pool."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
