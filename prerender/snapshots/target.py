"""Targets: what to render, and the cache key of its snapshot. Pure."""

import string
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from urllib.parse import quote

from yarl import URL

from prerender.snapshots.variants import ORDINARY, Variant
from prerender.urls.ajax_crawling import PrettyURL
from prerender.urls.patterns import with_upper_escapes
from prerender.urls.tracking import NO_TRACKING, Tracking

# Browsers and sitemaps (sitemaps.org) allow about as much.
_LONGEST_URL = 2048


@dataclass(frozen=True, slots=True)
class Target:
    """What to render. ``request_target``: path and query of its document, as the crawler sent them.

    ``url``: the public URL that the browser opens; ``path``: the part of it after the host, with the
    ``#!`` state. ``key``: the cache key; two targets have the same key only if they are the same
    ``variant`` of the same page.
    """

    request_target: str
    url: str
    path: str = field(repr=False)
    key: str = field(repr=False)
    variant: Variant = ORDINARY

    @property
    def is_long(self) -> bool:
        """Whether its URL is longer than those of real sites, so that only the store remembers it: a
        client could fill the memory with such URLs."""
        return len(self.url) > _LONGEST_URL

    @property
    def ascii_url(self) -> str:
        """The URL with its other octets escaped, for other programs."""
        return quote(self.url, string.punctuation, errors="surrogateescape")

    def shortened(self) -> "Target":
        """The target, or only the beginning of a long one, for lists that people read."""
        if not self.is_long:
            return self
        return replace(self, request_target="", path="", url=self.url[: _LONGEST_URL + 1])

    @classmethod
    def of(
        cls,
        public: URL,
        pretty: PrettyURL,
        tracking: Tracking = NO_TRACKING,
        variant: Variant = ORDINARY,
    ) -> "Target":
        """The target of a pretty URL without ``tracking`` parameters, on the site at ``public``."""
        state, hash_sign, anchor = pretty.fragment.partition("#")
        state = tracking.without(state) + hash_sign + anchor
        pretty = PrettyURL(tracking.without(pretty.path), state)
        # Only of the state: origins may redirect from one spelling of their paths to the other.
        path = pretty.path + with_upper_escapes(pretty.location_hash)
        url = f"{public.origin()}{path}"
        # URLs have no spaces.
        name = url if variant == ORDINARY else f"{url} {variant}"
        key = blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        return cls(pretty.path, url, path, key, variant)
