"""What a rendered page amounts to: a snapshot, a redirect, or nothing that may be shown. Pure.

Here the page's own word counts (``prerender-status-code``, ``prerender-header`` and Rendertron's forms
of them), the internal host is taken out, and what went wrong is noted.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from html import escape
from http import HTTPStatus
from typing import Literal
from urllib.parse import urljoin

from yarl import URL

from prerender.browser.rendered import Departed, Rendered
from prerender.errors import EmptyPage, RenderError, RenderTimeout, SnapshotTooLarge
from prerender.gateway.visit import HTML_TYPES, PAGE_STATUSES, Document, Visit
from prerender.http import headers as fields
from prerender.rendering.verdict import (
    Judgement,
    has_moved,
    judge,
    lacks_its_subject,
)
from prerender.snapshots.asset_fingerprint import asset_fingerprint_of
from prerender.snapshots.freshness import page_ttl
from prerender.snapshots.purges import tags_of
from prerender.snapshots.snapshot import UNUSABLE, Facts, Header, Snapshot, Target, etag_of
from prerender.urls.hosts import normalized
from prerender.urls.references import pretty_links, pretty_reference, redirected

WhenMoved = Literal["canonical", "redirect", "keep"]
# What a page may say about itself with <meta name="prerender-header">. Anything else would let what
# got into the page speak for the server.
_PAGE_HEADERS = {"content-language": "Content-Language", "x-robots-tag": "X-Robots-Tag"}
_BODILESS = (204, 205, 206, 304)
_CANONICAL = re.compile(r"<link\b[^>]*\brel=[\"']?canonical\b", re.IGNORECASE)
_HEAD = re.compile(r"<head\b[^>]*>", re.IGNORECASE)


class Judge:
    """Judges the pages of the site at ``public``, whose origin is at ``origin``.

    ``max_bytes`` is the size of the largest snapshot; ``volatile`` are regular expressions of what
    differs between two loads of a page that is the same. ``when_moved``: what becomes of a page
    that has changed its own URL: a canonical link to the new one, a redirect there, or nothing.
    ``soft_404``: a page whose data was not found is a 404, whatever it says.
    """

    def __init__(
        self,
        public: URL,
        origin: URL,
        max_bytes: int,
        volatile: Iterable[str] = (),
        when_moved: WhenMoved = "canonical",
        *,
        soft_404: bool = False,
    ) -> None:
        self._site = str(public.origin())
        self._public = public
        self._origin = origin
        self._hosts = (normalized(public.raw_host or ""),)
        self._max_bytes = max_bytes
        self._when_moved = when_moved
        self._soft_404 = soft_404
        self._volatile = [re.compile(pattern) for pattern in volatile]
        self._internal = _absolute_urls_of(origin) if origin.origin() != public.origin() else None

    def snapshot(
        self, target: Target, document: Document, visit: Visit, rendered: Rendered, now: float
    ) -> Snapshot:
        """The snapshot that a rendered page makes; ``now`` in Unix seconds. Raises RenderError."""
        if self._is_elsewhere(visit, rendered):
            return self._away(target, rendered.url, now)
        self._check_document(target, visit, rendered)
        moved = has_moved(target.url, rendered.url)
        judgement = judge(document, visit, rendered, moved=moved)
        if moved and judgement.verdict == "moved" and self._when_moved == "redirect":
            return self._away(target, rendered.url, now)
        if not rendered.shows_anything and judgement.verdict in UNUSABLE:
            error = (
                RenderTimeout if rendered.partial else partial(EmptyPage, verdict=judgement.verdict)
            )
            raise error(f"{target.url}: {judgement.reason}")
        facts = self._facts(visit, rendered, judgement)
        html = rendered.html
        if judgement.verdict == "moved" and self._when_moved == "canonical":
            html = with_canonical(html, pretty_reference(rendered.url, target.url, self._hosts))
        if self._internal is not None:
            html = self._internal.sub(lambda found: _like(found[0], self._site), html)
        body = html.encode("utf-8")
        if len(body) > self._max_bytes:
            raise SnapshotTooLarge(f"{target.url}: {len(body)} bytes")
        status, headers = self._said(target, document, rendered)
        if self._soft_404 and facts.soft_404 and status == HTTPStatus.OK:
            status = HTTPStatus.NOT_FOUND.value
        return Snapshot(
            status=status,
            headers=headers,
            body=body,
            etag=self._etag(status, headers, html, body),
            last_modified=int(now),
            storable=may_be_stored(document),
            facts=facts,
            ttl=page_ttl(rendered.cache_ttls),
            tags=tags_of([*document.headers.getall("Cache-Tag", ()), *rendered.cache_tags]),
            asset_fingerprint=asset_fingerprint_of(document.body),
        )

    def _is_elsewhere(self, visit: Visit, rendered: Rendered) -> bool:
        """Whether the origin has redirected a reload of the page to another one."""
        if not rendered.url.startswith(f"{self._site}/"):
            return rendered.url.startswith(("http://", "https://"))
        return rendered.redirected and rendered.url.partition("#")[0] != visit.document_url

    def _check_document(self, target: Target, visit: Visit, rendered: Rendered) -> None:
        """Raises RenderError unless the page shows its own document, as it was handed over or as a
        reload has brought it from the origin: no error, and nothing that the browser made."""
        if not rendered.url.startswith(f"{self._site}/"):
            raise RenderError(f"{target.url}: left the site for {rendered.url[:80]}")
        if visit.document is not None:
            raise RenderError(f"{target.url}: the browser did not load the document")
        if rendered.status not in PAGE_STATUSES:
            raise RenderError(f"{target.url}: shows a document with status {rendered.status}")
        if rendered.content_type not in HTML_TYPES:
            raise RenderError(f"{target.url}: shows a document of type {rendered.content_type}")
        if visit.lost_document(rendered.url):
            raise RenderError(f"{target.url}: the document was cut short")

    def _etag(self, status: int, headers: tuple[Header, ...], html: str, body: bytes) -> str:
        """A strong entity-tag of the bytes, or a weak one of what matters in them."""
        if not self._volatile:
            return etag_of(status, headers, body)
        for pattern in self._volatile:
            html = pattern.sub("", html)
        return f"W/{etag_of(status, headers, html.encode())}"

    def departure(self, target: Target, departed: Departed, now: float) -> Snapshot:
        """The redirect that a page makes which goes elsewhere. Raises RenderError."""
        if departed.url.partition("#")[0] == target.url.partition("#")[0]:
            raise RenderError(f"{target.url}: reloads itself without end")
        return self._away(target, departed.url, now)

    def _away(self, target: Target, url: str, now: float) -> Snapshot:
        """The redirect to where a page has taken its visitor: the URL is all there is, no state is
        inherited."""
        location = fields.publish(url, self._origin, self._public)
        return _redirect(302, pretty_reference(location, target.url, self._hosts), now)

    def redirect(self, target: Target, status: int, location: str, now: float) -> Snapshot:
        """The origin's redirect of a target's document, in pretty form."""
        return _redirect(status, redirected(target.url, location, self._hosts), now)

    def _said(
        self, target: Target, document: Document, rendered: Rendered
    ) -> tuple[int, tuple[Header, ...]]:
        """Status and header fields: the document's, and over them the page's own word."""
        status = _status(rendered.status, rendered.status_codes)
        location = None
        own: dict[str, str] = {}
        for line in rendered.headers:
            name, _, value = line.partition(":")
            name, value = name.strip().lower(), value.strip()
            if not (value.isprintable() and value.isascii()):
                continue
            if name == "location":
                location = location or self._own_location(target, value)
            elif name in _PAGE_HEADERS:
                own[_PAGE_HEADERS[name]] = value
        if status // 100 == 3:
            if location is None:
                status = rendered.status
            else:
                own["Location"] = location
        kept = [(name, value) for name, value in self._kept(target, document) if name not in own]
        return status, (*kept, *own.items())

    def _kept(self, target: Target, document: Document) -> Iterator[Header]:
        """The document's fields that are the snapshot's too."""
        for name, value in fields.kept_on_snapshot(document.headers.items()):
            is_link = name.lower() == "link"
            yield (
                name.title(),
                pretty_links(value, target.url, self._hosts) if is_link else value,
            )

    def _own_location(self, target: Target, value: str) -> str | None:
        """A page's Location on the same site, or None: a page must not send crawlers elsewhere.

        It inherits no state: the page knows its own.
        """
        try:
            location = urljoin(target.url.partition("#")[0], value)
            own = URL(location, encoded=True).origin() == self._public.origin()
        except ValueError:
            return None
        return pretty_reference(location, target.url, self._hosts) if own else None

    def _facts(self, visit: Visit, rendered: Rendered, judgement: Judgement) -> Facts:
        blocked = []
        unanswered = []
        for exchange in visit.exchanges:
            if exchange.blocked:
                blocked.append(exchange.url)
            elif not exchange.finished and not exchange.endless:
                unanswered.append(exchange.url)
        settled = rendered.settled
        return Facts(
            verdict=judgement.verdict,
            why=judgement.reason,
            lasting=judgement.lasting,
            soft_404=lacks_its_subject(visit.exchanges) and not rendered.status_codes,
            settled=settled.reason,
            virtual_seconds=settled.virtual_seconds,
            real_seconds=settled.real_seconds,
            text_length=rendered.text_length,
            failed_requests=tuple(fault.url for fault in judgement.faults),
            blocked_requests=tuple(blocked),
            unanswered_requests=tuple(unanswered),
            errors=rendered.errors,
        )


def with_canonical(html: str, url: str) -> str:
    """The HTML with a canonical link, unless the page has one."""
    if _CANONICAL.search(html):
        return html
    link = f'<link rel="canonical" href="{escape(url)}">'
    return _HEAD.sub(lambda head: head[0] + link, html, count=1)


def _redirect(status: int, location: str, now: float) -> Snapshot:
    """It is not kept: asking the origin again is cheap."""
    headers: tuple[Header, ...] = (("Location", location),)
    return Snapshot(status, headers, b"", etag_of(status, headers, b""), int(now), storable=False)


def _status(origin: int, wanted: tuple[str, ...]) -> int:
    """The page's own status if it is one of a page (200 to 599 with a body), else the origin's."""
    for text in wanted:
        if len(text) == 3 and text.isascii() and text.isdigit():
            status = int(text)
            if 200 <= status <= 599 and status not in _BODILESS:
                return status
    return origin


def may_be_stored(document: Document) -> bool:
    """Whether the origin lets a shared cache keep its document (RFC 9111 section 5.2.2)."""
    directives = {
        directive.strip().partition("=")[0].lower()
        for value in document.headers.getall("Cache-Control", ())
        for directive in value.split(",")
    }
    return not directives & {"no-store", "private"}


def _absolute_urls_of(origin: URL) -> re.Pattern[str]:
    """Finds the beginning of absolute URLs of the origin, with or without its scheme, as they stand in
    HTML and in JSON."""
    host = re.escape(fields.authority(origin))
    scheme = rf"(?:{origin.scheme}:|(?<![\w:]))"
    return re.compile(rf"{scheme}(?://|\\/\\/){host}(?![\w.:-])", re.IGNORECASE)


def _like(found: str, site: str) -> str:
    """``site``, with its slashes escaped if those of ``found`` are."""
    return site.replace("/", "\\/") if "\\/" in found else site
