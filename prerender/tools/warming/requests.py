"""Sends requests for pages, to a proxy or to the site itself.

Concurrency and rate are limited. When a response asks to slow down, nothing is sent for as long as it
says; then the concurrency is halved, and rises again slowly with each good response.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from prerender.errors import FetchFailed, ServerGone, Unreachable
from prerender.http.retry_after import seconds_of
from prerender.tools.concurrency import Pace
from prerender.tools.crawler import CrawlerClient, Fetched, Streamed

# Of a page; being sent to a server that is not there does not count.
_ATTEMPTS = 4
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
# How long the server may be unreachable: a restart takes less. At the start: a wrong URL.
_GONE_SECONDS = 300.0
_GONE_AT_START_SECONDS = 5.0
_SLOW_DOWN = (429, 502, 503, 504)


class Requests:
    """Sends requests by ``crawler``.

    ``concurrency``: maximum requests at once, ``rate``: per second (0: no limit). ``direct``: the
    crawler connects to the sites themselves, of which one may be unreachable.
    """

    def __init__(
        self, crawler: CrawlerClient, concurrency: int, rate: float = 0.0, *, direct: bool = False
    ) -> None:
        self._crawler = crawler
        self._concurrency = concurrency
        self._allowed = float(concurrency)
        self._running = 0
        # Monotonic seconds.
        self._until = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self._pace = Pace(rate)
        self._direct = direct
        self._changed = asyncio.Event()
        self._answered = 0.0
        self._started = time.monotonic()

    async def get(self, url: str) -> Fetched:
        """The response of a page. Raises FetchFailed, and ServerGone if no server can be reached."""
        attempt = 0
        while True:
            async with self._admitted():
                try:
                    response = await self._crawler.get(url)
                except FetchFailed as error:
                    self._back_off()
                    if isinstance(error, Unreachable) and not self._direct:
                        self._check(error)
                        continue
                    attempt += 1
                    if attempt == _ATTEMPTS:
                        raise
                    continue
                attempt += 1
                if self._is_final(response) or attempt == _ATTEMPTS:
                    return response

    @asynccontextmanager
    async def stream(self, url: str) -> AsyncIterator[Streamed]:
        """A file, such as a sitemap. Raises FetchFailed and ServerGone."""
        for attempt in itertools.count(1):
            await asyncio.sleep(self._until - time.monotonic())
            try:
                async with self._crawler.stream(url) as response:
                    self._answered = time.monotonic()
                    if response.status not in _SLOW_DOWN or attempt == _ATTEMPTS:
                        yield response
                        return
                    pause = max(_FIRST_PAUSE_SECONDS * attempt, _retry_after(response) or 0.0)
                    self._until = max(self._until, time.monotonic() + pause)
            except Unreachable as error:
                self._back_off()
                if not self._answered or self._direct:
                    raise
                self._check(error)

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        """Wait until a request may be sent."""
        while True:
            while self._running >= int(self._allowed) or time.monotonic() < self._until:
                await self._change()
            self._running += 1
            try:
                await self._pace.wait()
                if time.monotonic() >= self._until:
                    yield
                    return
            finally:
                self._running -= 1
                self._changed.set()

    async def _change(self) -> None:
        """Wait until a request has ended, or a pause."""
        left = self._until - time.monotonic()
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(left if left > 0 else None):
                await self._changed.wait()

    def _back_off(self, at_least: float = 0.0) -> None:
        """Send nothing for a while, each time for longer."""
        now = time.monotonic()
        pause = max(at_least, self._pause)
        if now >= self._until:  # once for the requests that ran together
            self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        self._until = max(self._until, now + pause)

    def _is_final(self, response: Fetched) -> bool:
        """Whether a response is about the page. One that asks to slow down is obeyed."""
        self._answered = now = time.monotonic()
        status = response.cache_status
        is_busy = status is not None and status.get("detail") == "busy"
        if response.status not in _SLOW_DOWN or (status is not None and not is_busy):
            self._pause = _FIRST_PAUSE_SECONDS
            self._allowed = min(self._concurrency, self._allowed + 1 / self._allowed)
            return True
        if now >= self._until:
            self._allowed = max(1.0, self._allowed / 2)
        if response.status == HTTPStatus.GATEWAY_TIMEOUT:
            return True
        after = _retry_after(response)
        if is_busy or after != 0:
            self._back_off(after or 0.0)
        return False

    def _check(self, error: Unreachable) -> None:
        """Raise ServerGone if the server has not answered for long."""
        most = _GONE_SECONDS if self._answered else _GONE_AT_START_SECONDS
        if time.monotonic() - (self._answered or self._started) > most:
            raise ServerGone(str(error)) from error


def _retry_after(response: Fetched | Streamed) -> float | None:
    return seconds_of(response.headers.get("Retry-After", ""))
