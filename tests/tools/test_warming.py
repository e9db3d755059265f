"""Warming a cache with many pages: politely, in bounded memory, and after a kill."""

import asyncio
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import psutil
import pytest
from aiohttp import web
from yarl import URL

from prerender.cli.terminal import Progress
from prerender.errors import JournalError, ServerGone, SitemapError
from prerender.tools.commands.warm import _report
from prerender.tools.crawler import CrawlerClient
from prerender.tools.url_sources import Sources
from prerender.tools.warming.journal import Journal, PageToWarm
from prerender.tools.warming.requests import Requests
from prerender.tools.warming.warming import Totals, Warming
from prerender.urls.ajax_crawling import ugly_to_pretty
from tests.conftest import StartOrigin
from tests.support import raw
from tests.support.programs import ended, run, started

SITE = "https://shop.example"
MALFORMED = ("https:///s.xml", "http://[x/s.xml", "http://[]@")
STORED = {"Cache-Status": "prerender; fwd=miss; stored; ttl=99"}
Answer = Callable[[str], web.Response | None]


class Server:
    """A proxy's responses to ``warm``. ``answer`` may replace them."""

    def __init__(self, answer: Answer = lambda _: None) -> None:
        self.asked: list[str] = []
        self.times: list[float] = []
        self._answer = answer

    async def start(self, start_origin: StartOrigin) -> str:
        application = web.Application()
        application.router.add_get("/{path:.*}", self._page)
        return (await start_origin(application)).url

    async def _page(self, request: web.Request) -> web.Response:
        page = str(ugly_to_pretty(request.path_qs)).removeprefix("/#!")
        self.asked.append(page)
        self.times.append(time.monotonic())
        await asyncio.sleep(0)
        given = self._answer(page)
        return given or web.Response(text="<p>", content_type="text/html", headers=STORED)


@asynccontextmanager
async def sending(url: str, concurrency: int = 4) -> AsyncIterator[Requests]:
    async with CrawlerClient.open(URL(url)) as crawler:
        yield Requests(crawler, concurrency)


async def fill(sent_to: Requests, pages: list[str], journal: Journal | None = None) -> Totals:
    async def jobs() -> AsyncGenerator[PageToWarm]:
        for page in pages:
            yield PageToWarm(f"{SITE}/#!{page}")

    own = journal or Journal(None)
    warming = Warming(sent_to, own, concurrency=4, page_of=lambda url: url)
    async with asyncio.timeout(60):
        return await warming.run(jobs())


async def test_each_page_is_requested_once(start_origin: StartOrigin) -> None:
    proxy = Server()
    pages = [str(number) for number in range(60)]
    async with sending(await proxy.start(start_origin)) as sent_to:
        totals = await fill(sent_to, [*pages, *pages])
    assert totals.counts == {"rendered": 60}
    assert Counter(proxy.asked) == Counter(pages)


async def test_progress_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("prerender.tools.commands.warm._REPORT_SECONDS", 0.0)
    totals = Totals(Counter(rendered=3, failed=1), pages=10, skipped=2)
    reporting = asyncio.create_task(_report(totals, Progress()))
    shown = ""
    async with asyncio.timeout(10):
        while "\n" not in shown:
            await asyncio.sleep(0)
            shown += capsys.readouterr().err
    reporting.cancel()
    assert shown.startswith("4 of 10 pages, 1 failed, 2 skipped\n")


async def test_the_server_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prerender.tools.warming.requests._GONE_AT_START_SECONDS", 0.0)
    async with sending(f"http://127.0.0.1:{raw.free_port()}") as sent_to:
        with pytest.raises(ServerGone, match="no connection"):
            await fill(sent_to, ["a"])


BUSY = {"Cache-Status": "prerender; fwd=miss; detail=busy"}


@pytest.mark.parametrize(("status", "headers"), [(429, {}), (503, {}), (503, BUSY)])
async def test_who_asks_for_it_is_left_alone(
    start_origin: StartOrigin, status: int, headers: dict[str, str]
) -> None:
    refused: list[float] = []

    def answer(_: str) -> web.Response | None:
        if len(proxy.asked) != 9:
            return None
        refused.append(time.monotonic())
        return web.Response(status=status, headers={"Retry-After": "1", **headers})

    proxy = Server(answer)
    async with sending(await proxy.start(start_origin), concurrency=1) as sent_to:
        totals = await fill(sent_to, [str(number) for number in range(20)])
    assert totals.counts == {"rendered": 20}
    assert len(proxy.times) == 21
    (moment,) = refused
    after = [later for later in proxy.times if later > moment]
    assert len(after) == 12
    assert after[0] - moment >= 0.95


