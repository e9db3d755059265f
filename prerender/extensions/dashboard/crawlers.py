"""Statistics of crawlers by name, for the last hour and since the start.

In memory, for this process only. Use Prometheus for longer periods.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Literal

from prerender.config.crawler_classes import CrawlerClass
from prerender.crawlers.known import Crawler, built_in
from prerender.crawlers.triggers import may_be_page
from prerender.crawlers.user_agents import UserAgents
from prerender.proxy.decision import Reason
from prerender.telemetry.crawler_requests import OTHERS, Alike, Batch, CrawlerRequests
from prerender.telemetry.durations import Scale
from prerender.telemetry.records import RequestRecord

# Signed agents by the host of their keys. Anyone can be one, so their number is limited.
MOST_AGENTS = 100
OTHER_AGENTS = "other signed agents"
_MINUTES = 60
_MOST_PAGES = 1000
_LONGEST_URL = 300
DURATIONS = Scale(1.2, 1e-5)
_seconds = attrgetter("seconds")

# Each request counts as one of them.
RequestOutcome = Literal["snapshots", "forwarded", "refused", "errors"]


@dataclass(slots=True)
class Tally:
    """The requests of one crawler. ``unverified``: those from addresses that are not its own.
    ``without_snapshot``: those for pages that [triggers] forwarded.

    ``pages``: the number of requests by URL and id; ``last``: Unix seconds; ``known``: what the list of
    crawlers says of it.
    """

    crawler: CrawlerClass | Literal[""] = ""
    unverified: int = 0
    without_snapshot: int = 0
    got: Counter[RequestOutcome] = field(default_factory=Counter)
    durations: Counter[int] = field(default_factory=Counter)
    pages: Counter[tuple[str, str]] = field(default_factory=Counter)
    last: float = 0.0
    known: Crawler | None = None

    @property
    def requests(self) -> int:
        """The number of requests."""
        return self.got.total()

    def count(self, alike: Alike, records: Sequence[RequestRecord]) -> None:
        """Count a group of requests, in their order."""
        self.crawler, self.last = alike.crawler or "", max(self.last, records[-1].time)
        if alike.reason is Reason.UNVERIFIED:
            self.unverified += len(records)
        # Most signed agents drive a browser, so that nothing is wrong.
        elif alike.reason is Reason.CLASS_FORWARDED and alike.crawler != "signed":
            self.without_snapshot += sum(may_be_page(record.target) for record in records)
        self.got[got(alike)] += len(records)
        self.durations.update(DURATIONS.count(map(_seconds, records)))
        for page, number in Counter(map(_page, records)).items():
            self._count_page(page, number)

    def add(self, other: "Tally") -> None:
        """Add the counts of a later tally."""
        self.crawler = other.crawler
        self.unverified += other.unverified
        self.without_snapshot += other.without_snapshot
        self.got += other.got
        self.durations += other.durations
        for page, number in other.pages.items():
            self._count_page(page, number)
        self.last = other.last
        self.known = other.known

    def _count_page(self, page: tuple[str, str], number: int) -> None:
        if page in self.pages or len(self.pages) < _MOST_PAGES:
            self.pages[page] += number

    def quantile(self, share: float) -> float:
        """A quantile of the durations in seconds; 0 without requests."""
        return DURATIONS.quantile(self.durations, share)


def got(request: Alike | RequestRecord) -> RequestOutcome:
    """What a request got."""
    if request.status >= 500:
        return "errors"
    if request.kind == "refuse":
        return "refused"
    return "snapshots" if request.source == "snapshot" else "forwarded"


def _page(record: RequestRecord) -> tuple[str, str]:
    target = record.snapshot_target
    if target is None:
        return record.target[:_LONGEST_URL], ""
    return target.url[:_LONGEST_URL], target.key


def _added(total: dict[str, Tally], *parts: dict[str, Tally]) -> dict[str, Tally]:
    for tallies in parts:
        for name, tally in tallies.items():
            total.setdefault(name, Tally()).add(tally)
    return total


class CrawlerStatistics:
    """Counts the requests of crawlers. ``user_agents``: finds the crawlers."""

    def __init__(
        self,
        requests: CrawlerRequests,
        user_agents: UserAgents | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._requests = requests
        self._user_agents = user_agents or UserAgents(built_in().crawlers)
        self._agents: set[str] = set()
        self._clock = clock
        # A request is counted in its minute only; ``_ended`` is the sum of all minutes before.
        self._ended: dict[str, Tally] = {}
        self._minutes: deque[tuple[float, dict[str, Tally]]] = deque(maxlen=_MINUTES)
        requests.subscribe(self._count)

    def _count(self, batch: Batch) -> None:
        for alike in sorted(batch.groups, key=itemgetter(0)):
            known, name = None, OTHERS
            if alike.crawler == "signed":
                name = self._agent(alike.agent)
            elif alike.crawler and (crawlers := self._user_agents.crawlers_of(alike.user_agent)):
                known, name = crawlers[0], crawlers[0].label
            tally = self._tallies(alike.minute).setdefault(name, Tally())
            tally.known = known
            tally.count(alike, batch.groups[alike])

    def last_hour(self) -> dict[str, Tally]:
        """Tallies of the last hour by name."""
        self._requests.deliver()
        oldest = int(self._clock()) // 60 - _MINUTES
        return _added({}, *(tallies for minute, tallies in self._minutes if minute > oldest))

    def since_start(self) -> dict[str, Tally]:
        """Tallies since the start by name."""
        self._requests.deliver()
        current = self._minutes[-1][1] if self._minutes else {}
        return _added({}, self._ended, current)

    def _tallies(self, minute: float) -> dict[str, Tally]:
        # After a clock was set back and for requests that took long, keep counting in the last minute.
        if not self._minutes or self._minutes[-1][0] < minute:
            if self._minutes:
                _added(self._ended, self._minutes[-1][1])
            self._minutes.append((minute, {}))
        return self._minutes[-1][1]

    def _agent(self, name: str) -> str:
        if len(self._agents) < MOST_AGENTS:
            self._agents.add(name)
        return name if name in self._agents else OTHER_AGENTS
