"""Serves /llms.txt and /llms-full.txt, made of stored snapshots (llmstxt.org).

With a sitemap, its pages are listed, in its order; without one, all stored pages but those with a
query. Only what is stored is read: nothing is rendered for these files.
"""

import asyncio
import time
from dataclasses import replace

import structlog
from cachetools import LRUCache

from prerender.errors import SitemapError, StoreError
from prerender.extension import Proxy
from prerender.extensions.markdown.discovery import OriginFiles
from prerender.extensions.markdown.llms import (
    LlmsPage,
    full,
    listed,
    llms_txt,
    without_copies,
    without_front_matter,
)
from prerender.extensions.markdown.snapshots import MarkdownSnapshots
from prerender.http import forwarding_headers
from prerender.http.encodings import encoded
from prerender.http.message_head import Request
from prerender.proxy.client_stream import ClientStream
from prerender.proxy.responses import snapshot_response
from prerender.proxy.vary import vary_line
from prerender.sitemaps.origin_sitemaps import OriginSitemaps
from prerender.snapshots.list_rows import Query, Row
from prerender.snapshots.request_coalescing import Coalesced
from prerender.snapshots.snapshot import CacheResult, Snapshot, SnapshotResult, etag_of
from prerender.snapshots.snapshot_lists import Lists
from prerender.urls.markdown_urls import markdown_url

LLMS, LLMS_FULL = "/llms.txt", "/llms-full.txt"
# How long a file is served before it is made again.
FRESH_SECONDS = 300.0
# How long to wait after the store could not be listed: that may take seconds, and anyone may ask.
_RETRY_SECONDS = 30.0
MOST_PAGES = 2000
MOST_FULL_BYTES = 4 * 1024 * 1024
_SITEMAP_SECONDS = 30.0
_TEXT = "text/plain; charset=utf-8"

log = structlog.get_logger(__name__)


