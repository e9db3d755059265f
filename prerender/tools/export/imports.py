"""Imports exported snapshots: ``POST /api/v1/import``. ImportBody says what it accepts."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, cast, get_args

import structlog
from aiohttp import web
from pydantic import Field
from yarl import URL

from prerender.admin.parameters import Body, body_of, large_body
from prerender.admin.routes import route
from prerender.http import forwarding_headers
from prerender.http.encodings import encoded
from prerender.snapshots import steady_clock
from prerender.snapshots.entry import Entry
from prerender.snapshots.freshness import Freshness
from prerender.snapshots.purges import tags_of
from prerender.snapshots.snapshot import Snapshot, etag_of
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target
from prerender.tools.export.archive import Archived
from prerender.urls.addresses import pretty_of
from prerender.urls.ajax_crawling import PrettyURL

MAX_BYTES = 64 * 1024**2
_LONGEST_SITE = 300
_STATUSES = (200, 403, 404, 410)

log = structlog.get_logger(__name__)


ImportOutcome = Literal["stored", "expired", "newer", "purged", "not_stored"]
OUTCOMES: tuple[ImportOutcome, ...] = get_args(ImportOutcome)
Imported = dict[ImportOutcome, int]


class ImportBody(Body):
    site: Annotated[str, Field(max_length=_LONGEST_SITE)]
    """The site of the export: scheme, host and port. It must be the proxy's."""
    pages: list[Mapping[str, Any]]
    """Entries of the index of an export, each with its "body"."""
    fresh: bool = False
    """The snapshots count as rendered now."""


class ImportApi:
    """Stores imported snapshots in ``store``. auth.py authorizes requests."""

    def __init__(
        self,
        store: Store,
        freshness: Freshness,
        public: URL,
        target_of: Callable[[PrettyURL], Target],
    ) -> None:
        self._store = store
        self._freshness = freshness
        self._site = str(public.origin())
        self._target_of = target_of

    @route("POST", "/import", takes=ImportBody, errors=(503,))
    async def read(self, request: web.Request) -> Imported:
        """Import exported snapshots.

        How many were stored, were stored but have expired, were not stored because there is a newer
        one, because they were purged since the export, or because of the settings (not_stored).
        """
        body = await large_body(request, MAX_BYTES)
        pages = await asyncio.to_thread(self._pages, body)
        counts: Counter[ImportOutcome] = Counter(dict.fromkeys(OUTCOMES, 0))
        for target, snapshot, made in pages:
            counts[await adopt(self._store, self._freshness, target, snapshot, made)] += 1
        log.info("snapshots_imported", **cast("dict[str, int]", counts))
        if not self._store.state().available:
            raise web.HTTPServiceUnavailable(
                text="imported into this process only: the store is unavailable"
            )
        return counts

    def _pages(self, text: bytearray) -> list[tuple[Target, Snapshot, float]]:
        """Parse the snapshots of a request. Raises ValueError."""
        body = body_of(text, ImportBody)
        if body.site != self._site:
            raise ValueError(
                f"site: the export is of {body.site}, but this proxy serves {self._site}"
            )
        return [self._page(page, fresh=body.fresh) for page in body.pages]

    def _page(self, page: Mapping[str, Any], *, fresh: bool) -> tuple[Target, Snapshot, float]:
        text = page.get("body")
        entry = Archived.read({name: value for name, value in page.items() if name != "body"})
        if not isinstance(text, str):
            raise ValueError(f"{entry.path}: body is missing")
        try:
            body = text.encode()
            pretty = pretty_of(f"{self._site}{entry.path}")
        except ValueError as error:
            raise ValueError(f"{entry.path!r}: {error}") from None
        snapshot = entry.snapshot(body)
        if fault := _fault(snapshot):
            raise ValueError(f"{entry.path}: {fault}")
        snapshot = replace(snapshot, encoded=encoded(body))
        return self._target_of(pretty), snapshot, time.time() if fresh else entry.made


def _fault(snapshot: Snapshot) -> str:
    """Why a snapshot cannot be imported, or ''."""
    if snapshot.status not in _STATUSES:
        return f"snapshots with status {snapshot.status} are not stored"
    if forwarding_headers.snapshot_headers(snapshot.headers) != snapshot.headers:
        return "it has headers that are not allowed in a snapshot"
    if any(not re.fullmatch(r"[\x20-\xff]*", value) for _, value in snapshot.headers):
        return "a header has invalid characters"
    if tags_of(snapshot.tags) != snapshot.tags:
        return "its tags are invalid"
    strong = not snapshot.etag.startswith("W/")
    if strong and snapshot.etag != etag_of(snapshot.status, snapshot.headers, snapshot.body):
        return "its file does not match the ETag in the index"
    return ""


async def adopt(
    store: Store,
    freshness: Freshness,
    target: Target,
    snapshot: Snapshot,
    made: float,
    *,
    clock: Callable[[], float] = steady_clock.now,
) -> ImportOutcome:
    """Store a snapshot that was rendered at ``made`` (Unix seconds), with its ``encoded`` forms.

    "expired": stored, but older than its TTL. "newer": a newer one is stored or being rendered.
    "purged": a purge since ``made`` applies. "not_stored": because of the settings.
    """
    made = min(made, clock())
    async with store.lease(target.key, 0) as lease:
        old = lease.entry
        if lease.fence is None or (old is not None and old.stored >= made):
            return "newer"
        if old is not None and old.snapshot.etag == snapshot.etag:
            snapshot = replace(snapshot, last_modified=old.snapshot.last_modified)
        ttl = freshness.lifetime(target.path, snapshot, doubt=False)
        if not ttl:
            return "not_stored"
        entry = Entry(
            target.key,
            target.path,
            snapshot,
            stored=made,
            expires=made + ttl,
            # Numbers of purges are microseconds, too (purges.py).
            generation=min(lease.generation, int(made * 1_000_000)),
            fence=lease.fence,
            variant=target.variant,
        )
        if store.purges.applied(entry) is None:
            return "purged"
        if not await store.set(entry, freshness.storage_seconds(ttl)):
            return "not_stored"
        return "stored" if entry.expires > clock() else "expired"
