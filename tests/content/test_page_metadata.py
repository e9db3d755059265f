"""The metadata of pages."""

import json

import pytest

from prerender.content.page_metadata import LinkPreview, read

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


@pytest.mark.parametrize("depth", [900, 1100, 100_000])
def test_deep_structured_data(depth: int) -> None:
    text = "[" * depth + "]" * depth
    page = f'<script type="application/ld+json">{text}</script><title>A'.encode()
    assert read(page, URL).title == "A"


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


def test_what_is_said_is_bounded() -> None:
    texts = ["x" * 10**6, *["x" * 10**4] * 99]
    body = "".join(
        f'<title>{text}</title><meta property="og:title" content="{text}">'
        f'<script type="application/ld+json">["{text}"]</script><h1>{text}</h1>'
        for text in texts
    )
    found = read(body.encode(), URL)
    assert len(repr(found)) < 300_000
