"""The pool of pages: its queue, and how it recovers. Real browsers are killed in every way."""

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from prerender.browser.page import Page
from prerender.errors import BrowserGone, PoolBusy
from tests.conftest import Reply, StartOrigin, StartProxy, pages
from tests.support import processes
from tests.support.pools import SECONDS, Borrower, crawl, pool_of, shop_and_proxy, state
from tests.support.sampling import sampled


@pytest.fixture(autouse=True)
async def seen(
    no_shared_browser: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[set[int]]:
    """The sessions of browsers that a test has seen. At the end, nothing of any browser may be left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sessions: set[int] = set()
    yield sessions
    assert processes.sessions() == []
    await processes.all_gone(sessions, tmp_path)


async def test_pages_are_lent_and_come_back() -> None:
    async with pool_of(2) as pool:
        assert repr(pool) == "<Pool of 2: 0 idle, 0 busy, 0 waiting, no browser>"
        assert not pool.ready
        first = Borrower(pool)
        await state(pool, "1 idle, 1 busy, 0 waiting")
        assert pool.ready
        second, third = Borrower(pool), Borrower(pool)
        await state(pool, "0 idle, 2 busy, 1 waiting")
        page = await first.has_page()
        number = page.number
        await first.give_back()
        await state(pool, "0 idle, 2 busy, 0 waiting")
        # Late requests of the last render have another number.
        assert await third.has_page() is page
        assert page.number > number
        await second.give_back()
        await third.give_back()
        await state(pool, "2 idle, 0 busy, 0 waiting")


async def test_a_full_queue_is_told_at_once() -> None:
    async with pool_of(1, queue=1) as pool:
        # One for the page that is not there yet, one in the queue.
        holder, waiter = Borrower(pool), Borrower(pool)
        with pytest.raises(PoolBusy, match=r"the queue of 1 renders is full \(\[browser\] queue\)"):
            await Borrower(pool).task
        await state(pool, "0 idle, 1 busy, 1 waiting")
        started = time.monotonic()
        with pytest.raises(PoolBusy, match=r"the queue of 1 renders is full \(\[browser\] queue\)"):
            await Borrower(pool).task
        assert time.monotonic() - started < SECONDS / 2
        await holder.give_back()
        await waiter.give_back()
        await state(pool, "1 idle, 0 busy, 0 waiting")


async def test_a_broken_page_is_replaced(seen: set[int]) -> None:
    async with pool_of(2) as pool:
        async with pool.place() as place, pool.page(place, SECONDS) as page:
            page.broken = True
            seen.update(processes.sessions())
        await state(pool, "2 idle, 0 busy, 0 waiting")
        first, second = Borrower(pool), Borrower(pool)
        await state(pool, "0 idle, 2 busy, 0 waiting")
        assert page not in (first.page, second.page)
        assert pool.browsers_started == 1
        await first.give_back()
        await second.give_back()
        # Two pages and nothing more: the broken one was closed.
        for session in seen:
            async with asyncio.timeout(SECONDS):
                while len(processes.of_kind(session, "renderer")) > 3:
                    await asyncio.sleep(0.01)


async def test_a_page_that_fails_its_trial_is_closed(seen: set[int]) -> None:
    async def fail_once(page: Page) -> None:
        tried.append(page)
        if len(tried) == 1:
            raise ValueError("a fault of ours")

    tried: list[Page] = []
    async with pool_of(1, try_out=fail_once) as pool:
        await state(pool, "1 idle, 0 busy, 0 waiting")
        assert pool.browsers_started == 1
        seen.update(processes.sessions())
        listeners = [task.get_name() for task in asyncio.all_tasks()]
        assert f"proxy at port {tried[0].context.proxy.port}" not in listeners
        assert f"proxy at port {tried[1].context.proxy.port}" in listeners


async def test_a_page_is_weighed_while_the_time_to_renew_it_has_just_expired() -> None:
    async with pool_of(1) as pool, pool.place() as place, pool.page(place, SECONDS) as page:
        with suppress(TimeoutError):
            async with asyncio.timeout(0) as limit:
                await asyncio.Event().wait()
        page._renewing = limit, -1.0
        page.weigh()


async def test_a_page_comes_back_after_its_borrower_left_while_it_was_exchanged() -> None:
    async with pool_of(1) as pool:
        async with pool.place() as place, pool.page(place, SECONDS) as page:
            with page.visit(None):
                pass
        await state(pool, "1 idle, 0 busy, 0 waiting")
        assert pool._stock is not None
        async with pool._stock.making:
            exchanging = Borrower(pool, first=True)
            async with asyncio.timeout(SECONDS):
                while not page.broken:
                    await asyncio.sleep(0.01)
            exchanging.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await exchanging.task
        await state(pool, "1 idle, 0 busy, 0 waiting")
        assert pool.browsers_started == 1


async def test_a_page_that_breaks_while_it_is_idle_is_not_lent() -> None:
    async with pool_of(1) as pool:
        async with pool.place() as place, pool.page(place, SECONDS) as page:
            pass
        await state(pool, "1 idle, 0 busy, 0 waiting")
        page.broken = True
        async with pool.place() as place, pool.page(place, SECONDS) as other:
            assert other is not page
        await state(pool, "1 idle, 0 busy, 0 waiting")


async def test_the_end_of_the_pool_is_told_to_those_who_wait() -> None:
    async with pool_of(1) as pool:
        holder, waiter = Borrower(pool), Borrower(pool)
        await state(pool, "0 idle, 1 busy, 1 waiting")
    with pytest.raises(BrowserGone, match="shutting down"):
        await asyncio.wait_for(waiter.task, 1)
    with pytest.raises(BrowserGone, match="shutting down"):
        await Borrower(pool).task
    with pytest.raises(BrowserGone, match=r"closed|died"):
        await holder.give_back()
    assert "0 idle, 0 busy, 0 waiting, no browser" in repr(pool)


async def test_no_browser_can_be_started() -> None:
    """Waiting callers get an error soon. Starts are retried, with pauses, until one succeeds."""
    async with pool_of(1, failing=range(1, 5)) as pool:
        waiters = [Borrower(pool) for _ in range(3)]
        started = time.monotonic()
        # This one has a place, and does not wait for a page yet.
        with pytest.raises(BrowserGone, match="/nonexistent"):
            async with pool.place():
                await asyncio.sleep(SECONDS)
        for waiter in waiters:
            with pytest.raises(BrowserGone, match="/nonexistent"):
                await waiter.task
        with pytest.raises(BrowserGone):
            await Borrower(pool).task
        assert time.monotonic() - started < SECONDS / 2
        await state(pool, "1 idle, 0 busy, 0 waiting")
        # 0.1, 0.2, 0.4 and 0.8 s, give or take a fifth; the last failure is a bug of the proxy.
        assert 1.2 < time.monotonic() - started < SECONDS
        assert pool.browsers_started == 1


WORKER = """onconnect = async ({ports: [port]}) => {
  port.postMessage(await (await fetch("/data")).text());
};"""
SHARING = """<p id=out></p><script>
  new SharedWorker("/w.js").port.onmessage = ({data}) => { out.textContent = data; };
</script>"""
VICTIMS = ["browser", "wrapper", "guardian", "renderer", "zygote"]


@pytest.mark.ci_only
@pytest.mark.parametrize("victim", sampled(VICTIMS, 3))
async def test_an_idle_browser_loses_a_process(
    start_origin: StartOrigin, start_own_proxy: StartProxy, seen: set[int], victim: str
) -> None:
    _, proxy = await shop_and_proxy(start_origin, start_own_proxy, 1)
    assert await crawl(proxy, 0) == 200
    pool = proxy.running.pool
    await state(pool, "1 idle, 0 busy, 0 waiting")
    (session,) = processes.sessions()
    seen.add(session)
    if not processes.of_kind(session, victim):
        pytest.skip(f"this browser has no {victim}")
    processes.kill(session, victim)
    async with asyncio.timeout(SECONDS):
        number = 1
        while await crawl(proxy, number) != 200:
            number += 1
            await asyncio.sleep(0.05)
    # A dead browser is noticed before its pages are lent; a dead page may be lent once or twice.
    assert number == 1 if victim in ("browser", "wrapper", "guardian") else number < 4
    await state(pool, "1 idle, 0 busy, 0 waiting")
    seen.update(processes.sessions())
    if victim in ("browser", "wrapper", "guardian"):
        await processes.all_gone([session])
        async with asyncio.timeout(SECONDS):
            while pool.browsers_started < 2:
                await asyncio.sleep(0.01)
    assert await crawl(proxy, 5) == 200


async def test_the_browser_is_killed_under_load(
    start_origin: StartOrigin, start_own_proxy: StartProxy, seen: set[int]
) -> None:
    """2 renders run and 2 wait. The two are unaffected, and the others are repeated once."""
    shop, proxy = await shop_and_proxy(start_origin, start_own_proxy, 2)
    shop.open.clear()
    crawls = [asyncio.create_task(crawl(proxy, number)) for number in range(4)]
    await shop.holds(2)
    await state(proxy.running.pool, "0 idle, 2 busy, 2 waiting")
    seen.update(processes.sessions())
    processes.kill(max(seen), "browser")
    await processes.all_gone(seen)
    shop.open.set()
    async with asyncio.timeout(SECONDS):
        statuses = await asyncio.gather(*crawls)
    assert statuses == [200] * 4
    await state(proxy.running.pool, "2 idle, 0 busy, 0 waiting")
    seen.update(processes.sessions())


@pytest.mark.ci_only
async def test_a_busy_page_crashes(
    start_origin: StartOrigin, start_own_proxy: StartProxy, seen: set[int]
) -> None:
    """Its render is repeated on another page, the other continues, and a new page replaces it."""
    shop, proxy = await shop_and_proxy(start_origin, start_own_proxy, 2)
    pool = proxy.running.pool
    await state(pool, "2 idle, 0 busy, 0 waiting")
    seen.update(processes.sessions())
    shop.open.clear()
    crawls = [asyncio.create_task(crawl(proxy, number)) for number in range(2)]
    await shop.holds(2)
    busiest = sorted(pool._busy, key=lambda page: page.number)
    crashed = busiest[1]._tab.session.call("Page.crash")
    with pytest.raises(BrowserGone):
        await asyncio.wait_for(crashed, SECONDS)
    shop.open.set()
    watch = processes.Stopwatch()
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*crawls) == [200] * 2
    # At once, and not when the patience for a silent page is at its end.
    assert watch.seconds < 3
    await state(pool, "2 idle, 0 busy, 0 waiting")
    assert pool.browsers_started == 1


async def test_a_page_that_crashes_and_then_needs_a_new_context(
    start_origin: StartOrigin, start_own_proxy: StartProxy
) -> None:
    """Three attempts: on a page that crashes, on one that another page has used, and on a new one."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def data(_: web.Request) -> web.Response:
        return web.Response(text="text")

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=SHARING, content_type="text/html")

    async def worker(_: web.Request) -> web.Response:
        asked.set()
        await go_on.wait()
        return web.Response(text=WORKER, content_type="text/javascript")

    application = web.Application()
    application.add_routes([web.get("/", page), web.get("/data", data), web.get("/w.js", worker)])
    origin = await start_origin(application)
    proxy = await start_own_proxy(
        origin.url, {"browser": {"pages": 2}, "site": {"url": "https://www.example.com"}}
    )
    pool = proxy.running.pool
    await state(pool, "2 idle, 0 busy, 0 waiting")
    assert pool._stock is not None
    for used in pool._stock.idle:
        with used.visit(None):
            pass
    crawled = asyncio.create_task(proxy.crawl("/"))
    async with asyncio.timeout(SECONDS):
        await asked.wait()
        # No page can be opened until both are lost.
        async with pool._stock.making:
            (busy,) = pool._busy
            crashed = busy._tab.session.call("Page.crash")
            with pytest.raises(BrowserGone):
                await crashed
            go_on.set()
            await state(pool, "0 idle, 0 busy, 1 waiting")
    reply = await crawled
    assert (reply.status, ">text<" in reply.text) == (200, True)
    await state(pool, "2 idle, 0 busy, 0 waiting")


