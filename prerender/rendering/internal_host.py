"""Replaces the origin's host in the HTML of snapshots, which only the proxy can reach. Pure.

In headers, http/forwarding_headers.py does it.
"""

import re
from collections.abc import Callable

from yarl import URL

from prerender.http import forwarding_headers

_ESCAPED_COLON = re.compile("%3A", re.IGNORECASE)
_ESCAPED_SLASH = re.compile(r"\\/|\\u002F|%2F", re.IGNORECASE)


def replacing(origin: URL, public: URL) -> Callable[[str], str]:
    """A function that replaces absolute URLs of ``origin`` by those of ``public`` in HTML and JSON."""
    if origin.origin() == public.origin():
        return lambda html: html
    absolute = _absolute_urls_of(origin)
    site = str(public.origin())
    return lambda html: absolute.sub(lambda match: _like(match[0], site), html)


def _absolute_urls_of(origin: URL) -> re.Pattern[str]:
    """Matches the start of absolute URLs of the origin, with or without a scheme."""
    colon = "(?::|%3A)"
    host = re.escape(forwarding_headers.authority(origin)).replace(":", colon)
    scheme = rf"(?:(?:{origin.scheme}|wss?){colon}|(?<![\w:]))"
    # Browsers read two backslashes as slashes (WHATWG URL, section 4.4). Scripts escape slashes by one
    # or by their number, and queries by percent.
    slashes = r"(?://|\\/\\/|\\\\|\\u002F\\u002F|%2F%2F)"
    return re.compile(rf"{scheme}{slashes}{host}(?![\w.:-]|%3A)", re.IGNORECASE)


def _like(match: str, site: str) -> str:
    """``site``, with its colons and slashes escaped as in ``match``, and for WebSockets if it is."""
    if match[:2].lower() == "ws":
        site = site.replace("http", "ws", 1)
    if colon := _ESCAPED_COLON.search(match):
        site = site.replace(":", colon[0])
    if slash := _ESCAPED_SLASH.search(match):
        site = site.replace("/", slash[0])
    return site
