"""Keeps the histories of pages (history.py), beside the snapshots in their store.

They are written after a render and by a task of their own, so that no crawler waits for it; when more
renders end than can be written down, some are left out.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from prerender.errors import BadEntry, PrerenderError
from prerender.snapshots.history import History, Render, decode, encode
from prerender.snapshots.snapshot import Answer, Snapshot, Snapshots, Target
from prerender.snapshots.stores.store import Store

_MOST_WAITING = 64
KEPT_SECONDS = 30 * 86400.0

log = structlog.get_logger(__name__)


class Histories:
    """The histories of pages in ``store``, with the text of ``versions`` versions of each."""

    def __init__(self, store: Store, versions: int) -> None:
        self._store = store
        self._versions = versions
        self._waiting: deque[tuple[Target, Render, Snapshot | None]] = deque(maxlen=_MOST_WAITING)
        self._more = asyncio.Event()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Write down what is noted, as long as the context lasts."""
        writing = asyncio.create_task(self._write_down(), name="histories")
        try:
            yield
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    def note(self, target: Target, render: Render, snapshot: Snapshot | None) -> None:
        """Note a render that has ended."""
        self._waiting.append((target, render, snapshot if self._versions else None))
        self._more.set()

    async def of(self, key: str) -> History | None:
        """The history of the page with this key, if there is one."""
        data = await self._store.noted(key)
        try:
            return None if data is None else await asyncio.to_thread(decode, data)
        except BadEntry as error:
            log.warning("bad history in the store", key=key, reason=str(error))
            return None

    async def _write_down(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                target, render, snapshot = self._waiting.popleft()
                try:
                    history = await self.of(target.key) or History(target.page)
                    data = await asyncio.to_thread(
                        lambda h, r, s: encode(h.after(r, s, self._versions)),
                        history,
                        render,
                        snapshot,
                    )
                    await self._store.note(target.key, data, KEPT_SECONDS)
                except Exception:
                    log.exception("history not kept", url=target.url)


class NotedSnapshots:
    """Snapshots of ``inner``; each render is noted in ``histories``."""

    def __init__(self, inner: Snapshots, histories: Histories) -> None:
        self._inner = inner
        self._histories = histories

    async def snapshot(self, target: Target) -> Answer:
        """The snapshot of a target. Raises RenderError, OriginError or NotRenderable."""
        began = time.monotonic()
        try:
            answer = await self._inner.snapshot(target)
        except PrerenderError as error:
            seconds = time.monotonic() - began
            failed = Render(time.time(), seconds, type(error).__name__, str(error))
            self._histories.note(target, failed, None)
            raise
        snapshot = answer.snapshot
        render = Render(
            time.time(),
            time.monotonic() - began,
            status=snapshot.status,
            timings=answer.timings,
            facts=snapshot.facts,
        )
        self._histories.note(target, render, snapshot)
        return answer
