"""What has been purged: records that entries are compared with when they are read. Pure.

Nothing is searched and deleted when something is purged: a purge is a record with a number, and every
entry knows the number of the last purge that it is newer than. So purging everything costs as much as
purging one page, whatever the store holds, and a render that was under way is purged too.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from prerender.urls.patterns import matches

Kind = Literal["url", "prefix", "pattern", "tag", "all", "asset_fingerprint"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# More are merged into purges of everything, the oldest first.
MOST_RECORDS = 2000

MOST_TAGS = 256

_TAG = re.compile(r"[!-+\--~]{1,128}", re.ASCII)
# Clocks differ, but not by days: a number of the far future would purge for ever.
_MOST_AHEAD = 86400 * 1_000_000


@dataclass(frozen=True, slots=True)
class Purge:
    """What shall not be shown any more.

    ``value`` is a path, a prefix or a pattern of paths, a tag or an asset fingerprint
    (asset_fingerprint.py), according to ``kind``.
    ``soft``: it counts as stale and may be shown until it has been rendered again.
    """

    kind: Kind
    value: str = ""
    soft: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.value}{' (soft)' if self.soft else ''}"

    def dump(self) -> bytes:
        """How it stands in the stores."""
        hardness = "soft" if self.soft else "hard"
        return f"{self.kind}:{hardness}:{self.value}".encode("utf-8", "surrogateescape")

    @classmethod
    def parse(cls, data: bytes) -> "Purge | None":
        """The purge whose dump() is ``data``; None if it is none of this version."""
        text = data.decode("utf-8", "surrogateescape")
        kind, hardness, value = (*text.split(":", 2), "", "")[:3]
        for known in KINDS:
            if kind == known and hardness in ("soft", "hard"):
                return cls(known, value, hardness == "soft")
        return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What has become of an entry: gone (hard), or stale since (soft) some Unix seconds."""

    soft: bool
    since: float


class Purges:
    """All purges that are remembered, each with its number: microseconds of Unix time, growing."""

    def __init__(self, records: Mapping[Purge, int] | None = None) -> None:
        self.records = dict(records or {})
        self.generation = max(self.records.values(), default=0)
        self._searched = [purge for purge in self.records if purge.kind in ("prefix", "pattern")]

    @classmethod
    def parse(cls, records: Iterable[tuple[bytes, int]], now: float) -> "Purges":
        """The purges of a store: dumps and numbers. What cannot be a purge of this version is left out.

        ``now`` in Unix seconds: by about the clock that the numbers are of.
        """
        latest = now * 1_000_000 + _MOST_AHEAD
        parsed = [(Purge.parse(data), number) for data, number in records if 0 < number <= latest]
        return cls({purge: number for purge, number in parsed if purge is not None})

    def __len__(self) -> int:
        return len(self.records)

    def with_(self, purge: Purge, now: float) -> "Purges":
        """These and one more, that takes place at ``now`` (Unix seconds)."""
        number = max(int(now * 1_000_000), self.generation + 1)
        return Purges(self.records | {purge: number}).merged()

    def merged(self) -> "Purges":
        """The same or a little more, in at most MOST_RECORDS records."""
        if len(self.records) <= MOST_RECORDS:
            return self
        by_age = sorted(self.records, key=lambda purge: self.records[purge])
        old, kept = by_age[: MOST_RECORDS // 2], by_age[MOST_RECORDS // 2 :]
        records = {purge: self.records[purge] for purge in kept}
        for purge in old:
            everything = Purge("all", soft=purge.soft)
            records[everything] = max(records.get(everything, 0), self.records[purge])
        return Purges(records)

    def verdict(
        self, path: str, tags: Iterable[str], asset_fingerprint: str, generation: int
    ) -> Verdict | None:
        """What becomes of an entry; None if it is newer than all purges that mean it."""
        numbers = {True: 0, False: 0}
        for soft in numbers:
            named = [
                Purge("all", "", soft),
                Purge("url", path, soft),
                Purge("asset_fingerprint", asset_fingerprint, soft),
            ]
            named += [Purge("tag", tag, soft) for tag in tags]
            numbers[soft] = max(self.records.get(purge, 0) for purge in named)
        for purge in self._searched:
            number = self.records[purge]
            if number > max(generation, numbers[purge.soft]) and _means(purge, path):
                numbers[purge.soft] = number
        if numbers[False] > generation:
            return Verdict(False, numbers[False] / 1_000_000)
        if numbers[True] > generation:
            return Verdict(True, numbers[True] / 1_000_000)
        return None


def _means(purge: Purge, path: str) -> bool:
    if purge.kind == "prefix":
        return path.startswith(purge.value)
    return matches(purge.value, path)


def is_tag(text: str) -> bool:
    """Whether a text can be a tag."""
    return _TAG.fullmatch(text) is not None


def tags_of(lists: Iterable[str]) -> tuple[str, ...]:
    """The tags in lists that are separated by commas or spaces, each once; what is none is left out."""
    found = dict.fromkeys(word for text in lists for word in re.split(r"[,\s]+", text))
    return tuple(word for word in found if is_tag(word))[:MOST_TAGS]
