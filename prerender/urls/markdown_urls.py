"""Markdown URLs of pages (llmstxt.org, v2): ``/page.md``, and ``/index.md`` of ``/``. Pure."""

import string
from urllib.parse import quote

from prerender.urls.ajax_crawling import pretty_to_ugly

_EXTENSION = ".md"
_INDEX = "index"
# What could end a URL in a Link header (RFC 8288 section 3), and what is not ASCII, is escaped.
_SAFE = "".join(set(string.printable) - set(string.whitespace) - set('"<>\\^`{|}'))


def page_of(target: str) -> str | None:
    """The request target of the page of a Markdown URL; None for any other request target."""
    path, question_mark, query = target.partition("?")
    if not path.endswith(_EXTENSION):
        return None
    page = path.removesuffix(_EXTENSION)
    name = page.rpartition("/")[2]
    if not name:
        return None
    return f"{page.removesuffix(_INDEX) if name == _INDEX else page}{question_mark}{query}"


def markdown_url(page: str) -> str:
    """The Markdown URL of a page, without scheme and host, in ASCII; "" if it has none.

    ``page``: path, query and ``#!`` state. ``page_of`` is the inverse, but for escapes.
    """
    path, question_mark, query = (pretty_to_ugly(page) or page).partition("?")
    name = path.rpartition("/")[2]
    if name == _INDEX or name.endswith(_EXTENSION):
        return ""
    url = f"{path}{'' if name else _INDEX}{_EXTENSION}{question_mark}{query}"
    return quote(url.encode("utf-8", "surrogateescape"), safe=_SAFE)
