"""The last requests of crawlers, and the pages that are slow, fail or are cut off.

Both are in memory; stored_problems.py stores the pages. Requests of visitors are not recorded.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cachetools import LRUCache

from prerender.admin.reasons import in_words
from prerender.errors import ErrorCode
from prerender.snapshots.target import Target
from prerender.telemetry.crawler_requests import Batch, CrawlerRequests
from prerender.telemetry.records import RenderOutcome, RenderRecord, RequestRecord

_MOST_REQUESTS = 3000
_MOST_PAGES = 2000
_MOST_STORED = 500
_LONGEST_TEXT = 1000
# After the last render of a page.
RETENTION_SECONDS = 30 * 86400.0


@dataclass(slots=True)
class PageRenders:
    """Counts the renders of a page. ``reason`` is that of the last problem."""

    key: str
    url: str
    renders: int = 0
    failed: int = 0
    cut_off: int = 0
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    last: float = 0.0
    last_problem: float = 0.0
    failing_since: float = 0.0
    reason: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the page was rendered without a problem since its last one."""
        return self.last > self.last_problem

    def with_later(self, later: "PageRenders") -> "PageRenders":
        """With the renders that another one counted."""
        newer = later if later.last >= self.last else self
        problem = later if later.last_problem >= self.last_problem else self
        return replace(
            newer,
            renders=self.renders + later.renders,
            failed=self.failed + later.failed,
            cut_off=self.cut_off + later.cut_off,
            seconds=self.seconds + later.seconds,
            slowest_seconds=max(self.slowest_seconds, later.slowest_seconds),
            last_problem=problem.last_problem,
            failing_since=newer.failing_since and (self.failing_since or later.failing_since),
            reason=problem.reason,
        )

    def fail(self, time: float, reason: str) -> None:
        """Count a render without a usable snapshot."""
        self.failed += 1
        self.failing_since = self.failing_since or time
        self.note(time, reason)

    def note(self, time: float, reason: str) -> None:
        """Record a problem."""
        self.last_problem, self.reason = time, reason[:_LONGEST_TEXT]


@dataclass(frozen=True, slots=True)
class Worst:
    """The slowest pages, those that fail or are cut off most, and those with other problems."""

    slowest: list[PageRenders]
    failing: list[PageRenders]
    cut_off: list[PageRenders]
    troubled: list[PageRenders]


class Recent:
    """Subscribes to the records of requests, and gets those of renders."""

    def __init__(self, requests: CrawlerRequests) -> None:
        self._waiting = requests
        self._count = 0
        self._requests: deque[RequestRecord] = deque(maxlen=_MOST_REQUESTS)
        self._pages: LRUCache[str, PageRenders] = LRUCache(_MOST_PAGES)
        # Counted before the last exchange.
        self._before: dict[str, PageRenders] = {}
        requests.subscribe(self._add)

    def _add(self, batch: Batch) -> None:
        self._count += len(batch.records)
        for record in batch.records:
            if record.error is ErrorCode.DOCUMENT_REFUSED and record.snapshot_target is not None:
                self._refused(record.snapshot_target, record)
            if record.timings is None and len(record.target) < _LONGEST_TEXT:
                self._requests.append(record)
                continue
            # Bound the memory that each record takes.
            timings = record.timings and replace(record.timings, fetches=())
            short = record.target[:_LONGEST_TEXT]
            self._requests.append(replace(record, target=short, timings=timings, facts=None))

    def numbered(self) -> Iterable[tuple[int, RequestRecord]]:
        """The last requests, each with its number since the start."""
        self._waiting.deliver()
        return enumerate(self._requests, self._count - len(self._requests) + 1)

    def render(self, record: RenderRecord) -> None:
        """Count a render of a page."""
        self._waiting.deliver()
        if record.outcome in (RenderOutcome.CANCELLED, RenderOutcome.NOT_A_PAGE):
            return
        page = self._page(record.target)
        page.renders += 1
        page.seconds += record.seconds
        page.slowest_seconds = max(page.slowest_seconds, record.seconds)
        page.last = record.time + record.seconds
        if record.outcome.is_unusable:
            page.fail(page.last, _reason(record))
            return
        page.failing_since = 0.0
        page.cut_off += record.outcome is RenderOutcome.CUT_OFF
        if reason := _reason(record):
            page.note(page.last, reason)

    def _page(self, target: Target) -> PageRenders:
        return self._pages.setdefault(
            target.key, PageRenders(target.key, target.url[:_LONGEST_TEXT])
        )

    def _refused(self, target: Target, record: RequestRecord) -> None:
        """Count a refused document, which is detected only after a client has got it."""
        page = self._page(target)
        page.renders += 1
        page.last = record.time + record.seconds
        page.fail(page.last, f"refused: {record.detail}")

    def worst(self, most: int) -> "Worst":
        """The pages with most problems, at most ``most`` of each kind."""
        pages = self._all()
        return Worst(
            slowest=sorted(pages, key=lambda page: -page.seconds / page.renders)[:most],
            failing=_most(pages, "failed", most),
            cut_off=_most(pages, "cut_off", most),
            troubled=sorted(
                (page for page in pages if page.reason and not page.failed and not page.cut_off),
                key=lambda page: -page.last_problem,
            )[:most],
        )

    def exchange(self, stored: Sequence[PageRenders] | None) -> tuple[list[PageRenders], bool]:
        """Replace what was counted before by what is ``stored``, unless it is None, and add the new.

        Returns the pages to store, those with problems first, and whether any is new.
        """
        if stored is not None:
            self._before = {page.key: page for page in stored}
        self._waiting.deliver()
        changed = bool(self._pages)
        pages = sorted(
            self._all(), key=lambda page: (-page.last_problem, -page.seconds / page.renders)
        )[:_MOST_STORED]
        self._before = {page.key: page for page in pages}
        self._pages.clear()
        return pages, changed

    def _all(self) -> list[PageRenders]:
        self._waiting.deliver()
        pages = dict(self._before)
        for key, page in list(self._pages.items()):
            before = pages.get(key)
            pages[key] = page if before is None else before.with_later(page)
        oldest = time.time() - RETENTION_SECONDS
        return [page for page in pages.values() if page.renders > 0 and page.last > oldest]


def _most(pages: list[PageRenders], count: str, most: int) -> list[PageRenders]:
    """Those with most problems, present problems first."""
    having = [page for page in pages if getattr(page, count)]
    return sorted(having, key=lambda page: (page.is_over, -int(getattr(page, count))))[:most]


def _reason(record: RenderRecord) -> str:
    """What went wrong in a render, or ''."""
    if record.facts is None and record.outcome.is_unusable:
        return in_words(record.error, record.reason)
    facts = record.facts
    if facts is None:
        return ""
    if facts.verdict != "complete":
        return f"{facts.verdict}: {facts.why}"
    if facts.soft_404 and record.status == 200:
        return "soft 404: data of the page was not found, but its status is 200"
    if facts.failed_requests:
        return f"{_requests(facts.failed_requests)} failed, for example {facts.failed_requests[0]}"
    if facts.unanswered_requests:
        count = _requests(facts.unanswered_requests)
        return f"{count} got no response, for example {facts.unanswered_requests[0]}"
    if facts.errors:
        return f"script error: {facts.errors[0]}"
    return ""


def _requests(urls: Sequence[str]) -> str:
    return "1 request" if len(urls) == 1 else f"{len(urls)} requests"
