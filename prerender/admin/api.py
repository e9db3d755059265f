"""The JSON API of the admin listener: lists, figures and actions. One snapshot: snapshot_api.py.

``openapi.json`` describes it; tests compare the two.
"""

import json
import time
from importlib.resources import files
from typing import Any, TypeVar, get_args

from aiohttp import web
from yarl import URL

from prerender import __version__
from prerender.admin import shapes
from prerender.admin.auth import COOKIE, SESSION_SECONDS, AdminAuth
from prerender.admin.crawlers import Crawlers, Tally
from prerender.admin.last_hour import STEP_SECONDS, Figures
from prerender.admin.problem import problem
from prerender.admin.purge import Purging
from prerender.admin.recent import Recent
from prerender.browser.pool import Pool
from prerender.config.types import CLASSES
from prerender.snapshots.list_rows import SORTS, STATES, Query
from prerender.snapshots.snapshot import Target
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.store import Store
from prerender.telemetry.config_notices import Notices
from prerender.telemetry.records import CacheWord, RequestRecord
from prerender.urls.addresses import pretty_of
from prerender.urls.tracking import Tracking

_MOST_ROWS = 200
_MOST_PROBLEMS = 25
_DECISIONS = ("render", "forward", "refuse")
_REQUEST_SORTS = ("time", "status", "seconds", "bytes", "target")

Word = TypeVar("Word", bound=str)