@pytest.mark.ci_only
async def test_all_renderers_are_killed_under_load(
    start_origin: StartOrigin, start_own_proxy: StartProxy, seen: set[int]
) -> None:
    shop, proxy = await shop_and_proxy(start_origin, start_own_proxy, 2)
    await state(proxy.running.pool, "2 idle, 0 busy, 0 waiting")
    seen.update(processes.sessions())
    shop.open.clear()
    crawls = [asyncio.create_task(crawl(proxy, number)) for number in range(4)]
    await shop.holds(2)
    processes.kill(max(seen), "renderer")
    shop.open.set()
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*crawls) == [200] * 4
    await state(proxy.running.pool, "2 idle, 0 busy, 0 waiting")


@pytest.mark.ci_only
async def test_a_browser_stops_in_the_middle_of_a_render(
    start_origin: StartOrigin, start_own_proxy: StartProxy, seen: set[int]
) -> None:
    shop, proxy = await shop_and_proxy(start_origin, start_own_proxy, 1)
    shop.open.clear()
    rendering = asyncio.create_task(crawl(proxy, 1))
    await shop.holds(1)
    seen.update(processes.sessions())
    (process,) = processes.of_kind(max(seen), "browser")
    os.kill(process.pid, signal.SIGSTOP)
    await processes.all_gone(seen)
    shop.open.set()
    async with asyncio.timeout(SECONDS):
        assert await rendering == 200
    await state(proxy.running.pool, "1 idle, 0 busy, 0 waiting")


