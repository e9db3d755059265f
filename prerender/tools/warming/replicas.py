"""Sends requests to the replicas of a proxy, each to the least busy one that is available.

Concurrency and rate are limited. When a response asks to slow down, nothing is sent for as long as it
says; then the concurrency is halved, and rises again slowly with each good response.
"""

import asyncio
import itertools
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from prerender.errors import FetchFailed, ReplicasGone, Unreachable
from prerender.tools.concurrency import Pace
from prerender.tools.crawler import Crawler, Fetched, Streamed

# Of a page; being sent to a replica that is not there does not count.
_ATTEMPTS = 4
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
# If servers ask for more, they are asked again after this time.
_LONGEST_RETRY_AFTER_SECONDS = 3600.0
# How long all replicas may be unreachable: a restart takes less. At the start: a wrong URL.
_GONE_SECONDS = 300.0
_GONE_AT_START_SECONDS = 5.0
_SLOW_DOWN = (429, 502, 503, 504)


@dataclass(eq=False, slots=True)
class _Replica:
    """A replica, with the requests that run and have been sent, and until when it is left alone
    (monotonic seconds)."""

    crawler: Crawler
    running: int = 0
    sent: int = 0
    until: float = 0.0
    pause: float = _FIRST_PAUSE_SECONDS

    def fail(self, at_least: float = 0.0) -> None:
        """Leave it alone for a while, each time for longer."""
        self.until = time.monotonic() + max(at_least, self.pause)
        self.pause = min(self.pause * 2, _LONGEST_PAUSE_SECONDS)

    def succeed(self) -> None:
        """It has answered."""
        self.pause = _FIRST_PAUSE_SECONDS


class Replicas:
    """Replicas of one proxy, reached through ``crawlers``.

    ``concurrency``: maximum requests at once, ``rate``: per second (0: no limit), over all replicas.
    ``direct``: the only crawler connects to the sites themselves, of which one may be unreachable.
    """

    def __init__(
        self,
        crawlers: Sequence[Crawler],
        concurrency: int,
        rate: float = 0.0,
        *,
        direct: bool = False,
    ) -> None:
        self._replicas = [_Replica(crawler) for crawler in crawlers]
        self._concurrency = concurrency
        self._allowed = float(concurrency)
        self._running = 0
        self._until = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self._pace = Pace(rate)
        self._direct = direct
        self._changed = asyncio.Event()
        self._answered = 0.0
        self._started = time.monotonic()

    async def get(self, url: str) -> Fetched:
        """The response of a page. Raises FetchFailed, and ReplicasGone if no replica can be reached."""
        attempt = 0
        while True:
            async with self._admitted() as replica:
                try:
                    response = await replica.crawler.get(url)
                except FetchFailed as error:
                    replica.fail()
                    if isinstance(error, Unreachable) and not self._direct:
                        self._check(error)
                        continue
                    attempt += 1
                    if attempt == _ATTEMPTS:
                        raise
                    continue
                attempt += 1
                if self._is_final(replica, response) or attempt == _ATTEMPTS:
                    return response

    @asynccontextmanager
    async def stream(self, url: str) -> AsyncIterator[Streamed]:
        """A file, such as a sitemap, from any replica. Raises FetchFailed and ReplicasGone."""
        for attempt in itertools.count(1):
            replica = min(self._replicas, key=lambda replica: replica.until)
            await asyncio.sleep(max(self._until, replica.until) - time.monotonic())
            try:
                async with replica.crawler.stream(url) as response:
                    self._answered = time.monotonic()
                    if response.status not in _SLOW_DOWN or attempt == _ATTEMPTS:
                        yield response
                        return
                    pause = max(_FIRST_PAUSE_SECONDS * attempt, retry_after(response) or 0.0)
                    self._until = max(self._until, time.monotonic() + pause)
            except Unreachable as error:
                replica.fail()
                if self._answered and not self._direct:
                    self._check(error)
                elif attempt >= len(self._replicas):
                    raise

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[_Replica]:
        """A replica that a request may be sent to now."""
        while True:
            while self._running >= int(self._allowed) or self._available() is None:
                await self._change()
            self._running += 1
            try:
                await self._pace.wait()
                if replica := self._available():
                    replica.running += 1
                    replica.sent += 1
                    try:
                        yield replica
                    finally:
                        replica.running -= 1
                    return
            finally:
                self._running -= 1
                self._changed.set()

    def _available(self) -> _Replica | None:
        """The replica that has least to do; None if all of them are left alone."""
        now = time.monotonic()
        there = [] if now < self._until else [one for one in self._replicas if one.until <= now]
        return min(there, key=lambda replica: (replica.running, replica.sent), default=None)

    async def _change(self) -> None:
        """Wait until a request has ended, or a pause."""
        now = time.monotonic()
        ends = [self._until, *(replica.until for replica in self._replicas)]
        left = [end - now for end in ends if end > now]
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left, default=None)):
                await self._changed.wait()

    def _is_final(self, replica: _Replica, response: Fetched) -> bool:
        """Whether a response is about the page. One that asks to slow down is obeyed."""
        self._answered = now = time.monotonic()
        status = response.cache_status
        is_busy = status is not None and status.get("detail") == "busy"
        if response.status not in _SLOW_DOWN or (status is not None and not is_busy):
            replica.succeed()
            self._pause = _FIRST_PAUSE_SECONDS
            self._allowed = min(self._concurrency, self._allowed + 1 / self._allowed)
            return True
        if now >= max(self._until, replica.until):  # once for the requests that ran together
            self._allowed = max(1.0, self._allowed / 2)
        if response.status == HTTPStatus.GATEWAY_TIMEOUT:
            return True
        after = retry_after(response)
        if is_busy or after is None:
            replica.fail(after or 0.0)
        elif after:
            # The origin says so, which all replicas have in common.
            if now >= self._until:
                self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
            self._until = max(self._until, now + max(after, self._pause / 2))
        return False

    def _check(self, error: Unreachable) -> None:
        """Raise ReplicasGone if no replica has answered for long."""
        most = _GONE_SECONDS if self._answered else _GONE_AT_START_SECONDS
        if time.monotonic() - (self._answered or self._started) > most:
            raise ReplicasGone(str(error)) from error


def retry_after(response: Fetched | Streamed) -> float | None:
    """Retry-After (RFC 9110 section 10.2.3) in seconds, at most an hour; None without one."""
    text = response.headers.get("Retry-After", "")
    seconds: float
    if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        seconds = float(text)
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return min(max(0.0, seconds), _LONGEST_RETRY_AFTER_SECONDS)
