"""URL references in pretty form: one table of vectors, run in Python and in the browser."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from prerender.browser.javascript import bundle
from prerender.urls.ajax_crawling import ugly_to_pretty
from prerender.urls.references import (
    pretty_links,
    pretty_reference,
    redirected,
    without_programs,
)
from tests.support.plain_browser import plain_browser

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "scheme_vectors.json").read_text("utf-8")
)
SITES: list[str] = VECTORS["sites"]
PAGE = "https://www.example.com/app?b=1#!/items/3"


@pytest.mark.parametrize(("value", "location_hash"), VECTORS["values"])
def test_values_in_python(value: str, location_hash: str) -> None:
    pretty = ugly_to_pretty(f"/p?_escaped_fragment_={value}")
    assert pretty is not None
    assert pretty.location_hash == location_hash


@pytest.mark.parametrize(("reference", "base", "pretty"), VECTORS["references"])
def test_references_in_python(reference: str, base: str, pretty: str | None) -> None:
    expected = reference if pretty is None else pretty
    assert pretty_reference(reference, base, SITES) == expected
    # Nothing is left to be done, and Location is not treated otherwise.
    assert pretty_reference(expected, base, SITES) == expected
    if pretty is not None:
        assert redirected(base, reference, SITES) == pretty


PIECES = [
    *(
        "/",
        "//",
        "?",
        "&",
        "=",
        "#",
        "#!",
        "!",
        "%",
        "%41",
        "%FF",
        "%d0%bf",
        "%zz",
        " ",
        "\t",
        "a",
        ".",
        ":",
    ),
    *(
        "\\",
        "@",
        "[",
        "\u043f",
        "\U0001f600",
        '"',
        "<",
        "`",
        "+",
        "\0",
        "\x7f",
        "https:",
        "javascript:",
    ),
    *(
        "https://www.example.com",
        "http://app:3000",
        "http://app",
        "//other.example",
        "_escaped_fragment_",
    ),
    *("_escaped_fragment_=", "?_escaped_fragment_=", "&_escaped_fragment_="),
]
BASES = [
    *(
        "https://www.example.com",
        "https://www.example.com/d/e?b=1",
        "https://www.example.com//x/y?z#!q",
    ),
    *("https://other.example/p?q", "http://app:3000/x"),
]


def _random_references(count: int) -> list[list[str]]:
    random = Random(21)
    return [
        ["".join(random.choices(PIECES, k=random.randint(1, 8))), random.choice(BASES)]
        for _ in range(count)
    ]


async def test_the_same_vectors_in_the_browser() -> None:
    listed = [[reference, base] for reference, base, _ in VECTORS["references"]]
    made_up = _random_references(2000)
    values = [value for value, _ in VECTORS["values"] if "#" not in value and "&" not in value]
    asked = {
        "values": values,
        "references": [*listed, *made_up],
        "sites": SITES,
    }
    script = f"""((asked) => {{ {bundle("serialize", "pretty")}
      return {{
        values: asked.values.map((value) => prettyReference(
          "/p?_escaped_fragment_=" + value, "https://www.example.com/", asked.sites)),
        references: asked.references.map(([reference, base]) =>
          prettyReference(reference, base, asked.sites)),
      }}; }})({json.dumps(asked)})"""
    async with plain_browser() as browser:
        target = await browser.call("Target.createTarget", url="about:blank")
        page = await browser.attach(target["targetId"])
        answer = await page.evaluate(script)
    in_python = [str(ugly_to_pretty(f"/p?_escaped_fragment_={value}")) for value in values]
    assert answer["values"] == in_python
    expected = [
        reference if pretty is None else pretty for reference, _, pretty in VECTORS["references"]
    ]
    expected += [pretty_reference(reference, base, SITES) for reference, base in made_up]
    assert answer["references"] == expected


@pytest.mark.parametrize(
    ("value", "pretty"),
    [
        ('</p?_escaped_fragment_=x>; rel="canonical"', '</p#!x>; rel="canonical"'),
        ("<?_escaped_fragment_=x>; rel=canonical", "</app#!x>; rel=canonical"),
        (
            '<https://www.example.com/?_escaped_fragment_=a%26b>; rel="alternate"; hreflang="de", '
            "<https://other.example/?_escaped_fragment_=x>; rel=next",
            '<https://www.example.com/#!a&b>; rel="alternate"; hreflang="de", '
            "<https://other.example/?_escaped_fragment_=x>; rel=next",
        ),
        (
            '</next>; rel=next; anchor="?_escaped_fragment_=x"',
            '</next>; rel=next; anchor="/app#!x"',
        ),
        ('</a.css>; rel=preload; title="?_escaped_fragment_=x"', None),
        ("no link at all", None),
    ],
)
def test_link_fields(value: str, pretty: str | None) -> None:
    assert pretty_links(value, PAGE, SITES) == (value if pretty is None else pretty)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("</a.js>; rel=preload; as=script", ""),
        ('</a.mjs>;REL="ModulePreload" , </a,b.css>; as=style', "</a,b.css>; as=style"),
        ('<a.js>; as="Script"; rel="prefetch preload", <c>; rel="canonical"', '<c>; rel="canonical"'),
        ('<c>; rel=canonical; title="a, <b>; rel=modulepreload"', None),
        ("<c>; rel=canonical; rel=modulepreload", None),
        ('<a.js>; rel="modulepreload license"', None),
        ('<a>; title="\\", <b', None),
        ("no link at all", None),
    ],
)  # fmt: skip
def test_preloads_of_scripts_are_removed(value: str, kept: str | None) -> None:
    assert without_programs(value) == (value if kept is None else kept)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        # The state was no part of what the origin was asked, so it is kept...
        ("/app/", "/app/#!/items/3"),
        ("/app/?b=1", "/app/?b=1#!/items/3"),
        ("new", "new#!/items/3"),
        ("?c=2", "?c=2#!/items/3"),
        ("", "/app?b=1#!/items/3"),
        ("https://www.example.com/app", "https://www.example.com/app#!/items/3"),
        ("http://www.example.com:8080/app", "http://www.example.com:8080/app#!/items/3"),
        ("//www.example.com/app", "//www.example.com/app#!/items/3"),
        ("https://example.com/app", "https://example.com/app#!/items/3"),
        ("https://other.example/x", "https://other.example/x#!/items/3"),
        # ... unless the origin names another one, or none.
        ("/app/#!/other", "/app/#!/other"),
        ("#!/other", "/app?b=1#!/other"),
        ("/app/#top", "/app/#top"),
        ("/app/#", "/app/#"),
        ("/app/?_escaped_fragment_=/other", "/app/#!/other"),
        ("/app/?_escaped_fragment_=", "/app/"),
        ("?_escaped_fragment_=x", "/app#!x"),
        # Not ours to understand, and not pages.
        ("https://other.example/?_escaped_fragment_=x", None),
        ("mailto:someone@example.com", None),
        ("javascript:void(0)", None),
        ("http://[", None),
    ],
)
def test_redirects_keep_the_state(location: str, expected: str | None) -> None:
    assert redirected(PAGE, location, SITES) == (location if expected is None else expected)


def test_redirects_of_a_page_without_a_state() -> None:
    for location in ("/app/", "?c=2", "https://other.example/x", "/app/#top"):
        assert redirected("https://www.example.com/app", location, SITES) == location
