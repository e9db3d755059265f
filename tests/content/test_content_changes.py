"""What counts as a change of a page: what is read, not bytes."""

import re
from typing import Any

import pytest

from prerender.content.content_changes import Content, changes, content_of
from prerender.snapshots.snapshot import Snapshot

URL = "https://www.example.com/lamps"
PAGE = (
    '<html lang="en"><head><title>Lamps</title><meta name="description" content="All lamps">'
    '<link rel="canonical" href="/lamps"><link rel="stylesheet" href="/a.1.css"></head>'
    '<body class="x"><h1>Lamps</h1><p>Desk lamp, 12 €</p><a href="/lamps/1">one</a></body></html>'
)


def content(html: str, status: int = 200, *volatile: str) -> Content:
    snapshot = Snapshot(status, (("X-Robots-Tag", "noarchive"),), html.encode(), '"e"', 0)
    return content_of(snapshot, URL, [re.compile(one) for one in volatile])


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("12 €", "13 €", {"text": {"words_added": 1, "words_removed": 1}}),
        ("12 €", "12 $", {"text": {"words_added": 1, "words_removed": 1}}),
        ("<p>", "<p>Sold out. ", {"text": {"words_added": 2, "words_removed": 0}}),
        (
            "<title>Lamps",
            "<title>Lights",
            {"title": {"before": "Lamps", "after": "Lights"}},
        ),
        (
            "All lamps",
            "Some lamps",
            {"metadata": {"description": {"before": "All lamps", "after": "Some lamps"}}},
        ),
        ("/lamps/1", "/lamps/2", {"links": {"links_added": 1, "links_removed": 1}}),
        (
            "</head>",
            '<meta property="og:image" content="/new.png"></head>',
            {"metadata": {"og:image": {"before": "", "after": "/new.png"}}},
        ),
        (
            "</head>",
            '<script type="application/ld+json">{"@type": "Product"}</script></head>',
            {
                "metadata": {
                    "structured_data": {"before": "", "after": '{\n  "@type": "Product"\n}'}
                }
            },
        ),
    ],
)
def test_a_change_is_described(old: str, new: str, found: dict[str, Any]) -> None:
    result = changes(content(PAGE), content(PAGE.replace(old, new)))
    assert result.keys() == found.keys()
    for name, expected in found.items():
        assert {key: result[name][key] for key in expected} == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/a.1.css", "/a.2.css"),
        ('class="x"', 'class="y" data-id="7"'),
        ("<p>", "<p>\n  "),
        ("Desk lamp, 12 €", "<b>Desk</b> lamp, <i>12</i> €"),
        ('<h1>Lamps</h1><p>Desk lamp, 12 €</p>', "<p>Desk lamp, 12 €</p><h1>Lamps</h1>"),
        ("</head>", '<meta name="csrf-token" content="8f3a"><script>1</script></head>'),
        ("</body>", '<img src="/a.2.png"></body>'),
    ],
)  # fmt: skip
def test_bytes_are_no_change(old: str, new: str) -> None:
    assert old in PAGE
    assert changes(content(PAGE), content(PAGE.replace(old, new))) == {}


def test_volatile_parts_do_not_count() -> None:
    one, two = (content(PAGE.replace("12 €", f"at {n}"), 200, r"at \d+") for n in (1, 2))
    assert changes(one, two) == {}


def test_the_status_and_passages() -> None:
    old, new = content(PAGE), content("<title>Gone</title><p>There is no such page", 404)
    found = changes(old, new)
    assert found["status"] == {"before": 200, "after": 404}
    assert found["text"]["removed"] == ["Lamps Desk lamp 12 one"]
    assert found["text"]["added"] == ["There is no such page"]


@pytest.mark.heavy
def test_a_description_is_bounded() -> None:
    many = "".join(
        f'<a href="/{"x" * 900}{n}">w{n} </a><p>w{n * 7} {"y" * 20}</p>' for n in range(5000)
    )
    found = changes(content(PAGE), content(many))
    assert len(str(found)) < 15_000
    assert found["text"]["words_added"] > 9000
    assert changes(content(many), content(many)) == {}
    assert changes(content(""), content("<p>")) == {}
