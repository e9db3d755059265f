"""Tags of pages: found by what a purge means, safe in a header, within the limits of CDNs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.extensions.cdn.tags import MOST_BYTES, Tags
from prerender.snapshots.purges import MOST_TAGS, Purge, tags_of

TAGS = Tags("www.example.com")
HOST = "www.example.com"


def header(path: str, *own: str) -> list[str]:
    return TAGS.value("Cache-Tag", path, own).split(",")


def test_a_page_has_tags_of_itself_and_of_its_folders() -> None:
    assert header("/shop/lamps/3?x=1", "lamps") == [
        f"page:{HOST}/shop/lamps/3?x=1",
        f"folder:{HOST}/",
        f"folder:{HOST}/shop/",
        f"folder:{HOST}/shop/lamps/",
        "lamps",
    ]
    assert header("/#!/items/ü,b c") == [
        f"page:{HOST}/#!/items/%C3%BC%2Cb%20c",
        f"folder:{HOST}/",
        f"folder:{HOST}/#!/",
        f"folder:{HOST}/#!/items/",
    ]
    assert TAGS.line("Surrogate-Key", "/", ("a", "b")) == (
        f"Surrogate-Key: page:{HOST}/ folder:{HOST}/ a b\r\n".encode()
    )


@pytest.mark.parametrize(
    ("purge", "tag"),
    [
        (Purge("url", "/shop/lamps"), f"page:{HOST}/shop/lamps"),
        (Purge("tag", "lamps"), "lamps"),
        (Purge("prefix", "/shop/"), f"folder:{HOST}/shop/"),
        (Purge("prefix", "/shop/la"), f"folder:{HOST}/shop/"),
        (Purge("prefix", "/"), f"folder:{HOST}/"),
        (Purge("prefix", "/%c3%bc/"), f"folder:{HOST}/%C3%BC/"),
        (Purge("prefix", ""), f"folder:{HOST}/"),
        (Purge("pattern", "/shop/*/red"), f"folder:{HOST}/shop/"),
        (Purge("pattern", "*sort=*"), f"folder:{HOST}/"),
        (Purge("all"), f"folder:{HOST}/"),
        (Purge("asset_fingerprint", "1234"), f"folder:{HOST}/"),
    ],
)
def test_what_a_purge_means(purge: Purge, tag: str) -> None:
    assert TAGS.of(purge) == tag


PATHS = st.text(
    st.sampled_from([*"/ab?#!*", "%", " ", ",", "\n", "\r", "ü", "\udcff"]), max_size=300
).map(lambda text: f"/{text}")


@given(path=PATHS, length=st.integers(1, 300))
def test_each_page_is_found_by_purges_of_its_prefixes(path: str, length: int) -> None:
    prefix = path[:length]
    assert TAGS.of(Purge("prefix", prefix)) in header(path)
    assert TAGS.of(Purge("pattern", f"{prefix}*")) in header(path)
    assert TAGS.of(Purge("url", path)) in header(path)
    assert TAGS.of(Purge("all")) in header(path)


@given(path=PATHS, texts=st.lists(st.text(max_size=200)))
def test_no_page_can_break_the_header(path: str, texts: list[str]) -> None:
    line = TAGS.line("Cache-Tag", path, tags_of(texts))
    assert re.fullmatch(rb"Cache-Tag: [!-~]+\r\n", line)


def test_a_page_with_10_000_tags() -> None:
    own = tags_of([f"tag-{n}-{'x' * 100}" for n in range(10_000)])
    assert len(own) == MOST_TAGS
    for name, separator in (("Cache-Tag", ","), ("Surrogate-Key", " ")):
        value = TAGS.value(name, "/" + "a/" * 500, own)  # type: ignore[arg-type]
        assert MOST_BYTES - 150 < len(value) <= MOST_BYTES
        tags = value.split(separator)
        assert all(len(tag) <= 1024 for tag in tags)
        # None is cut.
        assert {*tags[9:]} <= {*own}
