"""Statistics of crawlers by name, for the last hour and since the start.

In memory, for this process only. Use Prometheus for longer periods.
"""

import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Literal

from prerender.config.types import CrawlerClass
from prerender.crawlers.known import Crawler, built_in
from prerender.crawlers.triggers import may_be_page
from prerender.crawlers.user_agents import UserAgents
from prerender.proxy.decision import Reason
from prerender.telemetry.records import RequestRecord

# Unknown clients that requested ugly URLs.
OTHERS = "others"
# Signed agents by the host of their keys. Anyone can be one, so their number is limited.
MOST_AGENTS = 100
OTHER_AGENTS = "other signed agents"
_MINUTES = 60
_BATCH = 64
_MOST_PAGES = 1000
_LONGEST_URL = 300
# Base of the logarithmic histogram of durations: quantiles are accurate to 10 %, and sums can be added.
_BASE = 1.2
_LOG_BASE = math.log(_BASE)
_SHORTEST_SECONDS = 1e-5

# Each request counts as one of them.
Outcome = Literal["snapshots", "forwarded", "refused", "errors"]


@dataclass(slots=True)
class Tally:
    """The requests of one crawler. ``unverified``: those from addresses that are not its own.
    ``without_snapshot``: those for pages that [triggers] forwarded.

    ``pages``: the number of requests by URL and id; ``last``: Unix seconds; ``known``: what the list of
    crawlers says of it.
    """

    crawler: Literal[CrawlerClass, ""] = ""
    unverified: int = 0
    without_snapshot: int = 0
    got: Counter[Outcome] = field(default_factory=Counter)
    durations: Counter[int] = field(default_factory=Counter)
    pages: Counter[tuple[str, str]] = field(default_factory=Counter)
    last: float = 0.0
    known: Crawler | None = None

    @property
    def requests(self) -> int:
        """The number of requests."""
        return self.got.total()

    def count(self, records: Sequence[RequestRecord]) -> None:
        """Count requests, in their order."""
        self.crawler, self.last = records[-1].crawler or "", records[-1].time
        for record in records:
            if record.reason is Reason.UNVERIFIED:
                self.unverified += 1
            elif (
                record.reason is Reason.CLASS_FORWARDED
                # Most signed agents drive a browser, so that nothing is wrong.
                and record.crawler != "signed"
                and may_be_page(record.target)
            ):
                self.without_snapshot += 1
        self.got.update(map(got, records))
        self.durations.update(map(_power, records))
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
        left = share * self.requests
        for power, number in sorted(self.durations.items()):
            left -= number
            if left <= 0:
                return float(_BASE**power)
        return 0.0


def got(record: RequestRecord) -> Outcome:
    """What a request got."""
    if record.status >= 500:
        return "errors"
    if record.kind == "refuse":
        return "refused"
    return "snapshots" if record.source == "snapshot" else "forwarded"


def _power(record: RequestRecord) -> int:
    return round(math.log(record.seconds or _SHORTEST_SECONDS) / _LOG_BASE)


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


class Crawlers:
    """Subscribes to the records of requests. ``user_agents``: finds the crawlers.

    Records are counted in batches, grouped by crawler. One at a time, this would be a tenth of the cost
    of a cache hit: each time, its data and code would have to come into the processor's caches.
    """

    def __init__(
        self, user_agents: UserAgents | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._user_agents = user_agents or UserAgents(built_in().crawlers)
        self._agents: set[str] = set()
        self._clock = clock
        self._new: list[RequestRecord] = []
        # A request is counted in its minute only; ``_ended`` is the sum of all minutes before.
        self._ended: dict[str, Tally] = {}
        self._minutes: deque[tuple[float, dict[str, Tally]]] = deque(maxlen=_MINUTES)

    def __call__(self, record: RequestRecord) -> None:
        """Count a request of a crawler; visitors are not counted."""
        if record.kind == "forward" and record.crawler is None:
            return
        self._new.append(record)
        if len(self._new) >= _BATCH:
            self._count_new()

    def _count_new(self) -> None:
        groups: defaultdict[tuple[float, str, str | None], list[RequestRecord]] = defaultdict(list)
        for record in self._new:
            sender = record.agent if record.crawler == "signed" else record.user_agent
            groups[record.time // 60, sender, record.crawler].append(record)
        for key in sorted(groups, key=itemgetter(0)):
            minute, sender, crawler = key
            known, name = None, OTHERS
            if crawler == "signed":
                name = self._agent(sender)
            elif crawler and (found := self._user_agents.crawlers_of(sender)):
                known, name = found[0], found[0].label
            tally = self._tallies(minute).setdefault(name, Tally())
            tally.known = known
            tally.count(groups[key])
        self._new.clear()

    def last_hour(self) -> dict[str, Tally]:
        """Tallies of the last hour by name."""
        self._count_new()
        oldest = int(self._clock()) // 60 - _MINUTES
        return _added({}, *(tallies for minute, tallies in self._minutes if minute > oldest))

    def since_start(self) -> dict[str, Tally]:
        """Tallies since the start by name."""
        self._count_new()
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
