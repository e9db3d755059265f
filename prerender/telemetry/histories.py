"""Subscribes to the records of renders, and stores the history of each page.

A separate task writes histories after renders, so that no crawler waits for it. If there are more
renders than can be written, some are skipped.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from prerender.background import running
from prerender.errors import BadEntry
from prerender.snapshots.history import History, Render, decode, encode
from prerender.snapshots.snapshot import Facts, Timings
from prerender.snapshots.stores.notes import Notes
from prerender.telemetry.records import RenderRecord

_MOST_WAITING = 64
KEPT_SECONDS = 30 * 86400.0

log = structlog.get_logger(__name__)


class Histories:
    """The histories of pages in ``notes``, with the text of ``versions`` versions of each."""

    def __init__(self, notes: Notes, versions: int) -> None:
        self._notes = notes
        self._versions = versions
        self._waiting: deque[RenderRecord] = deque(maxlen=_MOST_WAITING)
        self._more = asyncio.Event()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Store recorded renders while the context is open."""
        async with running(self._write_down(), "histories"):
            yield

    def __call__(self, record: RenderRecord) -> None:
        """Record a finished render."""
        if record.outcome != "cancelled" and not record.target.is_long:
            self._waiting.append(record)
            self._more.set()

    async def of(self, key: str) -> History | None:
        """The history of the page with this key, if there is one."""
        data = await self._notes.get(key)
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
                record = self._waiting.popleft()
                target = record.target
                try:
                    history = await self.of(target.key) or History(target.key, target.path)
                    data = await asyncio.to_thread(self._with, history, record)
                    await self._notes.set(target.key, data, KEPT_SECONDS)
                except Exception:
                    log.exception("history_not_stored", url=target.url)

    def _with(self, history: History, record: RenderRecord) -> bytes:
        """Add a render to a history. Takes milliseconds, so do not call it on the event loop."""
        render = Render(
            record.time + record.seconds,
            record.seconds,
            record.error,
            record.reason,
            record.status,
            record.timings or Timings(),
            record.facts or Facts(),
        )
        snapshot = record.snapshot if self._versions else None
        return encode(history.after(render, snapshot, self._versions))
