"""What is rendered and what is forwarded."""

import pytest

from prerender.ajax_crawling import PrettyURL
from prerender.decision import Forward, Render, decide

UGLY = "/p?a=1&_escaped_fragment_=k"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_ugly_urls_are_rendered(method: str) -> None:
    decision = decide(method, UGLY, marked=False, upgrade=False)
    assert decision == Render(PrettyURL("/p?a=1", "k"))


@pytest.mark.parametrize(
    ("method", "target", "marked", "upgrade"),
    [
        ("GET", "/p?a=1", False, False),
        ("GET", "/p?x_escaped_fragment_=1", False, False),
        ("GET", "/p?_escaped_fragment_=1&a=2", False, False),
        ("POST", UGLY, False, False),
        ("get", UGLY, False, False),
        ("GET", UGLY, True, False),
        ("GET", UGLY, False, True),
        ("GET", "/a/../b?_escaped_fragment_=", False, False),
        ("GET", "/a/%2e%2E/b?_escaped_fragment_=", False, False),
        ("GET", "/a/.?_escaped_fragment_=", False, False),
        ("GET", "/a\\b?_escaped_fragment_=", False, False),
        ("OPTIONS", "*", False, False),
    ],
)
def test_everything_else_is_forwarded(
    method: str, target: str, marked: bool, upgrade: bool
) -> None:
    assert isinstance(decide(method, target, marked=marked, upgrade=upgrade), Forward)


@pytest.mark.parametrize("path", ["/a..b", "/...", "/.well-known/x", "/a//b", "/%2f", "/a;b=../c"])
def test_paths_that_only_look_unresolved_are_rendered(path: str) -> None:
    decision = decide("GET", f"{path}?_escaped_fragment_=", marked=False, upgrade=False)
    assert decision == Render(PrettyURL(path, ""))


def test_long_targets_are_read_like_short_ones() -> None:
    value = "x" * 60_000
    decision = decide("GET", f"/?_escaped_fragment_={value}", marked=False, upgrade=False)
    assert decision == Render(PrettyURL("/", value))
