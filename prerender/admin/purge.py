"""Purges snapshots: ``POST /api/v1/purge``. parameters.PurgeBody says what it accepts."""

import structlog
from aiohttp import web

from prerender.admin.models import Purged
from prerender.admin.page_urls import Site
from prerender.admin.parameters import PurgeBody, body_of
from prerender.admin.problem_details import problem
from prerender.extensions.dashboard.snapshot_lists import Lists
from prerender.snapshots.purges import Purge, tags_of
from prerender.snapshots.stores.invalidation import Invalidation

_MOST_AT_ONCE = 1000

log = structlog.get_logger(__name__)


class Purging:
    """Handles purge requests. auth.py authorizes them."""

    def __init__(self, purges: Invalidation, lists: Lists, site: Site) -> None:
        self._purges = purges
        self._lists = lists
        self._site = site

    def add_to(self, app: web.Application) -> None:
        """Add the route."""
        app.router.add_post("/api/v1/purge", self._purge)

    async def _purge(self, request: web.Request) -> web.Response:
        body = body_of(await request.read(), PurgeBody)
        purges = self._asked_for(body)
        count = await self._lists.count(purges) if body.count else None
        told = [await self._purges.purge(purge) for purge in purges]
        log.info("snapshots_purged", count=len(purges), first=str(purges[0]))
        if not all(told):
            return problem(503, "purged in this process only: the store is unavailable")
        answer = Purged(purged=len(purges))
        if body.count:
            answer["snapshots"] = count
        return web.json_response(answer)

    def _asked_for(self, body: PurgeBody) -> list[Purge]:
        """The purges of a request, at least one. Raises ValueError."""
        soft = body.soft
        found = [Purge("all", soft=soft)] if body.all else []
        found += [Purge("url", self._site.target(text).path, soft) for text in body.url]
        found += [Purge("prefix", self._site.path("prefix", text), soft) for text in body.prefix]
        found += [
            Purge("pattern", self._site.path("pattern", text, starts=("/", "*")), soft)
            for text in body.pattern
        ]
        found += [Purge("tag", _tag(text), soft) for text in body.tag]
        if not 0 < len(found) <= _MOST_AT_ONCE:
            raise ValueError(f"give from 1 to {_MOST_AT_ONCE} purges")
        return found


def _tag(text: str) -> str:
    if tags_of([text]) != (text,):
        raise ValueError(f"tag: {text!r}: give 1 to 128 ASCII characters without commas and spaces")
    return text