class Api:
    """Handlers of ``/api/v1/...``."""

    def __init__(
        self,
        *,
        public: URL,
        tracking: Tracking,
        pool: Pool,
        store: Store,
        snapshots: CachedSnapshots,
        figures: Figures,
        recent: Recent,
        crawlers: Crawlers,
        purging: Purging,
        notices: Notices,
        auth: AdminAuth,
    ) -> None:
        self._public = public
        self._site = str(public.origin())
        self._tracking = tracking
        self._pool = pool
        self._store = store
        self._snapshots = snapshots
        self._figures = figures
        self._recent = recent
        self._crawlers = crawlers
        self._purging = purging
        self._notices = notices
        self._auth = auth

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        add = app.router
        add.add_get("/api/v1/openapi.json", self.openapi)
        add.add_get("/api/v1/session", self.session)
        add.add_post("/api/v1/session", self.log_in)
        add.add_delete("/api/v1/session", self.log_out)
        add.add_get("/api/v1/summary", self.summary)
        add.add_get("/api/v1/crawlers", self.crawlers)
        add.add_get("/api/v1/requests", self.requests)
        add.add_get("/api/v1/snapshots", self.list_snapshots)
        add.add_get("/api/v1/problems", self.problems)
        add.add_get("/api/v1/pages", self.page)
        add.add_post("/api/v1/render", self.render)
        add.add_post("/api/v1/purge", self.purge)

    async def openapi(self, _: web.Request) -> web.Response:
        """The OpenAPI description."""
        text = (files("prerender.admin") / "openapi.json").read_text("utf-8")
        return web.Response(text=text, content_type="application/json")

    async def session(self, request: web.Request) -> web.Response:
        """Whether the client is authenticated."""
        return web.json_response(
            {"token_needed": self._auth.needs_token, "open": self._auth.knows(request)}
        )

    async def log_in(self, request: web.Request) -> web.Response:
        """Exchange the token for a session cookie."""
        if not self._auth.is_token((await body_of(request, {"token"})).get("token")):
            return problem(401, "the token is wrong")
        answer = web.json_response({"token_needed": self._auth.needs_token, "open": True})
        answer.set_cookie(
            COOKIE,
            self._auth.session(),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="Strict",
            secure=request.headers.get("X-Forwarded-Proto") == "https",
        )
        return answer

    async def log_out(self, _: web.Request) -> web.Response:
        """Delete the session cookie."""
        answer = web.Response(status=204)
        answer.del_cookie(COOKIE, samesite="Strict", httponly=True)
        return answer

    async def summary(self, _: web.Request) -> web.Response:
        """The state of the proxy, and the figures of the last hour."""
        pool, store = self._pool.state, self._store.state()
        return web.json_response(
            {
                "site": self._site,
                "version": __version__,
                "now": time.time(),
                "started": self._figures.started,
                "ready": self._pool.ready,
                "pool": {
                    "size": pool.size,
                    "idle": pool.idle,
                    "busy": pool.busy,
                    "waiting": pool.waiting,
                    "queue_limit": pool.queue_limit,
                    "browsers_started": self._pool.browsers_started,
                    "memory": self._pool.memory_bytes,
                },
                "store": {
                    "kind": store.kind,
                    "available": store.available,
                    "memory": store.memory_bytes,
                    "in_memory": store.memory_entries,
                    "faults": sum(store.faults.values()),
                },
                "notices": [shapes.of_notice(notice) for notice in self._notices],
                "step": STEP_SECONDS,
                "points": self._figures.points(),
            }
        )

    async def crawlers(self, request: web.Request) -> web.Response:
        """Crawlers by name, most requests first."""
        period = word(request.query.get("period", "hour"), "period", ("hour", "start"))
        if period == "hour":
            tallies, since = self._crawlers.last_hour(), time.time() - 3600
        else:
            tallies, since = self._crawlers.since_start(), self._figures.started
        total = Tally()
        for tally in tallies.values():
            total.add(tally)
        found = sorted(tallies.items(), key=lambda item: (-item[1].requests, item[0]))
        return web.json_response(
            {
                "since": max(since, self._figures.started),
                "median_seconds": round(total.quantile(0.5), 6),
                "p95_seconds": round(total.quantile(0.95), 6),
                "items": [{"name": name} | tally.as_json() for name, tally in found],
            }
        )

    async def requests(self, request: web.Request) -> web.Response:
        """The last requests of crawlers, filtered and sorted."""
        query = request.query
        search = query.get("search", "").casefold()
        status = number(query.get("status"), "status", 0, 599)
        crawler = word(query.get("crawler", ""), "crawler", ("", *CLASSES))
        decision = word(query.get("decision", ""), "decision", ("", *_DECISIONS))
        cache = word(query.get("cache", ""), "cache", get_args(CacheWord))
        sort = word(query.get("sort", "time"), "sort", _REQUEST_SORTS)
        descending = word(query.get("order", "desc"), "order", ("asc", "desc")) == "desc"
        limit = number(query.get("limit"), "limit", 50, _MOST_ROWS) or 1
        after = shapes.place_of(query.get("cursor", ""))
        found = [
            ((_value(record, sort), f"{count:015}"), record)
            for count, record in self._recent.requests
            if (not search or search in f"{record.target}\n{record.user_agent}".casefold())
            and (not status or status in (record.status, record.status // 100))
            and (not crawler or record.crawler == crawler)
            and (not decision or record.kind == decision)
            and (not cache or record.cache == cache)
        ]
        count = len(found)
        if after is not None:
            if isinstance(after[0], str) != (sort == "target"):
                raise ValueError("cursor: invalid for this list")
            found = [one for one in found if (one[0] < after if descending else one[0] > after)]
        found.sort(key=lambda one: one[0], reverse=descending)
        following = found[limit - 1][0] if len(found) > limit else None
        return web.json_response(
            {
                "count": count,
                "items": [shapes.of_request(record) for _, record in found[:limit]],
                "next": shapes.cursor_of(following),
            }
        )

    async def list_snapshots(self, request: web.Request) -> web.Response:
        """The stored snapshots, filtered and sorted."""
        query = request.query
        state = query.get("state", "")
        found = await self._store.lists.find(
            Query(
                search=query.get("search", ""),
                status=number(query.get("status"), "status", 0, 599),
                state=word(state, "state", STATES) if state else None,
                least_age=number(query.get("least_age"), "least_age", 0, 10**9),
                most_age=number(query.get("most_age"), "most_age", 10**9, 10**9),
                sort=word(query.get("sort", "age"), "sort", SORTS),
                descending=word(query.get("order", "asc"), "order", ("asc", "desc")) == "desc",
                limit=number(query.get("limit"), "limit", 50, _MOST_ROWS) or 1,
                after=shapes.place_of(query.get("cursor", "")),
            )
        )
        now = time.time()
        return web.json_response(
            {
                "count": found.count,
                "size": found.size,
                "items": [shapes.of_row(row, self._site, now) for row in found.rows],
                "next": shapes.cursor_of(found.next),
            }
        )

    async def problems(self, _: web.Request) -> web.Response:
        """The pages with most problems since the start."""
        worst = self._recent.worst(_MOST_PROBLEMS)
        return web.json_response(
            {kind: [shapes.of_problem(page) for page in pages] for kind, pages in worst.items()}
        )

    async def page(self, request: web.Request) -> web.Response:
        """The id of a page by its URL, and whether a snapshot is stored."""
        target = self._target(request.query.get("url", ""))
        kept = await self._store.get(target.key) is not None
        return web.json_response({"id": target.key, "url": target.url, "kept": kept})

    async def render(self, request: web.Request) -> web.Response:
        """Render a page now, and store the snapshot if it is good enough."""
        asked = await body_of(request, {"url", "id"})
        if len(asked) > 1:
            raise ValueError("give either url or id")
        target = await self._kept(asked["id"]) if "id" in asked else self._target(asked.get("url"))
        began = time.monotonic()
        answer = await self._snapshots.renew(target)
        return web.json_response(
            {
                "id": target.key,
                "url": target.url,
                "status": answer.snapshot.status,
                "kept": answer.stored,
                "detail": answer.detail,
                "seconds": round(time.monotonic() - began, 4),
            }
        )

    async def purge(self, request: web.Request) -> web.Response:
        """Purge by URL, prefix, pattern, tag or everything."""
        count, told = await self._purging.purge(await request.read())
        if not told:
            return problem(
                503, "purged in this process only: the store is unavailable to other replicas"
            )
        return web.json_response({"purged": count})

    async def _kept(self, key: object) -> Target:
        """The target of a stored snapshot, with its variant."""
        entry = await self._store.get(key) if isinstance(key, str) else None
        if entry is None:
            raise web.HTTPNotFound(text="no snapshot is stored under this id")
        pretty = pretty_of(f"{self._site}{entry.path}")
        return Target.of(self._public, pretty, self._tracking, entry.variant)

    def _target(self, text: object) -> Target:
        """The target of a URL of the site, with or without scheme and host. Raises ValueError."""
        if not isinstance(text, str) or not text:
            raise ValueError(f"url: give the URL of a page of {self._site}")
        path = text.removeprefix(self._site) or "/"
        if not path.startswith("/"):
            raise ValueError(f"url: {text[:200]!r}: give a URL of {self._site}")
        try:
            pretty = pretty_of(f"{self._site}{path}")
        except ValueError as error:
            raise ValueError(f"url: {text[:200]!r}: {error}") from None
        return Target.of(self._public, pretty, self._tracking)


async def body_of(request: web.Request, names: set[str]) -> dict[str, Any]:
    """The JSON object of a request, with no other keys than ``names``. Raises ValueError."""
    try:
        found = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON") from None
    if not isinstance(found, dict) or not found.keys() <= names:
        raise ValueError(f"give an object with {' or '.join(sorted(names))}")
    return found


def number(text: str | None, name: str, default: int, most: int) -> int:
    """Parse a whole number of the query. Raises ValueError."""
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= most):
        raise ValueError(f"{name}: give a whole number from 0 to {most}")
    return int(text)


def word(text: str, name: str, known: tuple[Word, ...]) -> Word:
    """Check that a value is one of ``known``. Raises ValueError."""
    for one in known:
        if text == one:
            return one
    raise ValueError(f"{name}: give one of {', '.join(filter(None, known))}")


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