@pytest.mark.ci_only
async def test_a_helper_of_the_browser_dies_under_load(
    start_origin: StartOrigin, start_own_proxy: StartProxy, seen: set[int]
) -> None:
    """Chromium keeps running but starts no more renderers. The renders are repeated."""
    shop, proxy = await shop_and_proxy(start_origin, start_own_proxy, 2)
    pool = proxy.running.pool
    await state(pool, "2 idle, 0 busy, 0 waiting")
    seen.update(processes.sessions())
    shop.open.clear()
    crawls = [asyncio.create_task(crawl(proxy, number)) for number in range(4)]
    await shop.holds(2)
    processes.kill(max(seen), "zygote")
    await processes.all_gone(seen)
    shop.open.set()
    async with asyncio.timeout(SECONDS):
        assert await asyncio.gather(*crawls) == [200] * 4
    assert pool.browsers_started == 2
    await state(pool, "2 idle, 0 busy, 0 waiting")


async def test_a_render_that_ends_while_its_browser_is_dying_does_not_count(seen: set[int]) -> None:
    """The kernel reports the end of a process later than the pages can notice it."""
    async with pool_of(1) as pool:

        async def lose_zygotes() -> None:
            async with pool.place() as place, pool.page(place, SECONDS):
                seen.update(processes.sessions())
                processes.kill(max(seen), "zygote")
                # Without the event loop, which would be told.
                deadline = time.monotonic() + SECONDS
                while processes.of_kind(max(seen), "zygote"):
                    assert time.monotonic() < deadline

        with pytest.raises(BrowserGone, match=r"process .* died"):
            await lose_zygotes()
        await state(pool, "1 idle, 0 busy, 0 waiting")
        assert pool.browsers_started == 2


