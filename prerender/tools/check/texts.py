"""Two texts of a page: how alike they are, and what one says that the other does not. Pure.

Texts are compared by their words in rows of three, wherever in the page they stand: parts that change
places make no difference, and a word that changes makes one of a word.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_ROW = 3
_WORD = re.compile(r"\w+")
# Words that differ and stand so close together are one passage.
_GAP = 2


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text that the other one has not got. ``words``: how many of its words that are."""

    text: str
    words: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """``similarity``: the share of the words of both that the other one has too, 0 to 1."""

    similarity: float
    only_first: tuple[Passage, ...]
    only_second: tuple[Passage, ...]


def compare(
    first: Iterable[str], second: Iterable[str], second_known: Iterable[str] = ()
) -> Comparison:
    """Compare two texts, each in pieces.

    ``second_known``: what belongs to the second one although it is not shown; the first one may have
    it, and nobody misses it there.
    """
    one, other, known = _words(first), _words(second), _words(second_known)
    found = _found(one, {*_rows(other), *_rows(known)}, {*map(str.casefold, (*other, *known))})
    seen = _found(other, {*_rows(one)}, {*map(str.casefold, one)})
    total = len(one) + len(other)
    similarity = (sum(found) + sum(seen)) / total if total else 1.0
    return Comparison(similarity, _passages(one, found), _passages(other, seen))


def _words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in _WORD.findall(text)]


def _rows(words: Sequence[str]) -> list[tuple[str, ...]]:
    """All rows, the n-th ends with the n-th word; beyond both ends there are empty words."""
    ends = [""] * (_ROW - 1)
    folded = [*ends, *(word.casefold() for word in words), *ends]
    return [tuple(folded[i : i + _ROW]) for i in range(len(folded) - _ROW + 1)]


def _found(words: Sequence[str], rows: set[tuple[str, ...]], others: set[str]) -> list[bool]:
    """For each word whether the other text has it, in one of the rows that it stands in."""
    there = [row in rows for row in _rows(words)]
    found = [any(there[i : i + _ROW]) for i in range(len(words))]
    return _mended([word.casefold() for word in words], found, others)


def _mended(words: Sequence[str], found: list[bool], others: set[str]) -> list[bool]:
    """One or two words between what was found are at another place there, if they are there at all."""
    mended = list(found)
    start = 0
    while start < len(found):
        if found[start]:
            start += 1
            continue
        end = start
        while end < len(found) and not found[end]:
            end += 1
        if end - start < _ROW:
            mended[start:end] = [word in others for word in words[start:end]]
        start = end
    return mended


def _passages(words: Sequence[str], found: Sequence[bool]) -> tuple[Passage, ...]:
    passages = []
    missing = [i for i, there in enumerate(found) if not there]
    start = 0
    for n, index in enumerate(missing):
        last = n + 1 == len(missing)
        if last or missing[n + 1] - index > _GAP:
            first = missing[start]
            passages.append(Passage(" ".join(words[first : index + 1]), n + 1 - start))
            start = n + 1
    return tuple(passages)
