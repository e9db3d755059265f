"""Fills the cache of running proxies: asks for pages as crawlers do, and looks at what comes.

What has been asked for is written down (``Journal``): a run that was interrupted goes on where it
ended, and the next run asks only for what has changed since.
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
from prerender.tools.visiting import led_to
from prerender.tools.work import Frontier, work_through
from prerender.urls.addresses import is_ugly
from prerender.urls.ajax_crawling import pretty_to_ugly

Outcome = Literal[
    "rendered", "fresh", "renewed", "outdated", "not kept", "redirected", "no proxy", "failed"
]
# The last but one: an answer of somebody else, where no snapshot is.
GOOD: tuple[Outcome, ...] = ("rendered", "fresh", "renewed", "outdated", "not kept", "redirected")

_ATTEMPTS = 4
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_AGAIN = (429, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Job:
    """A page to warm, when it last changed (Unix seconds) if that is known, and how far its links are
    followed."""

    url: str
    lastmod: float | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Warmed:
    """What became of a page; ``reason`` if it failed, and where it redirects to."""

    url: str
    outcome: Outcome
    reason: str = ""


class Journal:
    """What has been warmed and when, one JSON object a line. With no ``file`` it remembers nothing."""

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
        """Whether a page has been warmed since it last changed."""
        at = self._done.get(job.url)
        return at is not None and (job.lastmod is None or job.lastmod <= at)

    def write(self, warmed: Warmed) -> None:
        """Write down what became of a page, at once."""
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
    """How a run went. ``skipped`` were done by an earlier one; ``left_out`` were too many."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Warmed] = field(default_factory=list)
    skipped: int = 0
    left_out: int = 0
    seconds: float = 0.0


class Warming:
    """``purge`` has a proxy make a page anew, if it can; otherwise what is outdated stays so.

    ``page_of`` gives the page that a link leads to, in pretty form, if it is to be warmed.
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
        """Warm them all, what changed last first."""
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
        # Only the snapshot tells what a page links to, so where links are followed it is asked again.
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
        reason = "the answer is not a proxy's snapshot" if outcome == "no proxy" else ""
        return Warmed(job.url, outcome, reason), answer

    async def _get(self, url: str) -> Fetched:
        """The answer, after some tries if the proxy is busy. Raises FetchFailed."""
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
                # It speaks to crawlers, who come back any time; for us the pause of ours will do.
                if re.fullmatch(r"[0-9]{1,4}", after, re.ASCII):
                    pause = min(pause, float(after))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        raise AssertionError("the last attempt returns or raises")


def _outcome(answer: Fetched) -> tuple[Outcome, float]:
    """What Cache-Status tells (RFC 9211), and the age of a snapshot in seconds."""
    for member in ",".join(answer.headers.getall("Cache-Status", ())).split(","):
        name, *parameters = (part.strip() for part in member.split(";"))
        if name == CACHE_NAME:
            if "hit" in parameters:
                ages = [part.removeprefix("age=") for part in parameters if part.startswith("age=")]
                return "fresh", float(ages[0]) if ages and ages[0].isdecimal() else 0.0
            collapsed = "collapsed" in parameters
            return "rendered" if "stored" in parameters or collapsed else "not kept", 0.0
    return "no proxy", 0.0
