"""Purges: records that are compared with entries when these are read. Pure.

Purging deletes nothing: a purge is a record with a number, and every entry has the number of the last
purge before its render. So purging everything costs as much as purging one page, and renders in
progress are purged, too.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from prerender.urls.patterns import comparable, matches, with_upper_escapes

PurgeKind = Literal["url", "prefix", "pattern", "tag", "all", "asset_fingerprint"]
KINDS: tuple[PurgeKind, ...] = get_args(PurgeKind)
# Beyond this, the oldest are merged into a purge of everything.
MOST_RECORDS = 2000

MOST_TAGS = 256

_TAG = re.compile(r"[!-+\--~]{1,128}", re.ASCII)
# Clocks do not differ by days: a number in the far future would purge forever.
_MOST_AHEAD = 86400 * 1_000_000


class Purge(NamedTuple):
    """A purge.

    ``value`` is a path, a prefix or a pattern of paths, a tag or an asset fingerprint
    (asset_fingerprint.py), according to ``kind``.
    ``soft``: matching entries become stale instead of being removed.
    """

    kind: PurgeKind
    value: str = ""
    soft: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.value}".strip() + (" (soft)" if self.soft else "")

    def dump(self) -> bytes:
        """The stored form."""
        hardness = "soft" if self.soft else "hard"
        return f"{self.kind}:{hardness}:{self.value}".encode("utf-8", "surrogateescape")

    @classmethod
    def parse(cls, data: bytes) -> "Purge | None":
        """Parse a dump; None if it is of another version."""
        text = data.decode("utf-8", "surrogateescape")
        kind, hardness, value = (*text.split(":", 2), "", "")[:3]
        for known in KINDS:
            if kind == known and hardness in ("soft", "hard"):
                return cls(known, value, hardness == "soft")
        return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The effect of purges on an entry: removed, or (soft) stale since some Unix seconds."""

    soft: bool
    since: float


class Purges:
    """All known purges with their numbers: increasing, Unix time in microseconds.

    ``generation``: at least the last of the numbers. It grows with each change of a store's purges,
    also when an earlier one is restored.
    """

    def __init__(self, records: Mapping[Purge, int] | None = None, generation: int = 0) -> None:
        self.records = dict(records or {})
        self.generation = max(generation, *self.records.values(), 0)
        self._searched = [
            (purge, _comparable(purge.value))
            for purge in self.records
            if purge.kind in ("prefix", "pattern")
        ]

    @classmethod
    def parse(cls, records: Iterable[tuple[bytes, int]], now: float) -> "Purges":
        """Parse the ``dump`` of a store. Purges of other versions are skipped.

        ``now``: Unix seconds, by about the same clock as the numbers.
        """
        latest = now * 1_000_000 + _MOST_AHEAD
        valid = [(data, number) for data, number in records if 0 < number <= latest]
        parsed = [(Purge.parse(data), number) for data, number in valid]
        return cls(
            {purge: number for purge, number in parsed if purge is not None},
            max((number for data, number in valid if not data), default=0),
        )

    def dump(self) -> list[tuple[bytes, int]]:
        """The stored form: the dump and number of each, and the generation under an empty name."""
        return [(b"", self.generation)] + [
            (purge.dump(), number) for purge, number in self.records.items()
        ]

    @property
    def everything(self) -> int:
        """The number of the last purge of everything; 0: none."""
        return max(self.records.get(Purge("all", soft=soft), 0) for soft in (False, True))

    def __len__(self) -> int:
        return len(self.records)

    def with_(self, purges: Iterable[Purge], now: float) -> "Purges":
        """Add purges at ``now`` (Unix seconds), with the same number."""
        number = max(int(now * 1_000_000), self.generation + 1)
        return Purges(self.records | dict.fromkeys(purges, number)).merged()

    def united(self, others: "Purges") -> "Purges":
        """These and others, of each purge the last."""
        records = dict(self.records)
        for purge, number in others.records.items():
            records[purge] = max(number, records.get(purge, 0))
        return Purges(records, max(self.generation, others.generation)).merged()

    def restored(self, lost: "Purges") -> "Purges":
        """These of a store, and those that it has lost."""
        if not lost.missing_in(self):
            return self
        return self.united(Purges(lost.records, self.generation + 1))

    def missing_in(self, others: "Purges") -> "Purges":
        """Those of these that others lack, also as part of a later purge of everything."""
        return Purges(
            {
                purge: number
                for purge, number in self.records.items()
                if number > others.records.get(purge, 0) and number > others._last(purge)
            }
        )

    def _last(self, purge: Purge) -> int:
        """The number of the last purge that is this one or has at least its effect."""
        as_wide = (purge, Purge("all", soft=purge.soft), Purge("all"))
        return max(self.records.get(wide, 0) for wide in as_wide)

    def merged(self) -> "Purges":
        """Equivalent or wider purges in at most MOST_RECORDS records."""
        if len(self.records) <= MOST_RECORDS:
            return self
        by_age = sorted(self.records, key=lambda purge: self.records[purge])
        # Besides the recent ones, there are at most a soft and a hard one of everything.
        old, recent = by_age[: -MOST_RECORDS // 2], by_age[-MOST_RECORDS // 2 :]
        records = {purge: self.records[purge] for purge in recent}
        for purge in old:
            everything = Purge("all", soft=purge.soft)
            records[everything] = max(records.get(everything, 0), self.records[purge])
        return Purges(records, self.generation)

    def verdict(
        self, path: str, tags: Iterable[str], asset_fingerprint: str, generation: int
    ) -> Verdict | None:
        """The effect on an entry; None if no purge applies to it."""
        numbers = {True: 0, False: 0}
        for soft in numbers:
            named = [
                Purge("all", "", soft),
                Purge("url", path, soft),
                Purge("url", with_upper_escapes(path), soft),
                Purge("asset_fingerprint", asset_fingerprint, soft),
            ]
            named += [Purge("tag", tag, soft) for tag in tags]
            numbers[soft] = max(self.records.get(purge, 0) for purge in named)
        page = comparable(path) if self._searched else path
        for purge, value in self._searched:
            number = self.records[purge]
            if number > max(generation, numbers[purge.soft]) and _means(purge, value, page):
                numbers[purge.soft] = number
        if numbers[False] > generation:
            return Verdict(False, numbers[False] / 1_000_000)
        if numbers[True] > generation:
            return Verdict(True, numbers[True] / 1_000_000)
        return None


def _means(purge: Purge, value: str, path: str) -> bool:
    return path.startswith(value) if purge.kind == "prefix" else matches(value, path)


@lru_cache(maxsize=2 * MOST_RECORDS)
def _comparable(value: str) -> str:
    """The value of a stored purge in the form for comparison, which other releases do not store."""
    try:
        return comparable(value)
    except ValueError:
        return value


def is_tag(text: str) -> bool:
    """Whether a string is a valid tag."""
    return _TAG.fullmatch(text) is not None


def tags_of(lists: Iterable[str]) -> tuple[str, ...]:
    """The distinct tags in comma- or space-separated lists. Invalid tags are skipped."""
    words = dict.fromkeys(word for text in lists for word in re.split(r"[,\s]+", text))
    return tuple(word for word in words if is_tag(word))[:MOST_TAGS]
