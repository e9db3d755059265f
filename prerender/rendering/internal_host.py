"""Replaces the origin's host in the HTML of snapshots, which only the proxy can reach. Pure.

In headers, http/forwarding_headers.py does it.
"""

import re
from collections.abc import Callable

from yarl import URL

from prerender.http import forwarding_headers


def replacing(origin: URL, public: URL) -> Callable[[str], str]:
    """A function that replaces absolute URLs of ``origin`` by those of ``public`` in HTML and JSON."""
    if origin.origin() == public.origin():
        return lambda html: html
    absolute = _absolute_urls_of(origin)
    site = str(public.origin())
    return lambda html: absolute.sub(lambda match: _like(match[0], site), html)


def _absolute_urls_of(origin: URL) -> re.Pattern[str]:
    """Matches the start of absolute URLs of the origin, with or without a scheme."""
    host = re.escape(forwarding_headers.authority(origin))
    # Browsers read two backslashes as slashes (WHATWG URL, section 4.4).
    scheme = rf"(?:{origin.scheme}:|wss?:|(?<![\w:]))"
    return re.compile(rf"{scheme}(?://|\\/\\/|\\\\){host}(?![\w.:-])", re.IGNORECASE)


def _like(match: str, site: str) -> str:
    """``site``, with escaped slashes if those of ``match`` are escaped, and for WebSockets if it is."""
    if match[:2].lower() == "ws":
        site = site.replace("http", "ws", 1)
    return site.replace("/", "\\/") if "\\/" in match else site
