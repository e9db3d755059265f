"""Targets: what to render, and the cache key of its snapshot. Pure."""

from dataclasses import dataclass, field
from hashlib import blake2b

from yarl import URL

from prerender.snapshots.variants import ORDINARY, Variant
from prerender.urls.ajax_crawling import PrettyURL
from prerender.urls.tracking import NO_TRACKING, Tracking


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

    @classmethod
    def of(
        cls,
        public: URL,
        pretty: PrettyURL,
        tracking: Tracking = NO_TRACKING,
        variant: Variant = ORDINARY,
    ) -> "Target":
        """The target of a pretty URL without ``tracking`` parameters, on the site at ``public``."""
        pretty = pretty._replace(path=tracking.without(pretty.path))
        path = str(pretty)
        url = f"{public.origin()}{path}"
        # URLs have no spaces.
        name = url if variant == ORDINARY else f"{url} {variant}"
        key = blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        return cls(pretty.path, url, path, key, variant)
