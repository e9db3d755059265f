"""Popular snapshots are rendered again before they expire, with spare capacity."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from prerender.errors import OriginError
from prerender.extensions.refresh_ahead.popularity import Popularity
from prerender.extensions.refresh_ahead.refresher import Refresher
from prerender.rendering.spare_capacity import CPUUsage, SpareCapacity
from prerender.snapshots.entry import Entry
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.backing_store import BackingCache
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.redis import RedisCache
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import Proxy, StartOrigin, StartProxy, pages
from tests.snapshots.test_freshness import asked_for
from tests.support import raw
from tests.support.redis_server import RedisServer, redis_server
from tests.support.renders import Clock, Renders, freshness_of, target, until
from tests.telemetry.test_metrics import until as eventually

TTL = 1000.0
BEFORE = 100.0
FRESHNESS = freshness_of(TTL, rules=(("/short", 60.0), ("/minutes", 150.0)))


class Site:
    """A cache with its refresher. ``idle`` and ``waiting`` are the state of its browser."""

    def __init__(
        self, renders: Renders, clock: Clock, cache: BackingCache | None = None, most: int = 2
    ) -> None:
        self.renders = renders
        self.clock = clock
        self.idle = True
        self.waiting = False
        self.popularity = Popularity()
        store = Store(BoundedMemoryCache(10**6), cache, clock)
        self.cached = CachedSnapshots(renders, store, FRESHNESS, 5.0, clock=clock)
        self.refresher = Refresher(
            self.cached,
            store,
            self.popularity,
            before=BEFORE,
            most=most,
            has_room=lambda: self.idle,
            is_crowded=lambda: self.waiting,
            clock=clock,
        )

    async def ask(self, *paths: str) -> None:
        """Request pages, each twice."""
        for path in (*paths, *paths):
            await self.cached.snapshot(target(path))
            self.popularity(asked_for(target(path)))

    async def refreshed(self) -> list[str]:
        """What is rendered again, and in which order."""
        before = len(self.renders.rendered)
        while await self.refresher.start_next():
            await until(lambda: not self.refresher.running)
        return self.renders.rendered[before:]


@pytest.fixture
def site() -> Site:
    return Site(Renders(), Clock())


async def test_what_expires_soon_is_rendered_again_the_most_requested_first(site: Site) -> None:
    site.refresher._most = 1
    await site.ask("/twice", "/often", "/often", "/often", "/four", "/four")
    await site.cached.snapshot(target("/once"))
    site.popularity(asked_for(target("/once")))
    assert await site.refreshed() == []
    site.clock.now += TTL - 10
    assert await site.refreshed() == ["/often", "/four", "/twice"]
    assert site.refresher.results["refreshed"] == 3
    assert await site.refreshed() == []
    for path in ("/often", "/four", "/twice"):
        found = site.cached.fresh(target(path))
        assert found is not None
        assert found.ttl == TTL


async def test_what_is_not_requested_any_more_is_forgotten(site: Site) -> None:
    await site.ask("/a", "/b", "/b")
    seen = []
    for _ in range(4):
        site.clock.now += TTL - 10
        seen.append(await site.refreshed())
    assert seen == [["/b", "/a"], ["/b"], [], []]


async def test_short_lives(site: Site) -> None:
    """At half of the TTL at the earliest, and never with a TTL below two minutes."""
    await site.ask("/short", "/minutes")
    site.clock.now += 59.0
    assert await site.refreshed() == []
    site.clock.now += 85.0
    assert await site.refreshed() == ["/minutes"]
    assert site.refresher.results == {"refreshed": 1, "failed": 0, "elsewhere": 0, "cancelled": 0}


async def test_nothing_starts_without_room_and_crawlers_get_the_pages(site: Site) -> None:
    await site.ask("/a", "/b", "/c")
    site.clock.now += TTL - 10
    site.idle = False
    assert await site.refreshed() == []
    site.idle = True
    site.renders.gate.clear()
    assert [await site.refresher.start_next() for _ in range(3)] == [True, True, False]
    await until(lambda: site.renders.running == 2)
    # A render waits: first one page is freed, then the other one.
    site.waiting = True
    for left in (1, 0):
        site.refresher.make_room()
        await until(lambda left=left: site.renders.running == left)
    await until(lambda: not site.refresher.running)
    assert site.refresher.results["cancelled"] == 2
    site.waiting = False
    site.renders.gate.set()
    assert sorted(await site.refreshed()) == ["/a", "/b", "/c"]


async def test_a_refresh_that_a_crawler_waits_for_is_not_cancelled(site: Site) -> None:
    await site.ask("/a")
    site.clock.now += TTL - 10
    site.renders.gate.clear()
    assert await site.refresher.start_next()
    await until(lambda: site.renders.running == 1)
    site.clock.now += 20  # expired meanwhile
    crawler = asyncio.create_task(site.cached.snapshot(target("/a")))
    await until(lambda: site.cached._renders._running[target("/a").key].waiting == 1)
    site.waiting = True
    site.refresher.make_room()
    site.renders.gate.set()
    assert (await crawler).how == "coalesced"
    await until(lambda: not site.refresher.running)
    assert site.refresher.results["refreshed"] == 1


async def test_a_failing_origin_is_left_alone_and_the_old_snapshots_stay(site: Site) -> None:
    site.refresher._most = 1
    # When each is due is random: one in five is at this time, so one of many is for certain.
    await site.ask(*(f"/{number}" for number in range(60)))
    site.clock.now += TTL - 90
    site.renders.error = OriginError("down")
    tries = site.renders.count
    pauses = []
    for second in range(60):
        await site.refreshed()
        if site.renders.count > tries:
            tries = site.renders.count
            pauses.append(second)
        site.clock.now += 1
    # After 10 seconds, 20 more, 40 more.
    assert pauses == [0, 10, 30]
    assert site.refresher.results["failed"] == 3
    assert site.cached.fresh(target("/0")) is not None
    site.renders.error = None
    site.clock.now += 10 + 1
    assert len(await site.refreshed()) > 0


@asynccontextmanager
async def replicas(redis: RedisServer, clock: Clock) -> AsyncIterator[list[Site]]:
    caches = [RedisCache(redis.url, "test:", raw.SECONDS) for _ in range(2)]
    yield [Site(Renders(), clock, cache, most=4) for cache in caches]
    for cache in caches:
        await cache.close()


async def test_replicas_refresh_each_snapshot_once(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as redis, replicas(redis, Clock(time.time())) as (one, other):
        paths = [f"/{number}" for number in range(10)]
        await one.ask(*paths)
        await other.ask(*paths)
        one.clock.now += TTL - 10
        await asyncio.gather(one.refreshed(), other.refreshed())
        rendered = one.renders.rendered[10:] + other.renders.rendered
        assert sorted(rendered) == paths
        assert one.refresher.results["refreshed"] + other.refresher.results["refreshed"] == 10


def test_a_sweep_does_not_displace_popular_pages() -> None:
    popularity = Popularity(most=100)
    for _ in range(50):
        popularity(asked_for(target("/popular")))
    for number in range(1000):
        popularity(asked_for(target(f"/{number}")))
    assert popularity.most_first()[0].path == "/popular"
    assert len(popularity.most_first()) <= 100
    for _ in range(6):
        popularity.fade(target("/popular"))
    paths = [found.path for found in popularity.most_first()]
    assert "/popular" not in paths


async def expire(proxy: Proxy, page: Target) -> Entry:
    """Let the snapshot of a page expire in 100 seconds, as if it had been rendered long ago."""
    entry = await proxy.running.store.get(page.key)
    assert entry is not None
    old = replace(entry, stored=entry.stored - 3500, expires=entry.expires - 3500)
    assert await proxy.running.store.set(old, 3600)
    return entry


async def test_a_running_proxy(
    start_origin: StartOrigin, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the settings to the metrics, on a machine that may be busy."""
    monkeypatch.setattr("prerender.rendering.spare_capacity._BUSY_SHARE", 2.0)
    origin = await pages(start_origin, {"/": "<title>t</title><p>content"})
    proxy = await start_proxy(origin.url, {"cache": {"refresh": 0.5}})
    for _ in range(2):
        await proxy.crawl("/#!a")
    page = Target.of(URL(origin.url), PrettyURL("/", "a"))
    entry = await expire(proxy, page)
    await eventually(proxy, "prerender_refreshes_ahead_total", 1, result="refreshed")
    assert origin.count("/") == 2
    new = await proxy.running.store.get(page.key)
    assert new is not None
    assert new.expires >= entry.expires
    assert (await proxy.crawl("/#!a")).headers["Cache-Status"].startswith("prerender; hit; ttl=3")


