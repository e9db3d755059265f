"""Fills the cache of a running proxy by requesting pages as crawlers do.

A ``Journal`` records the requested pages: an interrupted run resumes, and the next run requests only
pages that changed since.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from prerender.errors import FetchFailed
from prerender.proxy.responses import CACHE_NAME
from prerender.tools.crawler import Crawler, Fetched
from prerender.tools.html import read_page
from prerender.tools.link_following import led_to
from prerender.tools.work import Frontier, work_through
from prerender.urls.addresses import is_ugly
from prerender.urls.ajax_crawling import pretty_to_ugly

Outcome = Literal[
    "rendered", "fresh", "renewed", "outdated", "not kept", "redirected", "no proxy", "failed"
]
# "no proxy": the response is not from this proxy.
GOOD: tuple[Outcome, ...] = ("rendered", "fresh", "renewed", "outdated", "not kept", "redirected")

_ATTEMPTS = 4
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_AGAIN = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Job:
    """A page to warm. ``lastmod``: its last change in Unix seconds, if known. ``depth``: how far its
    links are followed."""

    url: str
    lastmod: float | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Warmed:
    """The outcome of a page; ``reason``: why it failed, or where it redirects to."""

    url: str
    outcome: Outcome
    reason: str = ""


class Journal:
    """Records warmed pages with their time, one JSON object per line. Without a ``file``: nothing."""

    def __init__(self, file: Path | None) -> None:
        self._done: dict[str, float] = {}
        self._output: IO[str] | None = None
        if file is None:
            return
        if file.exists():
            self._read(file.read_text("utf-8"))
        self._output = file.open("a", encoding="utf-8")

    def _read(self, text: str) -> None:
        for line in text.splitlines():
            try:
                entry = json.loads(line)
                url, at, outcome = entry["url"], float(entry["at"]), entry["outcome"]
            except (ValueError, TypeError, KeyError):
                continue  # the last line of a run that was killed
            if outcome in GOOD:
                self._done[url] = at
            else:
                self._done.pop(url, None)

    def is_done(self, job: Job) -> bool:
        """Whether a page was warmed after its last change."""
        at = self._done.get(job.url)
        return at is not None and (job.lastmod is None or job.lastmod <= at)

    def write(self, warmed: Warmed) -> None:
        """Write the outcome of a page, and flush it."""
        if self._output is not None:
            entry = {"url": warmed.url, "at": round(time.time(), 3), "outcome": warmed.outcome}
            self._output.write(f"{json.dumps(entry, ensure_ascii=False)}\n")
            self._output.flush()

    def close(self) -> None:
        """Close the file."""
        if self._output is not None:
            self._output.close()


@dataclass(slots=True)
class Totals:
    """The totals of a run. ``skipped``: done by an earlier run. ``left_out``: beyond the limit."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Warmed] = field(default_factory=list)
    skipped: int = 0
    left_out: int = 0
    seconds: float = 0.0


