"""Pages with problems: present ones first, and none that is old."""

import time
from pathlib import Path

import pytest

from prerender.errors import ErrorCode, StoreError
from prerender.extensions.dashboard.histories import Histories
from prerender.extensions.dashboard.history import History, encode
from prerender.extensions.dashboard.recent_activity import PageRenders, Recent
from prerender.extensions.dashboard.stored_problems import StoredProblems
from prerender.snapshots.stores.from_settings import open_store
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.notes import Notes
from prerender.snapshots.target import Target
from prerender.telemetry.crawler_requests import CrawlerRequests
from prerender.telemetry.records import Channel, RenderOutcome, RenderRecord
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import settings_for
from tests.support.redis_server import redis_server
from tests.support.renders import PUBLIC, until

NOW = float(int(time.time()))


def record(path: str, seconds: float, outcome: RenderOutcome) -> RenderRecord:
    return RenderRecord(
        time=NOW + seconds,
        seconds=1.0,
        target=Target.of(PUBLIC, PrettyURL(path, "")),
        outcome=outcome,
        error=ErrorCode.RENDER_TIMEOUT if outcome is RenderOutcome.FAILED else None,
        reason="",
        status=0,
        bytes=0,
        timings=None,
        facts=None,
        trace=None,
    )


def test_present_problems_come_before_those_that_are_over() -> None:
    recent = Recent(CrawlerRequests(Channel()))
    renders: list[tuple[float, str, RenderOutcome]] = [
        (1.0, "/over", RenderOutcome.FAILED),
        (2.0, "/over", RenderOutcome.FAILED),
        (3.0, "/over", RenderOutcome.COMPLETE),
        (4.0, "/now", RenderOutcome.FAILED),
    ]
    for seconds, path, outcome in renders:
        recent.render(record(path, seconds, outcome))
    failing = recent.worst(25).failing
    assert [(page.url[-4:], page.failed, page.is_over) for page in failing] == [
        ("/now", 1, False),
        ("over", 2, True),
    ]
    assert recent.worst(1).failing[0].url.endswith("/now")


async def test_what_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    """Problems and histories: Redis takes a note, but did not give the one that is there."""
    async with redis_server(tmp_path) as redis:
        settings = settings_for("http://127.0.0.1:1", {"cache": {"url": redis.url}})
        store = await open_store(settings)
        recent = Recent(CrawlerRequests(Channel()))
        problems, histories = StoredProblems(store.notes, recent), Histories(store.notes, 3)
        page = record("/a", 1.0, RenderOutcome.FAILED)
        key, old = page.target.key, History(page.target.key, page.target.path)
        await store.notes.set(key, encode(old), 60)
        await store.notes.set("problems", b"[]", 60)
        await redis.client.execute_command("ACL", "SETUSER", "default", "-mget")
        recent.render(page)
        with pytest.raises(StoreError):
            await problems.exchange()
        histories(page)
        async with histories.storing():
            await until(lambda: store.state().faults["note"] == 2)
        await redis.client.execute_command("ACL", "SETUSER", "default", "+mget")
        assert await store.notes.read("problems") == b"[]"
        assert await histories.of(key) == old
        # They are not lost.
        await problems.exchange()
        assert await store.notes.read("problems") != b"[]"
        await store.close()


async def test_problems_survive_a_restart_and_are_those_of_all_replicas() -> None:
    notes = Notes(None, BoundedMemoryCache(2**20))
    first, second = (Recent(CrawlerRequests(Channel())) for _ in range(2))
    exchanges = [StoredProblems(notes, recent) for recent in (first, second)]
    first.render(record("/a", 1.0, RenderOutcome.FAILED))
    second.render(record("/a", 2.0, RenderOutcome.FAILED))
    second.render(record("/b", 3.0, RenderOutcome.FAILED))
    for _ in range(2):
        for exchange in exchanges:
            await exchange.exchange()
    third = Recent(CrawlerRequests(Channel()))
    await StoredProblems(notes, third).exchange()
    for recent in (first, second, third):
        found = {page.url[-2:]: page for page in recent.worst(25).failing}
        assert {url: (page.renders, page.failed) for url, page in found.items()} == {
            "/a": (2, 2),
            "/b": (1, 1),
        }
        assert (found["/a"].failing_since, found["/a"].last_problem) == (NOW + 2, NOW + 3)
    third.render(record("/a", 5.0, RenderOutcome.COMPLETE))
    await StoredProblems(notes, third).exchange()
    await exchanges[0].exchange()
    assert [page.is_over for page in first.worst(25).failing] == [False, True]


def test_a_page_goes_30_days_after_its_last_render() -> None:
    recent = Recent(CrawlerRequests(Channel()))
    for path, days in (("/old", 31), ("/new", 29)):
        recent.render(record(path, -days * 86400, RenderOutcome.FAILED))
    assert [page.url[-4:] for page in recent.worst(25).failing] == ["/new"]
    # Nor is one stored again.
    old = PageRenders("old", f"{PUBLIC}/old", renders=1, failed=1, last=1.0)
    stored, _ = recent.exchange([old])
    assert [page.url[-4:] for page in stored] == ["/new"]
