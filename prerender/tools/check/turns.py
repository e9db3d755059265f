"""Two kinds of work that take turns, so that one does not slow down what is measured of the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class _Kind:
    """One kind of work: how much of it is under way, and how much waits."""

    def __init__(self) -> None:
        self.running = 0
        self.waiting = 0


class Turns:
    """Crawling, whose times are measured, and looking, by a browser that takes all there is of the CPU.

    Much of one kind may be under way at once, but never both. Who waits gets the next turn.
    """

    def __init__(self) -> None:
        self._crawling = _Kind()
        self._looking = _Kind()
        self._next: _Kind | None = None
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def crawling(self) -> AsyncIterator[None]:
        """While this is open, nobody looks."""
        async with self._turn(self._crawling, self._looking):
            yield

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """While this is open, nobody crawls."""
        async with self._turn(self._looking, self._crawling):
            yield

    @asynccontextmanager
    async def _turn(self, mine: _Kind, other: _Kind) -> AsyncIterator[None]:
        async with self._changed:
            if other.running:
                self._next = mine
            mine.waiting += 1
            try:
                await self._changed.wait_for(
                    lambda: not other.running and (not other.waiting or self._next is not other)
                )
            finally:
                mine.waiting -= 1
                self._changed.notify_all()  # one who gives up keeps nobody waiting
            mine.running += 1
        try:
            yield
        finally:
            async with self._changed:
                mine.running -= 1
                if not mine.running:
                    self._next = other
                    self._changed.notify_all()
