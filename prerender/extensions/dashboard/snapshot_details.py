"""The JSON API of one snapshot: ``/api/v1/snapshots/<id>/...``.

The content of a snapshot is untrusted: its HTML and text are served as plain text, in a sandbox
without scripts, and screenshots as images.
"""

import asyncio
import re
import time

from aiohttp import web

from prerender.admin.models import ID_LENGTH
from prerender.admin.page_urls import Site
from prerender.admin.routes import RENDERS, route
from prerender.content.accessibility import lost
from prerender.content.page_metadata import read
from prerender.content.page_views import Screenshot
from prerender.extensions.dashboard import conversions
from prerender.extensions.dashboard.histories import Histories
from prerender.extensions.dashboard.history import text_of
from prerender.extensions.dashboard.parameters import HistoryQuery
from prerender.extensions.dashboard.screenshots import Viewer
from prerender.extensions.dashboard.snapshot_models import (
    Comparison,
    Page,
    VersionComparison,
)
from prerender.snapshots import steady_clock
from prerender.snapshots.entry import Entry
from prerender.snapshots.list_rows import Row
from prerender.snapshots.page_changes import changes_of
from prerender.snapshots.snapshot import HTML
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.store import Store

_MOST_LOST = 100
_ID = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}")
_ONE = "/snapshots/{key}"
_PICTURES = tuple(f"{_ONE}/{name}.png" for name in ("user", "crawler", "preview"))


class SnapshotHandlers:
    """Handlers for single pages."""

    def __init__(
        self,
        site: Site,
        store: Store,
        histories: Histories,
        viewer: Viewer,
        snapshots: CachedSnapshots,
    ) -> None:
        self._site = site
        self._snapshots = snapshots
        self._store = store
        self._histories = histories
        self._viewer = viewer

    @route("GET", _ONE, errors=(404,))
    async def details(self, key: str) -> Page:
        """Get the details of a page: its snapshot, metadata, last render and versions."""
        _checked(key)
        entry = await self._store.get(key)
        history = await self._histories.of(key)
        if entry is None and history is None:
            raise web.HTTPNotFound(text="unknown page: render it first")
        path = entry.path if entry else history.path if history else ""
        details: Page = {
            "id": key,
            "url": f"{self._site.url}{path}",
            "snapshot": None,
            "reading": None,
            "render": conversions.of_render(history.render) if history and history.render else None,
            "versions": conversions.of_history(history) if history else [],
        }
        if entry is not None:
            row = Row.of(entry, 0.0)
            reading = await asyncio.to_thread(read, entry.snapshot.body, details["url"])
            details["snapshot"] = conversions.of_entry(
                entry, row, self._site.url, time.time(), self._why_rendered(entry, details["url"])
            )
            details["reading"] = conversions.of_reading(reading)
        return details

    def _why_rendered(self, entry: Entry, url: str) -> str | None:
        revalidation = self._snapshots.revalidation
        if revalidation is None or entry.snapshot.content_type != HTML:
            return None
        return revalidation.why_rendered(url, entry, steady_clock.now())

    @route("GET", f"{_ONE}/html", media="text/plain", errors=(404,))
    async def html(self, key: str) -> web.Response:
        """Get the HTML of a snapshot as plain text."""
        return _plain((await self._entry(key)).snapshot.body)

    @route("GET", f"{_ONE}/text", media="text/plain", errors=(404,))
    async def text(self, key: str) -> web.Response:
        """Get the text of a snapshot, one line per text node."""
        entry = await self._entry(key)
        text = await asyncio.to_thread(text_of, entry.snapshot.body)
        return _plain(text.encode("utf-8", "replace"))

    @route("GET", f"{_ONE}/history", errors=(404,))
    async def history(self, key: str, query: HistoryQuery) -> VersionComparison:
        """Compare the texts of two versions of a snapshot."""
        history = await self._histories.of(_checked(key))
        versions = history.versions if history else ()
        new, old = query.new, query.new + 1 if query.old < 0 else query.old
        if max(new, old) >= len(versions):
            raise web.HTTPNotFound(text=f"{len(versions)} versions are stored")
        texts = versions[old].text, versions[new].text
        differences = await asyncio.to_thread(conversions.of_texts, *texts)
        return {**differences, "old": old, "new": new}

    @route("GET", f"{_ONE}/comparison", errors=(404, *RENDERS))
    async def comparison(self, key: str) -> Comparison:
        """Compare the text that a visitor sees with that of the snapshot.

        Both are rendered now, or were within the last minute.
        """
        entry = await self._entry(key)
        target = self._site.target_of(entry)
        changes = changes_of(entry.snapshot.headers)
        user = await self._viewer.user(target, entry.snapshot.etag, changes.remove)
        crawler = await self._viewer.crawler(target, entry.snapshot)
        differences = await asyncio.to_thread(conversions.of_texts, user.text, crawler.text)
        missing = lost(user.announced, crawler.announced)[:_MOST_LOST]
        return {
            **differences,
            "unannounced": missing,
            "removed": [{"selector": one.selector, "text": one.text} for one in user.removed],
            "not_found": [one for one in changes.remove if one not in {r[0] for r in user.removed}],
            "added": list(changes.add),
        }

    @route("GET", *_PICTURES, media="image/png", errors=(404, *RENDERS))
    async def picture(self, key: str, request: web.Request) -> web.Response:
        """Screenshot of the page as a visitor sees it, of the snapshot, or its preview image."""
        entry = await self._entry(key)
        screenshot = await self._screenshot(request.path.rpartition("/")[2], entry)
        headers = {"Cache-Control": "private, max-age=60", "X-Content-Type-Options": "nosniff"}
        return web.Response(body=screenshot.png, content_type="image/png", headers=headers)

    async def _screenshot(self, name: str, entry: Entry) -> Screenshot:
        target = self._site.target_of(entry)
        if name == "user.png":
            changes = changes_of(entry.snapshot.headers)
            return await self._viewer.user(target, entry.snapshot.etag, changes.remove)
        if name == "crawler.png":
            return await self._viewer.crawler(target, entry.snapshot)
        reading = await asyncio.to_thread(read, entry.snapshot.body, target.url)
        if not reading.preview.image:
            raise web.HTTPNotFound(text="the page has no image for link previews")
        return await self._viewer.preview(target, reading.preview.image)

    async def _entry(self, key: str) -> Entry:
        entry = await self._store.get(_checked(key))
        if entry is None:
            raise web.HTTPNotFound(text="no snapshot of this page is stored")
        return entry


def _checked(key: str) -> str:
    if not _ID.fullmatch(key):
        raise web.HTTPNotFound(text="an id has 32 hexadecimal digits")
    return key


def _plain(body: bytes) -> web.Response:
    return web.Response(
        body=body,
        content_type="text/plain",
        charset="utf-8",
        headers={
            "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        },
    )
