"""The JSON API of one snapshot: ``/api/v1/snapshots/<id>/...``.

The content of a snapshot is untrusted: its HTML and text are served as plain text, in a sandbox
without scripts, and screenshots as images.
"""

import asyncio
import re
import time

from aiohttp import web

from prerender.admin.page_urls import Site
from prerender.admin.parameters import HistoryQuery, query_of
from prerender.browser.page_results import Screenshot
from prerender.extensions.dashboard import conversions
from prerender.extensions.dashboard.histories import Histories
from prerender.extensions.dashboard.history import text_of
from prerender.extensions.dashboard.list_rows import Row
from prerender.extensions.dashboard.screenshots import Viewer
from prerender.extensions.dashboard.snapshot_models import (
    ID_LENGTH,
    Comparison,
    Page,
    VersionComparison,
)
from prerender.snapshots.entry import Entry
from prerender.snapshots.page_changes import changes_of
from prerender.snapshots.stores.store import Store
from prerender.tools.accessibility import lost
from prerender.tools.page_metadata import read

_MOST_LOST = 100
_ID = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}")
_PICTURES = ("user.png", "crawler.png", "preview.png")


class Pages:
    """Handlers for single pages."""

    def __init__(self, site: Site, store: Store, histories: Histories, viewer: Viewer) -> None:
        self._site = site
        self._store = store
        self._histories = histories
        self._viewer = viewer

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        one = "/api/v1/snapshots/{id}"
        app.router.add_get(one, self.details)
        app.router.add_get(f"{one}/html", self.html)
        app.router.add_get(f"{one}/text", self.text)
        app.router.add_get(f"{one}/history", self.history)
        app.router.add_get(f"{one}/comparison", self.comparison)
        for name in _PICTURES:
            app.router.add_get(f"{one}/{name}", self.picture)

    async def details(self, request: web.Request) -> web.Response:
        """All about a page: its snapshot if one is stored, its last render, its versions."""
        key = _id(request)
        entry = await self._store.get(key)
        history = await self._histories.of(key)
        if entry is None and history is None:
            raise web.HTTPNotFound(text="unknown page: render it first")
        path = entry.path if entry else history.path if history else ""
        found: Page = {
            "id": key,
            "url": f"{self._site.url}{path}",
            "snapshot": None,
            "reading": None,
            "render": conversions.of_render(history.render) if history and history.render else None,
            "versions": conversions.of_history(history) if history else [],
        }
        if entry is not None:
            row = Row.of(entry, 0.0)
            reading = await asyncio.to_thread(read, entry.snapshot.body, found["url"])
            found["snapshot"] = conversions.of_entry(entry, row, self._site.url, time.time())
            found["reading"] = conversions.of_reading(reading)
        return web.json_response(found)

    async def html(self, request: web.Request) -> web.Response:
        """The HTML of the snapshot as plain text."""
        return _plain((await self._entry(request)).snapshot.body)

    async def text(self, request: web.Request) -> web.Response:
        """The text of the snapshot."""
        entry = await self._entry(request)
        text = await asyncio.to_thread(text_of, entry.snapshot.body)
        return _plain(text.encode("utf-8", "replace"))

    async def history(self, request: web.Request) -> web.Response:
        """The differences between the texts of two versions; 0 is the newest."""
        history = await self._histories.of(_id(request))
        versions = history.versions if history else ()
        query = query_of(request, HistoryQuery)
        new, old = query.new, query.new + 1 if query.old < 0 else query.old
        if max(new, old) >= len(versions):
            raise web.HTTPNotFound(text=f"{len(versions)} versions are stored")
        texts = versions[old].text, versions[new].text
        differences = await asyncio.to_thread(conversions.of_texts, *texts)
        found: VersionComparison = {**differences, "old": old, "new": new}
        return web.json_response(found)

    async def comparison(self, request: web.Request) -> web.Response:
        """The differences between what visitors and crawlers see, and what a screen reader misses."""
        entry = await self._entry(request)
        target = self._site.target_of(entry)
        changes = changes_of(entry.snapshot.headers)
        user = await self._viewer.user(target, entry.snapshot.etag, changes.remove)
        crawler = await self._viewer.crawler(target, entry.snapshot)
        differences = await asyncio.to_thread(conversions.of_texts, user.text, crawler.text)
        missing = lost(user.announced, crawler.announced)[:_MOST_LOST]
        found: Comparison = {
            **differences,
            "unannounced": missing,
            "removed": [{"selector": one.selector, "text": one.text} for one in user.removed],
            "not_found": [one for one in changes.remove if one not in {r[0] for r in user.removed}],
            "added": list(changes.add),
        }
        return web.json_response(found)

    async def picture(self, request: web.Request) -> web.Response:
        """A PNG: the page, the snapshot, or the image of the link preview."""
        entry = await self._entry(request)
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

    async def _entry(self, request: web.Request) -> Entry:
        entry = await self._store.get(_id(request))
        if entry is None:
            raise web.HTTPNotFound(text="no snapshot of this page is stored")
        return entry


def _id(request: web.Request) -> str:
    key = request.match_info["id"]
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
