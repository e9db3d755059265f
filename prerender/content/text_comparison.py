"""Compares two texts of a page: how similar they are, what each lacks, and both side by side. Pure.

For similarity, texts are compared by sequences of three words, wherever they are in the page: moved
parts are no difference, and a changed word is a difference of one word.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

_ROW = 3
_WORD = re.compile(r"\w+")
# Differing words that are this close together form one passage.
_GAP = 2
# Limits of what is shown side by side, beyond which that would take seconds.
_MOST_LINES = 4000
_MOST_WORDS_IN_A_PASSAGE = 1500


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
    matched = _matches(one, {*_rows(other), *_rows(known)}, {*map(str.casefold, (*other, *known))})
    seen = _matches(other, {*_rows(one)}, {*map(str.casefold, one)})
    total = len(one) + len(other)
    similarity = (sum(matched) + sum(seen)) / total if total else 1.0
    return Comparison(similarity, _passages(one, matched), _passages(other, seen))


def _words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in _WORD.findall(text)]


def _rows(words: Sequence[str]) -> list[tuple[str, ...]]:
    """All sequences; the n-th ends with the n-th word. Empty words pad both ends."""
    ends = [""] * (_ROW - 1)
    folded = [*ends, *(word.casefold() for word in words), *ends]
    return [tuple(folded[i : i + _ROW]) for i in range(len(folded) - _ROW + 1)]


def _matches(words: Sequence[str], rows: set[tuple[str, ...]], others: set[str]) -> list[bool]:
    """For each word, whether the other text has it in one of its sequences."""
    there = [row in rows for row in _rows(words)]
    matched = [any(there[i : i + _ROW]) for i in range(len(words))]
    return _with_moved_words([word.casefold() for word in words], matched, others)


def _with_moved_words(words: Sequence[str], matched: list[bool], others: set[str]) -> list[bool]:
    """Count one or two words between found ones as found, if the other text has them anywhere."""
    result = list(matched)
    start = 0
    while start < len(matched):
        if matched[start]:
            start += 1
            continue
        end = start
        while end < len(matched) and not matched[end]:
            end += 1
        if end - start < _ROW:
            result[start:end] = [word in others for word in words[start:end]]
        start = end
    return result


def _passages(words: Sequence[str], matched: Sequence[bool]) -> tuple[Passage, ...]:
    passages = []
    missing = [i for i, there in enumerate(matched) if not there]
    start = 0
    for n, index in enumerate(missing):
        last = n + 1 == len(missing)
        if last or missing[n + 1] - index > _GAP:
            first = missing[start]
            passages.append(Passage(" ".join(words[first : index + 1]), n + 1 - start))
            start = n + 1
    return tuple(passages)


@dataclass(frozen=True, slots=True)
class Aligned:
    """A passage: equal in both texts, or the version of each."""

    kind: Literal["same", "changed"]
    left: str
    right: str


def side_by_side(left: str, right: str) -> tuple[list[Aligned], bool]:
    """Align two texts by lines, and by words where lines differ. Whitespace is ignored.

    Returns the passages, and whether only the first lines were compared. Slow for long texts, so do
    not call it on the event loop.
    """
    lefts, rights = _lines(left), _lines(right)
    cut = max(len(lefts), len(rights)) > _MOST_LINES
    lefts, rights = lefts[:_MOST_LINES], rights[:_MOST_LINES]
    passages: list[Aligned] = []
    for tag, a, b, c, d in SequenceMatcher(None, lefts, rights).get_opcodes():
        if tag == "equal":
            passages.append(_same(lefts[a:b], rights[c:d], "\n"))
        else:
            passages += _aligned_words(lefts[a:b], rights[c:d])
    return _joined(passages), cut


def _lines(text: str) -> list[str]:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line]


def _aligned_words(lefts: Sequence[str], rights: Sequence[str]) -> list[Aligned]:
    left, right = " ".join(lefts).split(), " ".join(rights).split()
    if max(len(left), len(right)) > _MOST_WORDS_IN_A_PASSAGE:
        return [Aligned("changed", "\n".join(lefts), "\n".join(rights))]
    aligned = []
    for tag, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            aligned.append(_same(left[a:b], right[c:d], " "))
        else:
            aligned.append(Aligned("changed", " ".join(left[a:b]), " ".join(right[c:d])))
    return aligned


def _same(left: Sequence[str], right: Sequence[str], separator: str) -> Aligned:
    return Aligned("same", separator.join(left), separator.join(right))


def _joined(passages: Sequence[Aligned]) -> list[Aligned]:
    """Merge adjacent passages of the same kind."""
    joined: list[Aligned] = []
    for passage in passages:
        last = joined[-1] if joined else None
        if last is not None and last.kind == passage.kind:
            left = "\n".join(filter(None, (last.left, passage.left)))
            right = "\n".join(filter(None, (last.right, passage.right)))
            joined[-1] = Aligned(passage.kind, left, right)
        else:
            joined.append(passage)
    return joined
