"""The lives of browsers: starting, watching, replacing and ending them.

One browser is in use. If it dies, another one starts at once; if starting fails, after a growing delay
with jitter. A worn browser is retired when the next one is ready: it finishes its renders, gets no new
ones, and is ended.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import structlog

from prerender.browser.chromium import CannotStart, Chromium
from prerender.errors import BrowserGone

_FIRST_DELAY_SECONDS = 0.1
_LONGEST_DELAY_SECONDS = 5.0
# A single failed start can be a coincidence. For this long, the next attempt comes soon, and renders
# keep waiting for a page.
_PATIENCE_SECONDS = 10.0
_PATIENT_DELAY_SECONDS = 0.4
# A browser that dies sooner counts as a failed start.
_SHORT_LIFE_SECONDS = 1.0
_CHECK_SECONDS = 0.5
# A browser that uses this share of its memory limit for this long is replaced, while there is room for
# two: above the limit, the guardian ends pages. If a new one takes as much, it is not replaced more
# often than this.
_LARGE_SHARE = 0.75
_LARGE_SECONDS = 5.0
_MEMORY_PAUSE_SECONDS = 60.0
# Renders have their own deadlines. Do not wait longer for one than this.
_DRAIN_SECONDS = 60.0

log = structlog.get_logger(__name__)


class ReplacementCause(StrEnum):
    """Why there is another browser. LOST: it died or did not respond."""

    AGE = "age"
    LOST = "lost"
    MEMORY = "memory"
    NOT_STARTED = "not_started"
    RENDERS = "renders"
    UPGRADE = "upgrade"


@dataclass(frozen=True, slots=True)
class Limits:
    """When a browser is replaced; 0: no limit.

    Number of renders, seconds since its start, and memory of all its processes in bytes.
    """

    renders: int = 0
    age: float = 0.0
    memory: int = 0


class PagePool(Protocol):
    """The interface of the pool for the supervisor."""

    async def take_in(self, browser: Chromium) -> None:
        """Open the pages of a new browser and use them from now on. Raises BrowserGone."""

    def drop(self, browser: Chromium) -> None:
        """Remove the pages of a browser that is gone."""

    async def drained(self, browser: Chromium) -> None:
        """Wait until no page of this browser is in use."""

    def lent(self, browser: Chromium) -> int:
        """How often pages of this browser were used."""

    def fail(self, problem: str) -> None:
        """Fail all waiting renders, with the reason why there is no browser."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that ends with the pool."""