async def test_a_process_of_the_browser_stops_under_load(
    start_origin: StartOrigin, start_own_proxy: StartProxy, seen: set[int]
) -> None:
    """The browser itself responds, but whatever needs that process would wait forever."""
    shop, proxy = await shop_and_proxy(start_origin, start_own_proxy, 1)
    await state(proxy.running.pool, "1 idle, 0 busy, 0 waiting")
    seen.update(processes.sessions())
    shop.open.clear()
    rendering = asyncio.create_task(crawl(proxy, 1))
    await shop.holds(1)
    stopped = processes.of_kind(max(seen), "renderer")
    for process in stopped:
        os.kill(process.pid, signal.SIGSTOP)
    shop.open.set()
    async with asyncio.timeout(SECONDS):
        assert await rendering == 200
    await state(proxy.running.pool, "1 idle, 0 busy, 0 waiting")
    assert not any(process.is_running() for process in stopped)


async def test_a_flood_of_one_section_leaves_places_to_others(
    start_origin: StartOrigin, start_own_proxy: StartProxy
) -> None:
    shop, proxy = await shop_and_proxy(start_origin, start_own_proxy, 1, queue=4)
    pool = proxy.running.pool
    await state(pool, "1 idle, 0 busy, 0 waiting")
    shop.open.clear()
    flood = [asyncio.create_task(crawl(proxy, f"search?q={number}")) for number in range(20)]
    await shop.holds(1)
    await state(pool, "0 idle, 1 busy, 4 waiting")
    refused = [task for task in flood if task.done()]
    assert [task.result() for task in refused] == [503] * 15
    others = [asyncio.create_task(crawl(proxy, name)) for name in ("about", "news")]
    async with asyncio.timeout(SECONDS):
        while sum(task.done() for task in flood) < 17:
            await asyncio.sleep(0.01)
    shop.open.set()
    # They are rendered between the two of the flood that are still there.
    assert await asyncio.gather(*others) == [200, 200]
    assert sorted(await asyncio.gather(*flood)) == [200] * 3 + [503] * 17


