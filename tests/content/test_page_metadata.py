"""The metadata, texts and histories of pages."""

import json
import zlib
from dataclasses import replace

import pytest

from prerender.browser.page_results import Resource
from prerender.content.page_metadata import LinkPreview, read
from prerender.errors import BadEntry
from prerender.extensions.dashboard.history import (
    History,
    RenderSummary,
    Version,
    decode,
    encode,
    text_of,
)
from prerender.gateway.visit import Visit
from prerender.rendering.waterfall import MOST_FETCHES, waterfall
from prerender.snapshots.snapshot import Facts, Fetch, Snapshot, Timings
from tests.support.renders import PUBLIC

URL = "https://www.example.com/a/b"
PAGE = b"""<!doctype html><html lang="en-GB"><head><title> A &amp; B </title>
<meta name="Description" content="  About\n a ">
<meta name="robots" content="noindex"><meta name="googlebot" content="nofollow">
<link rel="stylesheet" href="/s.css"><link rel="Canonical" href="https://www.example.com/a">
<link rel="alternate" hreflang="de" href="/de"><link rel="alternate" type="x" href="/feed">
<meta property="og:title" content="OG"><meta name="twitter:image" content="../c.png">
<script type="application/ld+json">{"@graph": [{"@type": "Product"}, {"@type": ["A", "B"]}]}</script>
<script type="application/ld+json">{nonsense</script></head>
<body><svg><title>none of ours</title></svg><h1>One</h1><h2>Two <b>words</b></h2><h4>no</h4>
<a href="/">x</a><a>no link</a><img alt=""><img></body></html>"""


def test_what_a_page_says() -> None:
    found = read(PAGE, URL)
    assert (found.title, found.description) == ("A & B", "About a")
    assert (found.canonical, found.language) == ("https://www.example.com/a", "en-GB")
    assert (found.robots, found.noindex) == ("noindex, nofollow", True)
    assert found.headings == ((1, "One"), (2, "Two words"))
    assert found.alternates == (("de", "/de"),)
    assert found.open_graph == (("og:title", "OG"), ("twitter:image", "../c.png"))
    graph, broken = found.structured_data
    assert (graph.types, graph.valid) == (("Product", "A", "B"), True)
    assert json.loads(graph.text)["@graph"][0] == {"@type": "Product"}
    assert (broken.types, broken.valid, broken.text) == ((), False, "{nonsense")
    assert found.preview == LinkPreview("OG", "About a", "https://www.example.com/c.png", "")
    assert (found.links, found.images, found.images_without_text) == (1, 2, 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"<",
        b"<!-- -->",
        b"<title>",
        b"\xff\xfe",
        b"<svg>" * 5000,
        b"<div>" * 100_000,
        b"<meta name=description>",
        b"<meta property='og:image' content='http://['>",
        b"<meta property='og:image' content='javascript:alert(1)'>",
        b"<script type='application/ld+json'>" + b"[" * 100_000,
        b'<script type=\'application/ld+json\'>[1, null, {"@type": {}}, {"@graph": 1}]',
    ],
)
def test_whatever_a_page_says_it_is_read(body: bytes) -> None:
    found = read(body, URL)
    assert found.preview.image == ""
    assert isinstance(text_of(body), str)


def test_what_is_said_is_bounded() -> None:
    texts = ["x" * 10**6, *["x" * 10**4] * 99]
    body = "".join(
        f'<title>{text}</title><meta property="og:title" content="{text}">'
        f'<script type="application/ld+json">["{text}"]</script><h1>{text}</h1>'
        for text in texts
    )
    found = read(body.encode(), URL)
    assert len(repr(found)) < 300_000


def test_the_text_of_a_page() -> None:
    body = (
        b"<title>no</title><body>One<script>no()</script><style>no{}</style><p>T<!-- -->wo <b>three</b>"
        b"<noscript>no</noscript><template>no</template><div><template shadowrootmode=open>four"
        b"</template></div><textarea>five</textarea>"
    )
    assert text_of(body) == "One\nTwo\nthree\nfour\nfive"


