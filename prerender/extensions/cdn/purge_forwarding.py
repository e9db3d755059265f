"""Passes purges, and pages whose snapshot was replaced, on to a CDN and to [webhooks] url.

The purges of the store are a list with numbers that all replicas share. What the CDN has not got yet is
kept in a note, with the number of the last purge that was read; the replica that holds its lease sends
it. So each purge is sent by one replica, also after a restart, and more than MOST_RECORDS become a
purge of everything.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, NamedTuple

import structlog
from prometheus_client.core import Metric

from prerender.background import finishing
from prerender.errors import StoreError
from prerender.extensions.cdn.providers import CdnClient, CdnError
from prerender.extensions.cdn.tags import Tags
from prerender.outbox import Outbox
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.stores.store import Store
from prerender.snapshots.strict_json import read
from prerender.snapshots.target import Target
from prerender.telemetry.scraped_metrics import counter, gauge
from prerender.webhooks import body_of

EVERY_SECONDS = 1.0
# How soon a replica takes over what another one has left.
TAKE_OVER_SECONDS = 15.0
# After a purge, until all replicas know it: before, the CDN could get what was purged again.
KNOWN_SECONDS = 1.0
_SHORTEST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 300.0
_NOTE_SECONDS = 30 * 86400.0
_LAST_SECONDS = 2.0
_MOST_NAMED = 100
_KEY = "cdn"

PurgeResult = Literal["purged", "failed", "refused"]
RESULTS: tuple[PurgeResult, ...] = ("purged", "failed", "refused")
log = structlog.get_logger(__name__)


class ForwardingState(NamedTuple):
    """``generation``: the number of the last purge that was read. ``waiting``: what the CDN has not got
    yet, purges as they are stored, with when they were read in microseconds. ``later``: those of them
    that were repeated meanwhile, so that a page that changes all the time is purged all the same.
    ``again``: in Unix seconds, when to try again after a failure."""

    generation: int
    waiting: tuple[tuple[str, int], ...] = ()
    later: tuple[tuple[str, int], ...] = ()
    again: float = 0.0


class PurgeForwarding:
    """Passes the purges of ``store`` on to ``client`` and ``outbox``, if there are any.

    ``site``: its URL. ``results``: numbers of tags.
    """

    def __init__(
        self,
        store: Store,
        tags: Tags,
        client: CdnClient | None,
        *,
        outbox: Outbox | None,
        site: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._tags = tags
        self._client = client
        self._outbox = outbox
        self._site = site
        self._clock = clock
        self._state: ForwardingState | None = None
        self._replaced = Purges()
        self._look_at = 0.0
        self._failures = 0
        self._saved = True
        self._stopped = asyncio.Event()
        self.results: Counter[PurgeResult] = Counter(dict.fromkeys(RESULTS, 0))

    @property
    def waiting(self) -> int:
        """The number of purges that the CDN has not got yet, of all replicas."""
        return len(self._replaced) + len(self._unsent)

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest of them has been waiting; 0.0 if there is none."""
        numbers = [*self._replaced.records.values(), *(number for _, number in self._unsent)]
        return max(0.0, self._clock() - min(numbers) / 1_000_000) if numbers else 0.0

    @property
    def _unsent(self) -> tuple[tuple[str, int], ...]:
        return (*self._state.waiting, *self._state.later) if self._state else ()

    def stored(self, target: Target, before: str, snapshot: Snapshot) -> None:
        """Take note of a snapshot that has replaced another one, whose ETag was ``before``."""
        if before and before != snapshot.etag:
            # Other replicas may serve their copies for so long.
            now = self._clock() + self._store.trust_seconds
            self._replaced = self._replaced.with_([Purge("url", target.path, True)], now)

    @asynccontextmanager
    async def forwarding(self) -> AsyncIterator[None]:
        """Pass purges on while the context is open, and keep the rest for later."""
        async with finishing(self._work(), "cdn purges", self._stopped.set, _LAST_SECONDS):
            yield

    async def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                await self.look()
            except Exception:
                log.exception("purges_not_forwarded")
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_SECONDS):
                    await self._stopped.wait()
        await self.look(last=True)

    async def look(self, *, last: bool = False) -> None:
        """Pass on what is new, unless another replica is doing so. ``last``: only keep it."""
        await self._store.purges.refresh()
        state, now = self._state, time.monotonic()
        new = state is None or self._store.purges.generation > state.generation or self._replaced
        if not new and now < self._look_at and not self._unsent:
            return
        self._look_at = now + TAKE_OVER_SECONDS
        async with self._store.alone(_KEY, _LAST_SECONDS if last else 0) as alone:
            if not alone:
                with suppress(StoreError):
                    if self._saved:
                        self._state = await self._recall() or self._state
                return
            await self._read_new()
            if self._client is not None and self._state is not None and not last:
                await self._send(self._client)

    async def _recall(self) -> ForwardingState | None:
        """The state of all replicas; None if there is none. Raises StoreError if it is unknown."""
        note = await self._store.notes.read(_KEY)
        try:
            return read(ForwardingState, note) if note else None
        except ValueError as error:
            log.warning("bad_note_of_cdn", reason=str(error))
            return None

    async def _read_new(self) -> None:
        """Add what was purged and replaced since the last time to what is waiting."""
        known = self._store.purges.purges
        mine = self._state
        try:
            before = await self._recall()
        except StoreError:
            if mine is None:
                return
            before = mine
        # Without a note, purges of before are none of its business.
        if before is None:
            before = mine or ForwardingState(known.generation)
        elif mine is not None and not self._saved:
            # The store was away: its note is an old one.
            waiting = _purges(before.waiting).united(_purges(mine.waiting))
            later = _purges(before.later).united(_purges(mine.later))
            before = before._replace(waiting=_dumps(waiting), later=_dumps(later))
        now = int(self._clock() * 1_000_000)  # those of the store may be of another clock
        new = {purge: now for purge, no in known.records.items() if no > before.generation}
        replaced, self._replaced = self._replaced, Purges()
        if new and self._outbox is not None:
            body = body_of("snapshots.purged", self._clock(), self._described(new))
            self._outbox.add(f"{_KEY}.{known.generation}", body)
        waiting, later = _purges(before.waiting), _purges(before.later)
        if self._client is not None:
            later = later.united(Purges(new)).united(replaced)
            fresh = {one: no for one, no in later.records.items() if one not in waiting.records}
            repeated = {one: no for one, no in later.records.items() if one in waiting.records}
            waiting, later = waiting.united(Purges(fresh)), Purges(repeated)
        generation = max(before.generation, known.generation)
        await self._keep(ForwardingState(generation, _dumps(waiting), _dumps(later), before.again))

    async def _keep(self, state: ForwardingState) -> None:
        before, self._state = self._state, state
        if state != before or not self._saved:
            note = json.dumps(state).encode()
            self._saved = await self._store.notes.set(_KEY, note, _NOTE_SECONDS)

    def _described(self, new: Iterable[Purge]) -> dict[str, Any]:
        purges = list(new)
        tags = list(dict.fromkeys(map(self._tags.of, purges)))
        return {
            "site": self._site,
            "count": len(purges),
            "purges": [
                {"kind": one.kind, "value": one.value, "soft": one.soft}
                for one in purges[:_MOST_NAMED]
            ],
            "tags": tags if len(tags) <= _MOST_NAMED else [self._tags.everything],
        }

    async def _send(self, client: CdnClient) -> None:
        """Send what is waiting, and has been long enough. What fails stays."""
        assert self._state is not None
        # More is the clock of another replica.
        if 0 < self._state.again - self._clock() <= _LONGEST_PAUSE_SECONDS:
            return
        waiting = _purges(self._state.waiting)
        latest = (self._clock() - KNOWN_SECONDS) * 1_000_000
        due = {purge: number for purge, number in waiting.records.items() if number <= latest}
        for soft in (False, True):
            by_tag: dict[str, list[Purge]] = {}
            for purge in due:
                if purge.soft is soft:
                    by_tag.setdefault(self._tags.of(purge), []).append(purge)
            if everything := by_tag.get(self._tags.everything):
                # Snapshots only: the origin's files may have the tags of pages, too.
                for tag, purges in list(by_tag.items()):
                    if tag != self._tags.everything and purges[0].kind != "tag":
                        everything += by_tag.pop(tag)
            tags = list(by_tag)
            for start in range(0, len(tags), client.most):
                some = tags[start : start + client.most]
                if not await self._purge(client, some, soft):
                    return
                gone = {purge for tag in some for purge in by_tag[tag]}
                left = {one: no for one, no in waiting.records.items() if one not in gone}
                waiting = Purges(left)
                await self._keep(self._state._replace(waiting=_dumps(waiting)))

    async def _purge(self, client: CdnClient, tags: list[str], soft: bool) -> bool:
        """Purge tags. Returns whether that is done with, even if they were refused."""
        try:
            await client.purge(tags, soft=soft)
        except CdnError as error:
            if error.refused and (half := len(tags) // 2):
                # Another tag may be the reason.
                first = await self._purge(client, tags[:half], soft)
                return first and await self._purge(client, tags[half:], soft)
            if error.refused:
                self.results["refused"] += len(tags)
                log.warning("cdn_purge_refused", reason=str(error), count=len(tags), first=tags[0])
                return True
            self.results["failed"] += len(tags)
            pause = min(_SHORTEST_PAUSE_SECONDS * 2.0**self._failures, _LONGEST_PAUSE_SECONDS)
            pause = max(pause, min(error.after_seconds, _LONGEST_PAUSE_SECONDS))
            self._failures = min(self._failures + 1, 20)
            assert self._state is not None
            await self._keep(self._state._replace(again=self._clock() + pause))
            log.warning("cdn_not_purged", reason=str(error), again_in_seconds=round(pause, 1))
            return False
        self._failures = 0
        self.results["purged"] += len(tags)
        log.info("cdn_purged", count=len(tags), first=tags[0], soft=soft)
        return True


def _purges(dumps: Iterable[tuple[str, int]]) -> Purges:
    purges = ((Purge.parse(text.encode("utf-8", "surrogateescape")), no) for text, no in dumps)
    return Purges({purge: no for purge, no in purges if purge is not None})


def _dumps(purges: Purges) -> tuple[tuple[str, int], ...]:
    return tuple(
        (purge.dump().decode("utf-8", "surrogateescape"), no)
        for purge, no in purges.records.items()
    )


def cdn_metrics(forwarding: PurgeForwarding | None) -> Iterable[Metric]:
    """The metrics of purges of a CDN."""
    results = forwarding.results if forwarding else dict.fromkeys(RESULTS, 0)
    yield counter("prerender_cdn_purges", "Tags purged at the CDN.", results, "result")
    yield gauge(
        "prerender_cdn_waiting_purges",
        "Purges that the CDN has not got yet, of all replicas.",
        forwarding.waiting if forwarding else 0,
    )
    yield gauge(
        "prerender_cdn_waiting_seconds",
        "How long the oldest of them has been waiting.",
        forwarding.oldest_seconds if forwarding else 0,
    )