async def test_a_page_that_fails_is_requested_once_more_at_the_end(
    start_origin: StartOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not slow the others down: the cause is the page's own."""
    monkeypatch.setattr("prerender.tools.warming.warming._LATER_SECONDS", 0.0)

    def answer(page: str) -> web.Response | None:
        if page == "never" or (page == "later" and server.asked.count(page) == 1):
            headers = {
                "Retry-After": "10",
                "Cache-Status": "prerender; fwd=miss; detail=incomplete",
            }
            return web.Response(status=503, headers=headers)
        return None

    server = Server(answer)
    url = await server.start(start_origin)
    async with sending(url, concurrency=1) as sent_to:
        totals = await fill(sent_to, ["never", "later", "a", "b"])
    assert totals.counts == {"rendered": 3, "failed": 1}
    assert server.asked == ["never", "later", "a", "b", "never", "later"]
    assert [failure.url for failure in totals.failures] == [f"{SITE}/#!never"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("hit; ttl=9; age=1", "fresh"),
        ("hit; ttl=-9; detail=stale; age=99", "stale"),
        ("fwd=miss; stored; ttl=9", "rendered"),
        ("fwd=miss; stored; ttl=9; detail=failed", "rendered"),  # another render would be the same
        ("fwd=miss; collapsed; detail=coalesced", "rendered"),
        ("fwd=miss", "not_stored"),
        ("fwd=miss; detail=incomplete", "failed"),
        ("fwd=miss; collapsed; detail=incomplete-coalesced", "failed"),
        ("fwd=stale; detail=failed", "failed"),
    ],
)
async def test_outcomes(start_origin: StartOrigin, status: str, outcome: str) -> None:
    server = Server(lambda _: web.Response(headers={"Cache-Status": f"prerender; {status}"}))
    async with sending(await server.start(start_origin)) as sent_to:
        assert (await fill(sent_to, ["a"])).counts == {outcome: 1}


def taken(journal: Journal) -> list[str]:
    return [job.url for job in journal.take(100)]


def test_what_a_journal_has_as_done(tmp_path: Path) -> None:
    file = tmp_path / "state"
    with closing(Journal(file)) as journal:
        pages = [
            PageToWarm("done", 5.0),
            PageToWarm("failed"),
            PageToWarm("killed"),
            PageToWarm("old", 5.0),
            PageToWarm("outdated"),
        ]
        assert journal.add([*pages, *pages]) == (5, 0)
        # The last changed first, then in their order.
        assert taken(journal) == ["done", "old", "failed", "killed", "outdated"]
        for url in ("done", "old"):
            journal.write(url, "rendered")
        journal.write("failed", "failed")
        journal.write("outdated", "outdated")
    with closing(Journal(file)) as journal:
        jobs = [
            PageToWarm("done", 5.0),
            PageToWarm("failed"),
            PageToWarm("killed"),
            PageToWarm("old", 6.0),
            PageToWarm("outdated"),
        ]
        assert journal.add(jobs) == (4, 1)
        assert taken(journal) == ["old", "failed", "killed", "outdated"]
    with closing(Journal(file)) as journal:
        # Followed pages are requested for their links. A sitemap without lastmod says nothing new.
        assert journal.add([PageToWarm("done", 5.0, depth=1), PageToWarm("done")]) == (1, 0)


def test_pages_that_were_done_too_long_ago(tmp_path: Path) -> None:
    file = tmp_path / "state"
    with closing(Journal(file)) as journal:
        journal.add([PageToWarm("now"), PageToWarm("ago"), PageToWarm("ahead")])
        for url in taken(journal):
            journal.write(url, "fresh")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE pages SET done = done - 3600 WHERE url = 'ago'")
        # The clock was wrong, and has been set back.
        database.execute("UPDATE pages SET done = done + 3600 WHERE url = 'ahead'")
    with closing(Journal(file, max_age=600)) as journal:
        assert journal.add([PageToWarm("now"), PageToWarm("ago"), PageToWarm("ahead")]) == (2, 1)


