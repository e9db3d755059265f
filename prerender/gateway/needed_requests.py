"""Decides which requests the content of a page depends on: the site's own data and scripts. Pure.

They are waited for until ``[render] timeout``, and without them the page is incomplete
(rendering/verdict.py). Other requests are waited for only as long as ``[render] patience``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from yarl import URL

from prerender.gateway.resource_kind import PROGRAMS
from prerender.http.forwarding_headers import Headers
from prerender.urls.hosts import Hosts, normalized
from prerender.urls.patterns import matches

# Sec-Fetch-Dest of fetch() and XMLHttpRequest (WHATWG Fetch), and of scripts and styles.
DATA = ("", "empty")
_KINDS = (*DATA, *PROGRAMS, "style")
# Long polls, by names of libraries and common paths. A path that got this many responses in a
# render is a poll, too.
_LONG_POLL = re.compile(
    r"long-?_?poll|polling|comet|bayeux|socket\.io|engine\.io|sockjs|signalr|faye|primus|mercure",
    re.IGNORECASE,
)
_POLLED = 4


@dataclass(frozen=True, slots=True)
class Needed:
    """Identifies needed requests of the site at ``public``.

    The site is its host, its subdomains (without ``www.``) and the ``listed`` hosts. ``optional``:
    patterns of path and query of requests that a snapshot does not need.
    """

    public: URL
    listed: Hosts
    optional: tuple[str, ...] = ()

    def __call__(
        self, method: str, url: str, kind: str, headers: Headers, answered: Mapping[str, int]
    ) -> bool:
        """Whether a request is needed. ``kind``: its Sec-Fetch-Dest; ``answered``: the number of
        responses to GETs for the URL without query in this render."""
        if kind not in _KINDS or not self._is_of_the_site(url):
            return False
        target = "/" + url.split("/", 3)[3]
        if any(matches(pattern, target) for pattern in self.optional):
            return False
        if kind not in DATA:
            return True
        # A response that the page may not read belongs to a beacon (sendBeacon, mode "no-cors").
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
    """The URL of a poll without its query."""
    return url.partition("?")[0]
