"""Webhook messages until they have arrived: kept in the store, sent by one replica, in order.

All replicas add to one note. The one that holds the lease of the sender sends what is in it: of each
key one message at a time, so that those of a page arrive in order, also after a restart.
"""

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Literal, NamedTuple

import structlog
from cachetools import LRUCache
from prometheus_client.core import Metric

from prerender.background import cancel_all, finishing
from prerender.config.settings import WebhookSettings
from prerender.errors import StoreError
from prerender.snapshots.stores.store import Store
from prerender.snapshots.strict_json import read
from prerender.telemetry.scraped_metrics import counter, gauge
from prerender.webhooks import Message, Webhooks, key_of

MOST_BYTES = 1024**2
# How soon a replica sends what others have added.
EVERY_SECONDS = 5.0
# After all attempts of webhooks.py: until the next ones, and until a message is given up.
AGAIN_SECONDS = 600.0
GIVE_UP_SECONDS = 2 * 86400.0
# Messages on their way. Others wait, so this is many: a receiver may refuse some for days.
_MOST_SENDING_BYTES = MOST_BYTES // 2
_MOST_FINISHED = 20_000
_NOTE = "webhooks"
_SENDER = "webhooks.sender"
_LEASE_SECONDS = 5.0
_LAST_SECONDS = 3.0

DeliveryResult = Literal["delivered", "failed", "dropped"]
RESULTS: tuple[DeliveryResult, ...] = ("delivered", "failed", "dropped")
log = structlog.get_logger(__name__)


class WaitingMessage(NamedTuple):
    """A message that has not arrived. ``made``: Unix seconds."""

    id: str
    key: str
    body: str
    made: float


