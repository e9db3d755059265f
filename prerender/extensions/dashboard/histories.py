"""Stores the history of each page: its last render, and the snapshots that were stored.

A separate task writes histories after renders, so that no crawler waits for it. If there are more
renders than can be written, some are skipped.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

import structlog

from prerender.background import running
from prerender.errors import BadEntry, StoreError
from prerender.extensions.dashboard.history import History, RenderSummary, decode, encode
from prerender.snapshots.snapshot import Facts, Snapshot, Timings
from prerender.snapshots.stores.notes import Notes
from prerender.snapshots.target import Target
from prerender.telemetry.records import RenderOutcome, RenderRecord

_MOST_WAITING = 64
NOTE_SECONDS = 30 * 86400.0

log = structlog.get_logger(__name__)


class _StoredVersion(NamedTuple):
    """A snapshot that was stored at ``time``, in Unix seconds."""

    target: Target
    time: float
    snapshot: Snapshot


class Histories:
    """The histories of pages in ``notes``, with the text of ``versions`` versions of each."""

    def __init__(self, notes: Notes, versions: int) -> None:
        self._notes = notes
        self._versions = versions
        self._waiting: deque[RenderRecord | _StoredVersion] = deque(maxlen=_MOST_WAITING)
        self._more = asyncio.Event()

    @asynccontextmanager
    async def storing(self) -> AsyncIterator[None]:
        """Store recorded renders while the context is open."""
        async with running(self._write_down(), "histories"):
            yield

    def __call__(self, record: RenderRecord) -> None:
        """Record a finished render."""
        if record.outcome is not RenderOutcome.CANCELLED:
            self._add(record)

    def stored(self, target: Target, snapshot: Snapshot) -> None:
        """Record that a snapshot was stored just now."""
        if self._versions:
            self._add(_StoredVersion(target, time.time(), snapshot))

    def _add(self, change: RenderRecord | _StoredVersion) -> None:
        if not change.target.is_long:
            self._waiting.append(change)
            self._more.set()

    async def of(self, key: str) -> History | None:
        """The history of the page with this key, if there is one."""
        try:
            return await self._read(key)
        except StoreError:
            return None

    async def _read(self, key: str) -> History | None:
        """As ``of``. Raises StoreError if it is unknown whether there is one."""
        data = await self._notes.read(key)
        if data is None:
            return None
        try:
            history = await asyncio.to_thread(decode, data)
            if history.key != key:
                raise BadEntry(f"it belongs to another key: {history.path}")
        except BadEntry as error:
            log.warning("bad_history", key=key, reason=str(error))
            return None
        return history

    async def _write_down(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                change = self._waiting.popleft()
                target = change.target
                try:
                    history = await self._read(target.key) or History(target.key, target.path)
                    data = await asyncio.to_thread(self._with, history, change)
                    if data:
                        await self._notes.set(target.key, data, NOTE_SECONDS)
                except StoreError:
                    continue  # rather than replace what is there
                except Exception:
                    log.exception("history_not_stored", url=target.url)

    def _with(self, history: History, change: RenderRecord | _StoredVersion) -> bytes:
        """A history after a change; b"" if that is none.

        Takes milliseconds, so do not call it on the event loop.
        """
        if isinstance(change, _StoredVersion):
            new = history.with_version(change.time, change.snapshot, self._versions)
            return b"" if new is history else encode(new)
        render = RenderSummary(
            change.time + change.seconds,
            change.seconds,
            change.error or "",
            change.reason,
            change.status,
            change.timings or Timings(),
            change.facts or Facts(),
        )
        return encode(replace(history, render=render))
