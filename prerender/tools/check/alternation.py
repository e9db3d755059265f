"""Two kinds of work that alternate, so that one does not distort the measured times of the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

_CRAWLING, _LOOKING = 0, 1


class Alternation:
    """Crawling, whose times are measured, and looking, with a browser that uses all of the CPU.

    Work of one kind runs concurrently, but never both kinds. The kind that waits gets the next turn.
    """

    def __init__(self) -> None:
        # By kind.
        self._running = [0, 0]
        self._waiting = [0, 0]
        self._next = _CRAWLING
        self._changed = asyncio.Condition()

    def crawling(self) -> AbstractAsyncContextManager[None]:
        """While this is open, no page is looked at."""
        return self._turn(_CRAWLING)

    def looking(self) -> AbstractAsyncContextManager[None]:
        """While this is open, no page is crawled."""
        return self._turn(_LOOKING)

    @asynccontextmanager
    async def _turn(self, mine: int) -> AsyncIterator[None]:
        other = 1 - mine
        async with self._changed:
            if self._running[other]:
                self._next = mine
            self._waiting[mine] += 1
            try:
                await self._changed.wait_for(
                    lambda: (
                        not self._running[other]
                        and (not self._waiting[other] or self._next == mine)
                    )
                )
            finally:
                self._waiting[mine] -= 1
                self._changed.notify_all()  # a cancelled one does not block others
            self._running[mine] += 1
        try:
            yield
        finally:
            async with self._changed:
                self._running[mine] -= 1
                if not self._running[mine]:
                    self._next = other
                    self._changed.notify_all()
