"""Compares two texts of a page by similarity and passages. Pure.

Texts are compared by sequences of three words, wherever they are in the page: moved parts are no
difference, and a changed word is a difference of one word.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_ROW = 3
_WORD = re.compile(r"\w+")
# Differing words that are this close together form one passage.
_GAP = 2


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text that the other one lacks. ``words``: how many of its words are missing."""

    text: str
    words: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """``similarity``: the share of words that are in both texts, 0 to 1."""

    similarity: float
    only_first: tuple[Passage, ...]
    only_second: tuple[Passage, ...]


def compare(
    first: Iterable[str], second: Iterable[str], second_known: Iterable[str] = ()
) -> Comparison:
    """Compare two texts, each given in pieces.

    ``second_known``: hidden parts of the second text, which the first one may have or lack.
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
    """All sequences; the n-th ends with the n-th word. Empty words pad both ends."""
    ends = [""] * (_ROW - 1)
    folded = [*ends, *(word.casefold() for word in words), *ends]
    return [tuple(folded[i : i + _ROW]) for i in range(len(folded) - _ROW + 1)]


def _found(words: Sequence[str], rows: set[tuple[str, ...]], others: set[str]) -> list[bool]:
    """For each word, whether the other text has it in one of its sequences."""
    there = [row in rows for row in _rows(words)]
    found = [any(there[i : i + _ROW]) for i in range(len(words))]
    return _with_moved_words([word.casefold() for word in words], found, others)


def _with_moved_words(words: Sequence[str], found: list[bool], others: set[str]) -> list[bool]:
    """Count one or two words between found ones as found, if the other text has them anywhere."""
    result = list(found)
    start = 0
    while start < len(found):
        if found[start]:
            start += 1
            continue
        end = start
        while end < len(found) and not found[end]:
            end += 1
        if end - start < _ROW:
            result[start:end] = [word in others for word in words[start:end]]
        start = end
    return result


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
