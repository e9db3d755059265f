"""Fills the cache of a proxy by jobs of its admin API, which renders with what crawlers leave."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

from prerender.admin.client import AdminClient
from prerender.errors import AdminError
from prerender.tools.warming.journal import Job
from prerender.tools.warming.warming import MOST_FAILURES, Totals, Warmed

# A job takes 100,000; the first pages are rendered while the others are still being listed.
_AT_ONCE = 20_000
_FIRST_LOOK_SECONDS = 0.2
_LONGEST_LOOK_SECONDS = 2.0
_FULL_SECONDS = 5.0
_TOO_MANY = 429
# The outcomes of jobs, as those of requests are called.
_NAMES = {"not_stored": "not kept", "not_a_page": "not a page"}
_FAILURES = ("failed", "kept", "missing", "not_a_page", "invalid")


class WarmingByJobs:
    """Has the proxy behind ``admin`` render pages that are not fresh.

    ``rate``: maximum per second; 0: no limit. ``most``: maximum number of pages; 0: all. ``done``:
    called with the number of pages that were done, ``found``: with that of pages that were found.
    """

    def __init__(
        self,
        admin: AdminClient,
        *,
        rate: float,
        most: int,
        done: Callable[[int], None],
        found: Callable[[int], None],
    ) -> None:
        self._admin = admin
        self._rate = rate
        self._most = most
        self._done = done
        self._found = found
        self._jobs: dict[str, dict[str, Any]] = {}
        self.totals = Totals()

    async def run(self, pages: AsyncGenerator[Job]) -> Totals:
        """Have all pages rendered. Raises AdminError. If it is interrupted, the jobs are cancelled."""
        started = time.monotonic()
        try:
            batch: list[Job] = []
            async with aclosing(pages):
                async for page in pages:
                    if self._most and self.totals.found + len(batch) >= self._most:
                        self.totals.left_out += 1
                        continue
                    batch.append(page)
                    if len(batch) == _AT_ONCE:
                        await self._create(batch)
                        batch = []
            await self._create(batch)
            pause = _FIRST_LOOK_SECONDS
            while self._unfinished():
                await asyncio.sleep(pause)
                await self._look()
                pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)
        except asyncio.CancelledError:
            for name in self._unfinished():
                with suppress(AdminError):
                    await asyncio.to_thread(self._admin.cancel_job, name)
            raise
        for job in self._jobs.values():
            await self._sum_up(job)
        self.totals.seconds = time.monotonic() - started
        return self.totals

    async def _create(self, pages: list[Job]) -> None:
        if not pages:
            return
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
        self._jobs[job["id"]] = job
        self.totals.found += job["pages"]
        self._found(job["pages"])

    def _unfinished(self) -> list[str]:
        return [name for name, job in self._jobs.items() if job["state"] in ("reading", "running")]

    async def _look(self) -> None:
        """See how far they are."""
        for name in self._unfinished():
            before = self._jobs[name]
            self._jobs[name] = after = await asyncio.to_thread(self._admin.job, name)
            self._done(before["waiting"] - after["waiting"])

    async def _sum_up(self, job: dict[str, Any]) -> None:
        counts = self.totals.counts
        for outcome, count in job["outcomes"].items():
            counts[_NAMES.get(outcome, outcome)] += count
        if job["state"] == "cancelled" and job["waiting"]:
            counts["cancelled"] += job["waiting"]
        for outcome in _FAILURES:
            if job["outcomes"].get(outcome) and len(self.totals.failures) < MOST_FAILURES:
                pages = await asyncio.to_thread(self._admin.job_pages, job["id"], outcome)
                self.totals.failures += [
                    Warmed(page["url"], "failed", _reason(page)) for page in pages
                ]


def _reason(page: dict[str, Any]) -> str:
    return f"status {page['status']}" if page["status"] >= 400 else str(page["reason"])
