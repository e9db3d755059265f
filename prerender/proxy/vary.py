"""The Vary headers of pages and snapshots (RFC 9110 section 12.5.5).

Each is one line: of several, nginx before 1.23 heeds the last only.
"""

from collections.abc import Iterable

from prerender.crawlers.triggers import Triggers
from prerender.proxy.decision import Render
from prerender.urls.ajax_crawling import UGLY_TOKEN

_CODING = ("Accept-Encoding",)


class PageVary:
    """The request headers that select a page or its snapshot. ``variants``: those of renders.

    ``middleware``: one may send requests, and passes the response to crawlers at a URL where visitors
    get the original page. ``opt_out``: robots.txt may disallow ugly URLs for some crawlers.
    """

    def __init__(
        self, triggers: Triggers, variants: Iterable[str], *, middleware: bool, opt_out: bool
    ) -> None:
        by_middleware = ("User-Agent",) if middleware else ()
        by_robots = ("User-Agent",) if opt_out else ()
        self._ugly = vary_line((*_CODING, *by_robots, *triggers.vary("ugly"), *variants))
        self._markdown_url = vary_line(
            (*_CODING, *by_robots, *triggers.vary("markdown"), *variants)
        )
        self._by_user_agent = vary_line((*_CODING, *by_middleware, *triggers.vary(), *variants))
        self._forwarded = triggers.vary()
        self._forwarded_ugly = (*by_robots, *triggers.vary())

    def of_snapshot(self, decision: Render) -> bytes:
        """The header line of a snapshot."""
        if decision.markdown_url:
            return self._markdown_url
        return self._by_user_agent if decision.by_user_agent else self._ugly

    def of_forwarded(self, target: str) -> tuple[str, ...]:
        """The names for a forwarded page: some crawlers get a snapshot instead."""
        return self._forwarded_ugly if UGLY_TOKEN in target else self._forwarded


def vary_line(names: Iterable[str]) -> bytes:
    """A Vary line, each name once; b"" without ``names``."""
    different = {name.lower(): name for name in names}
    # nginx caches what has other names beside the asterisk.
    fields = "*" if "*" in different else ", ".join(different.values())
    return f"Vary: {fields}\r\n".encode("latin-1") if fields else b""
