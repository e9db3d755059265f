"""What is served when: fresh, stale while a new one renders, the last good one, never an old one."""

import asyncio
import re
from collections.abc import AsyncIterator
from math import floor

import pytest

from prerender.errors import NotRenderable, OriginError, PoolBusy, PrerenderError, RenderError
from prerender.http.cache_status import cache_status
from prerender.proxy.decision import Reason
from prerender.snapshots.freshness import Freshness
from prerender.snapshots.purges import Purge
from prerender.snapshots.snapshot import CacheResult, Facts, SnapshotResult
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target
from prerender.telemetry.records import RequestRecord
from tests.conftest import StartOrigin, StartProxy, pages
from tests.support.renders import Clock, Renders, freshness_of, target, until

PAGE = target()


def told(answer: SnapshotResult) -> str:
    """The Cache-Status of a response."""
    return cache_status(answer.how, answer.stored, floor(answer.ttl), answer.detail)


def asked_for(page: Target) -> RequestRecord:
    """The record of a request for the snapshot of a page."""
    return RequestRecord(
        time=0.0, seconds=0.0, method="GET", target=page.path, remote="", user_agent="", crawler=None,
        kind="render", reason=Reason.UGLY_URL, source="snapshot", cache=CacheResult.HIT, detail="",
        status=200, sent_bytes=0, error=None, snapshot_target=page, origin_seconds=None, timings=None,
        facts=None, trace=None,
    )  # fmt: skip


class Site:
    """The cache under test, with a store in memory."""

    def __init__(self, freshness: Freshness) -> None:
        self.clock = Clock()
        self.renders = Renders()
        self.store = Store(BoundedMemoryCache(10**6), clock=self.clock)
        self.cached = CachedSnapshots(
            self.renders,
            self.store,
            freshness,
            5.0,
            refreshes=2,
            clock=self.clock,
        )

    async def get(self) -> SnapshotResult:
        return await self.cached.snapshot(PAGE)

    async def status(self) -> str:
        """The Cache-Status of the next response."""
        return told(await self.get())

    async def refreshed(self, count: int) -> None:
        """Wait until this number of renders is done and the last one is stored."""
        await until(lambda: self.renders.count == count and not len(self.cached._renders))


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site(freshness_of(100.0, 10.0, stale=50.0, stale_if_error=1000.0))
    yield made
    await made.cached.close()


async def test_a_stale_snapshot_is_shown_while_a_new_one_is_made(site: Site) -> None:
    assert await site.status() == "prerender; fwd=miss; stored; ttl=100"
    site.clock.now += 101
    site.renders.gate.clear()
    site.renders.text = "new content"
    stale = await asyncio.gather(*(site.get() for _ in range(20)))
    assert {answer.snapshot.body for answer in stale} == {b"<p>content of /"}
    assert told(stale[0]) == "prerender; hit; ttl=-1; detail=stale"
    assert stale[0].age == 101
    await until(lambda: site.renders.running)
    site.renders.gate.set()
    await site.refreshed(2)
    assert await site.status() == "prerender; hit; ttl=100"
    assert (await site.get()).snapshot.body == b"<p>new content of /"


async def test_after_its_window_a_stale_snapshot_is_not_shown(site: Site) -> None:
    await site.get()
    site.clock.now += 151
    site.renders.text = "new"
    answer = await site.get()
    assert (answer.how, answer.snapshot.body) == ("miss", b"<p>new of /")


async def test_the_same_content_keeps_its_validators(site: Site) -> None:
    first = (await site.get()).snapshot
    for count in (2, 3):
        site.clock.now += 101
        await site.get()
        await site.refreshed(count)
        answer = await site.get()
        assert answer.age == 0
        assert answer.snapshot.etag == first.etag
        assert answer.snapshot.last_modified == first.last_modified == 1
    site.renders.text = "other"
    site.clock.now += 1000
    assert (await site.get()).snapshot.last_modified == 4


@pytest.mark.parametrize(
    "error",
    [RenderError("x"), PoolBusy("x"), OriginError("x"), NotRenderable("x", answered_with=503)],
)
async def test_the_last_good_one_is_shown_when_none_can_be_made(
    site: Site, error: PrerenderError
) -> None:
    await site.get()
    site.renders.error = error
    site.clock.now += 500
    answer = await site.get()
    assert told(answer) == "prerender; fwd=stale; detail=failed"
    assert answer.age == 500
    # Nobody waits for the next failure, and the site is not asked again at once.
    assert await site.status() == "prerender; hit; ttl=-400; detail=stale-if-error"
    assert site.renders.count == 2
    site.clock.now += 31
    assert await site.status() == "prerender; fwd=stale; detail=failed"
    assert site.renders.count == 3
    site.clock.now += 600
    with pytest.raises(type(error)):
        await site.get()
    site.renders.error = None
    assert await site.status() == "prerender; fwd=miss; stored; ttl=100"