FETCH = Fetch("GET", URL, "script", "cached", 200, 10, 0.1, 0.2, "")
RENDER = RenderSummary(
    1.5, 0.5, "render_timeout", "why", 200, Timings(0.1, 0.2, 0.3, 0.4, (FETCH,)),
    Facts("cut-off", settled="cut_off", errors=("x",), failed_requests=(URL,)),
)  # fmt: skip
VERSION = Version(1.0, 200, '"x"', 10, "title", "text \u00e4 \udcff")


def test_histories_are_what_they_were() -> None:
    history = History("key", "/#!a", RENDER, (VERSION, replace(VERSION, time=0.5)))
    assert decode(encode(history)) == history
    assert decode(encode(History("key", "/"))) == History("key", "/")


@pytest.mark.heavy
def test_bad_histories_are_told_from_good_ones() -> None:
    good = encode(History("key", "/", RENDER, (VERSION,)))
    magic = good[:12]
    bad = [
        b"", b"x", good[:-3], magic, b"PRS1" + good[4:], magic + zlib.compress(b"[]"),
        magic + zlib.compress(b'{"path": 1}'),
        magic + zlib.compress(b'{"path": "", "render": {}, "versions": []}'),
        magic + zlib.compress(b"[" * 10**6), magic + zlib.compress(b" " * 10**8),
    ]  # fmt: skip
    for data in bad:
        with pytest.raises(BadEntry):
            decode(data)


def snapshot(text: str) -> Snapshot:
    return Snapshot(200, (), f"<title>{text}</title><p>{text}".encode(), f'"{text}"', 1)


def test_a_version_begins_when_the_content_changes() -> None:
    history = History("key", "/")
    for text in ("a", "a", "b", "c", "d"):
        history = history.with_version(ord(text), snapshot(text), 3)
    assert [version.text for version in history.versions] == ["d", "c", "b"]
    assert history.with_version(0.0, snapshot("d"), 3) is history


@pytest.mark.heavy
def test_a_history_is_bounded() -> None:
    import random

    history = History("key", "/", RENDER)
    for number in range(15):
        text = " ".join(str(random.Random(number).getrandbits(64)) for _ in range(4000))
        history = history.with_version(1.0, snapshot(text), 50)
    data = encode(history)
    assert len(data) <= 256 * 1024
    assert decode(data).versions == history.versions[: len(decode(data).versions)]


def test_the_waterfall() -> None:
    visit = Visit(PUBLIC, None)
    with visit.requests.exchange("GET", f"{PUBLIC}", "document") as document:
        document.status = 200
    with visit.requests.exchange("POST", f"{PUBLIC}/api", "empty") as api:
        api.status = 500
    with visit.requests.exchange("GET", f"{PUBLIC}/events", "empty") as events:
        events.status = 200
        events.expect_no_end()
    with visit.requests.exchange("GET", "https://ads.example/", "script") as ad:
        ad.blocked, ad.reason, ad.status = True, "a tracker", 200
    under_way = visit.requests.exchange("GET", f"{PUBLIC}/slow", "empty")
    under_way.__enter__()
    for seconds, exchange in enumerate(visit.requests.exchanges):
        exchange.started += seconds
    resources = [
        Resource(f"{PUBLIC}/kept.js", "script", 200, 9, 0.0),
        Resource(f"{PUBLIC}/api", "fetch", 500, 9, 0.0),
        Resource("data:,x", "img", 200, 9, 0.0),
    ]
    found = waterfall(visit, resources)
    verdicts = {fetch.url.removeprefix(str(PUBLIC)): fetch.verdict for fetch in found}
    assert verdicts == {
        "": "allowed", "/api": "failed", "/events": "stream", "https://ads.example/": "blocked",
        "/slow": "unanswered", "/kept.js": "cached",
    }  # fmt: skip
    assert [fetch.start for fetch in found] == sorted(fetch.start for fetch in found)
    assert [fetch.url.removeprefix(str(PUBLIC)) for fetch in found[:3]] == ["", "/kept.js", "/api"]
    under_way.__exit__(None, None, None)
    for number in range(500):
        with visit.requests.exchange("GET", f"{PUBLIC}/{'x' * 9000}{number}", "script"):
            pass
    found = waterfall(visit)
    assert len(found) == MOST_FETCHES
    assert max(len(fetch.url) for fetch in found) == 500
