"""Watched sitemaps: what is new or has changed is rendered, once by all replicas."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from protego import Protego

from prerender.admin.page_urls import Site
from prerender.errors import ConfigError, FetchFailed, SitemapError, StoreError
from prerender.extensions.jobs.file import FileJobs
from prerender.extensions.jobs.sitemap_watch import SitemapReading, SitemapWatch
from prerender.sitemaps.parsing import Listed
from prerender.snapshots.purges import Purge
from prerender.snapshots.target import Target
from prerender.snapshots.variants import ORDINARY, Variant, Vary
from prerender.urls.ajax_crawling import PrettyURL
from prerender.urls.tracking import NO_TRACKING
from tests.conftest import StartOrigin, StartProxy
from tests.extensions.dashboard.test_api import Api
from tests.extensions.jobs.test_worker import Replica, redis, replicas
from tests.support.raw import SECONDS
from tests.support.redis_server import RedisServer
from tests.support.renders import PUBLIC, target, until

__all__ = ["redis"]
SITE = str(PUBLIC)
MAP = f"{SITE}/sitemap.xml"


class Sitemaps:
    """A site's robots.txt and its sitemaps by URL: pages by path with lastmod, or an error."""

    def __init__(self, **pages: float | None) -> None:
        self.robots_txt: str | Exception = ""
        self.files: dict[str, dict[str, float | None] | SitemapError] = {MAP: pages}
        self.readings = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def robots(self) -> Protego:
        if isinstance(self.robots_txt, Exception):
            raise self.robots_txt
        return Protego.parse(self.robots_txt)

    def named_by(self, rules: Protego) -> list[str]:
        return list(rules.sitemaps) or [MAP]

    async def read(
        self, urls: list[str], failed: Callable[[SitemapError], None]
    ) -> AsyncIterator[Listed]:
        self.readings += 1
        await asyncio.sleep(0)
        for url in urls:
            found = self.files[url]
            await self.gate.wait()
            if isinstance(found, SitemapError):
                failed(found)
                continue
            for name, lastmod in found.items():
                yield Listed(name if "://" in name else f"{SITE}/{name}", lastmod)


class FaultySitemaps(Sitemaps):
    """The first reading fails as nobody expects."""

    is_faulty = True

    async def robots(self) -> Protego:
        if self.is_faulty:
            self.is_faulty = False
            raise RuntimeError("a bug")
        return await super().robots()


def watch_of(replica: Replica, sitemaps: Sitemaps, urls: tuple[str, ...] = ()) -> SitemapWatch:
    return SitemapWatch(
        replica.jobs, replica.jobs._store, sitemaps, urls, 3600.0,  # type: ignore[arg-type]
        variants=(ORDINARY, *Vary(device=True, languages=("en", "de")).variants),
        site=Site(PUBLIC, NO_TRACKING),
    )  # fmt: skip


async def looked(watch: SitemapWatch) -> SitemapReading:
    await watch.look(at_once=True)
    found = await watch.reading()
    assert found is not None
    return found


async def last_pages(replica: Replica) -> list[str]:
    job = (await replica.jobs.job_store.jobs())[-1].job
    assert (job.priority, job.source, job.stale_only) == ("low", "sitemaps", True)
    return sorted(path for path, _ in (await replica.jobs.job_store.rows(job.id, "", "", 1000))[0])


@pytest.fixture
def replica() -> Replica:
    return Replica(FileJobs(None))


