"""Fills the cache of a proxy by jobs of its admin API, which renders with spare browser capacity."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

from prerender.admin.client import AdminClient
from prerender.errors import AdminError
from prerender.tools.warming.journal import PageToWarm
from prerender.tools.warming.warming import MOST_FAILURES, Totals, Warmed

# A job takes 100,000; the first pages are rendered while the others are still being listed.
_AT_ONCE = 20_000
_FIRST_LOOK_SECONDS = 0.2
_LONGEST_LOOK_SECONDS = 2.0
_FULL_SECONDS = 5.0
_TOO_MANY = 429
# No response, or its store does not respond: a restart takes less than this time.
_AWAY = (0, 503)
_GONE_SECONDS = 300.0
_FAILURES = ("failed", "kept", "missing", "not_a_page", "invalid")


class WarmingByJobs:
    """Has the proxy behind ``admin`` render pages that are not fresh.

    ``rate``: maximum per second; 0: no limit. ``most``: maximum number of pages; 0: all. ``done``:
    called with the number of pages that were done, ``on_new_pages``: with that of further ones to do.
    """

    def __init__(
        self,
        admin: AdminClient,
        *,
        rate: float,
        most: int,
        done: Callable[[int], None],
        on_new_pages: Callable[[int], None],
    ) -> None:
        self._admin = admin
        self._rate = rate
        self._most = most
        self._done = done
        self._on_new_pages = on_new_pages
        self._jobs: dict[str, dict[str, Any]] = {}
        self._answered = time.monotonic()
        self.totals = Totals()

    async def run(self, pages: AsyncGenerator[PageToWarm]) -> Totals:
        """Have all pages rendered. Raises AdminError. If it is interrupted, the jobs are cancelled."""
        started = time.monotonic()
        try:
            batch: list[PageToWarm] = []
            async with aclosing(pages):
                async for page in pages:
                    if self._most and self.totals.pages + len(batch) >= self._most:
                        self.totals.left_out += 1
                        continue
                    batch.append(page)
                    if len(batch) == _AT_ONCE:
                        await self._create(batch)
                        batch = []
            await self._create(batch)
            await self._finish()
        except asyncio.CancelledError:
            for name in self._unfinished():
                with suppress(AdminError):
                    await asyncio.to_thread(self._admin.cancel_job, name)
            raise
        self.totals.seconds = time.monotonic() - started
        return self.totals

    async def _create(self, pages: list[PageToWarm]) -> None:
        if not pages:
            return
        if self._rate:  # it is that of a job
            await self._finish()
        body = {
            "url": [page.url for page in pages],
            "lastmod": [page.lastmod for page in pages],
            "rate": self._rate,
            "stale_only": True,
        }
        while True:
            try:
                job = await asyncio.to_thread(self._admin.create_job, body)
                break
            except AdminError as error:
                if error.answered_with != _TOO_MANY or not self._unfinished():
                    raise
                # There is room for it when another one is done.
                await asyncio.sleep(_FULL_SECONDS)
                await self._look()
        self._answered = time.monotonic()
        self.totals.pages += job["pages"]
        self._on_new_pages(job["pages"])
        await self._note(job)

    async def _finish(self) -> None:
        """Wait until all jobs have ended."""
        pause = _FIRST_LOOK_SECONDS
        while self._unfinished():
            await asyncio.sleep(pause)
            await self._look()
            pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)

    def _unfinished(self) -> list[str]:
        return [name for name, job in self._jobs.items() if job["state"] in ("reading", "running")]

    async def _look(self) -> None:
        """See how far they are. Raises AdminError, but not while the proxy restarts."""
        for name in self._unfinished():
            try:
                job = await asyncio.to_thread(self._admin.job, name)
            except AdminError as error:
                away = time.monotonic() - self._answered
                if error.answered_with not in _AWAY or away > _GONE_SECONDS:
                    raise
                return
            self._answered = time.monotonic()
            self._done(self._jobs[name]["waiting"] - job["waiting"])
            await self._note(job)

    async def _note(self, job: dict[str, Any]) -> None:
        """Count the pages of jobs, and get the failures of one that has ended: other jobs may displace
        it."""
        self._jobs[job["id"]] = job
        counts = self.totals.counts
        counts.clear()
        for one in self._jobs.values():
            for outcome, count in one["outcomes"].items():
                counts[outcome] += count
            if one["state"] == "cancelled" and one["waiting"]:
                counts["cancelled"] += one["waiting"]
        if job["id"] in self._unfinished():
            return
        for outcome in _FAILURES:
            if job["outcomes"].get(outcome) and len(self.totals.failures) < MOST_FAILURES:
                pages = await asyncio.to_thread(self._admin.job_pages, job["id"], outcome)
                self.totals.failures += [
                    Warmed(page["url"], "failed", _reason(page)) for page in pages
                ]


def _reason(page: dict[str, Any]) -> str:
    return f"status {page['status']}" if page["status"] >= 400 else str(page["reason"])
