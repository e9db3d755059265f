"""Jobs, their pages, and where they are kept. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from prerender.snapshots.strict_json import read

Priority = Literal["low", "normal", "high"]
JobSource = Literal["api", "sitemaps"]
# "reading": its list is not complete yet, but pages are rendered.
State = Literal["reading", "running", "done", "cancelled"]
UNFINISHED: tuple[State, ...] = ("reading", "running")
PageOutcome = Literal[
    "rendered",
    "fresh",
    "kept",
    "redirected",
    "not_stored",
    "missing",
    "not_a_page",
    "failed",
    "invalid",
]
OUTCOMES: tuple[PageOutcome, ...] = get_args(PageOutcome)

MOST_PAGES = 100_000
MOST_JOBS = 100
# Of all jobs together.
MOST_STORED_PAGES = 500_000
RETENTION_SECONDS = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Job:
    """A list of pages to render: those of ``sitemaps``, or the ones that were added to it.

    ``created``: in Unix seconds. ``rate``: maximum pages per second over all replicas; 0: no limit.
    ``stale_only``: leave pages whose snapshot is fresh, and not older than their last change.
    ``source``: who created it; "sitemaps": because they have changed.
    """

    id: str
    created: float
    sitemaps: tuple[str, ...] = ()
    priority: Priority = "normal"
    rate: float = 0.0
    stale_only: bool = False
    source: JobSource = "api"


def parse_job(text: str) -> Job | None:
    """A stored job; None if it is one of another release."""
    try:
        return read(Job, text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class WaitingPage:
    """A page to render, by its path with ``#!`` state, unless its snapshot is fresh and was rendered at
    ``since`` or later. ``tries``: how often it has failed."""

    path: str
    since: float
    tries: int = 0


@dataclass(frozen=True, slots=True)
class PageResult:
    """What came of a page at ``time`` (Unix seconds). ``status``: of its snapshot, or the origin's; 0:
    unknown. ``reason``: why it was not rendered."""

    outcome: PageOutcome
    time: float
    status: int = 0
    reason: str = ""

    def dump(self) -> str:
        """The stored form."""
        return json.dumps((self.outcome, round(self.time, 1), self.status, self.reason))


# A page in a list: its path or what was given for one, and its result, if there is one.
PageRow = tuple[str, PageResult | None]


def parse_result(text: str) -> PageResult | None:
    """A stored result; None for other text."""
    try:
        outcome, time, status, reason = json.loads(text)
        return PageResult(outcome, float(time), int(status), str(reason))
    except (ValueError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A job and what has come of it. ``ended``: in Unix seconds, 0 until then. ``note``: what of its
    list could not be read. ``waiting``: pages to do. ``outcomes``: the others, counted."""

    job: Job
    state: State
    ended: float = 0.0
    note: str = ""
    duplicates: int = 0
    waiting: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)

    @property
    def pages(self) -> int:
        """The number of pages."""
        return self.waiting + sum(self.outcomes.values())


class JobStore(Protocol):
    """Keeps jobs, for all replicas. Raises StoreError.

    ``kind``: "memory", "file" or "redis".
    """

    kind: str

    async def jobs(self) -> list[JobProgress]:
        """All jobs, the oldest first."""

    async def add(self, job: Job) -> None:
        """Add a job without pages, in state "reading"."""

    async def add_pages(self, job: str, pages: Sequence[tuple[str, float | PageResult]]) -> int:
        """Add pages to an unfinished job: their paths, each with ``WaitingPage.since`` or a result.
        Returns how many are new; the others count as duplicates."""

    async def listed(self, job: str, note: str) -> None:
        """The list of a job in state "reading" is complete."""

    async def cancel(self, job: str) -> bool:
        """Cancel a job. Returns whether it was unfinished."""

    async def drop(self, job: str) -> None:
        """Forget a job."""

    async def take(self, job: str, rate: float, seconds: float) -> WaitingPage | None:
        """The next page of an unfinished job, if there is one and the rate allows it. It is another
        replica's if it is not done in so many seconds."""

    async def put_back(self, job: str, page: WaitingPage, seconds: float) -> None:
        """Do a page that was taken, in so many seconds."""

    async def finish(self, job: str, path: str, result: PageResult) -> None:
        """A page that was taken is done, and its job if it was the last one. A page that is done, or
        whose job is cancelled, is not done again."""

    async def rows(
        self, job: str, outcome: str, cursor: str, most: int
    ) -> tuple[list[PageRow], str | None]:
        """About ``most`` pages with this outcome, "waiting", or any with "". And the next cursor."""

    async def close(self) -> None:
        """Close its connections."""
