"""The JSON API of the admin listener: lists, figures and renders. One snapshot: snapshot_details.py.

models.py and parameters.py say what it accepts and returns.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import date

from aiohttp import web

from prerender import __version__
from prerender.admin.auth import COOKIE, SESSION_SECONDS, AdminAuth
from prerender.admin.page_urls import Site
from prerender.admin.parameters import cursor_of, place_of
from prerender.admin.problem_details import problem
from prerender.admin.routes import RENDERS, route
from prerender.browser.pool import Pool
from prerender.crawlers.published import PublishedRanges
from prerender.extensions.dashboard import conversions, models
from prerender.extensions.dashboard.bots import Bots
from prerender.extensions.dashboard.crawlers import CrawlerStatistics, Tally
from prerender.extensions.dashboard.last_hour import STEP_SECONDS, Figures
from prerender.extensions.dashboard.parameters import (
    CrawlersQuery,
    LogIn,
    PageQuery,
    RenderBody,
    RequestsQuery,
    SnapshotsQuery,
)
from prerender.extensions.dashboard.recent_activity import Recent
from prerender.snapshots.list_rows import Query
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.snapshot_lists import Lists
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target
from prerender.telemetry.config_notices import Notices
from prerender.telemetry.crawler_requests import OTHERS
from prerender.telemetry.records import RequestRecord
from prerender.urls.addresses import searched

_MOST_PROBLEMS = 25


class Api:
    """Handlers of ``/api/v1/...``."""

    def __init__(
        self,
        *,
        site: Site,
        pool: Pool,
        store: Store,
        lists: Lists,
        snapshots: CachedSnapshots,
        figures: Figures,
        recent: Recent,
        crawlers: CrawlerStatistics,
        bots: Bots,
        more: Sequence[tuple[str, str]],
        listed: date | None,
        published: Sequence[PublishedRanges],
        presets: Mapping[str, str],
        notices: Notices,
        auth: AdminAuth,
    ) -> None:
        self._site = site
        self._pool = pool
        self._store = store
        self._lists = lists
        self._snapshots = snapshots
        self._figures = figures
        self._recent = recent
        self._crawlers = crawlers
        self._bots = bots
        self._more = more
        self._listed = listed.isoformat() if listed else ""
        self._published = published
        self._presets = presets
        self._notices = notices
        self._auth = auth

    @route("GET", "/session", token=False)
    async def session(self, request: web.Request) -> models.Session:
        """Check whether a token is required and valid."""
        return self._session(is_open=self._auth.knows(request))

    @route("POST", "/session", returns=models.Session, token=False)
    async def log_in(self, request: web.Request, body: LogIn) -> web.Response:
        """Exchange the token for a session cookie."""
        session = self._auth.session(body.token)
        if not session:
            return problem(401, "the token is wrong")
        response = web.json_response(self._session(is_open=True))
        response.set_cookie(
            COOKIE,
            session,
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="Strict",
            secure=request.headers.get("X-Forwarded-Proto") == "https",
        )
        return response

    def _session(self, *, is_open: bool) -> models.Session:
        return {"token_needed": self._auth.needs_token, "open": is_open}

    @route("DELETE", "/session", returns=type(None))
    async def log_out(self) -> web.Response:
        """End the session."""
        response = web.Response(status=204)
        response.del_cookie(COOKIE, samesite="Strict", httponly=True)
        return response

    @route("GET", "/summary")
    async def summary(self) -> models.Summary:
        """State of the proxy, now and over the last hour."""
        return {
            "site": self._site.url,
            "version": __version__,
            "now": time.time(),
            "started": self._figures.started,
            "ready": self._pool.ready,
            "pool": conversions.of_pool(self._pool),
            "store": conversions.of_store(self._store.state()),
            "notices": [conversions.of_notice(notice) for notice in self._notices],
            "step": STEP_SECONDS,
            "points": self._figures.points(),
        }

    @route("GET", "/crawlers")
    async def crawlers(self, query: CrawlersQuery) -> models.CrawlerList:
        """List crawlers and their responses, most requests first."""
        if query.period == "hour":
            tallies, since = self._crawlers.last_hour(), time.time() - 3600
        else:
            tallies, since = self._crawlers.since_start(), self._figures.started
        total = Tally()
        for tally in tallies.values():
            total.add(tally)
        items = sorted(tallies.items(), key=lambda item: (-item[1].requests, item[0]))
        return {
            "since": max(since, self._figures.started),
            "listed": self._listed,
            "ranges": [conversions.of_ranges(one) for one in self._published],
            "median_seconds": round(total.quantile(0.5), 6),
            "p95_seconds": round(total.quantile(0.95), 6),
            "items": [
                conversions.of_tally(name, tally, self._presets.get(tally.crawler, ""))
                for name, tally in items
            ],
        }

    @route("GET", "/bots")
    async def bots(self) -> models.BotList:
        """List clients that look automated and are not in the list of crawlers.

        Most requests first.
        """
        bots = self._bots.most_first()
        return {
            "since": self._bots.since,
            "count": len(bots),
            "more": [{"class": known, "name": name} for known, name in self._more],
            "items": [conversions.of_bot(bot) for bot in bots[: models.MOST_BOTS]],
        }

    @route("GET", "/requests")
    async def requests(self, query: RequestsQuery) -> models.RequestList:
        """List recent requests of crawlers."""
        descending = query.order == "desc"
        limit = query.limit or 1
        after = place_of(query.cursor)
        page = self._site.target(query.page) if query.page else None
        terms = searched(self._site.without_host(query.search))
        matches = [
            ((_value(record, query.sort), f"{count:015}"), record)
            for count, record in self._recent.numbered()
            if _matches(record, query, terms) and (page is None or _is_for(record, page))
        ]
        count = len(matches)
        if after is not None:
            if isinstance(after[0], str) != (query.sort == "target"):
                raise ValueError("cursor: invalid for this list")
            matches = [one for one in matches if (one[0] < after if descending else one[0] > after)]
        matches.sort(key=lambda one: one[0], reverse=descending)
        return {
            "count": count,
            "items": [conversions.of_request(record) for _, record in matches[:limit]],
            "next": cursor_of(matches[limit - 1][0] if len(matches) > limit else None),
        }

    @route("GET", "/snapshots", errors=(503,))
    async def list_snapshots(self, query: SnapshotsQuery) -> models.SnapshotList:
        """List stored snapshots."""
        rows = await self._lists.find(
            Query(
                search=self._site.without_host(query.search),
                status=query.status,
                state=query.state or None,
                least_age=query.least_age,
                most_age=query.most_age,
                sort=query.sort,
                descending=query.order == "desc",
                limit=query.limit or 1,
                after=place_of(query.cursor),
            )
        )
        now = time.time()
        return {
            "count": rows.count,
            "size": rows.size,
            "complete": self._lists.complete,
            "items": [conversions.of_row(row, self._site.url, now) for row in rows.rows],
            "next": cursor_of(rows.next),
        }

    @route("GET", "/problems")
    async def problems(self) -> models.Problems:
        """List the slowest and the most failing pages.

        At most 25 of each kind.
        """
        worst = self._recent.worst(_MOST_PROBLEMS)
        return {
            "slowest": [conversions.of_problem(page) for page in worst.slowest],
            "failing": [conversions.of_problem(page) for page in worst.failing],
            "cut_off": [conversions.of_problem(page) for page in worst.cut_off],
            "troubled": [conversions.of_problem(page) for page in worst.troubled],
        }

    @route("GET", "/pages")
    async def page(self, query: PageQuery) -> models.PageId:
        """Look up the id of a page."""
        target = self._site.target(query.url)
        stored = await self._store.get(target.key) is not None
        return {"id": target.key, "url": target.url, "stored": stored}

    @route("POST", "/render", errors=(404, *RENDERS))
    async def render(self, body: RenderBody) -> models.Rendered:
        """Render a page now, and store the snapshot if it is good enough."""
        target = (
            await self._stored_target(body.id) if body.id else self._site.target(body.url or "")
        )
        began = time.monotonic()
        response = await self._snapshots.renew(target)
        return {
            "id": target.key,
            "url": target.url,
            "status": response.snapshot.status,
            "stored": response.stored,
            "detail": response.detail,
            "seconds": round(time.monotonic() - began, 4),
        }

    async def _stored_target(self, key: str) -> Target:
        """The target of a stored snapshot, with its variant."""
        entry = await self._store.get(key)
        if entry is None:
            raise web.HTTPNotFound(text="no snapshot is stored under this id")
        return self._site.target_of(entry)


def _matches(record: RequestRecord, query: RequestsQuery, terms: Sequence[str]) -> bool:
    return (
        (not query.search or _has(record, terms))
        and query.status in (0, record.status, record.status // 100)
        and query.crawler in ("", record.crawler or OTHERS)
        and query.decision in ("", record.kind)
        and query.cache in ("", record.cache or "")
    )


def _has(record: RequestRecord, terms: Sequence[str]) -> bool:
    page = record.snapshot_target.path if record.snapshot_target else ""
    texts = f"{record.target}\n{page}\n{record.user_agent}\n{record.agent}".casefold()
    return any(term in texts for term in terms)


def _is_for(record: RequestRecord, page: Target) -> bool:
    """Whether a request is for a page, in any variant; forwarded ones have its path."""
    if record.snapshot_target is not None:
        return record.snapshot_target.url == page.url
    return record.target == page.path


def _value(record: RequestRecord, sort: str) -> float | str:
    match sort:
        case "status":
            return record.status
        case "seconds":
            return record.seconds
        case "bytes":
            return record.sent_bytes
        case "target":
            return record.target
        case _:
            return record.time
