"""A fault that every visitor sees is the page: the rule, and a page rendered again and again."""

from dataclasses import replace

import pytest

from prerender.snapshots.repeated_faults import (
    LEAST_SECONDS,
    LEAST_TEXT,
    USUAL_PAGES,
    USUAL_SECONDS,
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


async def test_a_page_is_confirmed_after_a_while() -> None:
    faults = RepeatedFaults()
    confirmed = [await faults.confirm("a", page(), NOW + at, None) for at in (0, 20, 40, 60, 80)]
    assert confirmed == [False, False, False, True, True]
    # Another content begins anew, and a loading state or a good render ends it.
    assert not await faults.confirm("a", page(TEXT.replace("word", "term")), NOW + 100, None)
    for number in range(3):
        assert not await faults.confirm("a", page(may_be=False), NOW + 200 + 60 * number, None)
    assert not await faults.confirm("a", page(), NOW + 500, None)


async def test_several_confirmed_pages_speak_for_others_with_their_faults() -> None:
    faults = RepeatedFaults()
    for number in range(USUAL_PAGES):
        assert not await faults.confirm("neighbour", page("other " * 99), NOW, None), number
        for at in (0, 30, 60):
            confirmed = await faults.confirm(str(number), page(), NOW + at, None)
        assert confirmed
    assert await faults.confirm("neighbour", page("other " * 99), NOW + 61, None)
    assert not await faults.confirm("later", page(), NOW + 61 + USUAL_SECONDS, None)
    # Not for other faults, less content than before, or after one of them was rendered without faults.
    other = replace(FACTS, failed_requests=("https://a.example/other",))
    assert not await faults.confirm("other faults", page(facts=other), NOW + 62, None)
    good = page(facts=Facts("complete", text_length=2 * len(TEXT)))
    assert not await faults.confirm("less", page(), NOW + 62, good)
    faults.forget("1")
    assert not await faults.confirm("after that", page(), NOW + 63, None)


async def test_a_stored_snapshot_is_proof_after_a_restart_and_for_other_replicas() -> None:
    stored = page(facts=replace(FACTS, lasting=True))
    assert await RepeatedFaults().confirm("a", page(), NOW, stored)
    assert not await RepeatedFaults().confirm("a", page(TEXT.replace("word", "term")), NOW, stored)
    assert not await RepeatedFaults().confirm("a", page(), NOW, page())
