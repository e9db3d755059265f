"""What causes an alert, and above all what does not."""

from collections.abc import Iterable

import pytest

from prerender.visits.alert_causes import AlertCause, causes
from prerender.visits.figures import (
    FACTS,
    HOUR_SECONDS,
    THINNER,
    WHOLE,
    Cell,
    CellKey,
    VisitOutcome,
)
from prerender.visits.storage import Days

# The hour in which it is looked at, 16 days after the first one.
NOW = 500_000
START = NOW - 16 * 24
BEFORE = range(START, NOW - 24)
DAY = range(NOW - 23, NOW + 1)


def add(
    hours: Days,
    at: Iterable[int],
    requests: int,
    crawler: str = "Googlebot",
    kind: str = "search",
    *,
    outcome: VisitOutcome = "fresh",
) -> None:
    for hour in at:
        cells = hours.setdefault(hour, {})
        cells.setdefault(CellKey(crawler, kind, "", outcome), Cell()).requests += requests


def pages(hours: Days, at: Iterable[int], thinner: int, whole: int) -> None:
    for hour in at:
        cells = hours.setdefault(hour, {})
        cells[CellKey._make(THINNER)], cells[CellKey._make(WHOLE)] = Cell(thinner), Cell(whole)


def look(hours: Days, known: Iterable[str] | None = None, since: int = START) -> list[AlertCause]:
    return causes(
        hours,
        NOW * HOUR_SECONDS + 1800,
        watched_since=since * HOUR_SECONDS,
        known=None if known is None else {*known},
    )


def kinds(found: Iterable[AlertCause]) -> list[tuple[str, str]]:
    return [(cause.kind, cause.subject) for cause in found]


@pytest.mark.parametrize(
    ("every", "requests", "silent", "stopped"),
    [
        (1, 50, 1, False),
        (1, 50, 5, False),
        (1, 50, 7, True),  # at least six hours
        (4, 20, 9, False),
        (4, 20, 13, True),  # three pauses
        (24, 100, 60, False),
        (24, 100, 73, True),
        (24, 5, 150, False),  # 80 requests in two weeks
        (72, 1000, 14 * 24, False),  # on five days
    ],
)
def test_a_crawler_stops(every: int, requests: int, silent: int, *, stopped: bool) -> None:
    hours: Days = {}
    add(hours, range(NOW - silent, START, -every), requests)
    add(hours, range(START, NOW), 1, "bingbot")
    found = look(hours)
    assert kinds(found) == ([("crawler_stopped", "Googlebot")] if stopped else [])
    if silent == 7:
        (cause,) = found
        assert cause.text == (
            "Googlebot has not come for 6 hours. Its longest pause before was an hour, with 18,850 "
            "requests in two weeks."
        )


def test_nobody_stops_while_nobody_counts() -> None:
    hours: Days = {}
    add(hours, range(START, NOW - 20), 50)
    assert kinds(look(hours)) == [("crawler_stopped", "Googlebot")]
    assert look(hours, since=NOW - 3) == []
    assert kinds(look(hours, since=NOW - 7)) == [("crawler_stopped", "Googlebot")]


@pytest.mark.parametrize("kind", ["", "signed", FACTS])
def test_clients_that_anyone_can_be_do_not_stop_or_come(kind: str) -> None:
    hours: Days = {}
    add(hours, range(START, NOW - 20), 50, "agent.example", kind)
    add(hours, DAY, 50, "other.example", kind)
    assert look(hours, known=[]) == []


def test_a_new_crawler_comes() -> None:
    hours: Days = {}
    add(hours, range(START, NOW + 1), 50)
    add(hours, [NOW - 3, NOW], 5, "GPTBot", "ai_training")
    add(hours, [NOW], 9, "CCBot", "ai_training")
    add(hours, [NOW], 50, "ClaudeBot (unverified)", "")
    known = ["Googlebot"]
    assert kinds(look(hours, known)) == [("crawler_new", "GPTBot")]
    assert look(hours, [*known, "GPTBot"]) == []
    assert look(hours, None) == []


@pytest.mark.parametrize(
    ("outcome", "before", "bad", "good", "hours_ago", "risen"),
    [
        ("404", 0, 30, 20, 1, True),
        ("404", 0, 19, 1, 1, False),  # too few
        ("404", 0, 30, 300, 1, False),  # 9 %
        ("404", 30, 30, 20, 1, False),  # as before
        ("404", 8, 30, 20, 1, True),
        ("404", 0, 4, 4, 5, False),  # 4 in a day
        ("404", 0, 30, 100, 20, True),  # within the day
        ("503", 0, 30, 300, 1, True),
        ("5xx", 0, 30, 300, 1, True),
        ("503", 0, 30, 1000, 1, False),
        ("4xx", 0, 300, 1, 1, False),
        ("refused", 0, 300, 1, 1, False),
    ],
)
def test_errors_of_a_class_rise(
    outcome: VisitOutcome, before: int, bad: int, good: int, hours_ago: int, *, risen: bool
) -> None:
    hours: Days = {}
    add(hours, BEFORE, 50)
    add(hours, BEFORE, before, outcome=outcome)
    add(hours, [NOW - hours_ago], good)
    add(hours, [NOW - hours_ago], bad, outcome=outcome)
    add(hours, [*BEFORE, *DAY], 50, "Slackbot", "social")
    kind = "not_found" if outcome == "404" else "server_errors"
    assert kinds(look(hours, since=NOW)) == ([(kind, "search")] if risen else [])


def test_errors_without_a_week_before_say_nothing() -> None:
    hours: Days = {}
    add(hours, DAY, 5)
    add(hours, DAY, 5, outcome="404")
    assert look(hours) == []


@pytest.mark.parametrize(
    ("verified", "unverified", "before", "fell"),
    [
        (0, 40, 0, True),
        (10, 40, 0, True),
        (40, 400, 0, False),  # impostors, and as many of its own as ever
        (10, 40, 30, False),  # there were many before
        (40, 2, 0, False),
    ],
)
def test_the_share_of_verified_requests_falls(
    verified: int, unverified: int, before: int, *, fell: bool
) -> None:
    hours: Days = {}
    add(hours, BEFORE, 40)
    add(hours, BEFORE, before, "Googlebot (unverified)", "")
    add(hours, DAY, verified)
    add(hours, DAY, unverified, "Googlebot (unverified)", "")
    found = [cause for cause in kinds(look(hours)) if cause[0] != "crawler_stopped"]
    assert found == ([("unverified", "Googlebot")] if fell else [])


@pytest.mark.parametrize(
    ("before", "thinner", "whole", "thin"),
    [
        ((0, 10), 12, 12, True),
        ((0, 0), 12, 0, True),
        ((0, 10), 9, 0, False),
        ((0, 10), 12, 60, False),
        ((3, 10), 12, 12, False),  # half of them is twice as many as before
    ],
)
def test_pages_become_thin(
    before: tuple[int, int], thinner: int, whole: int, *, thin: bool
) -> None:
    hours: Days = {}
    pages(hours, BEFORE, *before)
    pages(hours, [NOW - 1], thinner, whole)
    assert kinds(look(hours)) == ([("thin_pages", "pages")] if thin else [])


def test_a_clock_that_was_set_back_causes_nothing() -> None:
    hours: Days = {}
    add(hours, range(START, NOW + 30), 50)
    add(hours, range(NOW + 10, NOW + 30), 50, outcome="404")
    assert look(hours, known=["Googlebot"]) == []
