"""Purges snapshots: ``POST /api/v1/purge``. parameters.PurgeBody says what it accepts."""

from collections.abc import Awaitable, Callable, Iterable

import structlog
from aiohttp import web

from prerender.admin.models import Purged
from prerender.admin.page_urls import Site
from prerender.admin.parameters import PurgeBody
from prerender.admin.routes import route
from prerender.snapshots.purges import Purge, tags_of
from prerender.snapshots.stores.invalidation import Invalidation
from prerender.urls.ajax_crawling import ugly_to_pretty
from prerender.urls.patterns import comparable, with_upper_escapes

_MOST_AT_ONCE = 1000

log = structlog.get_logger(__name__)


# How many snapshots purges would apply to; None: unknown.
CountSnapshots = Callable[[Iterable[Purge]], Awaitable[int | None]]


class Purging:
    """Handles purge requests. auth.py authorizes them.

    ``count``: how many snapshots purges would apply to, set by an extension that can list them.
    """

    def __init__(self, purges: Invalidation, site: Site) -> None:
        self._purges = purges
        self._site = site
        self.count: CountSnapshots | None = None

    @route("POST", "/purge", errors=(503,))
    async def purge(self, body: PurgeBody) -> Purged:
        """Purge snapshots, for all replicas."""
        purges = self._purges_of(body)
        count = await self.count(purges) if body.count and self.count else None
        shared = await self._purges.purge(*purges)
        log.info("snapshots_purged", count=len(purges), first=str(purges[0]))
        if not shared:
            raise web.HTTPServiceUnavailable(
                text="purged in this process only: the store is unavailable"
            )
        body_out = Purged(purged=len(purges))
        if body.count:
            body_out["snapshots"] = count
        return body_out

    def _purges_of(self, body: PurgeBody) -> list[Purge]:
        """The purges of a request, at least one. Raises ValueError."""
        soft = body.soft
        if body.all and (body.url or body.prefix or body.pattern or body.tag):
            raise ValueError("all stands alone: it purges every page")
        purges = [Purge("all", soft=soft)] if body.all else []
        purges += [
            Purge("url", with_upper_escapes(self._site.target(text).path), soft)
            for text in body.url
        ]
        purges += [Purge("prefix", self._compared("prefix", text), soft) for text in body.prefix]
        purges += [
            Purge("pattern", self._compared("pattern", text, starts=("/", "*")), soft)
            for text in body.pattern
        ]
        purges += [Purge("tag", _tag(text), soft) for text in body.tag]
        if not 0 < len(purges) <= _MOST_AT_ONCE:
            raise ValueError(f"give from 1 to {_MOST_AT_ONCE} purges")
        return purges

    def _compared(self, name: str, text: str, *, starts: tuple[str, ...] = ("/",)) -> str:
        """A prefix or pattern of the stored paths. Raises ValueError."""
        path = self._site.path(name, text, starts=starts)
        if ugly_to_pretty(path):
            raise ValueError(
                f"{name}: {text[:200]!r}: give it as of pretty URLs, such as /#!/items/"
            )
        return comparable(path)


def _tag(text: str) -> str:
    if tags_of([text]) != (text,):
        raise ValueError(f"tag: {text!r}: give 1 to 128 ASCII characters without commas and spaces")
    return text