async def test_what_changes_is_rendered_and_what_is_gone_is_dropped(replica: Replica) -> None:
    sitemaps = Sitemaps(a=1e9, b=1e9, c=None)
    watch = watch_of(replica, sitemaps)
    found = await looked(watch)
    assert (found.pages, found.new, found.notes) == (3, 3, ())
    assert await last_pages(replica) == ["/a", "/b", "/c"]
    for path in ("/a", "/b", "/c"):
        await replica.cached.snapshot(target(path))
    assert (await looked(watch)).job == found.job
    assert len(await replica.jobs.job_store.jobs()) == 1

    sitemaps.files[MAP] = {"a": 1e9, "b": 1.1e9}
    found = await looked(watch)
    assert (found.pages, found.new, found.changed, found.gone) == (2, 0, 1, 1)
    assert await last_pages(replica) == ["/b"]
    assert await replica.jobs._store.get(target("/c").key) is None
    assert (await replica.cached.snapshot(target("/a"))).how == "hit"
    assert watch.changes == {"new": 3, "changed": 1, "gone": 1}
    await replica.cached.close()


@pytest.mark.parametrize("gone", [1, 101])
async def test_all_variants_of_a_page_that_is_gone_are_dropped(replica: Replica, gone: int) -> None:
    """Also if the default one is not stored. A few by a purge, of which a CDN learns."""
    pages = [f"{number}" for number in range(2 * gone)]
    sitemaps = Sitemaps(**dict.fromkeys(pages, 1e9))
    watch, store = watch_of(replica, sitemaps), replica.jobs._store
    await looked(watch)
    page = f"/{pages[-1]}"
    variants = [Variant(*one) for one in (("mobile", "de"), ("desktop", "en"), ("mobile", "en"))]
    targets = [Target.of(PUBLIC, PrettyURL(page, ""), variant=one) for one in variants]
    for one in targets:
        await replica.cached.snapshot(one)
    sitemaps.files[MAP] = dict.fromkeys(pages[:gone], 1e9)
    assert (await looked(watch)).gone == gone
    assert [await store.get(one.key) for one in targets] == [None] * 3
    assert (Purge("url", page) in store.purges.purges.records) == (gone == 1)
    await replica.cached.close()


@pytest.mark.parametrize("fault", [{}, SitemapError("status 500"), SitemapError("is no sitemap")])
async def test_a_broken_sitemap_drops_nothing(replica: Replica, fault: Any) -> None:
    sitemaps = Sitemaps(a=1e9, b=1e9)
    watch = watch_of(replica, sitemaps)
    await looked(watch)
    await replica.cached.snapshot(target("/a"))
    sitemaps.files[MAP] = fault
    found = await looked(watch)
    assert (found.pages, found.sitemaps[0].error) == (
        2,
        str(fault) if fault else f"{MAP}: no pages listed",
    )
    assert "2 known pages are not listed, and are kept" in found.notes[0]
    assert replica.cached.fresh(target("/a")) is not None
    await replica.cached.close()


