"""A target becomes a snapshot: ask the origin, borrow a page, render, and judge what came of it."""

import asyncio
import time
from dataclasses import dataclass

import structlog
from yarl import URL

from prerender import headers as fields
from prerender.ajax_crawling import ugly_to_pretty
from prerender.errors import BrowserGone, EmptyPage, RenderError, RenderTimeout, SnapshotTooLarge
from prerender.rendering import document
from prerender.rendering.gateway import Gateway
from prerender.rendering.page import Departed, Rendered
from prerender.rendering.pool import Pool
from prerender.rendering.visit import Document
from prerender.snapshots.snapshot import Answer, Header, Snapshot, Target, Timings, etag_of
from prerender.upstream import Upstream

_ATTEMPTS = 2
# Left for reading the DOM, out of the limit of a whole render.
_RESERVE_SECONDS = 1.0
_STATUSES_OF_A_PAGE = range(200, 600)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one render: seconds of the wall clock and of virtual time, and bytes."""

    timeout: float
    budget: float
    max_bytes: int


class Renderer:
    """Answers ``snapshot(target)`` with a new snapshot each time."""

    def __init__(
        self, public: URL, upstream: Upstream, gateway: Gateway, pool: Pool, limits: Limits
    ) -> None:
        self._public = public
        self._upstream = upstream
        self._gateway = gateway
        self._pool = pool
        self._limits = limits

    async def snapshot(self, target: Target) -> Answer:
        """Render a target. Raises RenderError, OriginError or NotRenderable."""
        started = time.monotonic()
        deadline = started + self._limits.timeout
        try:
            async with asyncio.timeout(self._limits.timeout):
                page = await document.fetch(
                    self._upstream, self._public, target.path, self._limits.max_bytes
                )
        except TimeoutError:
            raise RenderTimeout(f"{target.url}: the document took too long") from None
        fetched = time.monotonic()
        if page.status // 100 == 3:
            snapshot = _redirect(page.status, page.headers["Location"], self._public)
            return Answer(snapshot, timings=Timings(document=fetched - started))
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                rendered, queue = await self._render(target, page, deadline)
                break
            except BrowserGone as error:
                if attempt == _ATTEMPTS or self._left(deadline) <= _RESERVE_SECONDS:
                    raise
                log.info("render repeated", url=target.url, reason=str(error))
        serialize = 0.0
        if isinstance(rendered, Departed):
            if rendered.url.partition("#")[0] == target.url.partition("#")[0]:
                raise RenderError(f"{target.url}: reloads itself without end")
            snapshot = _redirect(302, rendered.url, self._public)
        else:
            snapshot = self._judge(target, page, rendered)
            serialize = rendered.serialize_seconds
        timings = Timings(
            queue=queue,
            document=fetched - started,
            settle=rendered.settled.real_seconds,
            serialize=serialize,
        )
        log.info(
            "rendered",
            url=target.url,
            status=snapshot.status,
            bytes=len(snapshot.body),
            settled=rendered.settled.reason,
            virtual_ms=round(rendered.settled.virtual_seconds * 1000),
            real_ms=round((time.monotonic() - started) * 1000),
        )
        return Answer(snapshot, timings=timings)

    async def _render(
        self, target: Target, page_document: Document, deadline: float
    ) -> tuple[Rendered | Departed, float]:
        asked = time.monotonic()
        async with self._pool.page(self._left(deadline)) as page:
            queue = time.monotonic() - asked
            with self._gateway.visit(page.number, page_document) as visit:
                rendered = await page.render(
                    target.url,
                    visit,
                    timeout=max(0.1, self._left(deadline) - _RESERVE_SECONDS),
                    budget=self._limits.budget,
                )
        return rendered, queue

    @staticmethod
    def _left(deadline: float) -> float:
        return max(0.0, deadline - time.monotonic())

    def _judge(self, target: Target, page: Document, rendered: Rendered) -> Snapshot:
        """The snapshot that a rendered page makes, or the reason why it makes none."""
        if rendered.empty:
            raise (RenderTimeout if rendered.partial else EmptyPage)(f"{target.url}: empty")
        if not rendered.url.startswith(f"{self._public.origin()}/"):
            # A blob: or about: URL. What the crawler asked for is not there.
            raise RenderError(f"{target.url}: left the site for {rendered.url[:80]}")
        body = rendered.html.encode("utf-8")
        if len(body) > self._limits.max_bytes:
            raise SnapshotTooLarge(f"{target.url}: {len(body)} bytes")
        status = _status(page.status, rendered.status_codes)
        headers = fields.kept_on_snapshot(page.headers.items())
        location = _location(rendered.headers, self._public) if status // 100 == 3 else None
        if status // 100 == 3:
            if location is None:
                status = page.status
            else:
                headers = (*headers, ("Location", location))
        return Snapshot(
            status=status,
            headers=headers,
            body=body,
            etag=etag_of(status, headers, body),
            last_modified=int(time.time()),
            storable=_may_be_stored(page),
            partial=rendered.partial,
            settled=rendered.settled.reason,
        )


def _redirect(status: int, location: str, public: URL) -> Snapshot:
    headers: tuple[Header, ...] = (("Location", _pretty(location, public)),)
    return Snapshot(
        status=status,
        headers=headers,
        body=b"",
        etag=etag_of(status, headers, b""),
        last_modified=int(time.time()),
        storable=False,
    )


def _pretty(location: str, public: URL) -> str:
    """A Location without the ugly form: users and crawlers see pretty URLs only."""
    site = str(public.origin())
    own = location.startswith(f"{site}/")
    pretty = ugly_to_pretty(location[len(site) :] if own else location)
    if pretty is None or not (own or location.startswith("/")):
        return location
    return f"{site if own else ''}{pretty}"


def _status(origin: int, wanted: tuple[str, ...]) -> int:
    """The page's own word (``prerender-status-code``) if it is one of a page, else the origin's."""
    for text in wanted:
        if len(text) == 3 and text.isascii() and text.isdigit():
            status = int(text)
            if status in _STATUSES_OF_A_PAGE and status not in (204, 205, 206, 304):
                return status
    return origin


def _location(page_headers: tuple[str, ...], public: URL) -> str | None:
    """The page's own Location (``prerender-header``), on the same site only: anything else would
    make the crawler follow whatever got into the page."""
    for header in page_headers:
        name, _, value = header.partition(":")
        if name.strip().lower() != "location" or not value.strip().isprintable():
            continue
        try:
            location = public.join(URL(value.strip()))
            if location.origin() == public.origin():
                return str(location)
        except ValueError:
            continue
    return None


def _may_be_stored(page: Document) -> bool:
    """Whether the origin lets a shared cache keep its document (RFC 9111 section 5.2.2)."""
    directives = {
        directive.strip().partition("=")[0].lower()
        for value in page.headers.getall("Cache-Control", ())
        for directive in value.split(",")
    }
    return not directives & {"no-store", "private"}
