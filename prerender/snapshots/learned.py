"""Shares what a process learns about the site with the other replicas, and with the next process.

It is stored as one note: for each learner, subjects and when each was last seen, in Unix seconds.
Replicas that write at the same time overwrite each other, and add their part with the next exchange.
"""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from prerender.background import repeating
from prerender.snapshots import steady_clock
from prerender.snapshots.stores.notes import Notes
from prerender.snapshots.strict_json import read

_KEY = "learned"
EVERY_SECONDS = 15.0
# What nobody has seen for so long is forgotten.
FORGOTTEN_AFTER_SECONDS = 3600.0
_MOST_SUBJECTS = 100
_LONGEST_SUBJECT = 2000
_Note = tuple[tuple[str, tuple[tuple[str, float], ...]], ...]


class Learner(Protocol):
    """Something that learns. ``learned_name`` identifies it to other replicas."""

    learned_name: str

    def learned(self) -> Mapping[str, float]:
        """What is known, and when it was last seen, in Unix seconds."""

    def learn(self, known: Mapping[str, float]) -> None:
        """Also know what others know."""


class Learned:
    """The knowledge of ``learners``, shared in ``notes`` under a ``key``."""

    def __init__(self, notes: Notes, learners: Iterable[Learner], key: str = _KEY) -> None:
        self._key = key
        self._notes = notes
        self._learners = tuple(learners)

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Share it while the context is open."""
        async with repeating(self.exchange, "what was learned", EVERY_SECONDS):
            yield

    async def exchange(self) -> None:
        """Learn from the others once, and add what they do not know. Raises StoreError if it cannot be
        read."""
        stored = _read(await self._notes.read(self._key))
        known = dict(stored)
        result = tuple(
            (
                learner.learned_name,
                self._exchanged(learner, dict(known.get(learner.learned_name, ()))),
            )
            for learner in self._learners
        )
        if result != stored and any(subjects for _, subjects in result):
            await self._notes.set(self._key, json.dumps(result).encode(), FORGOTTEN_AFTER_SECONDS)

    def _exchanged(
        self, learner: Learner, theirs: dict[str, float]
    ) -> tuple[tuple[str, float], ...]:
        now = steady_clock.now()
        oldest = now - FORGOTTEN_AFTER_SECONDS
        own = learner.learned()
        learner.learn(
            {one: min(at, now) for one, at in theirs.items() if at > max(own.get(one, 0), oldest)}
        )
        known = [
            (one, at)
            for one, at in learner.learned().items()
            if at > oldest and len(one) <= _LONGEST_SUBJECT
        ]
        return tuple(sorted(known, key=lambda one: (-one[1], one[0]))[:_MOST_SUBJECTS])


def _read(note: bytes | None) -> _Note:
    """A stored note; empty if there is none that can be read."""
    try:
        return read(_Note, note) if note else ()
    except ValueError:
        return ()