async def test_a_refresh_that_fails_is_not_tried_at_each_request(site: Site) -> None:
    await site.get()
    site.renders.error = RenderError("x")
    site.clock.now += 101
    assert await site.status() == "prerender; hit; ttl=-1; detail=stale"
    await site.refreshed(2)
    for _ in range(5):
        assert await site.status() == "prerender; hit; ttl=-1; detail=stale"
    assert site.renders.count == 2


async def test_without_an_old_one_an_error_is_an_error(site: Site) -> None:
    site.renders.error = OriginError("x")
    with pytest.raises(OriginError):
        await site.get()


async def test_a_failing_render_fails_for_all_who_wait_with_one_attempt(site: Site) -> None:
    site.renders.error = RenderError("x")
    found = await asyncio.gather(*(site.get() for _ in range(100)), return_exceptions=True)
    assert all(isinstance(error, RenderError) for error in found)
    assert site.renders.count == 1


async def test_only_some_are_renewed_at_once(site: Site) -> None:
    many = [target(f"/{number}") for number in range(10)]
    for one in many:
        await site.cached.snapshot(one)
    site.clock.now += 101
    site.renders.gate.clear()
    for one in many:
        assert (await site.cached.snapshot(one)).detail == "stale"
    await until(lambda: site.renders.running == 2)
    # A new page does not wait for them.
    new = asyncio.create_task(site.cached.snapshot(target("/new")))
    await until(lambda: site.renders.running == 3)
    site.renders.gate.set()
    assert (await new).how == "miss"
    for one in many:
        async with asyncio.timeout(10):
            while (await site.cached.snapshot(one)).detail == "stale":
                await asyncio.sleep(0)
    assert site.renders.count == 21


async def test_what_is_no_page_any_more_is_forgotten(site: Site) -> None:
    await site.get()
    site.renders.error = NotRenderable("status 403")
    site.clock.now += 101
    assert await site.status() == "prerender; hit; ttl=-1; detail=stale"
    await site.refreshed(2)
    with pytest.raises(NotRenderable):
        await site.get()


@pytest.mark.parametrize(("status", "storable"), [(301, False), (200, False), (302, True)])
async def test_what_may_not_be_kept_any_more_is_forgotten(
    site: Site, status: int, storable: bool
) -> None:
    await site.get()
    site.renders.status, site.renders.storable = status, storable
    site.clock.now += 101
    await site.get()
    await site.refreshed(2)
    answer = await site.get()
    assert (answer.how, answer.stored, answer.snapshot.status) == ("miss", False, status)


async def test_a_page_that_says_503_does_not_replace_a_good_one(site: Site) -> None:
    await site.get()
    site.renders.status = 503
    site.clock.now += 500
    assert await site.status() == "prerender; fwd=stale; detail=status-503"
    site.clock.now += 1000
    assert (await site.get()).snapshot.status == 503
    assert (await site.get()).how == "miss"


async def test_missing_pages_have_their_own_time(site: Site) -> None:
    site.renders.status = 404
    assert await site.status() == "prerender; fwd=miss; stored; ttl=10"
    assert await site.status() == "prerender; hit; ttl=10"


async def test_content_that_stays_short_is_the_content(site: Site) -> None:
    await site.get()
    site.renders.text, site.renders.facts = "short", Facts(text_length=1)
    hows = []
    for _ in range(4):
        site.clock.now += 151
        hows.append((await site.get()).how)
    assert hows == ["kept", "kept", "kept", "miss"]


@pytest.mark.parametrize("freshness", [freshness_of(0.0), freshness_of(60.0, rules=(("*", 0.0),))])
async def test_never_is_never(freshness: Freshness) -> None:
    site = Site(freshness)
    for count in (1, 2):
        assert await site.status() == "prerender; fwd=miss"
        assert site.renders.count == count
    together = await asyncio.gather(*(site.get() for _ in range(5)))
    assert site.renders.count == 3
    assert sorted(answer.how for answer in together) == ["coalesced"] * 4 + ["miss"]


async def test_purged_softly_means_stale_and_purged_hard_means_gone(site: Site) -> None:
    site.renders.tags = ("shop",)
    await site.get()
    site.clock.now += 10
    await site.store.purges.purge(Purge("tag", "shop", soft=True))
    site.clock.now += 1
    assert await site.status() == "prerender; hit; ttl=-1; detail=stale"
    await site.refreshed(2)
    assert await site.status() == "prerender; hit; ttl=100"
    await site.store.purges.purge(Purge("tag", "shop"))
    assert await site.status() == "prerender; fwd=miss; stored; ttl=100"
    assert await site.status() == "prerender; hit; ttl=100"


