"""Pages without a usable snapshot, rendered again in the background until there is one.

The first retry comes after a few seconds, each next one after twice as long. After some retries a page
is given up until the next crawler asks for it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from prerender.snapshots.snapshot import Target

FIRST_SECONDS = 5.0
RETRIES = 7
# A site whose interface is down has as many incomplete pages as crawlers ask for.
MOST_PAGES = 1000


@dataclass(slots=True)
class _Retry:
    target: Target
    count: int = 0
    timer: asyncio.TimerHandle | None = None


class Retries:
    """Calls ``render`` for pages that need it. It returns False when it cannot take one now."""

    def __init__(self, render: Callable[[Target], bool]) -> None:
        self._render = render
        self._pages: dict[str, _Retry] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def failed(self, target: Target) -> None:
        """Note that a page has no usable snapshot."""
        retry = self._pages.get(target.key)
        if retry is None:
            if len(self._pages) >= MOST_PAGES:
                return
            retry = self._pages[target.key] = _Retry(target)
        retry.count += 1
        if retry.timer is None and retry.count <= RETRIES:
            self._schedule(retry)
        elif retry.count > RETRIES:
            self.succeeded(target)

    def succeeded(self, target: Target) -> None:
        """Forget a page."""
        retry = self._pages.pop(target.key, None)
        if retry is not None and retry.timer is not None:
            retry.timer.cancel()

    def close(self) -> None:
        """Forget all pages."""
        for retry in list(self._pages.values()):
            self.succeeded(retry.target)

    def _schedule(self, retry: _Retry) -> None:
        delay = FIRST_SECONDS * 2 ** (retry.count - 1)
        retry.timer = asyncio.get_running_loop().call_later(delay, self._again, retry)

    def _again(self, retry: _Retry) -> None:
        retry.timer = None
        if not self._render(retry.target):
            self._schedule(retry)
