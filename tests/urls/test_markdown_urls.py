"""Markdown URLs of pages, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.urls.markdown_urls import markdown_url, page_of

BOTH_WAYS = [
    ("/", "/index.md"),
    ("/docs/", "/docs/index.md"),
    ("/docs/page", "/docs/page.md"),
    ("/page.html", "/page.html.md"),
    ("/list?page=2&q=a.b", "/list.md?page=2&q=a.b"),
    ("/?", "/index.md?"),
    ("/?_escaped_fragment_=/items/3", "/index.md?_escaped_fragment_=/items/3"),
]


@pytest.mark.parametrize(("page", "url"), BOTH_WAYS)
def test_both_ways(page: str, url: str) -> None:
    assert markdown_url(page) == url
    assert page_of(url) == page


@pytest.mark.parametrize(
    ("page", "url"),
    [
        ("/#!/items/3", "/index.md?_escaped_fragment_=/items/3"),
        ("/ä<b>\udcff", "/%C3%A4%3Cb%3E%FF.md"),
        # Their URLs would be those of other pages.
        ("/docs/index", ""),
        ("/readme.md", ""),
    ],
)
def test_pages_without_an_inverse(page: str, url: str) -> None:
    assert markdown_url(page) == url


@pytest.mark.parametrize("target", ["/", "/page", "/page.mdx", "/.md", "/a/.md", "/?x=/page.md"])
def test_other_urls_are_not_of_markdown(target: str) -> None:
    assert page_of(target) is None


@given(st.from_regex(r"/[a-z./]{0,12}(\?[a-z=./&]{0,8})?", fullmatch=True))
def test_no_two_pages_share_a_url(page: str) -> None:
    if url := markdown_url(page):
        assert page_of(url) == page