async def test_a_purge_during_a_render_counts_for_it(site: Site) -> None:
    site.renders.gate.clear()
    first = asyncio.create_task(site.get())
    await until(lambda: site.renders.running)
    await site.store.purges.purge(Purge("all"))
    site.renders.gate.set()
    assert (await first).how == "miss"
    assert (await site.get()).how == "miss"
    assert site.renders.count == 2


@pytest.mark.parametrize("how", ["first", "in the background", "not stored"])
async def test_a_request_after_a_purge_does_not_share_a_render_from_before_it(how: str) -> None:
    lifetime = 0.0 if how == "not stored" else 100.0
    site = Site(freshness_of(lifetime, 10.0, stale=50.0))
    if how == "in the background":
        await site.get()
        site.clock.now += 101
    before = site.renders.count
    site.renders.gate.clear()
    async with asyncio.timeout(20):
        first = asyncio.create_task(site.get())
        await until(lambda: site.renders.running)
        site.renders.text = "mended"
        await site.store.purges.purge(Purge("url", "/"))
        later = [asyncio.create_task(site.get()) for _ in range(3)]
        await asyncio.sleep(0)
        site.renders.gate.set()
        old, answers = await first, await asyncio.gather(*later)
    assert old.snapshot.body == b"<p>content of /"
    assert not old.stored
    assert {answer.snapshot.body for answer in answers} == {b"<p>mended of /"}
    assert [answer.how for answer in answers] == ["miss", "coalesced", "coalesced"]
    assert site.renders.count == before + 2
    await site.cached.close()


@pytest.mark.parametrize(
    ("purge", "how"),
    [
        (Purge("url", "/other"), "hit"),
        (Purge("tag", "other"), "hit"),
        (Purge("tag", "shop"), "miss"),
        (Purge("tag", "shop", soft=True), "stale"),
    ],
)
async def test_a_render_counts_for_requests_after_purges_of_other_pages(
    site: Site, purge: Purge, how: str
) -> None:
    """The page sets its tags, which are not known before."""
    site.renders.tags = ("shop",)
    site.renders.gate.clear()
    async with asyncio.timeout(20):
        first = asyncio.create_task(site.get())
        await until(lambda: site.renders.running)
        site.clock.now += 1
        await site.store.purges.purge(purge)
        later = asyncio.create_task(site.get())
        await asyncio.sleep(0)
        site.renders.gate.set()
        assert (await first).stored is (how != "miss")
        assert (await later).how == how


@pytest.mark.parametrize("ends", ["stored", "not stored", "with an error"])
async def test_a_render_is_shared_after_purges_of_other_pages(ends: str) -> None:
    site = Site(freshness_of(100.0 if ends == "stored" else 0.0))
    site.renders.error = RenderError("it fails") if ends == "with an error" else None
    site.renders.gate.clear()
    async with asyncio.timeout(20):
        first = asyncio.create_task(site.get())
        await until(lambda: site.renders.running)
        await site.store.purges.purge(Purge("url", "/other"), Purge("tag", "other"))
        later = asyncio.create_task(site.get())
        await asyncio.sleep(0)
        site.renders.gate.set()
        results = await asyncio.gather(first, later, return_exceptions=True)
    assert site.renders.count == 1
    if ends == "with an error":
        assert all(isinstance(result, RenderError) for result in results)
    else:
        assert [one.how for one in results if isinstance(one, SnapshotResult)] == [
            "miss",
            "hit" if ends == "stored" else "coalesced",
        ]
    await site.cached.close()


async def test_purges_do_not_keep_a_request_from_its_stale_snapshot(site: Site) -> None:
    await site.get()
    site.clock.now += 101
    site.renders.gate.clear()
    async with asyncio.timeout(20):
        assert (await site.get()).how == "stale"
        await until(lambda: site.renders.running)
        await site.store.purges.purge(Purge("all", soft=True))
        assert (await site.get()).how == "stale"
    site.renders.gate.set()


async def test_what_is_purged_while_its_render_fails_is_not_shown(site: Site) -> None:
    await site.get()
    site.clock.now += 500
    site.renders.error = RenderError("x")
    site.renders.gate.clear()
    asking = asyncio.create_task(site.get())
    await until(lambda: site.renders.running)
    await site.store.purges.purge(Purge("url", "/"))
    site.renders.gate.set()
    with pytest.raises(RenderError):
        await asking


