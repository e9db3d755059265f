"""The Vary headers of pages and snapshots (RFC 9110 section 12.5.5)."""

from collections.abc import Iterable

from prerender.crawlers.triggers import Triggers
from prerender.proxy.decision import Render


class SnapshotVary:
    """The request headers that select a snapshot. ``variants``: those that a page is rendered by.

    ``middleware``: one may send requests, and passes the response to crawlers at a URL where visitors
    get the original page. ``opt_out``: robots.txt may disallow ugly URLs for some crawlers.
    """

    def __init__(
        self, triggers: Triggers, variants: Iterable[str], *, middleware: bool, opt_out: bool
    ) -> None:
        by_middleware = ("User-Agent",) if middleware else ()
        by_robots = ("User-Agent",) if opt_out else ()
        self._ugly = vary_line((*by_robots, *triggers.vary("ugly"), *variants))
        self._markdown_url = vary_line((*triggers.vary("markdown"), *variants))
        self._by_user_agent = vary_line((*by_middleware, *triggers.vary(), *variants))

    def line(self, decision: Render) -> bytes:
        """The header line of a snapshot."""
        if decision.markdown_url:
            return self._markdown_url
        return self._by_user_agent if decision.by_user_agent else self._ugly


def vary_line(names: Iterable[str]) -> bytes:
    """A Vary line, which may be one of several; b"" without ``names``."""
    fields = ", ".join(dict.fromkeys(names))
    return f"Vary: {fields}\r\n".encode() if fields else b""
