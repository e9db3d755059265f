"""Two kinds of work that alternate, so that one does not distort the measured times of the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class _Kind:
    """One kind of work: how much of it is running and how much is waiting."""

    def __init__(self) -> None:
        self.running = 0
        self.waiting = 0


class Turns:
    """Crawling, whose times are measured, and looking, with a browser that uses all of the CPU.

    Work of one kind runs concurrently, but never both kinds. The kind that waits gets the next turn.
    """

    def __init__(self) -> None:
        self._crawling = _Kind()
        self._looking = _Kind()
        self._next: _Kind | None = None
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def crawling(self) -> AsyncIterator[None]:
        """While this is open, no page is looked at."""
        async with self._turn(self._crawling, self._looking):
            yield

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """While this is open, no page is crawled."""
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
                self._changed.notify_all()  # a cancelled one does not block others
            mine.running += 1
        try:
            yield
        finally:
            async with self._changed:
                mine.running -= 1
                if not mine.running:
                    self._next = other
                    self._changed.notify_all()
