"""A fault that every visitor sees is the page: the rule, and a page rendered again and again."""

from dataclasses import replace

import pytest

from prerender.snapshots.repeated_faults import (
    LEAST_SECONDS,
    LEAST_TEXT,
    Repeated,
    RepeatedFaults,
    Sight,
    is_the_page,
)
from prerender.snapshots.snapshot import Facts, Snapshot

NOW = 1e9
TEXT = " ".join(f"word{number}" for number in range(300))
FACTS = Facts("failed", text_length=len(TEXT), failed_requests=("https://a.example/api?t=1",))


def page(text: str = TEXT, facts: Facts = FACTS, *, may_be: bool = True) -> Snapshot:
    return Snapshot(200, (), f"<p>{text}".encode(), '"x"', 0, facts=facts, may_be_the_page=may_be)


@pytest.mark.parametrize(
    ("renders", "seconds", "text_length", "good_length", "expected"),
    [
        (3, LEAST_SECONDS, 1000, 0, True),
        (9, 3600, LEAST_TEXT, 0, True),
        (2, 3600, 1000, 0, False),  # by chance
        (3, LEAST_SECONDS - 1, 1000, 0, False),  # a short outage
        (9, 3600, LEAST_TEXT - 1, 0, False),  # an error message
        (9, 3600, 1000, 1250, True),
        (9, 3600, 1000, 1251, False),  # visitors have seen more
    ],
)
def test_the_rule(
    renders: int, seconds: float, text_length: int, good_length: int, expected: bool
) -> None:
    repeated = Repeated(Sight(NOW, frozenset(), frozenset()), renders)
    assert is_the_page(repeated, NOW + seconds, text_length, good_length) is expected


def test_what_is_alike() -> None:
    sight = Sight.of(page(), NOW)
    other_query = replace(FACTS, failed_requests=("https://a.example/api?t=2",))
    assert sight.is_like(Sight.of(page(facts=other_query), NOW))
    assert sight.is_like(Sight.of(page(TEXT.replace("word7 ", "another ")), NOW))
    assert not sight.is_like(Sight.of(page(TEXT.replace("word", "term")), NOW))
    other = replace(FACTS, failed_requests=("https://a.example/other",))
    assert not sight.is_like(Sight.of(page(facts=other), NOW))
    more = replace(FACTS, failed_requests=(*FACTS.failed_requests, "https://a.example/other"))
    assert not sight.is_like(Sight.of(page(facts=more), NOW))


def test_a_page_is_confirmed_after_a_while() -> None:
    faults = RepeatedFaults()
    confirmed = [faults.confirm("a", page(), NOW + at, 0) for at in (0, 20, 40, 60, 80)]
    assert confirmed == [False, False, False, True, True]
    # Another content begins anew, and a loading state or a good render ends it.
    assert not faults.confirm("a", page(TEXT.replace("word", "term")), NOW + 100, 0)
    for number in range(3):
        assert not faults.confirm("a", page(may_be=False), NOW + 200 + 60 * number, 0)
    assert not faults.confirm("a", page(), NOW + 500, 0)
