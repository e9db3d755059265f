"""What is rendered and what is forwarded."""

import pytest

from prerender.crawlers.triggers import Paths, Triggers
from prerender.proxy.decision import Forward, Refuse, Render, decide
from prerender.urls.ajax_crawling import PrettyURL

UGLY = "/p?a=1&_escaped_fragment_=k"
NONE = Triggers()
GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
GPTBOT = "Mozilla/5.0 (compatible; GPTBot/1.3; +https://openai.com/gptbot)"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/156.0.0.0 Safari/537.36"
BY_CLASS = Triggers({"search": "render", "ai_training": "refuse"})


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_ugly_urls_are_rendered(method: str) -> None:
    decision = decide(method, UGLY, triggers=NONE)
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
    assert isinstance(
        decide(method, target, triggers=NONE, marked=marked, upgrade=upgrade), Forward
    )


@pytest.mark.parametrize("path", ["/a..b", "/...", "/.well-known/x", "/a//b", "/%2f", "/a;b=../c"])
def test_paths_that_only_look_unresolved_are_rendered(path: str) -> None:
    decision = decide("GET", f"{path}?_escaped_fragment_=", triggers=NONE)
    assert decision == Render(PrettyURL(path, ""))


def test_long_targets_are_read_like_short_ones() -> None:
    value = "x" * 60_000
    decision = decide("GET", f"/?_escaped_fragment_={value}", triggers=NONE)
    assert decision == Render(PrettyURL("/", value))


@pytest.mark.parametrize("target", ["/", "/p?a=1", "/p?", "/a.b/c", "/release-1.2"])
def test_pages_are_rendered_for_crawlers(target: str) -> None:
    decision = decide("GET", target, triggers=BY_CLASS, user_agent=GOOGLEBOT)
    assert decision == Render(PrettyURL(target, ""), by_user_agent=True)


def test_ugly_urls_are_rendered_for_everybody() -> None:
    for user_agent in (GOOGLEBOT, BROWSER, ""):
        decision = decide("GET", UGLY, triggers=BY_CLASS, user_agent=user_agent)
        assert decision == Render(PrettyURL("/p?a=1", "k"))


@pytest.mark.parametrize(
    ("method", "target", "user_agent", "marked", "upgrade"),
    [
        ("GET", "/p", BROWSER, False, False),
        ("GET", "/p", "", False, False),
        ("POST", "/p", GOOGLEBOT, False, False),
        ("GET", "/p", GOOGLEBOT, True, False),
        ("GET", "/p", GOOGLEBOT, False, True),
        ("GET", "/p", GPTBOT, True, False),
        ("GET", "/app.js?v=1", GOOGLEBOT, False, False),
        ("GET", "/images/a.JPEG", GOOGLEBOT, False, False),
        ("GET", "/robots.txt", GOOGLEBOT, False, False),
        ("GET", "/sitemap.xml", GOOGLEBOT, False, False),
        ("GET", "/a/../b", GOOGLEBOT, False, False),
        ("OPTIONS", "*", GOOGLEBOT, False, False),
    ],
)
def test_what_crawlers_send_that_is_forwarded(
    method: str, target: str, user_agent: str, marked: bool, upgrade: bool
) -> None:
    decision = decide(
        method, target, triggers=BY_CLASS, user_agent=user_agent, marked=marked, upgrade=upgrade
    )
    assert isinstance(decision, Forward)


@pytest.mark.parametrize(("method", "target"), [("GET", "/p"), ("POST", "/p"), ("GET", UGLY)])
def test_refused_classes(method: str, target: str) -> None:
    assert decide(method, target, triggers=BY_CLASS, user_agent=GPTBOT) == Refuse()


@pytest.mark.parametrize(
    ("target", "rendered"),
    [
        ("/shop/1?_escaped_fragment_=", True),
        ("/shop/cart?_escaped_fragment_=", False),
        ("/other?_escaped_fragment_=", False),
        ("/shop/1", True),
        ("/shop/1?print=1", False),
        ("/other", False),
    ],
)
def test_included_and_excluded_paths(target: str, rendered: bool) -> None:
    paths = Paths(include=("/shop/*",), exclude=("/shop/cart*", "*?print=1"))
    triggers = Triggers({"search": "render"}, paths=paths)
    decision = decide("GET", target, triggers=triggers, user_agent=GOOGLEBOT)
    assert isinstance(decision, Render) is rendered