async def test_files_that_are_no_journal(tmp_path: Path) -> None:
    file = tmp_path / "state"
    file.write_text('{"url": "https://shop.example/", "at": 1, "outcome": "rendered"}\n')
    told = await run("warm", "-", "--state", str(file), stdin=b"")
    assert (told.status, told.err) == (2, f"prerender warm: --state: {file}: is not a state file\n")
    with closing(sqlite3.connect(tmp_path / "other")) as database:
        database.execute("CREATE TABLE pages (a)")
    with pytest.raises(JournalError, match="another database"):
        Journal(tmp_path / "other")
    with closing(Journal(tmp_path / "used")), pytest.raises(JournalError, match="another run uses"):
        Journal(tmp_path / "used")
    with pytest.raises(JournalError, match="unable to open"):
        Journal(tmp_path / "no folder" / "state")


async def killed_after(count: int, server: Server, arguments: tuple[str, ...]) -> None:
    """Start the command, and kill it after this number of requests."""
    before = len(server.asked)
    async with started("warm", *arguments) as process, asyncio.timeout(60):
        while len(server.asked) < before + count:
            await asyncio.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def killed_and_continued(
    start_origin: StartOrigin, folder: Path, moments: list[int], pages: int
) -> None:
    server = Server()
    url = await server.start(start_origin)
    listed = folder / "list.txt"
    listed.write_text("".join(f"{SITE}/#!{number}\n" for number in range(pages)))
    arguments = (str(listed), "--via", url, "--state", str(folder / "state"), "--concurrency", "4")
    for moment in moments:
        await killed_after(moment, server, arguments)
    last = await run("warm", *arguments)
    assert last.status == 0, last.err
    asked = Counter(server.asked)
    assert asked.keys() == {str(number) for number in range(pages)}
    # Those that were under way, and nothing else, are requested again.
    assert len(server.asked) <= pages + 4 * len(moments)


@pytest.mark.ci_only
async def test_a_run_that_was_killed_is_continued(
    start_origin: StartOrigin, tmp_path: Path
) -> None:
    await killed_and_continued(start_origin, tmp_path, [25], pages=200)


@pytest.mark.long
async def test_a_run_that_is_killed_at_many_moments_is_continued(
    start_origin: StartOrigin, tmp_path: Path
) -> None:
    await killed_and_continued(start_origin, tmp_path, [0, 1, 2, 3, 50, 333, 1000, 0], pages=5000)


class Sitemaps:
    """Serves an index of ``count`` sitemaps with ``size`` pages each, generated while they are sent."""

    def __init__(self, count: int, size: int) -> None:
        self._count = count
        self._size = size

    async def start(self, start_origin: StartOrigin) -> str:
        application = web.Application()
        application.router.add_get("/index.xml", self._index)
        application.router.add_get("/{number:[0-9]+}.xml", self._sitemap)
        return (await start_origin(application)).url

    async def _index(self, request: web.Request) -> web.Response:
        names = (f"http://{request.host}/{number}.xml" for number in range(self._count))
        entries = "".join(f"<sitemap><loc>{name}</loc></sitemap>" for name in names)
        return web.Response(text=f"<sitemapindex>{entries}</sitemapindex>")

    async def _sitemap(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"<urlset>")
        for start in range(0, self._size, 500):
            name = f"{SITE}/{request.match_info['number']}/a-product-with-a-name"
            entry = f"<url><loc>{name}-%d</loc></url>"
            numbers = range(start, min(self._size, start + 500))
            await response.write("".join(entry % number for number in numbers).encode())
        await response.write(b"</urlset>")
        return response


async def most_memory(url: str, folder: Path, pages: int) -> int:
    """The maximum memory of the command, in bytes."""
    most = 0
    arguments = (
        f"{url}/index.xml",
        "--via",
        url,
        "--state",
        str(folder / "state"),
        "--max-pages",
        "1",
    )
    async with started("warm", *arguments) as process:
        end = asyncio.create_task(ended(process))
        watched = psutil.Process(process.pid)
        while not end.done():
            try:
                most = max(most, watched.memory_info().rss)
            except psutil.NoSuchProcess:
                break
            await asyncio.sleep(0.02)
        told = await end
    assert f"{pages - 1} skipped (--max-pages)" in told.out.decode(), told
    return most