class Outbox:
    """Sends messages by ``webhooks``, and keeps them in ``store`` until they have arrived.

    What has no room in ``most_bytes`` is dropped. ``results``: numbers of messages.
    """

    def __init__(
        self,
        store: Store,
        webhooks: Webhooks,
        *,
        most_bytes: int = MOST_BYTES,
        again_seconds: float = AGAIN_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._webhooks = webhooks
        self._most_bytes = most_bytes
        self._again_seconds = again_seconds
        self._clock = clock
        # Not stored yet; the others are in the note.
        self._new: dict[str, WaitingMessage] = {}
        self._bytes = 0
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._again: dict[str, float] = {}
        self._finished: LRUCache[str, bool] = LRUCache(_MOST_FINISHED)
        self._changed = asyncio.Event()
        self._stopped = False
        self.results: Counter[DeliveryResult] = Counter(dict.fromkeys(RESULTS, 0))

    def drop(self, number: int) -> None:
        """Count messages that are dropped."""
        if number and not self.results["dropped"]:
            log.warning("webhook_queue_full", waiting_bytes=self._bytes)
        self.results["dropped"] += number

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: WebhookSettings, store: Store) -> AsyncIterator["Outbox | None"]:
        """Send messages while the context is open. None if there is no [webhooks] url."""
        if not settings.url:
            yield None
            return
        async with Webhooks.open(settings.url, [*map(key_of, settings.secret)]) as webhooks:
            outbox = cls(store, webhooks)
            async with outbox.sending():
                yield outbox

    @property
    def waiting_bytes(self) -> int:
        """Of the messages that had not arrived when the note was read last."""
        return self._bytes

    def has_room(self, size: int) -> bool:
        """Whether there is room for so many bytes."""
        return self._bytes + size <= self._most_bytes

    def add(self, key: str, body: str) -> str:
        """Send a message behind those with the same ``key``. Returns its id."""
        one = WaitingMessage(f"msg_{secrets.token_hex(12)}", key, body, self._clock())
        if not self.has_room(len(body)):
            self.drop(1)
        else:
            self._bytes += len(body)
            self._new[one.id] = one
            self._changed.set()
        return one.id

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send messages while the context is open. At its end, store those that have not arrived."""
        try:
            async with finishing(self._work(), "webhook outbox", self._stop, _LAST_SECONDS):
                yield
        finally:
            await cancel_all(self._sending.values())

    def _stop(self) -> None:
        self._stopped = True
        self._changed.set()

    async def _work(self) -> None:
        while not self._stopped:
            try:
                await self._send_all()
            except Exception:
                log.exception("webhooks_not_sent")
            await self._pause()
        await self._exchange()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(EVERY_SECONDS):
                await self._changed.wait()
        self._changed.clear()

    async def _send_all(self) -> None:
        """Send until nothing is left, unless another replica does."""
        if not (waiting := await self._exchange()):
            return
        async with self._store.alone(_SENDER) as alone:
            while waiting and alone and not self._stopped:
                self._send(waiting)
                await self._pause()
                waiting = await self._exchange()

    def _send(self, waiting: Iterable[WaitingMessage]) -> None:
        keys: set[str] = set()
        now, size = time.monotonic(), 0
        for one in waiting:
            # It may have arrived while the note was written.
            if one.key in keys or one.id in self._finished:
                continue
            keys.add(one.key)
            if self._again.get(one.id, 0.0) > now:
                continue
            if one.id not in self._sending and size < _MOST_SENDING_BYTES:
                self._again.pop(one.id, None)
                task = asyncio.create_task(self._deliver(one), name=f"webhook {one.id}")
                self._sending[one.id] = task
            size += len(one.body)

    async def _deliver(self, message: WaitingMessage) -> None:
        try:
            arrived = await self._webhooks.deliver(Message(message.id, message.body))
        finally:
            del self._sending[message.id]
        self.results["delivered" if arrived else "failed"] += 1
        if arrived:
            self._finished[message.id] = True
        else:
            self._again[message.id] = time.monotonic() + self._again_seconds
        self._changed.set()

    async def _exchange(self) -> Sequence[WaitingMessage]:
        """Store what is new, and remove what has arrived. Returns what has not, oldest first."""
        async with self._store.alone(_NOTE, _LEASE_SECONDS) as alone:
            if not alone:
                return ()
            try:
                note, is_known = await self._store.notes.read(_NOTE), True
            except StoreError:
                note, is_known = None, False
            stored = await asyncio.to_thread(_read, note)
            new = tuple(self._new.values())
            left, dropped = self._left((*stored, *new))
            # In memory, other notes could take its place.
            if is_known and left != stored and not self._store.notes.in_memory:
                data = await asyncio.to_thread(json.dumps, left)
                if await self._store.notes.set(_NOTE, data.encode(), GIVE_UP_SECONDS):
                    for one in new:
                        self._new.pop(one.id, None)
        self.drop(len(dropped))
        over = {one.id for one in dropped}.union(self._finished)
        self._new = {name: one for name, one in self._new.items() if name not in over}
        by_id = {one.id: one for one in left} | self._new
        self._again = {name: at for name, at in self._again.items() if name in by_id}
        self._bytes = sum(len(one.body) for one in by_id.values())
        return left

    def _left(
        self, waiting: Iterable[WaitingMessage]
    ) -> tuple[tuple[WaitingMessage, ...], list[WaitingMessage]]:
        """Those that are still to be sent and have room, and those that are dropped."""
        left: list[WaitingMessage] = []
        dropped: list[WaitingMessage] = []
        seen: set[str] = set()
        now, size = self._clock(), 0
        for one in waiting:
            if one.id in self._finished or one.id in seen:
                continue
            seen.add(one.id)
            has_room = size + len(one.body) <= self._most_bytes
            if has_room and now - one.made < GIVE_UP_SECONDS:
                size += len(one.body)
                left.append(one)
            else:
                dropped.append(one)
        return tuple(left), dropped


def _read(note: bytes | None) -> tuple[WaitingMessage, ...]:
    try:
        return read(tuple[WaitingMessage, ...], note) if note else ()
    except ValueError as error:
        log.warning("bad_note_of_webhooks", reason=str(error))
        return ()


def webhook_metrics(outbox: Outbox | None) -> Iterable[Metric]:
    """The metrics of webhooks."""
    results = outbox.results if outbox else dict.fromkeys(RESULTS, 0)
    yield counter("prerender_webhook_messages", "Messages to [webhooks] url.", results, "result")
    yield gauge(
        "prerender_webhook_waiting_bytes",
        "Messages that were not delivered yet, of all replicas.",
        outbox.waiting_bytes if outbox else 0,
    )