@pytest.mark.long
async def test_crawlers_get_the_only_page_while_it_refreshes(
    start_origin: StartOrigin, start_own_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a real browser: refreshes are cancelled repeatedly, until no crawler waits."""
    monkeypatch.setattr("prerender.rendering.spare_capacity._BUSY_SHARE", 2.0)
    refreshing, done = asyncio.Event(), asyncio.Event()
    script = (
        "<title>t</title><p id=out>x</p><script>"
        "fetch('%s').then(r => r.text()).then(t => out.textContent = t)</script>"
    )

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/data/slow":
            refreshing.set()
            await asyncio.wait_for(done.wait(), 60)
        if request.path.startswith("/data"):
            return web.Response(text="content")
        data = "/data/slow" if request.path == "/slow" else "/data"
        return web.Response(text=script % data, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    origin = await start_origin(application)
    proxy = await start_own_proxy(origin.url, {"cache": {"refresh": 1}, "browser": {"pages": 1}})
    done.set()
    for _ in range(2):
        assert (await proxy.crawl("/slow#!a")).status == 200
    done.clear()
    await expire(proxy, Target.of(URL(origin.url), PrettyURL("/slow", "a")))
    for number in range(5):
        refreshing.clear()
        await asyncio.wait_for(refreshing.wait(), 60)
        assert (await proxy.crawl(f"/{number}#!a")).status == 200
    done.set()
    found = await eventually(proxy, "prerender_refreshes_ahead_total", 1, result="refreshed")
    assert found.value("prerender_refreshes_ahead_total", result="cancelled") >= 5
    assert found.value("prerender_refreshes_ahead_total", result="failed") == 0


async def test_spare_capacity(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(start_origin, {"/": "<title>t</title><p>content"})
    proxy = await start_proxy(origin.url)
    await proxy.crawl("/#!a")
    usage = CPUUsage()
    assert 0.0 <= usage.share() <= 1.0
    spare = SpareCapacity(proxy.running.pool)
    assert not spare.is_crowded()
