"""Whether the faults of a page are what every visitor sees.

A request of a page may fail or hang for everybody: a probe that the server refuses, a poll of its own.
Visitors see the page all the same. So if renders spread over a while have the same faults and show the
same content, that is the page. ``is_the_page`` has the rule. Once several pages were confirmed with the
same faults, others with these faults need only one render.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

from cachetools import LRUCache

from prerender.snapshots import steady_clock
from prerender.snapshots.parsed_html import parse, texts_of
from prerender.snapshots.snapshot import Snapshot

# With the first retries of retries.py, this takes a little more than a minute.
LEAST_RENDERS = 3
LEAST_SECONDS = 45.0
# Shorter pages may be a loading state or an error message.
LEAST_TEXT = 200
# Less than this share of the content of the last good snapshot is not the page.
LEAST_SHARE = 0.8
# Two renders of one page differ in dates and the like.
LEAST_LIKENESS = 0.8
# So many pages with the same faults speak for others, for so long after the last one.
USUAL_PAGES = 3
USUAL_SECONDS = 600.0
_MOST_USUAL = 200
_SKETCH_WORDS = 64
_MOST_PAGES = 1000
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Sight:
    """What a render has shown at ``at`` (Unix seconds). ``faults``: URLs without queries.

    ``words``: a sample of its words, the same one of the same words (bottom-k sketch).
    """

    at: float
    faults: frozenset[str]
    words: frozenset[int]

    @classmethod
    def of(cls, snapshot: Snapshot, at: float) -> "Sight":
        """What a snapshot with faults shows. Takes milliseconds for a long one."""
        facts = snapshot.facts
        urls = (*facts.failed_requests, *facts.unanswered_requests) or (facts.why,)
        root = parse(snapshot.body)
        texts = [] if root is None else texts_of(root)
        words = {_number(word) for text in texts for word in _WORD.findall(text)}
        faults = frozenset(url.partition("?")[0] for url in urls)
        return cls(at, faults, frozenset(sorted(words)[:_SKETCH_WORDS]))

    def is_like(self, other: "Sight") -> bool:
        """Whether both have the same faults and nearly the same content."""
        if self.faults != other.faults:
            return False
        sample = sorted(self.words | other.words)[:_SKETCH_WORDS]
        both = self.words & other.words
        return sum(word in both for word in sample) >= LEAST_LIKENESS * len(sample)


@dataclass(frozen=True, slots=True)
class Repeated:
    """Renders in a row that were alike: the ``first`` one, how many, and whether they were enough."""

    first: Sight
    renders: int = 1
    confirmed: bool = False

    def after(self, sight: Sight) -> "Repeated":
        """With one more render."""
        return (
            replace(self, renders=self.renders + 1)
            if self.first.is_like(sight)
            else Repeated(sight)
        )


def is_the_page(repeated: Repeated, now: float, text_length: int, good_length: int) -> bool:
    """Whether visitors see what was repeated. ``good_length``: characters of the last good snapshot, 0
    if there is none."""
    return (
        repeated.renders >= LEAST_RENDERS
        and now - repeated.first.at >= LEAST_SECONDS
        and is_long_enough(text_length, good_length)
    )


def is_long_enough(text_length: int, good_length: int) -> bool:
    """Whether a page has as much text as is expected of it."""
    return text_length >= max(LEAST_TEXT, LEAST_SHARE * good_length)


class RepeatedFaults:
    """The pages whose last renders had faults, and the faults that several pages have."""

    learned_name = "usual faults"

    def __init__(self) -> None:
        self._pages: LRUCache[str, Repeated] = LRUCache(_MOST_PAGES)
        # By the URLs of faults: how many pages were confirmed with them, and when last.
        self._usual: LRUCache[frozenset[str], tuple[int, float]] = LRUCache(_MOST_USUAL)
        self._recovered: LRUCache[frozenset[str], float] = LRUCache(_MOST_USUAL)

    async def confirm(self, key: str, snapshot: Snapshot, now: float, old: Snapshot | None) -> bool:
        """Note a render with faults. Returns whether visitors see the page like this.

        ``old``: the stored snapshot, which perhaps another process has confirmed.
        """
        if not snapshot.may_be_the_page:
            self.forget(key)
            return False
        sight = await asyncio.to_thread(Sight.of, snapshot, now)
        before = self._pages.get(key)
        repeated = self._pages[key] = before.after(sight) if before else Repeated(sight)
        length = snapshot.facts.text_length
        good_length = 0 if old is None else old.facts.text_length
        if is_the_page(repeated, now, length, good_length):
            if not repeated.confirmed:
                self._pages[key] = replace(repeated, confirmed=True)
                self._usual[sight.faults] = self._pages_with(sight.faults, now) + 1, now
            return True
        if self._pages_with(sight.faults, now) >= USUAL_PAGES:
            return is_long_enough(length, good_length)
        if old is None or not old.facts.lasting:
            return False
        return (await asyncio.to_thread(Sight.of, old, now)).is_like(sight)

    def forget(self, key: str) -> None:
        """Note that a page was rendered without faults, or shows a loading state."""
        before = self._pages.pop(key, None)
        if before and self._usual.pop(before.first.faults, None):
            self._recovered[before.first.faults] = steady_clock.now()

    def learned(self) -> dict[str, float]:
        """The URLs of the faults that several pages have, a line each, and when each was seen last."""
        return {
            "\n".join(sorted(faults)): last
            for faults, (pages, last) in self._usual.items()
            if pages >= USUAL_PAGES
        }

    def learn(self, known: Mapping[str, float]) -> None:
        """Also know what faults pages of other replicas have."""
        for lines, last in known.items():
            faults = frozenset(lines.split("\n"))
            if last > self._recovered.get(faults, 0.0):
                self._usual[faults] = USUAL_PAGES, last

    def _pages_with(self, faults: frozenset[str], now: float) -> int:
        pages, last = self._usual.get(faults, (0, 0.0))
        return pages if now - last < USUAL_SECONDS else 0


def _number(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest())
