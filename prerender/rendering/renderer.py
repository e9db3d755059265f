"""Renders a target to a snapshot: fetches the document, takes a page, renders it and judges it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import structlog
from cachetools import TTLCache
from yarl import URL

from prerender.browser.page_results import Departed, Rendered, SerializeOptions
from prerender.browser.pool import Pool
from prerender.browser.queue import Place, section_of
from prerender.config.page_changes import tags_of
from prerender.config.settings import RenderSettings, SnapshotSettings
from prerender.errors import BrowserGone, NeedsNewContext, RenderTimeout
from prerender.gateway import document
from prerender.gateway.document import Document
from prerender.gateway.gateway import without_number
from prerender.gateway.navigation import Navigation
from prerender.gateway.upstream import Upstream
from prerender.gateway.visit import Visit
from prerender.http.forwarding_headers import authority
from prerender.rendering.redirects import Redirects
from prerender.rendering.snapshot_builder import SnapshotBuilder
from prerender.rendering.waterfall import waterfall
from prerender.snapshots.snapshot import Fetch, Snapshot, SnapshotResult, Timings
from prerender.snapshots.target import Target

_PAUSE_SECONDS = 0.2
# How long the document waits for the first browser, as whose navigation it is requested.
_START_SECONDS = 5.0
# The share of the remaining time that may be spent waiting for a page.
_WAITING_SHARE = 0.75
# Reserved for serializing the DOM, out of the time limit of a render.
_RESERVE_SECONDS = 1.0
# A render is cancelled this long after its time limit, whatever its state.
_GRACE_SECONDS = 0.5

# Documents that were fetched ahead are for renders that follow at once.
_AHEAD_SECONDS = 10.0
_MOST_AHEAD = 200

log = structlog.get_logger(__name__)

# Adds to a new snapshot what it was made from.
WhenBuilt = Callable[[Snapshot, Target, Document], None]
WithManifest = Callable[[Snapshot, Target, Document, Visit, float], Snapshot]


class Renderer:
    """Renders a new snapshot with every call of ``snapshot(target)``.

    ``limits``: [render]; ``content``: [snapshot]. ``on_page``: called when a render has got a page.
    ``with_manifest``: if set, adds what a snapshot was made from. ``when_built``: called with each
    snapshot, its target and its document, in a thread.
    """

    def __init__(
        self,
        public: URL,
        upstream: Upstream,
        navigation: Navigation,
        pool: Pool,
        *,
        limits: RenderSettings,
        content: SnapshotSettings,
        on_page: Callable[[Target], None] = lambda _: None,
    ) -> None:
        self.with_manifest: WithManifest | None = None
        self.when_built: list[WhenBuilt] = []
        self._ahead: TTLCache[str, Document] = TTLCache(_MOST_AHEAD, _AHEAD_SECONDS)
        self._public = public
        self._upstream = upstream
        self._navigation = navigation
        self._pool = pool
        self._limits = limits
        self._options = SerializeOptions(
            content,
            tuple(tag for fragment in content.add for tag in tags_of(fragment)),
            authority(upstream.base),
            limits.max_bytes,
        )
        self.on_page = on_page
        self._redirects = Redirects(public, upstream.base)
        self._builder = SnapshotBuilder(public, upstream.base, limits.max_bytes, content)

    async def snapshot(self, target: Target) -> SnapshotResult:
        """Render a target. Raises RenderError, OriginError or NotRenderable."""
        limit = self._limits.timeout
        try:
            async with asyncio.timeout(limit + _GRACE_SECONDS):
                return await self._snapshot(target)
        except TimeoutError:
            raise RenderTimeout(f"not rendered within {limit:g} s", about=target.url) from None

    async def _snapshot(self, target: Target) -> SnapshotResult:
        started = time.monotonic()
        deadline = started + self._limits.timeout
        # Before the origin is contacted, so that a render that is not admitted fails at once.
        async with self._pool.place(section_of(target.url)) as place:
            page = await self._fetch(target)
            fetched = time.monotonic()
            if page.status // 100 == 3:
                snapshot = self._redirects.of_document(target, page, time.time())
                return SnapshotResult(snapshot, timings=Timings(document=fetched - started))
            rendered, visit, queue = await self._rendered(place, target, page, deadline)
        if isinstance(rendered, Departed):
            snapshot = self._redirects.of_departed(target, page, rendered, time.time())
        else:
            # In a thread: a long page takes a while.
            snapshot = await asyncio.to_thread(
                self._built, target, page, visit, rendered, time.time()
            )
        timings = Timings(
            queue=queue,
            document=fetched - started,
            settle=rendered.settled.real_seconds,
            serialize=rendered.serialize_seconds,
            fetches=_fetches(visit, rendered),
        )
        log.info(
            "rendered",
            url=target.url,
            status=snapshot.status,
            bytes=len(snapshot.body),
            verdict=snapshot.facts.verdict,
            **({"reason": why} if (why := snapshot.facts.why) else {}),
            settled=rendered.settled.reason.value,
            virtual_ms=round(rendered.settled.virtual_seconds * 1000),
            real_ms=round((time.monotonic() - started) * 1000),
        )
        return SnapshotResult(snapshot, timings=timings)

    def _built(
        self, target: Target, page: Document, visit: Visit, rendered: Rendered, now: float
    ) -> Snapshot:
        snapshot = self._builder.build(target, page, visit, rendered, now)
        for call in self.when_built:
            call(snapshot, target, page)
        if self.with_manifest is None:
            return snapshot
        return self.with_manifest(snapshot, target, page, visit, now)

    async def fetch_ahead(self, target: Target) -> Document:
        """The document of a target, which its next render uses if it follows at once. Raises
        NotRenderable, OriginError and RenderTimeout."""
        self.forget(target)
        document = self._ahead[target.key] = await self._fetch(target)
        return document

    def forget(self, target: Target) -> None:
        """Forget the document that was fetched ahead."""
        self._ahead.pop(target.key, None)

    async def _fetch(self, target: Target) -> Document:
        if (ahead := self._ahead.pop(target.key, None)) is not None:
            return ahead
        limit = self._limits.timeout
        try:
            async with asyncio.timeout(limit):
                await self._navigation.known(_START_SECONDS)
                return await document.fetch(
                    self._upstream,
                    self._public,
                    target.request_target,
                    self._limits.max_bytes,
                    self._navigation.headers(target.variant),
                )
        except TimeoutError:
            raise RenderTimeout(
                f"your site did not respond within {limit:g} s", about=target.url
            ) from None

    async def _rendered(
        self, place: Place, target: Target, page: Document, deadline: float
    ) -> tuple[Rendered | Departed, Visit, float]:
        """Render a document: again after the loss of a page, and again if it needs a new context, each
        once."""
        lost = first = False
        while True:
            try:
                return await self._render(place, target, page, deadline, first=first)
            except NeedsNewContext as error:
                if first or self._left(deadline) <= _RESERVE_SECONDS:
                    raise
                log.debug("render_repeated", url=target.url, reason=str(error))
                first = True
            except BrowserGone as error:
                if lost or self._left(deadline) <= _RESERVE_SECONDS:
                    raise
                log.info("render_repeated", url=target.url, reason=str(error))
                lost = True
                # A lost page may be the first sign of a lost browser.
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _render(
        self,
        place: Place,
        target: Target,
        page_document: Document,
        deadline: float,
        *,
        first: bool,
    ) -> tuple[Rendered | Departed, Visit, float]:
        began = time.monotonic()
        # A page that is free only at the last moment is of no use.
        waiting = self._left(deadline) * _WAITING_SHARE
        async with self._pool.page(place, waiting, first=first) as page:
            self.on_page(target)
            queue = time.monotonic() - began
            with page.visit(page_document, target.variant) as visit:
                rendered = await page.render(
                    target.url,
                    visit,
                    self._limits,
                    timeout=max(0.1, self._left(deadline) - _RESERVE_SECONDS),
                    options=self._options,
                    variant=target.variant,
                )
            if isinstance(rendered, Rendered) and "Chrome/" in rendered.html:
                rendered = _without_number(rendered, page.number)
        return rendered, visit, queue

    @staticmethod
    def _left(deadline: float) -> float:
        return max(0.0, deadline - time.monotonic())


def _without_number(rendered: Rendered, number: int) -> Rendered:
    """Remove the page's number from the text, before and after the place of a canonical link."""
    at = max(0, rendered.canonical_at)
    before, after = (
        without_number(part, number) for part in (rendered.html[:at], rendered.html[at:])
    )
    return replace(
        rendered, html=before + after, canonical_at=min(rendered.canonical_at, len(before))
    )


def _fetches(visit: Visit, rendered: Rendered | Departed) -> tuple[Fetch, ...]:
    if isinstance(rendered, Departed):
        return waterfall(visit)
    return waterfall(visit, rendered.resources, rendered.errors)
