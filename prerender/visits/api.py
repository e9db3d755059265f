"""The report API: ``/api/v1/report/...``, each table as JSON or CSV. models.py declares it."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from prerender.admin.page_urls import Site
from prerender.admin.routes import route
from prerender.errors import SitemapError
from prerender.gateway.upstream import Upstream
from prerender.sitemaps.origin_sitemaps import OriginSitemaps
from prerender.snapshots.list_rows import Query
from prerender.snapshots.snapshot_lists import Lists
from prerender.visits import models, report
from prerender.visits.figures import DAY_SECONDS, HOUR_SECONDS, MOST_PAGES
from prerender.visits.parameters import (
    ChangeQuery,
    GapQuery,
    PagesQuery,
    RecentQuery,
    SnapshotFindingsQuery,
    VisitsQuery,
    day_of,
    number_of,
)
from prerender.visits.recorder import Visits
from prerender.visits.storage import Pages

_SITEMAP_SECONDS = 60.0


class ReportApi:
    """Handlers of the report. ``visits`` None: none are kept."""

    def __init__(self, visits: Visits | None, site: Site, lists: Lists, upstream: Upstream) -> None:
        self._visits = visits
        self._site = site
        self._lists = lists
        self._sitemaps = OriginSitemaps(upstream, site.public)

    @route("GET", "/report")
    async def about(self) -> models.Report:
        """What is kept about the visits of crawlers, and since when."""
        visits = self._visits
        state: models.Report = {
            "since": "", "kept_in": "off", "days": 0, "available": True, "dropped": 0
        }  # fmt: skip
        if visits is not None:
            await visits.write()
            first = await visits.store.since()
            state = {
                "since": "" if first is None else day_of(first),
                "kept_in": visits.store.kind,
                "days": visits.retention_days,
                "available": not visits.away,
                "dropped": visits.dropped,
            }
        return state

    @route("GET", "/report/visits", returns=models.VisitList, errors=(409, 503))
    async def visits(self, query: VisitsQuery) -> web.Response:
        """Requests of crawlers in the last days.

        By crawler, day or folder. With format=csv, its items as text/csv.
        """
        last = _today()
        first = last - query.days + 1
        days = await (await self._current()).store.read("days", first, last)
        items = await asyncio.to_thread(report.visits, days, query)
        visit_list: models.VisitList = {
            "first": day_of(first),
            "last": day_of(last),
            "items": items,
        }
        return await _response(query.format, visit_list)

    @route("GET", "/report/recent", returns=models.RecentVisits, errors=(409, 503))
    async def recent(self, query: RecentQuery) -> web.Response:
        """Requests of crawlers in the last hours.

        By crawler, over restarts. With format=csv, its items as text/csv.
        """
        hour = int(time.time()) // HOUR_SECONDS
        first = hour - query.hours
        hours = await (await self._current()).store.read("hours", first, hour)
        items = await asyncio.to_thread(report.visits, hours, VisitsQuery())
        recent: models.RecentVisits = {"since": first * HOUR_SECONDS, "items": items}
        return await _response(query.format, recent)

    @route("GET", "/report/change", returns=models.ChangeList, errors=(409, 503))
    async def change(self, query: ChangeQuery) -> web.Response:
        """Compare the requests of crawlers before and after a date.

        Crawlers in both periods. With format=csv, its items as text/csv.
        """
        at, days = number_of(query.date), query.days
        store = (await self._current()).store
        before = await store.read("days", at - days, at - 1)
        after = await store.read("days", at, at + days - 1)
        items = await asyncio.to_thread(report.changes, before, after)
        change_list: models.ChangeList = {"date": query.date, "days": days, "items": items}
        return await _response(query.format, change_list)

    @route("GET", "/report/pages", returns=models.PageVisitList, errors=(409, 503))
    async def pages(self, query: PagesQuery) -> web.Response:
        """List pages and their last visits.

        The longest unvisited pages first. With format=csv, its items as text/csv.
        """
        page_list = await asyncio.to_thread(report.pages, await self._pages(), self._site, query)
        return await _response(query.format, page_list)

    @route("GET", "/report/gap", returns=models.PageVisitList, errors=(409, 502, 503))
    async def gap(self, query: GapQuery) -> web.Response:
        """List the pages of a sitemap that no search engine and no AI crawler has fetched.

        In the order of the sitemap. With format=csv, its items as text/csv.
        """
        path = self._site.path("sitemap", query.sitemap)
        known = await self._pages()
        try:
            async with asyncio.timeout(_SITEMAP_SECONDS):
                paths = await self._listed(f"{self._site.url}{path}")
        except (SitemapError, TimeoutError) as error:
            raise web.HTTPBadGateway(text=str(error) or f"{path}: it took too long") from error
        page_list = await asyncio.to_thread(report.gap, paths, known, self._site.url, query.limit)
        return await _response(query.format, page_list)

    @route("GET", "/report/snapshots", returns=models.FindingList, errors=(503,))
    async def snapshots(self, query: SnapshotFindingsQuery) -> web.Response:
        """List what is wrong with stored snapshots.

        noindex, missing or duplicate titles, canonicals that name another page, little text, statuses.
        With format=csv, its items as text/csv.
        """
        rows = await self._lists.find(Query(sort="path", descending=False, limit=MOST_PAGES))
        known = await self._pages() if self._visits else {}
        finding_list = await asyncio.to_thread(
            report.findings, rows.rows, known, self._site.url, query
        )
        return await _response(query.format, finding_list)

    async def _current(self) -> Visits:
        """With what was counted until now."""
        if self._visits is None:
            raise web.HTTPConflict(text="no visits are kept: [visits] days is 0")
        await self._visits.write()
        return self._visits

    async def _pages(self) -> Pages:
        return await (await self._current()).store.pages()

    async def _listed(self, sitemap: str) -> list[str]:
        """The paths of the site's pages in a sitemap, as pages are named in reports."""
        paths: dict[str, None] = {}
        async for entry in self._sitemaps.read([sitemap]):
            try:
                paths[self._site.target(entry.url).path] = None
            except ValueError:
                continue  # of another site
            if len(paths) >= MOST_PAGES:
                break
        return list(paths)


def _today() -> int:
    return int(time.time()) // DAY_SECONDS


async def _response(form: str, content: Mapping[str, Any]) -> web.Response:
    """The content as JSON, or its items as CSV: made in a thread, as there may be very many."""
    if form == "csv":
        text = await asyncio.to_thread(report.as_csv, content["items"])
        return web.Response(text=text, content_type="text/csv", charset="utf-8")
    text = await asyncio.to_thread(report.as_json, content)
    return web.Response(text=text, content_type="application/json", charset="utf-8")
