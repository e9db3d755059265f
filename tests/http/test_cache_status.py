"""Cache-Status with one cache, with several, and with syntax errors (RFC 9211, RFC 9651)."""

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.http.cache_status import CACHE_NAME, cache_status, parameters_of
from prerender.snapshots.snapshot import RenderVerdict

PARSED: dict[str, dict[str, str] | None] = {
    "prerender; hit; ttl=60; age=3": {"hit": "?1", "ttl": "60", "age": "3"},
    "prerender;hit;ttl=60": {"hit": "?1", "ttl": "60"},
    '"prerender"; hit': {"hit": "?1"},
    "prerender": {},
    # Other caches, on both sides (section 2 lists the one next to the origin first).
    "cdn; hit": None,
    "": None,
    "inner; fwd=miss, prerender; fwd=stale; detail=failed": {"fwd": "stale", "detail": "failed"},
    "prerender; fwd=miss; stored,cdn; hit; ttl=9": {"fwd": "miss", "stored": "?1"},
    "prerender; hit, cdn; fwd=miss; detail=cut-off": {"hit": "?1"},
    "prerender; hit, prerender; fwd=miss": {"fwd": "miss"},
    "prerender2; hit, x-prerender; hit, prerender/1; hit, Prerender; hit": None,
    # Quoted strings may contain what separates members and parameters.
    'cdn; detail="a, prerender; hit"': None,
    'cdn; key="a\\", prerender; hit; \\\\", prerender; stored': {"stored": "?1"},
    '"prerender; hit, x"; hit': None,
    'prerender; fwd=miss; detail="cut-off; really"': {"fwd": "miss", "detail": "cut-off; really"},
    'prerender; key="say \\"so\\\\"; hit': {"key": 'say "so\\', "hit": "?1"},
    # Parameters: false flags, the last of two, every type of value.
    "prerender; hit=?0; stored=?1": {"stored": "?1"},
    "prerender; ttl=60; ttl=-3": {"ttl": "-3"},
    "prerender; hit; hit=?0": {},
    "prerender; a=1.5; b=:YQ==:; c=@1659578233; d=*x/y:z": {
        "a": "1.5", "b": ":YQ==:", "c": "@1659578233", "d": "*x/y:z"},
    # A syntax error anywhere: the header is ignored.
    "prerender; hit,": None,
    ", prerender; hit": None,
    "prerender; hit,,cdn": None,
    "prerender; hit cdn": None,
    'prerender; detail="open': None,
    'prerender; detail="\\x"': None,
    "prerender; Hit": None,
    "prerender; ttl=": None,
    "prerender; ttl =60": None,
    "prerender; hit;": None,
    "(prerender cdn); hit": None,
    "prerender; détail": None,
    "prerender; hit\n": None,
}  # fmt: skip


@pytest.mark.parametrize("header", PARSED)
def test_parameters_of_this_proxy(header: str) -> None:
    assert parameters_of("prerender", [header]) == PARSED[header]


def test_several_headers_are_one_list() -> None:
    lines = ["inner; fwd=miss", "prerender; hit", 'cdn; detail="prerender; stored"']
    assert parameters_of("prerender", lines) == {"hit": "?1"}
    assert parameters_of("prerender", []) is None


@given(
    st.sampled_from(["hit", "revalidated", "miss", "coalesced", "kept"]),
    st.booleans(),
    st.integers(0, 10**9),
    st.sampled_from(["", "failed", *get_args(RenderVerdict)[1:]]),
    st.sampled_from(["", "cdn; hit", '"a, b"; detail="prerender; hit"']),
)
def test_what_the_proxy_sends_can_be_read(
    how: str, stored: bool, ttl: int, detail: str, other: str
) -> None:
    sent = cache_status(how, stored, ttl, detail)
    found = parameters_of(CACHE_NAME, [*filter(None, [other]), sent, *filter(None, [other])])
    assert found is not None
    assert found == parameters_of(CACHE_NAME, [sent])
    assert ("hit" in found) == (how == "hit")
    assert ("collapsed" in found) == (how == "coalesced")
    assert re.match(detail, found.get("detail", ""))


@given(st.text(alphabet='prende;,= "\\hit?01é\t', max_size=60))
def test_any_text_is_parsed_or_ignored(text: str) -> None:
    found = parameters_of("prerender", [text])
    assert found is None or all(key.isascii() for key in found)


@pytest.mark.parametrize("piece", ["prerender;a", '"\\\\', ";a=1", "a;" * 2, " ", "x,"])
def test_long_headers_take_linear_time(piece: str) -> None:
    """A pattern that tries every split would not end within the time limit of a test."""
    assert parameters_of("prerender", [piece * 20_000 + '"']) is None