async def test_who_is_not_admitted_costs_the_origin_nothing(
    start_origin: StartOrigin, start_own_proxy: StartProxy
) -> None:
    """Two documents are held back: of five requests, two are admitted and three refused."""
    go_on = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await go_on.wait()
        return web.Response(text="<p>at last", content_type="text/html")

    application = web.Application()
    application.router.add_get("/", slow)
    origin = await start_origin(application)
    proxy = await start_own_proxy(origin.url, {"browser": {"pages": 1, "queue": 1}})
    await state(proxy.running.pool, "1 idle, 0 busy, 0 waiting")
    crawls = [asyncio.create_task(proxy.crawl(f"/#!{number}")) for number in range(5)]
    done: set[asyncio.Task[Reply]] = set()
    async with asyncio.timeout(SECONDS):
        while len(done) < 3:
            done, _ = await asyncio.wait(crawls, return_when=asyncio.FIRST_COMPLETED, timeout=0.01)
    assert {(task.result().status, "Retry-After" in task.result().headers) for task in done} == {
        (503, True)
    }
    go_on.set()
    answers = await asyncio.gather(*crawls)
    assert sorted(answer.status for answer in answers) == [200, 200, 503, 503, 503]
    assert origin.count("/") == 2


async def test_a_client_who_leaves_while_it_waits_is_not_rendered_for(
    start_origin: StartOrigin, start_own_proxy: StartProxy
) -> None:
    shop, proxy = await shop_and_proxy(start_origin, start_own_proxy, 1)
    pool = proxy.running.pool
    await state(pool, "1 idle, 0 busy, 0 waiting")
    shop.open.clear()
    rendered = asyncio.create_task(crawl(proxy, "rendered"))
    await shop.holds(1)
    abandoned, shared, partner = (
        asyncio.create_task(crawl(proxy, name)) for name in ("left", "shared", "shared")
    )
    await state(pool, "0 idle, 1 busy, 2 waiting")
    for leaving in (rendered, abandoned, shared):
        leaving.cancel()
    # One of two who wait for the same page goes on waiting.
    await state(pool, "0 idle, 1 busy, 1 waiting")
    shop.open.set()
    assert await partner == 200
    await state(pool, "1 idle, 0 busy, 0 waiting")
    # What had begun was finished and kept: it is there now.
    shop.open.clear()
    assert await crawl(proxy, "rendered") == 200
    assert sorted(shop.asked) == ["rendered", "shared"]


async def test_a_page_cannot_take_a_page_away(
    start_origin: StartOrigin, start_own_proxy: StartProxy
) -> None:
    """Names that the library cannot parse do not cost the pool the page that requested them. The page
    learns that they do not exist.
    """
    odd = [
        *("http://xn--a/", "https://xn--a/", "http://xn--0.com/", "http://a_b.example/"),
        "http://%E2%98%83.net/",
    ]
    fetches = "".join(f"fetch('{url}').catch(() => {{ out.textContent += '!'; }});" for url in odd)
    origin = await pages(start_origin, {"/": f"<p id=out>odd</p><script>{fetches}</script>"})
    proxy = await start_own_proxy(origin.url, {"browser": {"pages": 1}})
    for number in range(2):
        answer = await proxy.crawl(f"/#!{number}")
        assert f">odd{'!' * len(odd)}<" in answer.text
    await state(proxy.running.pool, "1 idle, 0 busy, 0 waiting")
