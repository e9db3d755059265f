"""Whether the faults of a page are what every visitor sees.

A request of a page may fail or hang for everybody: a probe that the server refuses, a poll of its own.
Visitors see the page all the same. So if renders spread over a while have the same faults and show the
same content, that is the page. ``is_the_page`` has the rule.
"""

import re
from dataclasses import dataclass
from hashlib import blake2b

from cachetools import LRUCache

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
    """Renders in a row that were alike: the ``first`` one, and how many."""

    first: Sight
    renders: int = 1

    def after(self, sight: Sight) -> "Repeated":
        """With one more render."""
        return (
            Repeated(self.first, self.renders + 1) if self.first.is_like(sight) else Repeated(sight)
        )


def is_the_page(repeated: Repeated, now: float, text_length: int, good_length: int) -> bool:
    """Whether visitors see what was repeated. ``good_length``: characters of the last good snapshot, 0
    if there is none."""
    return (
        repeated.renders >= LEAST_RENDERS
        and now - repeated.first.at >= LEAST_SECONDS
        and text_length >= max(LEAST_TEXT, LEAST_SHARE * good_length)
    )


class RepeatedFaults:
    """The pages whose last renders had faults."""

    def __init__(self) -> None:
        self._pages: LRUCache[str, Repeated] = LRUCache(_MOST_PAGES)

    def confirm(self, key: str, snapshot: Snapshot, now: float, good_length: int) -> bool:
        """Note a render with faults. Returns whether visitors see the page like this."""
        if not snapshot.may_be_the_page:
            self.forget(key)
            return False
        sight = Sight.of(snapshot, now)
        before = self._pages.get(key)
        repeated = self._pages[key] = before.after(sight) if before else Repeated(sight)
        return is_the_page(repeated, now, snapshot.facts.text_length, good_length)

    def forget(self, key: str) -> None:
        """Note that a page was rendered without faults, or shows a loading state."""
        self._pages.pop(key, None)


def _number(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest())
