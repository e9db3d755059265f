"""Pages of jobs are rendered once, with spare browser capacity, by all replicas together."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from prerender.admin.page_urls import Site
from prerender.crawlers.triggers import Paths, Triggers
from prerender.errors import NotRenderable, OriginError
from prerender.extensions.jobs import jobs as jobs_module
from prerender.extensions.jobs import worker as worker_module
from prerender.extensions.jobs.file import FileJobs
from prerender.extensions.jobs.job import JobProgress, JobStore, WaitingPage
from prerender.extensions.jobs.jobs import Jobs, TooManyJobs, since
from prerender.extensions.jobs.redis import RedisJobs
from prerender.extensions.jobs.worker import Worker
from prerender.sitemaps.parsing import Listed
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.backing_store import BackingCache
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.redis import RedisCache
from prerender.snapshots.stores.store import Store
from prerender.urls.tracking import NO_TRACKING
from tests.support.redis_server import RedisServer
from tests.support.renders import PUBLIC, Renders, freshness_of, target, until

SECONDS = 20.0


class Spare:
    """The capacity of a browser that a test controls."""

    def __init__(self) -> None:
        self.room = True
        self.page = True
        self.crowded = False

    def has_room(self) -> bool:
        return self.room

    def has_page(self) -> bool:
        return self.page

    def is_crowded(self) -> bool:
        return self.crowded


class Sitemaps:
    """The pages of sitemaps, whose reading a test can stop."""

    def __init__(self, *pages: str) -> None:
        self.pages = pages
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, _: list[str], failed: Callable[[Any], None]) -> AsyncIterator[Listed]:
        for page in self.pages:
            yield Listed(page)
        await self.gate.wait()
        failed("broken: status 500")


class Replica:
    """A replica with a browser of its own."""

    def __init__(
        self, kept: JobStore, cache: BackingCache | None = None, retry_seconds: float = 0.0
    ) -> None:
        self.renders = Renders()
        self.spare = Spare()
        self.sitemaps = Sitemaps()
        store = Store(BoundedMemoryCache(10**6), cache)
        freshness = freshness_of(1000.0, rules=(("/never", 0.0),))
        self.cached = CachedSnapshots(self.renders, store, freshness, 5.0)
        site = Site(PUBLIC, NO_TRACKING)
        triggers = Triggers(paths=Paths(exclude=("/private*", "/#!/my/*")))
        self.jobs = Jobs(kept, store, site, triggers, self.sitemaps)  # type: ignore[arg-type]
        self.worker = Worker(
            self.jobs,
            self.cached,
            store,
            freshness,
            site,
            spare=self.spare,  # type: ignore[arg-type]
            claim_seconds=60,
            retry_seconds=retry_seconds,
        )

    async def done(self, job: str) -> JobProgress:
        """A job when it is done."""
        async with asyncio.timeout(SECONDS):
            while True:
                found = await self.jobs.progress(job)
                assert found is not None
                if found.state == "done":
                    return found
                await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_NEXT_SECONDS", 0.001)
    monkeypatch.setattr(worker_module, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(worker_module, "_IDLE_SECONDS", 0.01)
    monkeypatch.setattr(worker_module, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(worker_module, "_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(worker_module, "_LOW_SECONDS", 1e9)
    monkeypatch.setattr(worker_module, "_STORE_AWAY_SECONDS", 0.05)


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    found = Replica(FileJobs(None))
    async with found.worker.working():
        yield found
    await found.cached.close()


def listed(*paths: str) -> list[Listed]:
    return [Listed(path) for path in paths]


async def outcomes(replica: Replica, job: str) -> dict[str, str | None]:
    rows, _ = await replica.jobs.job_store.rows(job, "", "", 10_000)
    return {path: result.outcome if result else None for path, result in rows}


async def test_outcomes(replica: Replica) -> None:
    await replica.cached.snapshot(target("/old"))
    await replica.cached.snapshot(target("/keeps"))
    replica.renders.fails |= {"/fails", "/keeps"}
    pages = ["/a", "/a#!", "/a#part", "/#!b", "/?_escaped_fragment_=b", "https://www.example.com/c",
             "https://other.example/", "", "/private/x", "/" + "x" * 3000, "/fails", "/keeps",
             "/never", "/old", "/#!/my/1"]  # fmt: skip
    job = (await replica.jobs.create(listed(*pages))).id
    ended = await replica.done(job)
    assert ended.duplicates == 3
    found = await outcomes(replica, job)
    assert found.pop("/" + "x" * 299) == "invalid"
    assert found == {
        "/a": "rendered", "/#!b": "rendered", "/c": "rendered", "/old": "rendered",
        "https://other.example/": "invalid", '""': "invalid", "/private/x": "invalid",
        "/#!/my/1": "invalid",
        "/fails": "failed", "/keeps": "kept", "/never": "not_stored",
    }  # fmt: skip
    # Those that failed were rendered twice.
    assert replica.renders.count == 2 + 4 + 2 + 2
    assert ended.outcomes == {
        "rendered": 4, "invalid": 5, "failed": 1, "kept": 1, "not_stored": 1,
    }  # fmt: skip


async def test_a_render_that_began_before_the_job_is_not_what_it_wants(replica: Replica) -> None:
    replica.renders.gate.clear()
    waiting = asyncio.create_task(replica.cached.snapshot(target("/a")))
    await until(lambda: replica.renders.running)
    job = (await replica.jobs.create(listed("/a"))).id
    replica.renders.gate.set()
    async with asyncio.timeout(SECONDS):
        await waiting
    await replica.done(job)
    assert await outcomes(replica, job) == {"/a": "rendered"}
    assert replica.renders.count == 2


async def test_pages_that_are_missing_and_files(replica: Replica) -> None:
    replica.renders.error = NotRenderable("status 404", answered_with=404)
    job = (await replica.jobs.create(listed("/gone"))).id
    await replica.done(job)
    replica.renders.error = NotRenderable("application/pdf")
    file = (await replica.jobs.create(listed("/file"))).id
    await replica.done(file)
    assert (await outcomes(replica, job)) == {"/gone": "missing"}
    assert (await outcomes(replica, file)) == {"/file": "not_a_page"}


async def test_fresh_pages_are_left_alone_if_that_is_wanted(replica: Replica) -> None:
    await replica.cached.snapshot(target("/a"))
    await replica.cached.snapshot(target("/changed"))
    pages = [Listed("/a", time.time() - 1e6), Listed("/changed", time.time() + 1e6), Listed("/new")]
    job = (await replica.jobs.create(pages, stale_only=True)).id
    await replica.done(job)
    assert await outcomes(replica, job) == {
        "/a": "fresh", "/changed": "rendered", "/new": "rendered",
    }  # fmt: skip


async def test_overlapping_jobs_render_a_page_once(replica: Replica) -> None:
    replica.spare.room = replica.spare.page = False
    one, two = [(await replica.jobs.create(listed("/a", "/b", "/c"))).id for _ in range(2)]
    replica.spare.room = True
    for job in (one, two):
        await replica.done(job)
    # A render that began after both were created is for both.
    assert sorted(replica.renders.rendered) == ["/a", "/b", "/c"]


async def test_a_page_that_gives_way_is_not_started_before_it_is_put_back(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, put_back = asyncio.Event(), replica.jobs.job_store.put_back
    late: list[str] = []

    async def put_back_late(job: str, page: WaitingPage, seconds: float) -> None:
        late.append(job)
        await slow.wait()
        await put_back(job, page, seconds)

    replica.renders.gate.clear()
    one = (await replica.jobs.create(listed("/a"))).id
    await until(lambda: replica.renders.running == 1)
    monkeypatch.setattr(replica.jobs.job_store, "put_back", put_back_late)
    assert replica.cached.cancel_refresh(target("/a").key)
    two = (await replica.jobs.create(listed("/a"), priority="high")).id
    await until(lambda: late == [one, two])
    assert replica.renders.running == 0
    slow.set()
    replica.renders.gate.set()
    for job in (one, two):
        assert (await replica.done(job)).outcomes == {"rendered": 1}


async def test_high_priority_comes_first_and_equals_take_turns(replica: Replica) -> None:
    replica.spare.room = replica.spare.page = False
    low = await replica.jobs.create(listed("/l1"), priority="low")
    for name in "ab":
        await replica.jobs.create(listed(f"/{name}1", f"/{name}2"))
    await replica.jobs.create(listed("/h1", "/h2"), priority="high")
    # One at a time: the CPUs are busy.
    replica.spare.page = True
    await until(lambda: len(replica.renders.rendered) == 6, SECONDS)
    assert replica.renders.rendered == ["/h1", "/h2", "/a1", "/b1", "/a2", "/b2"]
    replica.spare.room = True
    await replica.done(low.id)


async def test_crawlers_come_first(replica: Replica) -> None:
    replica.renders.gate.clear()
    job = (await replica.jobs.create(listed("/a"))).id
    await until(lambda: replica.renders.running == 1)
    replica.spare.room = replica.spare.page = False
    replica.spare.crowded = True
    await until(lambda: replica.renders.running == 0)
    replica.spare.crowded = False
    await until(lambda: replica.worker._gave_way)
    replica.renders.gate.set()
    replica.spare.room = True
    ended = await replica.done(job)
    assert not replica.worker._gave_way
    assert ended.outcomes == {"rendered": 1}


async def test_cancel_while_rendering(replica: Replica) -> None:
    replica.renders.gate.clear()
    job = (await replica.jobs.create(listed("/a", "/b"))).id
    await until(lambda: replica.renders.running == 2)
    await replica.jobs.cancel(job)
    await until(lambda: replica.renders.running == 0 and not replica.worker._running)
    found = await replica.jobs.progress(job)
    assert found is not None
    assert (found.state, found.waiting) == ("cancelled", 2)


async def test_a_failing_origin_is_left_alone_and_nothing_is_lost(replica: Replica) -> None:
    replica.renders.error = OriginError("down")
    job = (await replica.jobs.create(listed(*(f"/{n}" for n in range(4))))).id
    await until(lambda: replica.worker._failures > 3, SECONDS)
    assert replica.worker._paused_until > time.monotonic()
    replica.renders.error = None
    ended = await replica.done(job)
    assert ended.pages == sum(ended.outcomes.values()) == 4
    assert ended.outcomes["rendered"]


async def test_sitemaps_are_rendered_while_they_are_read(replica: Replica) -> None:
    replica.sitemaps.pages = tuple(f"https://www.example.com/{n}" for n in range(1001))
    replica.sitemaps.gate.clear()
    job = await replica.jobs.create(sitemaps=["/sitemap.xml"])
    assert job.sitemaps == ("https://www.example.com/sitemap.xml",)
    await until(lambda: replica.renders.rendered, SECONDS)
    found = await replica.jobs.progress(job.id)
    assert found is not None
    assert (found.state, found.pages) == ("reading", 1000)
    await replica.jobs.cancel(job.id)
    # Its sitemaps are not read to their end.
    await until(lambda: not replica.worker._filling, SECONDS)
    assert not replica.jobs.is_filled(job)
    found = await replica.jobs.progress(job.id)
    assert found is not None
    assert (found.state, found.pages, found.note) == ("cancelled", 1000, "")


async def test_a_sitemap_that_cannot_be_read(replica: Replica) -> None:
    job = (await replica.jobs.create(sitemaps=["/sitemap.xml"])).id
    ended = await replica.done(job)
    assert (ended.pages, ended.note) == (0, "broken: status 500")


async def test_jobs_are_bounded(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "MOST_JOBS", 2)
    for _ in range(4):  # old ones make room
        await replica.done((await replica.jobs.create(listed("/a"))).id)
    assert len(await replica.jobs.job_store.jobs()) == 2
    replica.renders.gate.clear()
    for _ in range(2):
        await replica.jobs.create(listed("/a"))
    with pytest.raises(TooManyJobs):
        await replica.jobs.create(listed("/a"))
    with pytest.raises(ValueError, match=r"sitemap: .*give a URL of https://www\.example\.com"):
        await replica.jobs.create(sitemaps=["https://other.example/sitemap.xml"])
    with pytest.raises(ValueError, match="sitemap: the URL is too long"):
        replica.jobs.sitemap("/" + "x" * 3000)
    assert replica.jobs.sitemap("/ü b.xml?x#y") == "https://www.example.com/%C3%BC%20b.xml?x"
    replica.renders.gate.set()


@asynccontextmanager
async def replicas(redis: RedisServer, count: int = 2) -> AsyncIterator[list[Replica]]:
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            kept = RedisJobs(redis.url, "prerender:{x:jobs}")
            stack.push_async_callback(kept.close)
            cache = RedisCache(redis.url, "x:", SECONDS)
            stack.push_async_callback(cache.close)
            found.append(Replica(kept, cache))
            stack.push_async_callback(found[-1].cached.close)
        yield found


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    server = RedisServer(tmp_path)
    await server.start()
    yield server
    await server.kill()


async def test_replicas_share_a_job_and_one_goes_on_when_another_ends(redis: RedisServer) -> None:
    async with replicas(redis) as (one, two), AsyncExitStack() as other:
        two.renders.gate.clear()
        await other.enter_async_context(two.worker.working())
        job = (await one.jobs.create(listed(*(f"/{n}" for n in range(40))))).id
        await until(lambda: two.renders.running > 1, SECONDS)
        two.spare.room = two.spare.page = False
        await until(lambda: two.renders.running == len(two.worker._running), SECONDS)
        assert two.renders.running < 40
        async with one.worker.working():
            await until(lambda: len(one.renders.rendered) > 1, SECONDS)
            # It gives its pages back. Those of one that is killed are taken after a minute.
            await other.aclose()
            ended = await one.done(job)
        assert ended.outcomes == {"rendered": 40}
        assert len(one.renders.rendered) == 40


async def test_redis_goes_away_in_the_middle(redis: RedisServer) -> None:
    async with replicas(redis, 1) as (one,), one.worker.working():
        one.renders.gate.clear()
        job = (await one.jobs.create(listed("/a", "/b"))).id
        await until(lambda: one.renders.running == 2, SECONDS)
        await redis.client.save()
        await redis.kill()
        one.renders.gate.set()
        await until(lambda: len(one.worker._unwritten) == 2, SECONDS)
        assert one.worker._running == {}
        await redis.start()
        ended = await one.done(job)
        assert ended.outcomes == {"rendered": 2}
        assert sorted(one.renders.rendered) == ["/a", "/b"]


@pytest.mark.parametrize(
    ("lastmod", "expected"),
    [
        (None, 0.0),
        (86400.0 * 10 + 5, 86400.0 * 10 + 5),
        (86400.0 * 10, 86400.0 * 11),  # the whole day
        (1e12, 2e6),  # in the future
        (-1e9, 0.0),
    ],
)
def test_when_a_page_changed_last(lastmod: float | None, expected: float) -> None:
    assert since(Listed("/", lastmod), 2e6) == expected
