"""Explains how the proxy would handle a request, without handling it.

``GET /explain?url=...`` on the admin listener, with ``user_agent=...``, ``method=...``,
``remote=...`` (the client's address) and any number of ``header=Name: value``. Or any path of the
site with ``?_prerender=explain``, which uses the headers of that request. A URL is pretty, ugly or
ordinary, with or without scheme and host.
"""

import string
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from aiohttp import web
from aiohttp.typedefs import Middleware
from yarl import URL

from prerender.admin.problem import problem
from prerender.browser.pool import Pool
from prerender.http.head import BadMessage, parse_request
from prerender.http.headers import authority
from prerender.proxy.decision import Refuse, Render
from prerender.proxy.handler import Handler
from prerender.proxy.request import Request
from prerender.snapshots.entry import Entry
from prerender.snapshots.snapshot_cache import CachedSnapshots, Outlook
from prerender.telemetry.records import RequestContext
from prerender.urls.addresses import after_host
from prerender.urls.ajax_crawling import pretty_to_ugly

if TYPE_CHECKING:
    from prerender.proxy.client_connection import ClientConnection

_WORD = "_prerender=explain"
# Headers of the request to the admin listener itself.
_NOT_THE_CRAWLERS = frozenset(
    {"host", "connection", "authorization", "cookie", "content-length", "transfer-encoding"}
)
_Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class _Nobody:
    """Stands in for a client's connection."""

    remote: str
    trusted: bool = False


class Explanations:
    """Explains the decisions of ``handler`` and ``snapshots`` for the site at ``public``."""

    def __init__(
        self, public: URL, handler: Handler, snapshots: CachedSnapshots, pool: Pool
    ) -> None:
        self._public = public
        self._site = str(public.origin())
        self._handler = handler
        self._snapshots = snapshots
        self._pool = pool

    def add_to(self, app: web.Application) -> None:
        """Add the routes and the middleware. Call this after AdminAuth has been added."""
        for path in ("/explain", "/api/v1/explain"):
            app.router.add_get(path, self._by_parameters)
        app.middlewares.append(self._middleware())

    def _middleware(self) -> Middleware:
        @web.middleware
        async def middleware(request: web.Request, handler: _Answer) -> web.StreamResponse:
            path, _, query = request.raw_path.partition("?")
            parameters = query.split("&")
            if _WORD not in parameters:
                return await handler(request)
            kept = "&".join(parameter for parameter in parameters if parameter != _WORD)
            fields = [
                (name, value)
                for name, value in request.headers.items()
                if name.lower() not in _NOT_THE_CRAWLERS
            ]
            return await self._explained(
                request.method, f"{path}?{kept}" if kept else path, fields, request.remote or ""
            )

        return middleware

    async def _by_parameters(self, request: web.Request) -> web.Response:
        asked = request.query
        fields = []
        if user_agent := asked.get("user_agent"):
            fields.append(("User-Agent", user_agent))
        for line in asked.getall("header", ()):
            name, _, value = line.partition(":")
            fields.append((name.strip(), value.strip()))
        url = asked.get("url", "")
        target = url if url.startswith("/") else after_host(url)
        if not url.startswith(("/", f"{self._site}/")) and url != self._site:
            return problem(400, f"url: give a URL of {self._site}, or a path")
        # A pretty URL means the page that a crawler requests at the ugly URL.
        target = (pretty_to_ugly(target) or target).partition("#")[0]
        target = quote(target, safe=string.punctuation)
        remote = asked.get("remote", "127.0.0.1")
        try:
            ip_address(remote)
        except ValueError:
            return problem(400, "remote: give an IP address")
        return await self._explained(asked.get("method", "GET"), target, fields, remote)

    async def _explained(
        self, method: str, target: str, fields: Sequence[tuple[str, str]], remote: str
    ) -> web.Response:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {authority(self._public)}"]
        lines += [f"{name}: {value}" for name, value in fields]
        if any("\r" in line or "\n" in line for line in lines):
            return problem(400, "invalid request: line break in a header")
        try:
            head = parse_request("\r\n".join(lines).encode("latin-1", "replace"))
        except BadMessage as error:
            return problem(error.status, f"invalid request: {error}")
        nobody = cast("ClientConnection", _Nobody(remote))
        context = await self._handler.considered(Request(head, nobody))
        outlook = await self._snapshots.outlook(context.target) if context.target else None
        return web.json_response(self._told(method, target, context, outlook))

    def _told(
        self, method: str, target: str, context: RequestContext, outlook: Outlook | None
    ) -> dict[str, object]:
        told: dict[str, object] = {
            "request": {"method": method, "target": target, "user_agent": context.user_agent},
            "crawler": context.crawler,
            "decision": context.decision.kind,
            "reason": context.decision.reason,
            "answered_by": _answered_by(context, outlook),
        }
        if context.target is not None and outlook is not None:
            told |= {
                "page": {
                    "url": context.target.url,
                    "key": context.target.key,
                    "variant": str(context.target.variant),
                    "markdown": isinstance(context.decision, Render) and context.decision.markdown,
                },
                "freshness": {
                    "ttl_seconds": outlook.ttl,
                    "shown": outlook.shown,
                    "renewed": outlook.renewed,
                },
                "snapshot": None if outlook.entry is None else _stored(outlook.entry, outlook.now),
                "rendering": {
                    "this_page_now": outlook.rendering,
                    "ready": self._pool.ready,
                    "queue": self._pool.state.waiting,
                },
            }
        return told


def _answered_by(context: RequestContext, outlook: Outlook | None) -> str:
    if isinstance(context.decision, Refuse):
        return f"the proxy: {context.decision.error.status}"
    if outlook is None:
        return "the origin"
    if outlook.shown is not None:
        return f"the {outlook.shown} snapshot"
    return (
        "a render in progress"
        if outlook.rendering
        else "a new render, or the origin if this is not a page"
    )


def _stored(entry: Entry, now: float) -> dict[str, object]:
    snapshot = entry.snapshot
    return {
        "rendered": datetime.fromtimestamp(entry.stored, UTC).isoformat(timespec="seconds"),
        "age_seconds": round(now - entry.stored, 1),
        "fresh_for_seconds": round(entry.expires - now, 1),
        "not_tried_again_for_seconds": max(0.0, round(entry.retry - now, 1)),
        "refused_replacements": entry.refusals,
        "status": snapshot.status,
        "bytes": len(snapshot.body),
        "etag": snapshot.etag,
        "tags": snapshot.tags,
        "settled": snapshot.facts.settled,
        "failed_requests": snapshot.facts.failed_requests,
        "unanswered_requests": snapshot.facts.unanswered_requests,
    }
