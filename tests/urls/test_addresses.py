"""Absolute URLs of pages, of which any text may be given."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prerender.urls.addresses import ascii_host, page_of, parts_of, same_page, url_of

# yarl raises IndexError for the first ones.
MALFORMED = ["http://[]@", "https://a[::1]@", "http://[", "http://[x/", "http:///x", "http://a:0/"]


@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_no_page(text: str) -> None:
    for read in (parts_of, page_of):
        with pytest.raises(ValueError, match="give the absolute URL of a page"):
            read(text)


def test_internationalized_hosts() -> None:
    ascii_form = "https://xn--mnchen-3ya.de:8443/straße?ü#!ü"
    for host in ("münchen.de", "MÜNCHEN.de", "mu\u0308nchen.de"):
        url = f"https://{host}:8443/straße?ü#!ü"
        assert ascii_host(url) == ascii_form
        assert parts_of(url) == ("/stra%C3%9Fe?%C3%BC", "!ü")
        assert page_of(url) == page_of(ascii_form)
        assert same_page(url, ascii_form)
    assert ascii_host("/münchen.de") == "/münchen.de"


@given(text=st.text("[]:@/?#1ax.%\u2100"), encoded=st.booleans())
@example(text="[]@", encoded=True)
@example(text="[]@", encoded=False)
def test_any_text_is_a_url_or_a_mistake(text: str, encoded: bool) -> None:
    try:
        url_of(f"http://{text}", encoded=encoded)
    except ValueError:
        with pytest.raises(ValueError, match="give the absolute URL of a page"):
            parts_of(f"http://{text}")