async def test_a_sitemap_that_does_not_end(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prerender.extensions.jobs.sitemap_watch.READING_SECONDS", 0.01)
    sitemaps = Sitemaps(a=1e9)
    sitemaps.gate.clear()
    found = await looked(watch_of(replica, sitemaps))
    assert [one.error for one in found.sitemaps] == [f"{MAP}: took over an hour"]


async def test_robots_txt(replica: Replica) -> None:
    sitemaps = Sitemaps()
    sitemaps.robots_txt = (
        f"User-agent: *\nDisallow: /secret\nSitemap: {SITE}/1.xml\nSitemap: {SITE}/2.xml\n"
    )
    sitemaps.files[f"{SITE}/1.xml"] = {"a": None, "secret/b": None, "https://other.example/": None}
    sitemaps.files[f"{SITE}/2.xml"] = SitemapError("status 404")
    watch = watch_of(replica, sitemaps)
    found = await looked(watch)
    assert [(one.url, one.pages, one.error) for one in found.sitemaps] == [
        (f"{SITE}/1.xml", 3, ""), (f"{SITE}/2.xml", 0, "status 404"),
    ]  # fmt: skip
    assert (found.pages, found.disallowed, found.invalid) == (2, 1, 1)
    assert await last_pages(replica) == ["/a"]
    sitemaps.robots_txt = FetchFailed("/robots.txt: status 500")
    readings = sitemaps.readings
    found = await looked(watch)
    assert found.notes == ("nothing was read: /robots.txt: status 500",)
    assert (found.pages, sitemaps.readings) == (2, readings)


async def test_replicas_read_once_and_not_while_redis_is_away(redis: RedisServer) -> None:
    async with replicas(redis) as (one, two):
        sitemaps = Sitemaps(a=1e9)
        watches = [watch_of(replica, sitemaps) for replica in (one, two)]
        await asyncio.gather(*(watch.look() for watch in watches * 3))
        assert sitemaps.readings == 1
        assert [await watch.reading() for watch in watches] == [watches[0].last] * 2
        assert len(await two.jobs.job_store.jobs()) == 1
        await redis.client.execute_command("ACL", "SETUSER", "default", "-mget")
        with pytest.raises(StoreError):
            await watches[0].look(at_once=True)
        await redis.kill()
        for watch in watches:
            with pytest.raises(StoreError):
                await watch.look(at_once=True)
        assert sitemaps.readings == 1


async def test_after_an_unexpected_fault_it_waits(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only until the next reading is due, which is at once if the last one is long ago."""
    module = "prerender.extensions.jobs.sitemap_watch"
    for name in ("_SHORTEST_WAIT_SECONDS", "_LONGEST_WAIT_SECONDS"):
        monkeypatch.setattr(f"{module}.{name}", 1e9)
    monkeypatch.setattr(f"{module}._AGAIN_SECONDS", 0.01)
    sitemaps = FaultySitemaps(a=1e9)
    async with watch_of(replica, sitemaps).watching():
        await until(lambda: sitemaps.readings, SECONDS)


@pytest.mark.ci_only
async def test_watching(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    lastmod = "2020-01-01"

    async def page(request: web.Request) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(text=f"Sitemap: {origin.url}/map.xml\n")
        if request.path == "/map.xml":
            locs = "".join(f"<url><loc>{origin.url}/#!{one}</loc><lastmod>{lastmod}</lastmod></url>"
                           for one in "ab")  # fmt: skip
            return web.Response(text=f"<urlset>{locs}</urlset>")
        return web.Response(text="<title>Page</title><p>content", content_type="text/html")

    app = web.Application()
    app.router.add_get("/{path:.*}", page)
    origin = await start_origin(app)
    settings = {"sitemaps": {"watch": True, "interval": 0.2}}
    proxy = await start_proxy(origin.url, settings)
    api = Api(proxy)

    async def jobs_are(condition: Callable[[dict[str, Any]], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition(await api.get("/jobs")):
                await asyncio.sleep(0.05)

    await jobs_are(lambda jobs: [one["outcomes"] for one in jobs["items"]] == [{"rendered": 2}])
    assert (await proxy.crawl("/#!a")).headers["Cache-Status"].startswith("prerender; hit")
    lastmod = "2020-01-02"
    await jobs_are(lambda jobs: len(jobs["items"]) == 2)
    found = await api.get("/sitemaps")
    assert (found["watched"], found["pages"]) == (True, 2)
    await api.ask("POST", "/sitemaps", 204, json={})
    async with proxy.client.get(f"{proxy.admin_url}/metrics") as response:
        metrics = await response.text()
    assert 'prerender_sitemap_changes_total{change="new"} 2.0' in metrics
    assert "prerender_sitemap_pages 2.0" in metrics


async def test_what_is_not_watched(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await start_origin(web.Application())
    api = Api(await start_proxy(origin.url))
    assert await api.get("/sitemaps") == {"watched": False}
    refused = await api.ask("POST", "/sitemaps", 409, json={})
    assert refused["detail"] == "sitemaps are not watched: set [sitemaps] watch"
    urls = ["https://other.example/sitemap.xml"]
    with pytest.raises(ConfigError, match=r"\[sitemaps\] urls: sitemap: .* give a URL of"):
        await start_proxy(origin.url, {"sitemaps": {"watch": True, "urls": urls}})
