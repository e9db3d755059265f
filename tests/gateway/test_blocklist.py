"""Blocked requests: trackers, denied hosts and resource types; how the type of a request is
determined.
"""

import pytest
from multidict import CIMultiDict

from prerender.config.settings import NetworkSettings
from prerender.gateway.blocklist import Blocklist, trackers
from prerender.gateway.resource_kind import destination


@pytest.mark.parametrize(
    "host",
    [
        "www.google-analytics.com",
        "region1.google-analytics.com",
        "www.googletagmanager.com",
        "securepubads.g.doubleclick.net",
        "static.hotjar.com",
        "www.clarity.ms",
        "connect.facebook.net",
    ],
)
def test_trackers(host: str) -> None:
    assert Blocklist(NetworkSettings()).unwanted_host(host, 443) == "a tracker"
    assert not Blocklist(NetworkSettings(block_trackers=False)).unwanted_host(host, 443)
    assert not Blocklist(NetworkSettings(allow=(host,))).unwanted_host(host, 443)


@pytest.mark.parametrize(
    "host",
    [
        "cdn.jsdelivr.net",
        "cdnjs.cloudflare.com",
        "unpkg.com",
        "ajax.googleapis.com",
        "fonts.gstatic.com",
        "maps.googleapis.com",
        "www.google.com",
        "www.youtube.com",
        "player.vimeo.com",
        "platform.twitter.com",
        "js.stripe.com",
        "consent.cookiebot.com",
        "cdn.cookielaw.org",
        "d111111abcdef8.cloudfront.net",
        "example.com",
        "8.8.8.8",
    ],
)
def test_content_is_not_left_out(host: str) -> None:
    assert not trackers().named(host, 443)


def test_denied_hosts() -> None:
    policy = Blocklist(NetworkSettings(allow=("a.example",), deny=("*.example", "192.0.2.0/24")))
    assert policy.unwanted_host("a.example", 443) == "deny has its host"
    assert policy.unwanted_host("192.0.2.7", 443) == "deny has its host"
    assert not policy.unwanted_host("example.com", 443)


def test_types() -> None:
    policy = Blocklist(NetworkSettings(block_types=("image", "media")))
    for kind in ("image", "audio", "video", "track"):
        assert policy.unwanted_type(kind)
    for kind in ("script", "style", "font", "empty", "document", ""):
        assert not policy.unwanted_type(kind)


@pytest.mark.parametrize(
    ("headers", "target", "expected"),
    [
        ({"Sec-Fetch-Dest": "script", "Accept": "image/*"}, "/a.css", "script"),
        ({"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}, "/", "document"),
        ({"Accept": "image/avif,image/webp,image/*,*/*;q=0.8"}, "/picture", "image"),
        ({"Accept": "text/css,*/*;q=0.1"}, "/x", "style"),
        ({"Accept": "*/*"}, "/app.3f2a.js?v=1.css", "script"),
        ({"Accept": "*/*"}, "/a.b/font.WOFF2", "font"),
        ({"Accept": "*/*", "Range": "bytes=0-"}, "/film.mp4", "video"),
        ({"Accept": "*/*"}, "/api/items", ""),
        ({"Accept": "application/json"}, "/v1.2/items", ""),
        ({}, "*", ""),
    ],
)
def test_destinations(headers: dict[str, str], target: str, expected: str) -> None:
    assert destination("GET", CIMultiDict(headers), target) == expected


def test_only_what_is_got_has_a_type() -> None:
    assert not destination("POST", CIMultiDict({"Accept": "text/html"}), "/")
