"""Imports exported snapshots: ``POST /import`` with JSON on the admin listener.

The JSON has ``pages``: entries of the index of an export (snapshots/archive.py), each with its
``body``. With ``"fresh": true`` they count as rendered now.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog
from aiohttp import web
from yarl import URL

from prerender.admin.purge import refusal
from prerender.http import headers
from prerender.http.encodings import encoded
from prerender.snapshots.adoption import adopt
from prerender.snapshots.archive import Archived
from prerender.snapshots.freshness import Freshness
from prerender.snapshots.purges import tags_of
from prerender.snapshots.snapshot import Snapshot, Target, etag_of
from prerender.snapshots.stores.store import Store
from prerender.urls.addresses import pretty_of
from prerender.urls.ajax_crawling import PrettyURL

MAX_BYTES = 64 * 1024**2
_STATUSES = (200, 404, 410)

log = structlog.get_logger(__name__)


class Importing:
    """Stores imported snapshots in ``store``. auth.py authorizes requests."""

    def __init__(
        self,
        store: Store,
        freshness: Freshness,
        public: URL,
        target_of: Callable[[PrettyURL], Target],
    ) -> None:
        self._store = store
        self._freshness = freshness
        self._site = str(public.origin())
        self._target_of = target_of

    async def __call__(self, request: web.Request) -> web.Response:
        body = bytearray()
        async for part in request.content.iter_any():
            body += part
            if len(body) > MAX_BYTES:
                return refusal(413, f"the body is larger than {MAX_BYTES // 1024**2} MiB")
        try:
            pages = await asyncio.to_thread(self._pages, bytes(body))
        except ValueError as error:
            return refusal(400, str(error))
        counts: Counter[str] = Counter({"kept": 0, "newer": 0, "not kept": 0})
        for target, snapshot, made in pages:
            counts[await adopt(self._store, self._freshness, target, snapshot, made)] += 1
        log.info(
            "snapshots_imported",
            **{name.replace(" ", "_"): count for name, count in counts.items()},
        )
        return web.json_response(counts)

    def _pages(self, body: bytes) -> list[tuple[Target, Snapshot, float]]:
        """Parse the snapshots of a request. Raises ValueError."""
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            raise ValueError("the body is not JSON") from None
        if not isinstance(asked, dict) or not isinstance(asked.get("pages"), list):
            raise ValueError("give an object with pages and, optionally, fresh")
        fresh = asked.get("fresh", False)
        if not isinstance(fresh, bool):
            raise ValueError("fresh: give true or false")
        return [self._page(told, fresh=fresh) for told in asked["pages"]]

    def _page(self, told: Any, *, fresh: bool) -> tuple[Target, Snapshot, float]:
        entry = Archived.read(told)
        text = told.get("body")
        if not isinstance(text, str):
            raise ValueError(f"{entry.path}: body is missing")
        try:
            body = text.encode()
            pretty = pretty_of(f"{self._site}{entry.path}")
        except ValueError as error:
            raise ValueError(f"{entry.path!r}: {error}") from None
        snapshot = entry.snapshot(body)
        if problem := _problem(snapshot):
            raise ValueError(f"{entry.path}: {problem}")
        snapshot = replace(snapshot, encoded=encoded(body))
        return self._target_of(pretty), snapshot, time.time() if fresh else entry.made


def _problem(snapshot: Snapshot) -> str:
    """Why a snapshot cannot be imported, or ''."""
    if snapshot.status not in _STATUSES:
        return f"snapshots with status {snapshot.status} are not stored"
    if headers.kept_on_snapshot(snapshot.headers) != snapshot.headers:
        return "it has headers that are not allowed in a snapshot"
    if any(not re.fullmatch(r"[\x20-\xff]*", value) for _, value in snapshot.headers):
        return "a header has invalid characters"
    if tags_of(snapshot.tags) != snapshot.tags:
        return "its tags are invalid"
    strong = not snapshot.etag.startswith("W/")
    if strong and snapshot.etag != etag_of(snapshot.status, snapshot.headers, snapshot.body):
        return "its file does not match the ETag in the index"
    return ""
