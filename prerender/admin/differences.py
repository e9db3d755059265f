"""Differences between two texts. Pure. Slow for long texts, so do not call it on the event loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

# Limits, beyond which a comparison would take seconds. The rest is omitted (``cut``).
_MOST_LINES = 4000
_MOST_WORDS_IN_A_PASSAGE = 1500


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage: equal in both texts, or the version of each."""

    kind: Literal["same", "changed"]
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """``similarity``: the share of words that both have in the same order, 1.0 for equal texts.

    ``cut``: only the beginnings were compared.
    """

    similarity: float
    passages: tuple[Passage, ...]
    cut: bool


def compare(left: str, right: str) -> Comparison:
    """Compare line by line, and word by word where lines differ. Whitespace is ignored."""
    lefts, rights = _lines(left), _lines(right)
    cut = max(len(lefts), len(rights)) > _MOST_LINES
    lefts, rights = lefts[:_MOST_LINES], rights[:_MOST_LINES]
    passages: list[Passage] = []
    for tag, a, b, c, d in SequenceMatcher(None, lefts, rights).get_opcodes():
        if tag == "equal":
            passages.append(_same(lefts[a:b], rights[c:d], "\n"))
        else:
            passages += _words(lefts[a:b], rights[c:d])
    same = sum(len(passage.left.split()) for passage in passages if passage.kind == "same")
    words = sum(len(line.split()) for line in (*lefts, *rights))
    return Comparison(2 * same / words if words else 1.0, tuple(_joined(passages)), cut)


def _lines(text: str) -> list[str]:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line]


def _words(lefts: Sequence[str], rights: Sequence[str]) -> list[Passage]:
    left, right = " ".join(lefts).split(), " ".join(rights).split()
    if max(len(left), len(right)) > _MOST_WORDS_IN_A_PASSAGE:
        return [Passage("changed", "\n".join(lefts), "\n".join(rights))]
    found = []
    for tag, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            found.append(_same(left[a:b], right[c:d], " "))
        else:
            found.append(Passage("changed", " ".join(left[a:b]), " ".join(right[c:d])))
    return found


def _same(left: Sequence[str], right: Sequence[str], separator: str) -> Passage:
    return Passage("same", separator.join(left), separator.join(right))


def _joined(passages: Sequence[Passage]) -> list[Passage]:
    """Merge adjacent passages of the same kind."""
    found: list[Passage] = []
    for passage in passages:
        last = found[-1] if found else None
        if last is not None and last.kind == passage.kind:
            left = "\n".join(filter(None, (last.left, passage.left)))
            right = "\n".join(filter(None, (last.right, passage.right)))
            found[-1] = Passage(passage.kind, left, right)
        else:
            found.append(passage)
    return found
