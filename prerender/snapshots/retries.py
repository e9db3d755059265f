"""Renders pages without a usable snapshot again in the background, with exponential backoff.

After some retries a page is given up until the next request for it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from prerender.snapshots.target import Target

FIRST_SECONDS = 5.0
RETRIES = 7
# If an API of the site is down, every requested page is incomplete.
MOST_PAGES = 1000


@dataclass(slots=True)
class _Retry:
    target: Target
    count: int = 0
    timer: asyncio.TimerHandle | None = None


class Retries:
    """Calls ``render`` for pages to retry. It returns False if it cannot take one now."""

    def __init__(self, render: Callable[[Target], bool]) -> None:
        self._render = render
        self._pages: dict[str, _Retry] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def failed(self, target: Target) -> None:
        """Schedule a retry of a page without a usable snapshot."""
        retry = self._pages.get(target.key)
        if retry is None:
            if len(self._pages) >= MOST_PAGES or target.is_long:
                return
            retry = self._pages[target.key] = _Retry(target)
        retry.count += 1
        if retry.timer is None and retry.count <= RETRIES:
            self._schedule(retry)
        elif retry.count > RETRIES:
            self.succeeded(target)

    def ended(self, target: Target, *, failed: bool) -> None:
        """A render in the background has ended: the retry of a page is over, unless it ended in what
        has called ``failed`` or ``succeeded`` already."""
        retry = self._pages.get(target.key)
        if retry is None or retry.timer is not None:
            return
        if failed:
            self.failed(target)
        else:
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
