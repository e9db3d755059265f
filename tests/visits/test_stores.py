"""Where visits are kept: additions are summed up, bounded, and survive a restart."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from random import Random

import pytest

from prerender.crawlers.known import built_in
from prerender.crawlers.user_agents import UserAgents
from prerender.errors import StoreError
from prerender.proxy.decision import Reason
from prerender.telemetry.crawler_requests import CrawlerRequests
from prerender.telemetry.records import Channel, RequestRecord
from prerender.visits import figures
from prerender.visits.figures import DURATIONS, FACTS, OTHER, Cell, CellKey, LastVisits
from prerender.visits.file import FileVisits
from prerender.visits.recorder import CrawlerNames, Visits
from prerender.visits.redis import RedisVisits
from prerender.visits.storage import Span, VisitStore
from tests.support.redis_server import RedisServer, redis_server

KEY = CellKey("Googlebot", "search", "/items/", "fresh")


def cell(requests: int = 1, seconds: float = 0.5) -> Cell:
    return Cell(requests, requests * 100, DURATIONS.count([seconds] * requests))


@pytest.fixture(params=["memory", "file", "redis"])
async def stores(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[VisitStore, VisitStore]]:
    """Two stores of the same data, as of two replicas."""
    if request.param == "memory":
        memory = FileVisits(None)
        yield memory, memory
    elif request.param == "file":
        yield FileVisits(tmp_path / "visits"), FileVisits(tmp_path / "visits")
    else:
        redis = RedisServer(tmp_path)
        await redis.start()
        try:
            one, two = (RedisVisits(redis.url, "prerender:x:visits:") for _ in range(2))
            yield one, two
            await one.close()
            await two.close()
        finally:
            await redis.kill()


async def test_days_of_replicas_are_summed_up(stores: tuple[VisitStore, VisitStore]) -> None:
    first, second = stores
    assert await first.since() is None
    work = [store.add("days", 20_000, {KEY: cell()}) for store in stores for _ in range(5)]
    await asyncio.gather(*work)
    await second.add("days", 20_001, {KEY: cell(2, 0.01)})
    days = await first.read("days", 19_999, 20_001)
    assert days == {20_000: {KEY: cell(10)}, 20_001: {KEY: cell(2, 0.01)}}
    assert await second.read("days", 20_001, 20_001) == {20_001: days[20_001]}
    await first.drop_before("days", 20_001)
    assert await second.since() == 20_001


async def test_foreign_values_in_redis_are_overwritten(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as redis:
        store = RedisVisits(redis.url, "x:")
        for name in ("days", "pages"):
            await redis.client.set(f"x:{name}", "foreign")
        await store.add("days", 20_000, {KEY: cell()})
        assert await store.read("days", 20_000, 20_000) == {20_000: {KEY: cell()}}
        page: LastVisits = {"search": (1_700_000_000, 200)}
        await store.add_pages({"/": page})
        assert await store.pages() == {"/": page}
        await store.close()


async def test_the_later_visit_of_a_page_counts(stores: tuple[VisitStore, VisitStore]) -> None:
    first, second = stores
    facts: LastVisits = {FACTS: (1_700_000_000, 1, "https://other.example/", 40)}
    await first.add_pages({"/é": {"search": (1_700_000_100, 200)}, "/b": facts})
    await second.add_pages({"/é": {"search": (1_700_000_000, 404), "social": (1_700_000_000, 200)}})
    assert await first.pages() == {
        "/é": {"search": (1_700_000_100, 200), "social": (1_700_000_000, 200)},
        "/b": facts,
    }


async def test_the_number_of_pages_is_bounded(
    stores: tuple[VisitStore, VisitStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("file", "redis"):
        monkeypatch.setattr(f"prerender.visits.{module}.MOST_PAGES", 10)
    monkeypatch.setattr("prerender.visits.file._DROPPED_AT_ONCE", 5)
    pages: dict[str, LastVisits] = {
        f"/{n}": {"search": (1_700_000_000 + n, 200)} for n in range(14)
    }
    for path, page in pages.items():
        await stores[0].add_pages({path: page})
    kept = await stores[0].pages()
    assert len(kept) <= 10
    assert "/13" in kept
    assert "/0" not in kept


async def test_a_file_of_a_later_version_is_set_aside(tmp_path: Path) -> None:
    file = tmp_path / "visits.sqlite3"
    await FileVisits(file).add("days", 1, {KEY: cell()})
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    store = FileVisits(file)
    with pytest.raises(StoreError, match="newer"):
        await store.since()
    await store.add("days", 2, {KEY: cell()})
    assert await store.since() == 2
    assert any(name.startswith("visits.sqlite3.1") for name in os.listdir(tmp_path))


async def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    file = tmp_path / "visits.sqlite3"
    file.write_bytes(b"no database" * 1000)
    store = FileVisits(file)
    with pytest.raises(StoreError):
        await store.add("days", 1, {KEY: cell()})
    await store.add("days", 1, {KEY: cell()})
    assert await store.since() == 1


def test_a_day_is_bounded_and_keeps_what_is_large() -> None:
    day = {
        CellKey(f"Bot{n % 150}", "search", f"/folder-{n}/", "fresh"): cell(1 + (n == 7) * 1000)
        for n in range(5000)
    }
    found = figures.bounded(day)
    assert len(found) <= figures.MOST_CELLS
    assert found[CellKey("Bot7", "search", "/folder-7/", "fresh")].requests == 1001
    assert {key.section for key in found} >= {OTHER, "/folder-7/"}
    assert len({key.section for key in found}) <= figures.MOST_SECTIONS
    assert len({key.crawler for key in found}) <= figures.MOST_CRAWLERS
    assert sum(one.requests for one in found.values()) == 6000
    assert figures.decode(figures.encode(found)) == found


@pytest.mark.parametrize(
    ("path", "section"),
    [
        ("/", "/"),
        ("/contact?a=/b", "/"),
        ("/items/3", "/items/"),
        ("/items/", "/items/"),
        ("/#!/items/3", "#!/items/"),
        ("/#!items/3", "#!/items/"),
        ("/a/b#!c/d", "/a/"),
    ],
)
def test_the_section_of_a_path_is_its_folder(path: str, section: str) -> None:
    assert figures.section_of(path) == section


def test_quantiles_are_accurate_to_20_percent() -> None:
    total = Cell()
    for seconds in (0.001, 0.01, 0.1, 0.1, 5.0):
        total.add(cell(1, seconds))
    assert total.quantile(0.5) == pytest.approx(0.1, rel=0.2)
    assert total.quantile(0.95) == pytest.approx(5.0, rel=0.2)


class Away(FileVisits):
    """A store that can be away."""

    away = False

    async def add(self, span: Span, number: int, cells: Mapping[CellKey, Cell]) -> None:
        if self.away:
            raise StoreError("away")
        await super().add(span, number, cells)


def asked(number: int, time: float) -> RequestRecord:
    return RequestRecord(
        time, 0.01, "GET", f"/items/{number}", "192.0.2.1", "Googlebot/2.1", "search", "forward",
        Reason.ORDINARY, "origin", None, "", 200, 100, None, None, 0.005, None, None, None,
    )  # fmt: skip


async def test_visits_wait_for_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prerender.visits.recorder._MOST_PAGES", 3)
    store = Away(None)
    names = CrawlerNames(UserAgents(built_in().crawlers))
    requests: Channel[RequestRecord] = Channel()
    waiting = CrawlerRequests(requests)
    visits = Visits(waiting, store, names, lambda path: path, 30, clock=lambda: 20_000 * 86400.0)
    store.away = True
    for number in range(5):
        requests(asked(number, 20_000 * 86400.0 + number))
    await visits.write()
    assert visits.away
    requests(asked(0, 20_000 * 86400.0 + 9))
    store.away = False
    await visits.write()
    assert not visits.away
    (cells,) = (await store.read("days", 20_000, 20_000)).values()
    assert cells[CellKey("Googlebot", "search", "/items/", "forwarded")].requests == 6
    pages = await store.pages()
    assert sorted(pages) == ["/items/0", "/items/1", "/items/2"]
    assert pages["/items/0"] == {"search": (20_000 * 86400 + 9, 200)}
    assert visits.dropped == 2


@pytest.mark.heavy
async def test_two_years_of_a_large_site_take_less_than_50_mb(tmp_path: Path) -> None:
    """40 crawlers in 20 folders with four outcomes each, so that each day is at its bound; 100,000
    pages, of which each fiftieth is written."""
    random = Random(1)
    day = {
        CellKey(f"Crawler{crawler}Bot", "ai_search", f"/folder-{folder}/", outcome): Cell(
            requests := random.randint(1, 20_000 // (crawler + 1)),
            requests * random.randint(8000, 60_000),
            DURATIONS.count(random.lognormvariate(-3, 1) for _ in range(30)),
        )
        for crawler in range(40)
        for folder in range(20)
        for outcome in ("fresh", "rendered", "stale", "404")
    }
    days = 730 * len(figures.encode(figures.bounded(day)))
    file = tmp_path / "visits"
    now, kinds = 1_764_000_000, ("search", "ai_search", "ai_training", "seo_tool")
    pages: dict[str, LastVisits] = {
        f"/folder-{n % 20}/a-product-or-an-article-with-a-long-name-{n}.html": {
            FACTS: (now - n, 0, "", 3000),
            **dict.fromkeys(kinds[: 1 + n % 4], (now - n * 7, 200)),
        }
        for n in range(2000)
    }
    await FileVisits(file).add_pages(pages)
    of_pages = 50 * os.path.getsize(file)  # noqa: ASYNC240
    assert days + of_pages < 50_000_000, (days, of_pages)
    assert days > 5_000_000
    assert of_pages > 10_000_000
