"""The requests of crawlers, in batches grouped by client and result, for those who count them.

Counted one at a time, they would be a tenth of the cost of a cache hit: each time, the data and code
of each subscriber would have to come into the processor's caches.
"""

from collections import defaultdict
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from prerender.config.crawler_classes import CrawlerClass
from prerender.snapshots.snapshot import CacheResult
from prerender.telemetry.records import Channel, DecisionKind, RequestRecord, Source
from prerender.words import Word

_BATCH = 128
# The name of unknown clients that requested ugly URLs.
OTHERS = "others"


class Alike(NamedTuple):
    """What the requests of a group have in common. ``minute``: Unix minutes; otherwise as in
    ``RequestRecord``."""

    minute: float
    user_agent: str
    crawler: CrawlerClass | None
    agent: str
    kind: DecisionKind
    reason: Word
    source: Source
    cache: CacheResult | None
    status: int


_alike = attrgetter(*Alike._fields[1:])


class Batch(NamedTuple):
    """Requests in their order, and grouped."""

    records: tuple[RequestRecord, ...]
    groups: dict[Alike, list[RequestRecord]]


class CrawlerRequests:
    """Passes batches on: of crawlers, and of unknown clients that get snapshots or are refused."""

    def __init__(self, requests: Channel[RequestRecord]) -> None:
        self._requests = requests
        self._batches: Channel[Batch] = Channel()
        self._has_listeners = False
        self._new: list[RequestRecord] = []

    def subscribe(self, listener: Callable[[Batch], None]) -> None:
        """Call ``listener`` with each batch from now on. It must not modify it."""
        if not self._has_listeners:
            self._has_listeners = True
            self._requests.subscribe(self._add)
        self._batches.subscribe(listener)

    def _add(self, record: RequestRecord) -> None:
        if record.crawler is None and record.kind == "forward":
            return  # a visitor
        self._new.append(record)
        if len(self._new) >= _BATCH:
            self.deliver()

    def deliver(self) -> None:
        """Pass on what is waiting for a full batch. Call this before reading what was counted."""
        if not self._new:
            return
        records, self._new = tuple(self._new), []
        self._batches(batch_of(records))


def batch_of(records: tuple[RequestRecord, ...]) -> Batch:
    """Group records."""
    groups: defaultdict[tuple[float, tuple[object, ...]], list[RequestRecord]] = defaultdict(list)
    for record in records:
        groups[record.time // 60, _alike(record)].append(record)
    return Batch(
        records, {Alike._make((minute, *alike)): some for (minute, alike), some in groups.items()}
    )