async def test_a_sitemap_whose_connection_fails_is_read_again(start_origin: StartOrigin) -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        sent += 1
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(f"<urlset><url><loc>{SITE}/#!a</loc></url>".encode())
        if sent < 4:  # whether it is a sitemap is asked first
            assert request.transport is not None
            request.transport.close()
        else:
            await response.write(f"<url><loc>{SITE}/#!b</loc></url></urlset>".encode())
        return response

    application = web.Application()
    application.router.add_get("/sitemap.xml", answer)
    site = await start_origin(application)
    failures: list[SitemapError] = []
    async with sending(site.url) as sent_to:
        sources = Sources(sent_to.stream, Progress())
        pages = sources.pages([f"{site.url}/sitemap.xml"], failures.append)
        found = [page.url async for page in pages]
    assert failures == []
    assert found == [f"{SITE}/#!{page}" for page in "aaab"][-len(found) :]
    assert set(found) == {f"{SITE}/#!a", f"{SITE}/#!b"}


@pytest.mark.long
async def test_memory_does_not_depend_on_the_number_of_pages(
    start_origin: StartOrigin, tmp_path: Path
) -> None:
    used = []
    for count in (1, 10):
        folder = tmp_path / str(count)
        folder.mkdir()
        url = await Sitemaps(count, 20_000).start(start_origin)
        used.append(await most_memory(url, folder, count * 20_000))
    assert used[1] < used[0] + 16 * 1024**2, used


@pytest.mark.heavy
async def test_more_pages_in_a_sitemap_than_the_protocol_allows(start_origin: StartOrigin) -> None:
    url = await Sitemaps(1, 51_000).start(start_origin)
    async with CrawlerClient.open() as crawler:
        failures: list[SitemapError] = []
        sources = Sources(crawler.stream, Progress())
        found = await sources.listed([f"{url}/index.xml"], failures.append)
    assert (len(found), failures) == (51_000, [])


async def test_sitemaps_that_cannot_be_read_do_not_stop_the_others(
    start_origin: StartOrigin,
) -> None:
    """Redirects are followed; recursive indexes, circular redirects and errors end."""
    application = web.Application()

    async def answer(request: web.Request) -> web.Response:
        base = f"http://{request.host}"
        names = ("index", "moved", "circle", "astray", "missing", "broken")
        urls = [*(f"{base}/{name}" for name in names), *MALFORMED, f"{base}/good"]
        entries = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
        url = f"<url><loc>{base}/#!%s</loc></url>"
        elsewhere = "<url><loc>https://elsewhere.example/</loc></url>"
        content = {
            "index": f"<sitemapindex>{entries}</sitemapindex>",
            "there": f"<urlset>{url % 'moved'}</urlset>",
            "broken": f"<urlset>{url % 'b1'}<url><loc></url></nothing>{url % 'b2'}</urlset>",
            "good": f"<urlset>{url % 'good'}{elsewhere}{url % 'good'}</urlset>",
        }
        name = request.path[1:]
        moved = {"moved": "/there", "circle": "/circle", "astray": "http://[bad/"}
        if name in moved:
            return web.Response(status=301, headers={"Location": moved[name]})
        return web.Response(text=content.get(name, ""), status=200 if name in content else 404)

    application.router.add_get("/{path:.*}", answer)
    site = await start_origin(application)
    failures: list[SitemapError] = []
    async with CrawlerClient.open() as crawler:
        sources = Sources(crawler.stream, Progress())
        given = [*MALFORMED, f"{site.url}/index"]
        found = [page.url async for page in sources.pages(given, failures.append, same_hosts=True)]
    assert [url.partition("#!")[2] for url in found] == ["moved", "b1", "b2", "good", "good"]
    assert sources.skipped == 1
    told = " ".join(map(str, failures))
    for said in (
        "circle: more than 5 redirects", "missing: status 404", "broken: 1 of 3 entries",
        "astray: redirects to http://[bad/",
    ):  # fmt: skip
        assert said in told
    assert all(told.count(f"{url}: ") == 2 for url in MALFORMED)
    assert len(failures) == 4 + 2 * len(MALFORMED)
