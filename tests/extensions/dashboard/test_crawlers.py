"""Crawlers by name, over the last hour and since the start."""

from dataclasses import replace

import pytest

from prerender.config.types import Action
from prerender.crawlers.known import Crawler, built_in
from prerender.crawlers.triggers import Triggers
from prerender.crawlers.user_agents import UserAgents
from prerender.extensions.dashboard.crawlers import (
    MOST_AGENTS,
    OTHER_AGENTS,
    CrawlerStatistics,
    Tally,
)
from prerender.proxy.decision import Reason, decide
from prerender.snapshots.snapshot import CacheResult
from prerender.snapshots.target import Target
from prerender.telemetry.crawler_requests import OTHERS, CrawlerRequests, batch_of
from prerender.telemetry.records import Channel, RequestRecord
from prerender.urls.ajax_crawling import PrettyURL
from tests.support.renders import PUBLIC

GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
RECORD = RequestRecord(
    time=1000.0,
    seconds=0.1,
    method="GET",
    target="/a",
    remote="203.0.113.7",
    user_agent=GOOGLEBOT,
    crawler="search",
    kind="render",
    reason=Reason.UGLY_URL,
    source="snapshot",
    cache=CacheResult.HIT,
    detail="",
    status=200,
    sent_bytes=1,
    error=None,
    snapshot_target=Target.of(PUBLIC, PrettyURL("/a", "")),
    origin_seconds=None,
    timings=None,
    facts=None,
    trace=None,
)


def count(tally: Tally, record: RequestRecord) -> None:
    for alike, records in batch_of((record,)).groups.items():
        tally.count(alike, records)


class Clock:
    now = 600_000.0

    def __call__(self) -> float:
        return self.now


def test_what_each_crawler_got() -> None:
    requests: Channel[RequestRecord] = Channel()
    agents = UserAgents([*built_in().crawlers, Crawler("ExampleBot", "social")])
    crawlers = CrawlerStatistics(CrawlerRequests(requests), agents)
    for changed in (
        {},
        {"status": 404},
        {"source": "origin", "kind": "forward", "reason": Reason.UNVERIFIED},
        {"source": "proxy", "status": 503},
        {"source": "proxy", "kind": "refuse", "status": 403, "user_agent": "GPTBot/1.2"},
        {"user_agent": "examplebot", "crawler": "social"},
        {"user_agent": "curl/8", "crawler": None},
        {"user_agent": "Mozilla", "crawler": None, "kind": "forward"},  # a visitor
    ):
        requests(replace(RECORD, **changed))
    found = crawlers.since_start()
    assert {name: dict(tally.got) for name, tally in found.items()} == {
        "Googlebot": {"snapshots": 2, "forwarded": 1, "errors": 1},
        "GPTBot": {"refused": 1},
        "ExampleBot": {"snapshots": 1},
        OTHERS: {"snapshots": 1},
    }
    assert found["Googlebot"].unverified == 1
    key = RECORD.snapshot_target and RECORD.snapshot_target.key
    assert found["Googlebot"].pages == {("https://www.example.com/a", key): 4}


@pytest.mark.parametrize(
    ("target", "action", "expected"),
    [("/a", "forward", 1), ("/robots.txt", "forward", 0), ("/a", "render", 0)],
)
def test_pages_that_triggers_forward(target: str, action: Action, expected: int) -> None:
    triggers = Triggers({"search": action})
    decision = decide("GET", target, triggers=triggers, crawler="search")
    tally = Tally()
    record = replace(RECORD, target=target, kind=decision.kind, reason=decision.reason)
    count(tally, record)
    total = Tally()
    total.add(tally)
    assert total.without_snapshot == expected


def test_the_last_hour() -> None:
    clock = Clock()
    requests: Channel[RequestRecord] = Channel()
    crawlers = CrawlerStatistics(CrawlerRequests(requests), clock=clock)
    requests(replace(RECORD, time=clock.now))
    clock.now += 1800
    requests(replace(RECORD, time=clock.now))
    assert crawlers.last_hour()["Googlebot"].requests == 2
    clock.now += 1860
    assert crawlers.last_hour()["Googlebot"].requests == 1
    clock.now += 1800
    assert crawlers.last_hour() == {}
    clock.now -= 9999  # the clock is set back
    requests(replace(RECORD, time=clock.now))
    assert crawlers.since_start()["Googlebot"].requests == 3


@pytest.mark.parametrize("share", [0.5, 0.95, 1.0])
def test_quantiles_are_right_to_a_tenth(share: float) -> None:
    tally = Tally()
    for number in range(1, 1001):
        count(tally, replace(RECORD, seconds=number / 100))
    assert tally.quantile(share) == pytest.approx(share * 10, rel=0.1)


def test_what_is_kept_is_bounded() -> None:
    clock = Clock()
    requests: Channel[RequestRecord] = Channel()
    crawlers = CrawlerStatistics(CrawlerRequests(requests), clock=clock)
    for number in range(3000):
        clock.now += 0.1
        requests(
            replace(
                RECORD, snapshot_target=None, target=f"/{number}", user_agent=f"Googlebot/{number}"
            )
        )
    (tally,) = crawlers.since_start().values()
    assert len(tally.pages) == 1000
    assert tally.requests == 3000


def test_signed_agents_have_the_name_of_their_keys() -> None:
    requests: Channel[RequestRecord] = Channel()
    crawlers = CrawlerStatistics(CrawlerRequests(requests))
    signed = replace(
        RECORD, user_agent="Mozilla/5.0 Chrome/142.0", crawler="signed", kind="forward"
    )
    for number in range(MOST_AGENTS + 3):
        requests(replace(signed, agent=f"{number}.example"))
    # Its User-Agent is more precise.
    requests(replace(RECORD, agent="agent.example"))
    found = crawlers.since_start()
    assert len(found) == MOST_AGENTS + 2
    assert (found["0.example"].requests, found["0.example"].crawler) == (1, "signed")
    assert found[OTHER_AGENTS].requests == 3
    assert found["Googlebot"].crawler == "search"
    assert not any(tally.without_snapshot for tally in found.values())
