"""Decides which requests the content of a page depends on: the site's own data and scripts. Pure.

They are waited for until ``[render] timeout``, and without them the page is incomplete
(rendering/verdict.py). Other requests are waited for only as long as ``[render] patience``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from cachetools import LRUCache
from yarl import URL

from prerender.gateway.resource_kind import PROGRAMS
from prerender.http.forwarding_headers import AnyHeaders
from prerender.snapshots import steady_clock
from prerender.urls.addresses import url_of
from prerender.urls.hosts import Hosts, normalized
from prerender.urls.patterns import comparable, matches

# Sec-Fetch-Dest of fetch() and XMLHttpRequest (WHATWG Fetch), and of JSON modules.
DATA = ("", "empty", "json")
# Of what is not waited for, but shows an error instead of content if its server fails.
_JUDGED = (*DATA, "websocket", "iframe", "frame", "object", "embed")
_KINDS = (*DATA, *PROGRAMS, "style")
# Long polls, by names of libraries and common paths. A path that got this many responses in a
# render is a poll, too.
_LONG_POLL = re.compile(
    r"long-?_?poll|polling|/poll(?:\?|$)|comet|bayeux|socket\.io|engine\.io|sockjs|signalr|faye|primus"
    r"|mercure",
    re.IGNORECASE,
)
_POLLED = 4
# A request that has hung on so many pages is expected to hang on others, for so long.
_HANGING_PAGES = 3
_HANGING_SECONDS = 60.0
_HANGS_AFTER_SECONDS = 5.0
_MOST_HANGING = 500
_LONGEST_URL = 1000
_MOST_DATA_HOSTS = 100
_LONGEST_HOST = 300
_ELSEWHERE = frozenset(f"page {number} of another replica" for number in range(_HANGING_PAGES))
_NEVER: tuple[frozenset[str], float] = (frozenset(), 0.0)


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
        self, method: str, url: str, kind: str, headers: AnyHeaders, answered: Mapping[str, int]
    ) -> bool:
        """Whether a request is needed. ``kind``: its Sec-Fetch-Dest; ``answered``: the number of
        responses to GETs for the URL without query in this render."""
        if kind not in _KINDS or not self.is_of_the_site(url):
            return False
        target = "/" + url.split("/", 3)[3]
        if self._is_optional(target):
            return False
        if kind not in DATA:
            return True
        if is_beacon(method, headers):
            return False
        is_stream = headers.get("Accept", "").startswith("text/event-stream")
        is_poll = _LONG_POLL.search(unquote(target)) or (
            method == "GET" and answered.get(without_query(url), 0) >= _POLLED
        )
        return not (is_stream or is_poll)

    def judged(self, method: str, url: str, kind: str, headers: AnyHeaders) -> bool:
        """Whether the content may depend on a request, also if it is not ``needed``."""
        if is_beacon(method, headers) or kind not in _JUDGED or not self.is_of_the_site(url):
            return False
        return not self._is_optional("/" + url.split("/", 3)[3])

    def _is_optional(self, target: str) -> bool:
        named = comparable(target) if self.optional else target
        return any(matches(pattern, named) for pattern in self.optional)

    def is_of_the_site(self, text: str) -> bool:
        """Whether a URL is on the site's host, on its subdomains or on a listed host, at any port."""
        try:
            url = url_of(text)
            host = normalized(url.raw_host or "")
        except ValueError:
            return False
        site = normalized(self.public.raw_host or "")
        domain = site.removeprefix("www.")
        return host in (site, domain) or host.endswith(f".{domain}") or self._is_listed(url, host)

    def _is_listed(self, url: URL, host: str) -> bool:
        return self.listed.named(host, url.port or 0)


def is_beacon(method: str, headers: AnyHeaders) -> bool:
    """Whether the page does not read the response: of a preflight, of sendBeacon, in mode "no-cors", or
    of a prefetch, which is for the next page."""
    return (
        method == "OPTIONS"
        or headers.get("Sec-Fetch-Mode") == "no-cors"
        or headers.get("Sec-Purpose", "").startswith("prefetch")
    )


class Hanging:
    """Requests of the site that hang on several pages. They are not waited for, except by one page each
    minute, until one of them gets a response. ``clock``: Unix seconds."""

    learned_name = "hanging requests"

    def __init__(self, clock: Callable[[], float] = steady_clock.now) -> None:
        self._clock = clock
        # The documents on which a URL without query has hung, and when last.
        self._pages: LRUCache[str, tuple[frozenset[str], float]] = LRUCache(_MOST_HANGING)
        self._answered: LRUCache[str, float] = LRUCache(_MOST_HANGING)

    def __contains__(self, url: str) -> bool:
        name = without_query(url)
        documents, last = self._pages.get(name, _NEVER)
        if len(documents) < _HANGING_PAGES:
            return False
        if (now := self._clock()) - last > _HANGING_SECONDS:
            self._pages[name] = documents, now  # this page waits
            return False
        return True

    def ended(self, url: str, document: str, seconds: float, *, answered: bool) -> None:
        """Note the end of a needed request after ``seconds``, with or without a response."""
        name = without_query(url)
        if answered:
            if self._pages.pop(name, None):
                self._answered[name] = self._clock()
        elif seconds > _HANGS_AFTER_SECONDS and len(url) < _LONGEST_URL:
            documents, _ = self._pages.get(name, _NEVER)
            if len(documents) < _HANGING_PAGES:
                documents |= {document}
            self._pages[name] = documents, self._clock()

    def learned(self) -> dict[str, float]:
        """The URLs without query that hang on several pages, and when each did last."""
        return {
            name: last
            for name, (documents, last) in self._pages.items()
            if len(documents) >= _HANGING_PAGES
        }

    def learn(self, known: Mapping[str, float]) -> None:
        """Also know what hangs on pages of other replicas."""
        for name, last in known.items():
            if last > self._answered.get(name, 0.0):
                self._pages[name] = _ELSEWHERE, last


class DataHosts:
    """Hosts of third parties that have given data to pages. ``clock``: Unix seconds."""

    learned_name = "data of third parties"

    def __init__(self, clock: Callable[[], float] = steady_clock.now) -> None:
        self._clock = clock
        self._hosts: LRUCache[str, float] = LRUCache(_MOST_DATA_HOSTS)

    def __contains__(self, host: str) -> bool:
        return host in self._hosts

    def gave(self, host: str) -> None:
        """Note that a host, with its port, has given data."""
        self._hosts[host[:_LONGEST_HOST]] = self._clock()

    def learned(self) -> dict[str, float]:
        """The hosts, and when each gave data last."""
        return dict(self._hosts)

    def learn(self, known: Mapping[str, float]) -> None:
        """Also know what hosts have given data to pages of other replicas."""
        self._hosts.update(known)


def without_query(url: str) -> str:
    """The URL of a poll without its query."""
    return url.partition("?")[0]
