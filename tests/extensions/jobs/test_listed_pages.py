"""What has changed in sitemaps, and what is a fault of theirs."""

import zlib
from collections.abc import Mapping
from math import isnan, nan

import pytest

from prerender.extensions.jobs.listed_pages import SitemapChanges, changes, decode, encode
from prerender.sitemaps.parsing import Listed

NOW = 2_000_000_000.0
OLD, NEWER = NOW - 9e6, NOW - 8e6


def path_of(name: str) -> str:
    return f"/{name}"


def compared(
    known: Mapping[str, float], listed: Mapping[str, float | None], *, whole: bool = True
) -> SitemapChanges:
    pages = {path_of(name): Listed(f"/{name}", lastmod) for name, lastmod in listed.items()}
    return changes({path_of(name): at for name, at in known.items()}, pages, NOW, whole=whole)


def rendered(found: SitemapChanges) -> dict[str, float | None]:
    return {page.url: page.lastmod for page in found.pages}


def test_new_and_changed_pages() -> None:
    known = {"same": OLD, "changed": OLD, "back": NEWER, "none": nan, "now": nan, "lost": OLD}
    found = compared(known, {
        "same": OLD, "changed": NEWER, "back": OLD, "none": None, "now": NEWER, "lost": None,
        "new": NEWER, "new-without": None,
    })  # fmt: skip
    # A snapshot of a changed page is older than now, whatever its lastmod says.
    assert rendered(found) == {
        "/changed": NOW, "/back": NOW, "/now": NEWER, "/new": NEWER, "/new-without": None,
    }  # fmt: skip
    assert (found.new, found.changed, found.gone) == (2, 3, ())
    again = changes(
        found.known,
        {path_of("same"): Listed("/same", OLD), path_of("lost"): Listed("/lost", OLD)},
        NOW,
        whole=False,
    )
    assert again.pages == ()


def test_pages_that_are_gone() -> None:
    known = dict.fromkeys("abcd", OLD)
    found = compared(known, {"a": OLD, "b": OLD})
    assert sorted(found.gone) == [path_of("c"), path_of("d")]
    assert sorted(found.known) == [path_of("a"), path_of("b")]


@pytest.mark.parametrize(
    ("listed", "whole"), [({"a": OLD}, True), ({}, True), (dict.fromkeys("abc", OLD), False)]
)
def test_a_sitemap_that_lacks_pages_by_a_fault(listed: dict[str, float], whole: bool) -> None:
    found = compared(dict.fromkeys("abcd", OLD), listed, whole=whole)
    assert found.gone == ()
    assert found.missing == 4 - len(listed)
    assert len(found.known) == 4


def test_more_pages_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are listed are known, so that they are new only once."""
    monkeypatch.setattr("prerender.extensions.jobs.listed_pages.MOST_PAGES", 4)
    found = compared(dict.fromkeys("abcd", OLD), dict.fromkeys("cde", OLD), whole=False)
    assert (found.new, found.missing, list(found.known)) == (1, 1, [*map(path_of, "cdea")])
    stored = decode(encode(found.known))
    again = changes(stored, {path_of(n): Listed(f"/{n}", OLD) for n in "cdef"}, NOW, whole=False)
    assert (again.new, again.missing, list(again.known)) == (1, 0, [*map(path_of, "cdef")])


def test_lastmod_that_is_the_time_of_the_request() -> None:
    names = [f"{n}" for n in range(20)]
    known = dict.fromkeys(names, NOW - 3600)
    found = compared(known, dict.fromkeys(names, NOW - 1))
    assert found.by_request
    assert found.pages == ()
    assert found.known == {path_of(name): NOW - 3600 for name in names}
    # Some pages may have changed just now.
    found = compared(known, {**known, "1": NOW - 1})
    assert rendered(found) == {"/1": NOW}


def test_what_is_stored() -> None:
    known = {"/a": OLD, "/b#!ü\udcff": NEWER}
    assert decode(encode(known)) == known
    assert isnan(decode(encode({"/a": nan}))["/a"])
    assert decode(b"x") == decode(zlib.compress(b"[[1,2]]")) == decode(None) == {}
