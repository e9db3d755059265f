"""Which requests are rendered, forwarded or refused."""

import pytest

from prerender.config.crawler_classes import CLASSES, CrawlerClass
from prerender.config.types import Action
from prerender.crawlers.triggers import Paths, Triggers
from prerender.proxy.decision import LONGEST_PAGE, Forward, Reason, Refuse, Render, decide
from prerender.proxy.vary import PageVary
from prerender.urls.ajax_crawling import PrettyURL

UGLY = "/p?a=1&_escaped_fragment_=k"
NONE = Triggers()
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
    value = "x" * 8000
    decision = decide("GET", f"/?_escaped_fragment_={value}", triggers=NONE)
    assert decision == Render(PrettyURL("/", value))


def test_no_page_has_a_url_of_over_8192_characters() -> None:
    for size, kind in ((LONGEST_PAGE - 1, Render), (LONGEST_PAGE, Refuse)):
        ugly = decide("GET", f"/?_escaped_fragment_={'x' * size}", triggers=NONE)
        assert isinstance(ugly, kind)
    pretty = f"/{'x' * LONGEST_PAGE}"
    assert isinstance(decide("GET", pretty, triggers=BY_CLASS, crawler="search"), Forward)
    refused = decide("GET", pretty, triggers=NONE, drop_in=True)
    assert isinstance(refused, Refuse)
    assert refused.error.status == 414


@pytest.mark.parametrize("target", ["/", "/p?a=1", "/p?", "/a.b/c", "/release-1.2"])
def test_pages_are_rendered_for_crawlers(target: str) -> None:
    decision = decide("GET", target, triggers=BY_CLASS, crawler="search")
    assert decision == Render(PrettyURL(target, ""), Reason.CRAWLER, by_user_agent=True)


def test_ugly_urls_are_rendered_for_everybody() -> None:
    for crawler in ("search", "social", None):
        decision = decide("GET", UGLY, triggers=BY_CLASS, crawler=crawler)
        assert decision == Render(PrettyURL("/p?a=1", "k"))


@pytest.mark.parametrize(
    ("method", "target", "crawler", "marked", "upgrade"),
    [
        ("GET", "/p", None, False, False),
        ("POST", "/p", "search", False, False),
        ("GET", "/p", "search", True, False),
        ("GET", "/p", "search", False, True),
        ("GET", "/p", "ai_training", True, False),
        ("GET", "/app.js?v=1", "search", False, False),
        ("GET", "/images/a.JPEG", "search", False, False),
        ("GET", "/robots.txt", "search", False, False),
        ("GET", "/sitemap.xml", "search", False, False),
        ("GET", "/a/../b", "search", False, False),
        ("OPTIONS", "*", "search", False, False),
    ],
)
def test_what_crawlers_send_that_is_forwarded(
    method: str, target: str, crawler: CrawlerClass | None, marked: bool, upgrade: bool
) -> None:
    decision = decide(
        method, target, triggers=BY_CLASS, crawler=crawler, marked=marked, upgrade=upgrade
    )
    assert isinstance(decision, Forward)


@pytest.mark.parametrize("crawler", CLASSES)
@pytest.mark.parametrize("triggers", [NONE, BY_CLASS])
def test_reason_of_forwarded_classes(triggers: Triggers, crawler: CrawlerClass) -> None:
    decision = decide("GET", "/p", triggers=triggers, crawler=crawler)
    is_forwarded = triggers.action(crawler) == "forward"
    assert (decision.reason is Reason.CLASS_FORWARDED) is is_forwarded
    assert decision.reason is not Reason.ORDINARY


@pytest.mark.parametrize(("method", "target"), [("GET", "/p"), ("POST", "/p"), ("GET", UGLY)])
def test_refused_classes(method: str, target: str) -> None:
    assert decide(method, target, triggers=BY_CLASS, crawler="ai_training") == Refuse()


@pytest.mark.parametrize(
    ("actions", "page", "ugly", "markdown"),
    [
        ({"search": "forward"}, "", "", ""),
        ({"search": "render"}, "User-Agent", "", ""),
        ({"ai_user": "markdown"}, "User-Agent", "User-Agent", ""),
        ({"ai_training": "refuse"}, "User-Agent", "User-Agent", "User-Agent"),
        ({"signed": "refuse"}, "Signature-Agent", "Signature-Agent", "Signature-Agent"),
    ],
)
def test_caches_know_what_selects_a_response(
    actions: dict[CrawlerClass, Action], page: str, ugly: str, markdown: str
) -> None:
    vary = PageVary(Triggers(actions), (), middleware=False, opt_out=False)
    pretty = PrettyURL("/", "")
    for decision, names in (
        (Render(pretty, by_user_agent=True), page),
        (Render(pretty), ugly),
        (Render(pretty, markdown_url=True), markdown),
    ):
        line = ", ".join(filter(None, ("Accept-Encoding", names)))
        assert vary.of_snapshot(decision) == f"Vary: {line}\r\n".encode()
    by_robots = PageVary(Triggers(actions), (), middleware=False, opt_out=True)
    assert b"User-Agent" in by_robots.of_snapshot(Render(pretty))


@pytest.mark.parametrize(
    ("target", "rendered"),
    [
        ("/shop/1?_escaped_fragment_=", True),
        ("/shop/cart?_escaped_fragment_=", False),
        ("/other?_escaped_fragment_=", False),
        ("/shop/1", True),
        ("/shop/1?print=1", False),
        ("/other", False),
        ("/shop/1?_escaped_fragment_=/state", True),
        ("/shop/cart?_escaped_fragment_=/state", False),
        ("/shop/1?_escaped_fragment_=/my/1", False),
        ("/?_escaped_fragment_=/shop/1", True),
        ("/?_escaped_fragment_=%2Fshop%2F1", True),
        ("/?_escaped_fragment_=/other", False),
        ("/?_escaped_fragment_=/shop/cart", False),
        ("/help?_escaped_fragment_=/1", True),
        ("/help?_escaped_fragment_=/1%3Fprint=1", False),
    ],
)
def test_included_and_excluded_pages(target: str, rendered: bool) -> None:
    paths = Paths(
        include=("/shop/*", "/#!/shop/*", "/help"),
        exclude=("/shop/cart*", "*?print=1", "*#!/my/*", "/#!/shop/cart"),
    )
    triggers = Triggers({"search": "render"}, paths=paths)
    decision = decide("GET", target, triggers=triggers, crawler="search")
    assert isinstance(decision, Render) is rendered
