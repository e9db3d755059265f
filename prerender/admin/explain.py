"""Explains how the proxy would handle a request, without handling it: ``GET /api/v1/explain``.

parameters.ExplainQuery says what it accepts.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from aiohttp import web

from prerender.admin.models import ExplainedRender, ExplainedSnapshot, Explanation
from prerender.admin.page_urls import Site
from prerender.admin.parameters import ExplainQuery, query_of
from prerender.admin.reasons import in_words, of_decision
from prerender.browser.pool import Pool
from prerender.errors import BadMessage
from prerender.extensions.dashboard.histories import Histories
from prerender.extensions.dashboard.history import Render as LastRender
from prerender.http.forwarding_headers import authority
from prerender.http.message_head import parse_request
from prerender.proxy.decision import Refuse, Render
from prerender.proxy.handler import Handler
from prerender.proxy.request import Request
from prerender.snapshots.entry import Entry
from prerender.snapshots.page_changes import changes_of
from prerender.snapshots.snapshot_cache import CachedSnapshots, Outlook
from prerender.telemetry.records import RequestContext
from prerender.urls.ajax_crawling import pretty_to_ugly

if TYPE_CHECKING:
    from prerender.proxy.client_connection import ClientConnection


@dataclass(frozen=True, slots=True)
class _Nobody:
    """Stands in for a client's connection."""

    remote: str
    trusted: bool = False


class Explanations:
    """Explains the decisions of ``handler`` and ``snapshots`` for ``site``."""

    def __init__(
        self,
        site: Site,
        handler: Handler,
        snapshots: CachedSnapshots,
        pool: Pool,
        histories: Histories,
    ) -> None:
        self._site = site
        self._histories = histories
        self._handler = handler
        self._snapshots = snapshots
        self._pool = pool

    def add_to(self, app: web.Application) -> None:
        """Add the route."""
        app.router.add_get("/api/v1/explain", self._explain)

    async def _explain(self, request: web.Request) -> web.Response:
        query = query_of(request, ExplainQuery)
        fields = [("User-Agent", query.user_agent)] if query.user_agent else []
        for line in query.header:
            name, colon, value = line.partition(":")
            if not colon:
                raise ValueError(f"invalid request: the header {line[:200]!r} has no colon")
            fields.append((name.strip(), value.strip()))
        url = self._site.path("url", query.url)
        # A pretty URL means the page that a crawler requests at the ugly URL.
        target = (pretty_to_ugly(url) or url).partition("#")[0]
        target = quote(target, safe=string.punctuation)
        return await self._explained(query.method, target, fields, query.remote)

    async def _explained(
        self, method: str, target: str, fields: Sequence[tuple[str, str]], remote: str
    ) -> web.Response:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {authority(self._site.public)}"]
        lines += [f"{name}: {value}" for name, value in fields]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("invalid request: line break in a header")
        try:
            head = parse_request("\r\n".join(lines).encode("latin-1", "replace"))
        except BadMessage as error:
            raise ValueError(f"invalid request: {error}") from None
        nobody = cast("ClientConnection", _Nobody(remote))
        context = await self._handler.considered(Request(head, nobody))
        outlook = await self._snapshots.outlook(context.target) if context.target else None
        told = self._told(method, target, context, outlook)
        if context.target and (history := await self._histories.of(context.target.key)):
            told["last_render"] = _last(history.render) if history.render else None
        return web.json_response(told)

    def _told(
        self, method: str, target: str, context: RequestContext, outlook: Outlook | None
    ) -> Explanation:
        told: Explanation = {
            "request": {"method": method, "target": target, "user_agent": context.user_agent},
            "crawler": context.crawler,
            "decision": context.decision.kind,
            "reason": context.decision.reason.value,
            "reason_text": of_decision(context.decision.reason, context.crawler),
            "answered_by": _answered_by(context, outlook),
        }
        if context.agent or context.agent_unverified:
            told["signature"] = {
                "verified": bool(context.agent),
                "agent": context.agent,
                "reason": context.agent_unverified,
            }
        if context.target is not None and outlook is not None:
            told["page"] = {
                "url": context.target.url,
                "key": context.target.key,
                "variant": str(context.target.variant),
                "markdown": isinstance(context.decision, Render) and context.decision.markdown,
            }
            told["freshness"] = {
                "ttl_seconds": outlook.ttl,
                "shown": outlook.shown,
                "renewed": outlook.renewed,
            }
            told["snapshot"] = _stored(outlook.entry, outlook.now) if outlook.entry else None
            told["rendering"] = {
                "this_page_now": outlook.rendering,
                "ready": self._pool.ready,
                "queue": self._pool.state.waiting,
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


def _stored(entry: Entry, now: float) -> ExplainedSnapshot:
    snapshot = entry.snapshot
    facts, changes = snapshot.facts, changes_of(snapshot.headers)
    return {
        "rendered": datetime.fromtimestamp(entry.stored, UTC).isoformat(timespec="seconds"),
        "age_seconds": round(now - entry.stored, 1),
        "fresh_for_seconds": round(entry.expires - now, 1),
        "not_tried_again_for_seconds": max(0.0, round(entry.retry - now, 1)),
        "refused_replacements": entry.refusals,
        "status": snapshot.status,
        "bytes": len(snapshot.body),
        "etag": snapshot.etag,
        "tags": list(snapshot.tags),
        "settled": facts.settled,
        "failed_requests": list(facts.failed_requests),
        "unanswered_requests": list(facts.unanswered_requests),
        "removed": list(changes.remove),
        "added": list(changes.add),
    }


def _last(render: LastRender) -> ExplainedRender:
    facts = render.facts
    return {
        "ended": datetime.fromtimestamp(render.time, UTC).isoformat(timespec="seconds"),
        "verdict": facts.verdict if not render.error else "failed",
        "reason": in_words(render.error, render.reason) or facts.why,
        "requests": [
            *(
                f"{fetch.url}: {fetch.verdict}" + (f" ({fetch.reason})" if fetch.reason else "")
                for fetch in render.timings.fetches
                if fetch.verdict in ("blocked", "failed")
            ),
            *(f"{url}: no response" for url in facts.unanswered_requests),
        ],
        "errors": list(facts.errors),
    }
