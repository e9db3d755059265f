"""Builds the snapshot of a rendered page, or rejects the page. Pure.

Applies the page's meta tags (meta_tags.py) and the verdict about it (verdict.py), replaces the internal
host (internal_host.py), and records what went wrong.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import blake2b
from http import HTTPStatus
from itertools import islice

from yarl import URL

from prerender.browser.page_results import Rendered
from prerender.browser.settling.reasons import SettleReason
from prerender.config.settings import SnapshotSettings
from prerender.errors import EmptyPage, RenderError, RenderTimeout, SnapshotTooLarge
from prerender.gateway.document import PAGE_STATUSES, Document
from prerender.gateway.visit import Visit
from prerender.http import forwarding_headers
from prerender.http.fields import is_html
from prerender.rendering.internal_host import replacing
from prerender.rendering.meta_tags import ROBOTS, status_and_headers
from prerender.rendering.moved import has_moved, with_canonical
from prerender.rendering.redirects import Redirects
from prerender.rendering.verdict import (
    Judgement,
    awaits_data,
    ended_by_limit,
    judge,
    lacks_its_subject,
    may_be_the_page,
    third_party_failures,
)
from prerender.snapshots.freshness import page_ttl
from prerender.snapshots.page_changes import Changes
from prerender.snapshots.purges import tags_of
from prerender.snapshots.snapshot import UNUSABLE, Facts, Header, Snapshot, etag_of
from prerender.snapshots.target import Target
from prerender.urls.hosts import normalized
from prerender.urls.references import (
    pretty_links,
    pretty_reference,
    without_markdown,
    without_programs,
)

_MOST_URLS = 50
_LONGEST_URL = 500
_SCRIPTS_AND_STYLES = re.compile(
    rb"<script\b[^<>]*?\ssrc\s*=\s*[\"']?([^\"'\s>]+)"
    rb"|<link\b(?=[^<>]*\brel\s*=\s*[\"']?(?:stylesheet|modulepreload))"
    rb"[^<>]*?\shref\s*=\s*[\"']?([^\"'\s>]+)",
    re.IGNORECASE,
)


class SnapshotBuilder:
    """Builds the snapshots of the site at ``public``, whose origin is at ``origin``.

    ``max_bytes``: the size limit of a snapshot. ``content``: [snapshot].
    """

    def __init__(self, public: URL, origin: URL, max_bytes: int, content: SnapshotSettings) -> None:
        self._site = str(public.origin())
        self._public = public
        self._redirects = Redirects(public, origin)
        self._hosts = (normalized(public.raw_host or ""),)
        self._max_bytes = max_bytes
        self._content = content
        self._changes = Changes(content.remove, content.add).headers()
        self._volatile = [re.compile(pattern) for pattern in content.volatile]
        self._publish = replacing(origin, public)

    def build(
        self, target: Target, document: Document, visit: Visit, rendered: Rendered, now: float
    ) -> Snapshot:
        """The snapshot of a rendered page; ``now`` in Unix seconds. Raises RenderError."""
        if self._is_elsewhere(visit, rendered):
            return self._redirects.to(target, document, rendered.url, now)
        self._check_document(target, visit, rendered)
        moved = has_moved(target.url, rendered.url)
        judgement = judge(document, visit, rendered, now, moved=moved)
        if moved and judgement.verdict == "moved" and self._content.moved == "redirect":
            return self._redirects.to(target, document, rendered.own_url, now)
        if not rendered.shows_anything and judgement.verdict in UNUSABLE:
            error = (
                RenderTimeout if rendered.partial else partial(EmptyPage, verdict=judgement.verdict)
            )
            raise error(judgement.reason, about=target.url)
        facts = self._facts(visit, rendered, judgement)
        html = rendered.html
        if judgement.verdict == "moved" and self._content.moved == "canonical":
            url = pretty_reference(rendered.own_url, target.url, self._hosts)
            html = with_canonical(html, rendered.canonical_at, url)
        html = self._publish(html)
        body = html.encode("utf-8")
        if len(body) > self._max_bytes:
            raise SnapshotTooLarge(f"{len(body)} bytes", about=target.url)
        status, own = status_and_headers(target, rendered, self._public, self._hosts)
        replaced = {name for name, _ in own} - {ROBOTS}
        copies = (
            header for header in self._copied_headers(target, document) if header[0] not in replaced
        )
        headers = (*copies, *own, *self._changes)
        if self._content.soft_404 and facts.soft_404 and status == HTTPStatus.OK:
            status = HTTPStatus.NOT_FOUND.value
        return Snapshot(
            status=status,
            headers=headers,
            body=body,
            etag=self._etag(status, headers, html, body),
            last_modified=int(now),
            storable=document.storable,
            facts=facts,
            ttl=page_ttl(rendered.cache_ttls),
            tags=tags_of([*_tag_headers(document), *rendered.cache_tags]),
            asset_fingerprint=asset_fingerprint_of(document.body),
            may_be_the_page=may_be_the_page(visit, rendered, judgement),
            still_loading=awaits_data(visit.requests.exchanges, now)
            or (rendered.loading and rendered.settled.reason is SettleReason.BUDGET),
        )

    def _is_elsewhere(self, visit: Visit, rendered: Rendered) -> bool:
        """Whether the origin redirected a reload of the page to another URL."""
        if not rendered.url.startswith(f"{self._site}/"):
            return rendered.url.startswith(("http://", "https://"))
        return (
            rendered.redirected
            and rendered.own_url.partition("#")[0] != visit.requests.document_url
        )

    def _check_document(self, target: Target, visit: Visit, rendered: Rendered) -> None:
        """Raises RenderError unless the page shows its own document, as fetched or as reloaded from
        the origin: not an error, and not a page that the browser generated."""
        if not rendered.url.startswith(f"{self._site}/"):
            raise RenderError(f"left the site for {rendered.url[:80]}", about=target.url)
        if visit.document is not None:
            raise RenderError("the browser did not load the document", about=target.url)
        if rendered.status not in PAGE_STATUSES:
            raise RenderError(f"shows a document with status {rendered.status}", about=target.url)
        if not is_html(rendered.content_type):
            raise RenderError(f"shows a document of type {rendered.content_type}", about=target.url)
        if visit.requests.lost_document(rendered.url):
            raise RenderError("the document is truncated", about=target.url)

    def _etag(self, status: int, headers: tuple[Header, ...], html: str, body: bytes) -> str:
        """A strong ETag of the body, or a weak one of the body without its volatile parts."""
        if not self._volatile:
            return etag_of(status, headers, body)
        for pattern in self._volatile:
            html = pattern.sub("", html)
        return f"W/{etag_of(status, headers, html.encode())}"

    def _copied_headers(self, target: Target, document: Document) -> Iterator[Header]:
        """The document's headers that are copied to the snapshot."""
        for name, value in forwarding_headers.snapshot_headers(document.headers.items()):
            if name.lower() != "link":
                yield name.title(), value
                continue
            links = without_programs(value)
            if "#!" in target.path:
                links = without_markdown(links)
            if links:
                yield "Link", pretty_links(links, target.url, self._hosts)

    def _facts(self, visit: Visit, rendered: Rendered, judgement: Judgement) -> Facts:
        blocked = (one.url for one in visit.requests.exchanges if one.blocked)
        unanswered = (
            one.url
            for one in visit.requests.exchanges
            if not (one.blocked or one.endless)
            and (not one.completed or ended_by_limit(one, partial=rendered.partial))
        )
        settled = rendered.settled
        return Facts(
            verdict=judgement.verdict,
            why=judgement.reason,
            lasting=judgement.lasting and not rendered.loading,
            soft_404=lacks_its_subject(visit.requests.exchanges) and not rendered.status_codes,
            settled=settled.reason.value,
            virtual_seconds=settled.virtual_seconds,
            real_seconds=settled.real_seconds,
            text_length=rendered.text_length,
            failed_requests=_shown(
                [
                    *(one.url for one in judgement.faults),
                    *third_party_failures(visit.requests.exchanges),
                ]
            ),
            blocked_requests=_shown(blocked),
            unanswered_requests=_shown(unanswered),
            errors=rendered.errors,
        )


def _tag_headers(document: Document) -> Iterator[str]:
    for name in ("Cache-Tag", "Surrogate-Key"):
        yield from document.headers.getall(name, ())


def _shown(urls: Iterable[str]) -> tuple[str, ...]:
    """The beginning of a list of URLs, as people read it. It is stored with the snapshot."""
    return tuple(url[:_LONGEST_URL] for url in islice(urls, _MOST_URLS))


def asset_fingerprint_of(document: bytes) -> str:
    """A digest of the URLs of a document's scripts and styles, which changes with a deploy; or ''."""
    urls = [script or style for script, style in _SCRIPTS_AND_STYLES.findall(document)]
    return blake2b(b"\0".join(urls), digest_size=8).hexdigest() if urls else ""
