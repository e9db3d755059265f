"""Follows renders, and sends the events of their pages, in the background.

The state of each page is kept in the notes of the store, so that an event is sent once by all replicas,
and not again after a restart.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import structlog

from prerender.background import finishing
from prerender.content.content_changes import content_of
from prerender.errors import StoreError
from prerender.extensions.page_events.page_state import (
    Event,
    PageState,
    RenderResult,
    after_render,
    after_storing,
    decode,
    encode,
    is_late,
    result_of,
)
from prerender.outbox import Outbox
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target
from prerender.snapshots.variants import ORDINARY
from prerender.telemetry.records import RenderRecord
from prerender.webhooks import body_of

NOTE_SECONDS = 90 * 86400.0
# States are written when they change; those that do not, often enough to be kept.
_RENEW_SECONDS = 30 * 86400.0
# Each may hold a snapshot.
_MOST_WAITING = 256
# For alerts, if very many pages change.
_ROOM_BYTES = 128 * 1024
_LEASE_SECONDS = 5.0
_LAST_SECONDS = 3.0
# While the store is away.
_AGAIN_SECONDS = 1.0

log = structlog.get_logger(__name__)


class _SnapshotChange(NamedTuple):
    """A snapshot that was stored at ``at``, in Unix seconds."""

    at: float
    snapshot: Snapshot


class PageEvents:
    """Sends the events of these ``kinds`` by ``outbox``. ``site``: its URL."""

    def __init__(
        self,
        store: Store,
        outbox: Outbox,
        kinds: Collection[str],
        site: str,
        volatile: Sequence[re.Pattern[str]] = (),
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._kinds = kinds
        self._site = site
        self._volatile = volatile
        self._waiting: deque[tuple[Target, RenderResult | _SnapshotChange]] = deque()
        self._more = asyncio.Event()
        self._stopped = False

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send events while the context is open, and at its end what is left."""
        async with finishing(self._work(), "page events", self._stop, _LAST_SECONDS):
            yield

    def _stop(self) -> None:
        self._stopped = True
        self._more.set()

    def rendered(self, record: RenderRecord) -> None:
        """Take note of a finished render."""
        if (result := result_of(record)) is not None:
            self._add(record.target, result)

    def stored(self, target: Target, snapshot: Snapshot) -> None:
        """Take note of a snapshot that was stored just now."""
        if "snapshot.changed" in self._kinds:
            self._add(target, _SnapshotChange(time.time(), snapshot))

    def _add(self, target: Target, change: RenderResult | _SnapshotChange) -> None:
        if target.is_long:
            return
        if len(self._waiting) >= _MOST_WAITING:
            self._outbox.drop(1)
            return
        self._waiting.append((target, change))
        self._more.set()

    async def _work(self) -> None:
        while not self._stopped:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                target, change = self._waiting[0]
                try:
                    await self._apply(target, change)
                except StoreError:
                    # What is known of the page is not known now.
                    if self._stopped:
                        return
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                except Exception:
                    log.exception("page_event_not_sent", url=target.url)
                self._waiting.popleft()

    async def _apply(self, target: Target, change: RenderResult | _SnapshotChange) -> None:
        key = f"event.{target.key}"
        async with self._store.alone(key, _LEASE_SECONDS):
            note = await self._store.notes.read(key)
            before = await asyncio.to_thread(decode, note)
            if is_late(before, change.at):
                return
            after, events = await asyncio.to_thread(self._next, target, before, change)
            bodies = [
                self._body(kind, change.at, target, data)
                for kind, data in events
                if kind in self._kinds
            ]
            if bodies and not self._outbox.has_room(_ROOM_BYTES + sum(map(len, bodies))):
                # The page stays as it was: its next render makes them again.
                self._outbox.drop(len(bodies))
                return
            for body in bodies:
                self._outbox.add(target.key, body)
            if after != before:
                note = await asyncio.to_thread(encode, after)
                await self._store.notes.set(key, note, NOTE_SECONDS)

    def _next(
        self, target: Target, before: PageState, change: RenderResult | _SnapshotChange
    ) -> tuple[PageState, list[Event]]:
        if isinstance(change, RenderResult):
            return after_render(before, change)
        at, snapshot = change
        if before.etag == snapshot.etag and at - before.at < _RENEW_SECONDS:
            return before, []
        content = content_of(snapshot, target.url, self._volatile)
        return after_storing(before, at, snapshot.etag, content)

    def _body(self, kind: str, at: float, target: Target, data: dict[str, object]) -> str:
        variant = {} if target.variant == ORDINARY else {"variant": str(target.variant)}
        return body_of(kind, at, {"site": self._site, "url": target.ascii_url, **variant, **data})
