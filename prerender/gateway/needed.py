"""Which of a page's requests its content depends on: those for the site's own data and programs. Pure.

They are waited for as long as the render may take, and without them the page is incomplete
(rendering/verdict.py). Everything else is waited for only as long as ``[render] patience``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from yarl import URL

from prerender.gateway.destination import PROGRAMS
from prerender.http.headers import Headers
from prerender.urls.hosts import Hosts, normalized
from prerender.urls.patterns import matches

# Sec-Fetch-Dest of fetch() and XMLHttpRequest (WHATWG Fetch), and of what the content is made with.
DATA = ("", "empty")
_KINDS = (*DATA, *PROGRAMS, "style")
# Long polls, by the names of libraries and the usual names of paths. A path that was answered so often
# in the same render is polled as well.
_LONG_POLL = re.compile(
    r"long-?_?poll|polling|comet|bayeux|socket\.io|engine\.io|sockjs|signalr|faye|primus|mercure",
    re.IGNORECASE,
)
_POLLED = 4


@dataclass(frozen=True, slots=True)
class Needed:
    """Tells needed requests of the site at ``public`` from others.

    The site is its host, all hosts below it (``www.`` aside) and the ``listed`` ones. ``optional`` are
    patterns of path and query of requests that a snapshot can do without.
    """

    public: URL
    listed: Hosts
    optional: tuple[str, ...] = ()

    def __call__(
        self, method: str, url: str, kind: str, headers: Headers, answered: Mapping[str, int]
    ) -> bool:
        """Whether a request is needed. ``kind``: its Sec-Fetch-Dest; ``answered``: how often
        a GET for a URL without its query was answered before in the same render."""
        if kind not in _KINDS or not self._is_of_the_site(url):
            return False
        target = "/" + url.split("/", 3)[3]
        if any(matches(pattern, target) for pattern in self.optional):
            return False
        if kind not in DATA:
            return True
        # What a page may not read is a beacon (navigator.sendBeacon, mode "no-cors").
        if method == "OPTIONS" or headers.get("Sec-Fetch-Mode") == "no-cors":
            return False
        is_stream = headers.get("Accept", "").startswith("text/event-stream")
        is_poll = _LONG_POLL.search(unquote(target)) or (
            method == "GET" and answered.get(without_query(url), 0) >= _POLLED
        )
        return not (is_stream or is_poll)

    def _is_of_the_site(self, text: str) -> bool:
        try:
            url = URL(text, encoded=True)
            host = normalized(url.raw_host or "")
        except ValueError:
            return False
        site = normalized(self.public.raw_host or "")
        domain = site.removeprefix("www.")
        return host in (site, domain) or host.endswith(f".{domain}") or self._is_listed(url, host)

    def _is_listed(self, url: URL, host: str) -> bool:
        return self.listed.named(host, url.port or 0)


def without_query(url: str) -> str:
    """What the requests of a poll have in common."""
    return url.partition("?")[0]