class LlmsFiles:
    """Serves both files, and passes all other requests on.

    The origin's own file wins, and a site without stored pages has none.
    """

    def __init__(self, proxy: Proxy, files: OriginFiles, markdown: MarkdownSnapshots) -> None:
        self._handler = proxy.respond
        self._files = files
        self._hosts = proxy.handler.hosts
        self._store = proxy.store
        self._lists = Lists(proxy.store)
        self._markdown = markdown
        self._site = proxy.site
        self._sitemaps = OriginSitemaps(proxy.rendering.upstream, proxy.settings.public_url)
        self._made: dict[str, tuple[float, Snapshot | None]] = {}
        self._making: Coalesced[Snapshot | None] = Coalesced()
        self._list_again = float("-inf")
        # What is said of a page, by cache key, as long as it has the same snapshot.
        self._pages: LRUCache[str, tuple[float, LlmsPage | None]] = LRUCache(MOST_PAGES)

    async def __call__(self, request: Request, client: ClientStream) -> None:
        """Handle a request."""
        if (
            request.target not in (LLMS, LLMS_FULL)
            or request.method not in ("GET", "HEAD")
            or request.host not in self._hosts
            or forwarding_headers.is_marked(request.headers)
            or await self._files.has(request.target)
        ):
            await self._handler(request, client)
            return
        made, snapshot = await self._current(request.target)
        if snapshot is None:
            await self._handler(request, client)
            return
        age = time.monotonic() - made
        result = SnapshotResult(snapshot, CacheResult.HIT, age=age, ttl=FRESH_SECONDS - age)
        await client.respond(snapshot_response(request, result, vary_line(["Accept-Encoding"])))

    async def close(self) -> None:
        """Cancel what is being made."""
        await self._making.close()

    async def _current(self, target: str) -> tuple[float, Snapshot | None]:
        made, snapshot = self._made.get(target, (float("-inf"), None))
        # Without pages, the next snapshot may be the first one.
        is_due = snapshot is None or time.monotonic() - made >= FRESH_SECONDS
        if is_due and time.monotonic() >= self._list_again:
            snapshot, _ = await self._making.run(target, lambda: self._make(target))
            made, _ = self._made.get(target, (time.monotonic(), None))
        return made, snapshot

    async def _make(self, target: str) -> Snapshot | None:
        _, old = self._made.get(target, (0.0, None))
        try:
            pages = await self._listed()
        except StoreError:
            self._list_again = time.monotonic() + _RETRY_SECONDS
            return old
        text = ""
        if pages:
            text = self._index(list(pages.values())) if target == LLMS else await self._full(pages)
        snapshot = None
        if text:
            body = text.encode("utf-8", "replace")
            same = old is not None and old.body == body
            snapshot = old if same else await asyncio.to_thread(_snapshot, body)
        self._made[target] = (time.monotonic(), snapshot)
        return snapshot

    def _index(self, pages: list[LlmsPage]) -> str:
        def link(page: LlmsPage) -> str:
            url = markdown_url(page.url.removeprefix(self._site.url))
            return f"{self._site.url}{url}" if url else page.url

        return llms_txt(pages, link)

    async def _full(self, pages: dict[str, LlmsPage]) -> str:
        parts: list[str] = []
        size = 0
        for key, page in pages.items():
            entry = await self._store.get(key)
            if entry is None:
                continue
            target = self._site.target_of(entry)
            try:
                markdown = await self._markdown.of(target, entry.snapshot)
            except ValueError as error:
                log.warning("markdown_failed", url=page.url, reason=str(error))
                continue
            part = full(replace(page, text=without_front_matter(markdown.body)))
            size += len(part.encode("utf-8", "replace"))
            if size > MOST_FULL_BYTES:
                parts.append(f"More pages are listed in {self._site.url}{LLMS}\n")
                break
            parts.append(part)
        return "\n".join(parts)

    async def _listed(self) -> dict[str, LlmsPage]:
        """The pages in the files by cache key, in their order."""
        selected = await self._lists.find(Query(sort="path", status=200, limit=_MOST_ROWS))
        rows: dict[str, Row] = {}
        for row in selected.rows:
            if row.form == "html":
                rows.setdefault(row.path, row)  # the first of its variants
        paths = await self._in_sitemap()
        if not paths:
            paths = [path for path in rows if "?" not in path]
        pages: dict[str, LlmsPage] = {}
        for path in paths:
            if (listed_row := rows.get(path)) and (page := await self._page(listed_row)):
                pages[listed_row.key] = page
            if len(pages) >= MOST_PAGES:
                break
        originals = set(without_copies(pages.values()))
        return {key: page for key, page in pages.items() if page in originals}

    async def _page(self, row: Row) -> LlmsPage | None:
        known = self._pages.get(row.key)
        if known is not None and known[0] == row.stored:
            return known[1]
        entry = await self._store.get(row.key)
        page = None
        # A page that the owner stores against its Cache-Control is private all the same.
        if entry is not None and entry.snapshot.storable:
            url = f"{self._site.url}{row.path}"
            try:
                page = await asyncio.to_thread(listed, url, entry.snapshot)
            except ValueError:
                page = None  # noindex
        self._pages[row.key] = row.stored, page
        return page

    async def _in_sitemap(self) -> list[str]:
        """The paths in the sitemaps of the site; none if they cannot be read."""
        paths: dict[str, None] = {}
        try:
            async with asyncio.timeout(_SITEMAP_SECONDS):
                sitemaps = await self._sitemaps.named()
                async for entry in self._sitemaps.read(sitemaps, _ignored):
                    try:
                        paths[self._site.target(entry.url).path] = None
                    except ValueError:
                        continue  # of another site
                    if len(paths) >= _MOST_ROWS:
                        break
        except TimeoutError:
            log.info("llms_sitemap_slow", seconds=_SITEMAP_SECONDS)
        return list(paths)


_MOST_ROWS = 10 * MOST_PAGES


def _ignored(error: SitemapError) -> None:
    log.info("llms_sitemap_unreadable", reason=str(error))


def _snapshot(body: bytes) -> Snapshot:
    return Snapshot(
        200,
        (),
        body,
        etag_of(200, (), body),
        int(time.time()),
        encoded=encoded(body),
        content_type=_TEXT,
    )