class Supervisor:
    """Supplies a pool with browsers while ``run`` is running."""

    def __init__(
        self, pool: PagePool, launch: Callable[[], Coroutine[Any, Any, Chromium]], limits: Limits
    ) -> None:
        self._pool = pool
        self._launch = launch
        self._limits = limits
        self._current: Chromium | None = None
        self._lives: dict[Chromium, asyncio.Task[None]] = {}
        self._needed = asyncio.Event()  # another browser is
        self._small_at = 0.0
        self._large_at = 0.0
        self.browsers_started = 0
        self.browser_version = ""
        self.replacements = Counter(dict.fromkeys(ReplacementCause, 0))

    async def run(self) -> None:
        """Keep a browser running, until cancelled."""
        failures, running_since, failing_since = 0, time.monotonic(), 0.0
        while True:
            longest = _PATIENT_DELAY_SECONDS
            if not failures:
                failing_since = time.monotonic()
                logged_problem = ""
            try:
                await self._start()
            except Exception as error:
                # A bug here must not leave the proxy without a browser forever, either.
                problem = str(error) or repr(error)
                transient = isinstance(error, BrowserGone) and not isinstance(error, CannotStart)
                if transient and not failures:
                    # Chromium sometimes crashes at its start, and not at the next one.
                    log.warning("browser_start_failed", error=problem)
                # Log a repeated reason only once: attempts follow each other quickly at first.
                elif (
                    problem != logged_problem
                    or time.monotonic() - failing_since > _PATIENCE_SECONDS
                ):
                    log.error("browser_start_failed", error=problem)
                    logged_problem = problem
                self.replacements[ReplacementCause.NOT_STARTED] += 1
                if not transient or time.monotonic() - running_since > _PATIENCE_SECONDS:
                    longest = _LONGEST_DELAY_SECONDS
                    if self._current is None:
                        self._pool.fail(problem)
                failures += 1
            else:
                running_since = time.monotonic()
                self._needed.clear()
                await self._needed.wait()
                short = (
                    self._current is None and time.monotonic() - running_since < _SHORT_LIFE_SECONDS
                )
                running_since = time.monotonic()
                failures = failures + 1 if short else 0
                if time.monotonic() - failing_since > _PATIENCE_SECONDS:
                    longest = _LONGEST_DELAY_SECONDS
            if failures:
                await self._back_off(min(_FIRST_DELAY_SECONDS * 2 ** (failures - 1), longest))

    async def _back_off(self, delay: float) -> None:
        """Wait before the next attempt, unless the current browser dies meanwhile."""
        self._needed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(delay * random.uniform(0.8, 1.2)):  # noqa: S311 (jitter)
                await self._needed.wait()

    async def _start(self) -> None:
        """Start a browser, and replace the current one if there is one."""
        browser = await self._launch()
        self.browsers_started += 1
        self.browser_version = browser.version
        log.info("browser_started", version=browser.version, pid=browser.pid)
        life = self._pool.spawn(self._live(browser), f"life of {browser!r}")
        self._lives[browser] = life
        life.add_done_callback(lambda _: self._lives.pop(browser))
        try:
            await self._pool.take_in(browser)
        except BaseException:
            life.cancel()
            raise
        if self._current is not None:
            self._pool.spawn(self._retire(self._current), f"retire {self._current!r}")
        self._current = browser
        self._small_at = time.monotonic()

    async def _live(self, browser: Chromium) -> None:
        """Watch a browser until its end, and clean up."""
        gone = asyncio.create_task(browser.gone(), name=f"end of {browser!r}")
        try:
            while not gone.done():
                await asyncio.wait({gone}, timeout=_CHECK_SECONDS)
                if browser is self._current and (reason := self._worn(browser)):
                    self._needed.set()
                    log.info("browser_replacing", pid=browser.pid, reason=reason)
            self.replacements[ReplacementCause.LOST] += 1
            log.warning("browser_lost", pid=browser.pid, reason=gone.result())
        finally:
            gone.cancel()
            if self._current is browser:
                self._current = None
                self._needed.set()
            self._pool.drop(browser)
            await browser.close()

    def _worn(self, browser: Chromium) -> str:
        """Why a browser should be replaced now, or ''."""
        limits, now = self._limits, time.monotonic()
        if len(self._lives) > 1 or self._needed.is_set():
            return ""  # one at a time
        if 0 < limits.renders <= (renders := self._pool.lent(browser)):
            self.replacements[ReplacementCause.RENDERS] += 1
            return f"{renders} renders"
        if 0 < limits.age <= (age := now - browser.started):
            self.replacements[ReplacementCause.AGE] += 1
            return f"{age:.0f} s old"
        if browser.is_replaced_on_disk():
            self.replacements[ReplacementCause.UPGRADE] += 1
            return "its files on disk have been replaced"
        if not 0 < limits.memory * _LARGE_SHARE < browser.memory_bytes:
            self._small_at = now
        large = now - self._small_at > _LARGE_SECONDS
        if large and now - self._large_at > _MEMORY_PAUSE_SECONDS:
            self._large_at = now
            self.replacements[ReplacementCause.MEMORY] += 1
            return f"{browser.memory_bytes >> 20} MiB"
        return ""

    async def _retire(self, browser: Chromium) -> None:
        """Let a browser finish its renders, then end it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                await self._pool.drained(browser)
        log.info("browser_retired", pid=browser.pid)
        if life := self._lives.get(browser):
            life.cancel()