class Warming:
    """Warms pages. ``purge`` purges an outdated page from the proxy, and returns whether it could.

    ``page_of`` returns the page of a link, in pretty form, or None if it is not to be warmed.
    """

    def __init__(
        self,
        crawler: Crawler,
        journal: Journal,
        *,
        concurrency: int,
        rate: float = 0.0,
        most: int = 0,
        purge: Callable[[str], Awaitable[bool]] | None = None,
        told: Callable[[Warmed], None] = lambda _: None,
        found: Callable[[int], None] = lambda _: None,
        page_of: Callable[[str], str | None],
    ) -> None:
        self._crawler = crawler
        self._journal = journal
        self._concurrency = concurrency
        self._rate = rate
        self._purge = purge
        self._told = told
        self._found = found
        self._page_of = page_of
        self._frontier: Frontier[Job] = Frontier(most)
        self.totals = Totals()

    async def run(self, jobs: Iterable[Job]) -> Totals:
        """Warm all pages, the last changed first."""
        started = time.monotonic()
        by_age = sorted(jobs, key=lambda job: -(job.lastmod or 0.0))
        try:
            first = self._new(by_age)
            await work_through(first, self._warm, concurrency=self._concurrency, rate=self._rate)
        finally:
            self.totals.seconds = time.monotonic() - started
            self.totals.left_out = self._frontier.left_out
        return self.totals

    def _new(self, jobs: Iterable[Job]) -> list[Job]:
        new = self._frontier.new(jobs)
        # Where links are followed, the page is requested again: only the snapshot has its links.
        todo = [job for job in new if job.depth or not self._journal.is_done(job)]
        self.totals.skipped += len(new) - len(todo)
        self._found(len(todo))
        return todo

    async def _warm(self, job: Job) -> list[Job]:
        warmed, answer = await self._asked(job)
        self._journal.write(warmed)
        self.totals.counts[warmed.outcome] += 1
        if warmed.outcome not in GOOD:
            self.totals.failures.append(warmed)
        self._told(warmed)
        if answer is not None and warmed.outcome == "redirected":
            page_there = self._page_of(led_to(job.url, answer))
            return self._new([Job(page_there, depth=job.depth)] if page_there else [])
        if not job.depth or answer is None or not answer.is_html:
            return []
        page = await asyncio.to_thread(read_page, answer.body, job.url, answer.charset)
        followed = (link for link in page.links if not is_ugly(link))
        pages = filter(None, map(self._page_of, followed))
        return self._new(Job(page, depth=job.depth - 1) for page in pages)

    async def _asked(self, job: Job) -> tuple[Warmed, Fetched | None]:
        ugly = pretty_to_ugly(job.url, opted_in=True)
        if ugly is None:
            return Warmed(job.url, "failed", "has no ugly URL"), None
        try:
            answer = await self._get(ugly)
            outcome, age = _outcome(answer)
            outdated = job.lastmod is not None and time.time() - age < job.lastmod
            if outcome == "fresh" and outdated:
                outcome = "outdated"
                if self._purge is not None and await self._purge(job.url):
                    answer = await self._get(ugly)
                    outcome = "renewed"
        except FetchFailed as error:
            return Warmed(job.url, "failed", str(error)), None
        if there := led_to(job.url, answer):
            return Warmed(job.url, "redirected", f"to {there}"), answer
        if answer.status != 200:
            return Warmed(job.url, "failed", f"status {answer.status}"), answer
        reason = "the response is not a snapshot of this proxy" if outcome == "no proxy" else ""
        return Warmed(job.url, outcome, reason), answer

    async def _get(self, url: str) -> Fetched:
        """The response, with retries if the proxy is busy. Raises FetchFailed."""
        pause = _FIRST_PAUSE_SECONDS
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = await self._crawler.get(url)
            except FetchFailed:
                if attempt == _ATTEMPTS:
                    raise
            else:
                if answer.status not in _AGAIN or attempt == _ATTEMPTS:
                    return answer
                after = answer.headers.get("Retry-After", "")
                # Retry-After is meant for crawlers; our own pause is an upper limit here.
                if re.fullmatch(r"[0-9]{1,4}", after, re.ASCII):
                    pause = min(pause, float(after))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        raise AssertionError("the last attempt returns or raises")


def _outcome(answer: Fetched) -> tuple[Outcome, float]:
    """The outcome according to Cache-Status (RFC 9211), and the age of a snapshot in seconds."""
    for member in ",".join(answer.headers.getall("Cache-Status", ())).split(","):
        name, *parameters = (part.strip() for part in member.split(";"))
        if name == CACHE_NAME:
            if "hit" in parameters:
                ages = [part.removeprefix("age=") for part in parameters if part.startswith("age=")]
                return "fresh", float(ages[0]) if ages and ages[0].isdecimal() else 0.0
            collapsed = "collapsed" in parameters
            return "rendered" if "stored" in parameters or collapsed else "not kept", 0.0
    return "no proxy", 0.0
