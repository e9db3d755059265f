"""Purges snapshots: ``POST /purge`` with JSON on the admin listener.

The JSON has one or more of ``url``, ``prefix``, ``pattern`` and ``tag``, each a string or a list of
strings, or ``"all": true``; and, optionally, ``"soft": true``. URLs are pretty or ugly URLs of the
site, with or without scheme and host.
"""

import json
from typing import Any

import structlog
from aiohttp import web
from yarl import URL

from prerender.snapshots.purges import Purge, tags_of
from prerender.snapshots.snapshot import Target
from prerender.snapshots.stores.invalidation import Invalidation
from prerender.urls.addresses import pretty_of
from prerender.urls.tracking import Tracking

_MOST_AT_ONCE = 1000
_WORDS = ("url", "prefix", "pattern", "tag")

log = structlog.get_logger(__name__)


class Purging:
    """Handles purge requests. auth.py authorizes them."""

    def __init__(self, purges: Invalidation, public: URL, tracking: Tracking) -> None:
        self._purges = purges
        self._public = public
        self._site = str(public.origin())
        self._tracking = tracking

    async def __call__(self, request: web.Request) -> web.Response:
        try:
            count, told = await self.purge(await request.read())
        except ValueError as error:
            return refusal(400, str(error))
        if not told:
            return refusal(
                503, "purged in this process only: the store is unavailable to other replicas"
            )
        return web.json_response({"purged": count})

    async def purge(self, body: bytes) -> tuple[int, bool]:
        """Purge as a JSON body says. Returns the number of purges, and whether all replicas know them.

        Raises ValueError.
        """
        purges = self._asked_for(body)
        told = [await self._purges.purge(purge) for purge in purges]
        log.info("snapshots_purged", count=len(purges), first=str(purges[0]))
        return len(purges), all(told)

    def _asked_for(self, body: bytes) -> list[Purge]:
        """Parse the purges of a request, at least one. Raises ValueError."""
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            raise ValueError("the body is not JSON") from None
        if not isinstance(asked, dict) or not asked.keys() <= {*_WORDS, "all", "soft"}:
            raise ValueError(
                f"give an object with {', '.join(_WORDS)} or all and, optionally, soft"
            )
        for word in ("all", "soft"):
            if not isinstance(asked.get(word, False), bool):
                raise ValueError(f"{word}: give true or false")
        soft = asked.get("soft", False)
        found = [Purge("all", soft=soft)] if asked.get("all") else []
        for word in _WORDS:
            for text in _texts(asked, word):
                found.append(self._purge_of(word, text, soft=soft))
        if not 0 < len(found) <= _MOST_AT_ONCE:
            raise ValueError(f"give from 1 to {_MOST_AT_ONCE} purges")
        return found

    def _purge_of(self, word: str, text: str, *, soft: bool) -> Purge:
        if word == "tag":
            if tags_of([text]) != (text,):
                raise ValueError(
                    f"tag: {text!r}: give 1 to 128 ASCII characters without commas and spaces"
                )
            return Purge("tag", text, soft)
        path = text.removeprefix(self._site) or "/"
        allowed = ("/", "*") if word == "pattern" else ("/",)
        if not path.startswith(allowed):
            raise ValueError(f"{word}: {text!r}: give a URL of {self._site}, or a path")
        if word == "prefix":
            return Purge("prefix", path, soft)
        if word == "pattern":
            return Purge("pattern", path, soft)
        try:
            pretty = pretty_of(f"{self._site}{path}")
        except ValueError as error:
            raise ValueError(f"url: {text!r}: {error}") from None
        return Purge("url", Target.of(self._public, pretty, self._tracking).path, soft)


def _texts(asked: dict[str, Any], word: str) -> list[str]:
    value = asked.get(word, [])
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"{word}: give a string or a list of strings")
    return texts


def refusal(status: int, reason: str) -> web.Response:
    """An error response."""
    return web.json_response({"error": reason}, status=status)
