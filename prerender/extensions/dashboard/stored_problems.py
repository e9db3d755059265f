"""Keeps the pages with problems over restarts, and shares them with the other replicas.

They are stored as one note. Each exchange adds what was counted since the last one to what is stored;
replicas that write at the same moment may lose some counts.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

from prerender.background import repeating
from prerender.extensions.dashboard.recent_activity import RETENTION_SECONDS, PageRenders, Recent
from prerender.snapshots.stores.notes import Notes
from prerender.snapshots.strict_json import read

_KEY = "problems"
EVERY_SECONDS = 15.0
_LAST_SECONDS = 3.0


class StoredProblems:
    """The problems of ``recent``, stored in ``notes``."""

    def __init__(self, notes: Notes, recent: Recent) -> None:
        self._notes = notes
        self._recent = recent

    @asynccontextmanager
    async def storing(self) -> AsyncIterator[None]:
        """Exchange them while the context is open, and at its end."""
        async with repeating(self.exchange, "problems of pages", EVERY_SECONDS, _LAST_SECONDS):
            yield

    async def exchange(self) -> None:
        """Read what is stored, and add what is new. Raises StoreError if it cannot be read."""
        stored = await asyncio.to_thread(_read, await self._notes.read(_KEY))
        pages, changed = self._recent.exchange(stored)
        if changed:
            data = await asyncio.to_thread(lambda: json.dumps(list(map(asdict, pages))).encode())
            await self._notes.set(_KEY, data, RETENTION_SECONDS)


def _read(note: bytes | None) -> tuple[PageRenders, ...] | None:
    """A stored note; None if there is none that can be read."""
    try:
        return read(tuple[PageRenders, ...], note) if note else None
    except ValueError:
        return None