async def test_a_renewal_does_not_take_a_render_that_began_before_it(site: Site) -> None:
    """The site, or a purge, may have changed in between. Those that begin later share one."""
    site.renders.gate.clear()
    async with asyncio.timeout(20):
        first = asyncio.create_task(site.get())
        await until(lambda: site.renders.running)
        renewals = [asyncio.create_task(site.cached.renew(PAGE)) for _ in range(3)]
        await asyncio.sleep(0)
        site.renders.gate.set()
        assert (await first).how == "miss"
        answers = await asyncio.gather(*renewals)
    assert [answer.how for answer in answers] == ["miss", "coalesced", "coalesced"]
    assert site.renders.count == 2


async def test_a_snapshot_is_as_old_as_the_beginning_of_its_render(site: Site) -> None:
    """What changed after that may be missing. The TTL counts from the end."""
    site.renders.gate.clear()
    async with asyncio.timeout(20):
        first = asyncio.create_task(site.get())
        await until(lambda: site.renders.running)
        site.clock.now += 5
        site.renders.gate.set()
        await first
        entry = await site.store.get(PAGE.key)
        assert entry is not None
        assert (entry.rendered, entry.expires) == (site.clock.now - 5, site.clock.now + 100)
        again = site.cached.render_since(PAGE, site.clock.now - 1)
        assert again is not None
        assert (await again).how == "miss"


async def test_memory_is_bounded_and_what_was_used_longest_ago_goes() -> None:
    clock = Clock()
    renders = Renders("x" * 50_000)
    memory = BoundedMemoryCache(2_000_000)
    cached = CachedSnapshots(
        renders, Store(memory, clock=clock), freshness_of(100.0), 5.0, clock=clock
    )
    hot = target("/hot")
    await cached.snapshot(hot)
    for number in range(300):
        await cached.snapshot(target(f"/{number}"))
        assert memory.values.used_bytes <= 2_000_000
        assert (await cached.snapshot(hot)).how == "hit"
    assert 20 < len(memory.values) < 60


async def test_stale_in_the_whole_proxy(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    content = {"/": "<p>first"}
    origin = await pages(start_origin, content)
    proxy = await start_proxy(origin.url, {"cache": {"ttl": 0.05, "stale": "1h"}})
    first = await proxy.crawl("/")
    content["/"] = "<p>second"
    async with asyncio.timeout(10):
        while (
            (answer := await proxy.crawl("/"))
            .headers["Cache-Status"]
            .startswith("prerender; hit; ttl=0")
        ):
            pass
    status = answer.headers["Cache-Status"]
    assert re.fullmatch(r"prerender; hit; ttl=-\d+; detail=stale; age=\d+", status)
    assert answer.headers["Cache-Control"] == "no-cache"
    assert answer.body == first.body
    async with asyncio.timeout(10):
        while "second" not in (await proxy.crawl("/")).text:
            pass
    not_modified = await proxy.crawl("/", headers={"If-None-Match": first.headers["ETag"]})
    assert not_modified.status == 200


async def test_a_pages_own_word_and_codings_in_the_whole_proxy(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    meta = '<meta name="prerender-cache-ttl" content="7"><meta name="prerender-cache-tags" content="a">'
    origin = await pages(start_origin, {"/": f"<head>{meta}</head><p>{'text ' * 500}"})
    proxy = await start_proxy(origin.url, {"cache": {"page_ttl": True}})
    first = await proxy.crawl("/?utm_source=x#!a")
    assert first.headers["Cache-Status"] == "prerender; fwd=miss; stored; ttl=7"
    assert "prerender-cache" not in first.text
    assert [request.raw_path for request in origin.requests] == ["/"]
    etags = {first.headers["ETag"]}
    for coding in ("gzip", "br", "zstd"):
        answer = await proxy.crawl("/#!a", headers={"Accept-Encoding": coding})
        assert answer.headers["Content-Encoding"] == coding
        assert answer.headers["Vary"] == "Accept-Encoding"
        assert answer.headers["Cache-Status"].startswith("prerender; hit;")
        assert len(answer.body) < len(first.body) / 2
        etags.add(answer.headers["ETag"])
        condition = {"Accept-Encoding": coding, "If-None-Match": answer.headers["ETag"]}
        not_modified = await proxy.crawl("/#!a", headers=condition)
        assert not_modified.status == 304
        assert not_modified.headers["Vary"] == "Accept-Encoding"
        assert "Content-Encoding" not in not_modified.headers
        other = await proxy.crawl("/#!a", headers={"If-None-Match": answer.headers["ETag"]})
        assert other.status == 200
    assert len(etags) == 4
