"""Explains how the proxy would handle a request, without handling it: ``GET /api/v1/explain``.

parameters.ExplainQuery says what it accepts.
"""

import string
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from prerender.admin.models import ExplainedSnapshot, Explanation
from prerender.admin.page_urls import Site
from prerender.admin.parameters import ExplainQuery
from prerender.admin.reasons import of_decision
from prerender.admin.routes import route
from prerender.browser.pool import Pool
from prerender.crawlers.key_directories import FETCH_SECONDS
from prerender.errors import BadMessage
from prerender.http.client_address import Peer
from prerender.http.forwarding_headers import authority
from prerender.http.message_head import parse_request
from prerender.proxy.decider import Considered, Decider
from prerender.proxy.decision import Refuse, Render
from prerender.snapshots.entry import Entry
from prerender.snapshots.page_changes import changes_of
from prerender.snapshots.snapshot_cache import CachedSnapshots, Outlook
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import pretty_to_ugly

# Adds the last render of the page with a key, if it is known.
LastRender = Callable[[str, Explanation], Awaitable[None]]


class Explanations:
    """Explains the decisions of ``decider`` and ``snapshots`` for ``site``.

    ``last_render`` is set by an extension that remembers renders.
    """

    def __init__(
        self,
        site: Site,
        decider: Decider,
        snapshots: CachedSnapshots,
        pool: Pool,
    ) -> None:
        self._site = site
        self._decider = decider
        self.last_render: LastRender | None = None
        self._snapshots = snapshots
        self._pool = pool

    @route("GET", "/explain")
    async def explain(self, query: ExplainQuery) -> Explanation:
        """Explain the decision for a request without executing it."""
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
    ) -> Explanation:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {authority(self._site.public)}"]
        lines += [f"{name}: {value}" for name, value in fields]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("invalid request: line break in a header")
        try:
            request = parse_request("\r\n".join(lines).encode("latin-1", "replace"), Peer(remote))
        except BadMessage as error:
            raise ValueError(f"invalid request: {error}") from None
        considered = self._decider.consider(request)
        considered = await self._decider.check(considered, FETCH_SECONDS, remember=False)
        page = outlook = None
        if isinstance(considered.decision, Render):
            page = self._decider.target_of(considered.request, considered.decision)
            outlook = await self._snapshots.outlook(page)
        explanation = self._explanation(method, target, considered, page, outlook)
        if page and self.last_render is not None:
            await self.last_render(page.key, explanation)
        return explanation

    def _explanation(
        self,
        method: str,
        target: str,
        considered: Considered,
        page: Target | None,
        outlook: Outlook | None,
    ) -> Explanation:
        explanation: Explanation = {
            "request": {"method": method, "target": target, "user_agent": considered.user_agent},
            "crawler": considered.crawler,
            "decision": considered.decision.kind,
            "reason": considered.decision.reason.value,
            "reason_text": of_decision(considered.decision.reason, considered.crawler),
            "answered_by": _answered_by(considered, outlook),
        }
        if considered.agent or considered.agent_unverified:
            explanation["signature"] = {
                "verified": bool(considered.agent),
                "agent": considered.agent,
                "reason": considered.agent_unverified,
            }
        if page is not None and outlook is not None:
            explanation["page"] = {
                "url": page.url,
                "key": page.key,
                "variant": str(page.variant),
                "markdown": isinstance(considered.decision, Render)
                and considered.decision.markdown,
            }
            explanation["freshness"] = {
                "ttl_seconds": outlook.ttl,
                "shown": outlook.shown,
                "renewed": outlook.renewed,
            }
            explanation["snapshot"] = _stored(outlook.entry, outlook) if outlook.entry else None
            explanation["rendering"] = {
                "this_page_now": outlook.rendering,
                "ready": self._pool.ready,
                "queue": self._pool.state.waiting,
            }
        return explanation


def _answered_by(considered: Considered, outlook: Outlook | None) -> str:
    if isinstance(considered.decision, Refuse):
        return f"the proxy: {considered.decision.error.status}"
    if outlook is None:
        return "the origin"
    if outlook.shown is not None:
        return f"the {outlook.shown} snapshot"
    return (
        "a render in progress"
        if outlook.rendering
        else "a new render, or the origin if this is not a page"
    )


def _stored(entry: Entry, outlook: Outlook) -> ExplainedSnapshot:
    snapshot, now, renewals = entry.snapshot, outlook.now, entry.renewals
    facts, changes = snapshot.facts, changes_of(snapshot.headers)
    return {
        "rendered": datetime.fromtimestamp(entry.rendered, UTC).isoformat(timespec="seconds"),
        "age_seconds": round(now - entry.stored, 1),
        "fresh_for_seconds": round(entry.expires - now, 1),
        "not_tried_again_for_seconds": max(0.0, round(entry.retry - now, 1)),
        "renewed_without_rendering": 0 if renewals is None else renewals.count,
        "always_rendered_because": outlook.why_rendered,
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
