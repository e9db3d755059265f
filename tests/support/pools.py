"""Helpers of the pool's tests: a pool with a real browser, callers, and a site to crawl."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web
from yarl import URL

from prerender.browser import chromium
from prerender.browser.chromium import Chromium
from prerender.browser.pool import Pool
from prerender.browser.supervisor import Limits
from prerender.browser.warm_up import Trial, trial
from prerender.errors import BrowserGone
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.gateway import Gateway
from prerender.gateway.upstream import Upstream, open_session
from tests.conftest import Proxy, StartOrigin, StartProxy
from tests.support import no_programs

if TYPE_CHECKING:
    from prerender.browser.page import Page

SECONDS = 20.0
SITE = URL("https://www.example.com")
# Nothing listens there.
NO_ORIGIN = URL("http://127.0.0.1:9")
# As a shell tells of it: 128 and the signal's number.
_SEGMENTATION_FAULT = 139


@asynccontextmanager
async def gateway_of(origin: URL = NO_ORIGIN) -> AsyncIterator[Gateway]:
    """The gateway between browsers and this origin, which they know as SITE."""
    async with (
        open_session(AddressPolicy.only(origin), 1, 60) as session,
        Gateway.open(SITE, Upstream(session, origin), session) as gateway,
    ):
        yield gateway


async def launch_browser(gateway: Gateway) -> Chromium:
    """Launch a browser as the pool does.

    Chromium sometimes dies of SIGSEGV at its start (once in some hundred starts). The pool then
    starts another one, and so do tests of what follows the start.
    """
    try:
        return await Chromium.launch(chromium.find(), gateway, sandbox=False)
    except BrowserGone as error:
        if f"exit status {_SEGMENTATION_FAULT}" not in str(error):
            raise
        return await Chromium.launch(chromium.find(), gateway, sandbox=False)


@asynccontextmanager
async def pool_of(
    size: int,
    queue: int = 10,
    failing: Collection[int] = (),
    limits: Limits = Limits(),
    program: str = "",
    *,
    try_out: Trial = trial(SITE),
) -> AsyncIterator[Pool]:
    """A pool of pages of a real browser. ``failing``: the numbers of launches that fail, from 1."""
    no_programs.check()
    launches = 0
    async with gateway_of() as gateway:

        async def launch() -> Chromium:
            nonlocal launches
            launches += 1
            if failing and launches == max(failing):
                raise ValueError("a fault of ours")
            path = "/nonexistent" if launches in failing else program or chromium.find()
            return await Chromium.launch(path, gateway, sandbox=False)

        async with Pool(launch, size=size, queue=queue, limits=limits, try_out=try_out) as pool:
            yield pool


def session_of(pool: Pool) -> int:
    """The session of the browser that is in use."""
    return int(repr(pool).rpartition(" ")[2].strip(">"))


async def state(pool: Pool, wanted: str) -> None:
    """Wait until the pool is in this state."""
    try:
        async with asyncio.timeout(SECONDS):
            while f": {wanted}, Chromium" not in repr(pool):
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{pool!r} is not: {wanted}") from None


class Borrower:
    """A caller that holds a page until ``give_back``."""

    def __init__(
        self, pool: Pool, timeout: float = SECONDS, section: str = "", *, first: bool = False
    ) -> None:
        self._pool = pool
        self._section = section
        self._timeout = timeout
        self._first = first
        self._release = asyncio.Event()
        self.page: Page | None = None
        self.task = asyncio.create_task(self._borrow())

    async def _borrow(self) -> None:
        async with (
            self._pool.place(self._section) as place,
            self._pool.page(place, self._timeout, first=self._first) as self.page,
        ):
            await self._release.wait()

    async def has_page(self) -> "Page":
        """Wait until it holds a page."""
        async with asyncio.timeout(SECONDS):
            while self.page is None:
                await asyncio.sleep(0.01)
        return self.page

    async def give_back(self) -> None:
        self._release.set()
        await self.task


PAGE = """<!DOCTYPE html><title>Page</title><p id="out"></p><script>
  fetch("/text?" + location.hash.slice(2)).then((answer) => answer.text()).then((text) => {
    document.getElementById("out").textContent = text;
  });
</script>"""


class Shop:
    """An origin that can hold back what its pages fetch."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.held = 0
        self.asked: list[str] = []

    async def page(self, _: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    async def text(self, request: web.Request) -> web.Response:
        self.asked.append(request.query_string)
        self.held += 1
        try:
            await self.open.wait()
        finally:
            self.held -= 1
        return web.Response(text=f"text of {request.query_string}")

    async def holds(self, number: int) -> None:
        async with asyncio.timeout(SECONDS):
            while self.held < number:
                await asyncio.sleep(0.01)


async def shop_and_proxy(
    start_origin: StartOrigin, start_proxy: StartProxy, pages: int, **browser: object
) -> tuple[Shop, Proxy]:
    shop = Shop()
    application = web.Application()
    application.add_routes([web.get("/", shop.page), web.get("/text", shop.text)])
    origin = await start_origin(application)
    proxy = await start_proxy(
        origin.url,
        {"browser": {"pages": pages} | browser, "site": {"url": "https://www.example.com"}},
    )
    return shop, proxy


async def crawl(proxy: Proxy, state: object) -> int:
    """Crawl a state of the page. Returns the status; 200 only if the snapshot is complete."""
    answer = await proxy.crawl(f"/#!{state}")
    if answer.status == 200:
        assert f">text of {state}<" in answer.text
    else:
        assert answer.status == 503
        assert "Retry-After" in answer.headers
    return answer.status
