"""What the owner is alerted to, from the figures of the last two weeks by hour. Pure.

The thresholds keep it silent on ordinary days: nothing follows from a few requests.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from prerender.telemetry.crawler_requests import OTHERS
from prerender.visits.figures import (
    FACTS,
    HOUR_SECONDS,
    OTHER,
    THINNER,
    UNVERIFIED_SUFFIX,
    CellKey,
    VisitOutcome,
)
from prerender.visits.storage import Days

CauseKind = Literal[
    "crawler_stopped", "crawler_new", "not_found", "server_errors", "unverified", "thin_pages"
]  # fmt: skip

DAY_HOURS = 24
WEEK_HOURS = 7 * DAY_HOURS
# Of a crawler that has stopped: its requests and the days with any in the last two weeks, the hours
# since the last one, and how many times its longest pause before that is.
LEAST_REQUESTS = 100
LEAST_DAYS = 7
LEAST_SILENT_HOURS = 6
LEAST_PAUSES = 3
# Of a new one.
LEAST_NEW_REQUESTS = 10
# The share of verified requests in the week before, how much of share and number is left (impostors
# alone leave the number), and the number of unverified ones.
VERIFIED_BEFORE = 0.8
VERIFIED_LEFT = 0.5
LEAST_UNVERIFIED = 20


@dataclass(frozen=True, slots=True)
class Rise:
    """When a number has risen: it is ``least`` or more and this ``share`` in the last two hours or the
    last day, and the share is this many ``times`` that of the week before, of ``least_before`` or more.
    """

    kind: CauseKind
    what: str
    least: int
    share: float
    times: float = 3
    least_before: int = 100


MISSING_PAGES = Rise("not_found", "got 404", 20, 0.10)
SERVER_ERRORS = Rise("server_errors", "got 5xx", 20, 0.05)
THIN_PAGES = Rise("thin_pages", "lost half of their text", 10, 0.20, least_before=0)
WINDOWS_HOURS = (2, DAY_HOURS)


class AlertCause(NamedTuple):
    """A reason for an alert. ``subject``: a crawler, a class of crawlers, or "pages"."""

    kind: CauseKind
    subject: str
    text: str


class _Rate(NamedTuple):
    number: int = 0
    total: int = 0

    @property
    def share(self) -> float:
        return self.number / self.total if self.total else 0.0


# What a cell counts for: the subject, and whether it is one of those that must not rise.
_Sorted = Callable[[CellKey], tuple[str, bool] | None]


def causes(
    hours: Days, now: float, *, watched_since: float, known: Collection[str] | None
) -> list[AlertCause]:
    """What is wrong now.

    ``hours``: the figures; ``watched_since``: since when requests have been counted without a pause, in
    Unix seconds; ``known``: the crawlers that came before, None if that is not known yet.
    """
    current = int(now) // HOUR_SECONDS
    return [
        *_stopped(hours, now, watched_since),
        *([] if known is None else _new(hours, current, known)),
        *_risen(MISSING_PAGES, hours, current, _by_class("404")),
        *_risen(SERVER_ERRORS, hours, current, _by_class("503", "5xx")),
        *_unverified(hours, current),
        *_risen(THIN_PAGES, hours, current, _pages),
    ]


def is_known(key: CellKey) -> bool:
    """Whether requests are of a listed crawler. Anyone can sign as an agent."""
    return key.kind not in ("", FACTS, "signed") and key.crawler not in (OTHER, OTHERS)


def _stopped(hours: Days, now: float, watched_since: float) -> Iterator[AlertCause]:
    requests: Counter[str] = Counter()
    came: defaultdict[str, set[int]] = defaultdict(set)
    for hour, cells in hours.items():
        for key, cell in cells.items():
            if is_known(key):
                requests[key.crawler] += cell.requests
                came[key.crawler].add(hour)
    for crawler, at in came.items():
        if requests[crawler] < LEAST_REQUESTS or len({hour // 24 for hour in at}) < LEAST_DAYS:
            continue
        ordered = sorted(at)
        last = (ordered[-1] + 1) * HOUR_SECONDS
        longest = max(after - one for one, after in pairwise(ordered))
        silent = (now - max(last, watched_since)) / HOUR_SECONDS
        if silent >= max(LEAST_SILENT_HOURS, LEAST_PAUSES * longest):
            yield AlertCause(
                "crawler_stopped",
                crawler,
                f"{crawler} has not come for {(now - last) / HOUR_SECONDS:.0f} hours. Its longest "
                f"pause before was {_in_hours(longest)}, with {requests[crawler]:,} requests in two "
                "weeks.",
            )


def _new(hours: Days, current: int, known: Collection[str]) -> Iterator[AlertCause]:
    def sort(key: CellKey) -> tuple[str, bool] | None:
        return (key.crawler, True) if is_known(key) and key.crawler not in known else None

    for crawler, rate in _rates(hours, current, DAY_HOURS, sort).items():
        if rate.number >= LEAST_NEW_REQUESTS:
            text = f"{crawler} has come for the first time, with {rate.number:,} requests in a day."
            yield AlertCause("crawler_new", crawler, text)


def _by_class(*outcomes: VisitOutcome) -> _Sorted:
    def sort(key: CellKey) -> tuple[str, bool] | None:
        counts = key.kind not in ("", FACTS) and key.outcome != "left"
        return (key.kind, key.outcome in outcomes) if counts else None

    return sort


def _pages(key: CellKey) -> tuple[str, bool] | None:
    return ("pages", key.crawler == THINNER[0]) if key.kind == FACTS else None


def _risen(rise: Rise, hours: Days, current: int, sort: _Sorted) -> Iterator[AlertCause]:
    risen: dict[str, AlertCause] = {}
    for length in WINDOWS_HOURS:
        before = _rates(hours, current - length, WEEK_HOURS, sort)
        for subject, rate in _rates(hours, current, length, sort).items():
            was = before.get(subject, _Rate())
            if (
                subject not in risen
                and rate.number >= rise.least
                and rate.share >= max(rise.share, rise.times * was.share)
                and was.total >= rise.least_before
            ):
                of = (
                    "pages that were rendered again"
                    if subject == "pages"
                    else f"{subject} requests"
                )
                text = (
                    f"{rate.number:,} of {rate.total:,} {of} {rise.what} in the last "
                    f"{_in_hours(length)}: {rate.share:.0%}, after {was.share:.1%} in the week before."
                )
                risen[subject] = AlertCause(rise.kind, subject, text)
    yield from risen.values()


def _unverified(hours: Days, current: int) -> Iterator[AlertCause]:
    def sort(key: CellKey) -> tuple[str, bool] | None:
        if key.crawler.endswith(UNVERIFIED_SUFFIX):
            return key.crawler.removesuffix(UNVERIFIED_SUFFIX), True
        return (key.crawler, False) if is_known(key) else None

    before = _rates(hours, current - DAY_HOURS, WEEK_HOURS, sort)
    for crawler, rate in _rates(hours, current, DAY_HOURS, sort).items():
        was = before.get(crawler, _Rate())
        share, share_before = 1 - rate.share, 1 - was.share
        if (
            rate.number >= LEAST_UNVERIFIED
            and was.total >= MISSING_PAGES.least_before
            and share_before >= VERIFIED_BEFORE
            and share <= VERIFIED_LEFT * share_before
            and rate.total - rate.number <= VERIFIED_LEFT * (was.total - was.number) / 7
        ):
            text = (
                f"{rate.number:,} of {rate.total:,} requests of {crawler} in the last day came from "
                f"addresses that are not known as its own: {share:.0%} are verified, after "
                f"{share_before:.0%} in the week before. The others get no snapshots."
            )
            yield AlertCause("unverified", crawler, text)


def _rates(hours: Days, last: int, length: int, sort: _Sorted) -> dict[str, _Rate]:
    """The rate of each subject in ``length`` hours, ``last`` being the last one."""
    numbers: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for hour in range(last - length + 1, last + 1):
        for key, cell in hours.get(hour, {}).items():
            if (place := sort(key)) is not None:
                totals[place[0]] += cell.requests
                numbers[place[0]] += cell.requests if place[1] else 0
    return {subject: _Rate(numbers[subject], total) for subject, total in totals.items()}


def _in_hours(number: int) -> str:
    return "an hour" if number == 1 else f"{number} hours"
