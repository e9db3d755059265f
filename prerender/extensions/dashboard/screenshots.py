"""Screenshots and texts of pages: as a visitor sees a page, and as a crawler sees its snapshot.

They are made with the pool's pages, one at a time and in their own section of the queue, so crawlers
wait for one of them at most. The page that was used is then replaced.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from multidict import CIMultiDict
from yarl import URL

from prerender.browser.pool import Pool
from prerender.config import Settings
from prerender.config.settings import RenderSettings
from prerender.content.page_views import Screenshot, look
from prerender.errors import NotRenderable, RenderTimeout
from prerender.gateway import document
from prerender.gateway.document import Document
from prerender.gateway.navigation import Navigation
from prerender.gateway.upstream import Upstream
from prerender.rendering.from_settings import Rendering
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.target import Target

_SECTION = "the dashboard's screenshots"
_CACHE_SECONDS = 60.0
_CACHE_BYTES = 64 * 1024**2
_HTML = "text/html; charset=utf-8"


Fetching = Callable[[], Coroutine[Any, Any, Document]]


class Viewer:
    """Takes screenshots of pages of the site at ``public``, and caches each for a minute."""

    def __init__(
        self,
        public: URL,
        upstream: Upstream,
        navigation: Navigation,
        pool: Pool,
        limits: RenderSettings,
    ) -> None:
        self._public = public
        self._upstream = upstream
        self._navigation = navigation
        self._pool = pool
        self._limits = limits
        self.cache = BoundedMemoryCache(_CACHE_BYTES)
        self._turn = asyncio.Lock()

    async def user(self, target: Target, version: str, remove: Sequence[str] = ()) -> Screenshot:
        """The page as a visitor sees it now. Raises RenderError, OriginError and NotRenderable.

        ``version``: the version of the snapshot, part of the cache key. ``remove``: selectors of the
        elements that it lacks.
        """

        async def fetch() -> Document:
            page = await document.fetch(
                self._upstream,
                self._public,
                target.request_target,
                self._limits.max_bytes,
                self._navigation.headers(target.variant),
                for_a_person=True,
            )
            if page.status // 100 == 3:
                raise NotRenderable(f"redirects to {page.headers['Location']}")
            return page

        name = f"user {target.key} {version}"
        return await self._look(name, target, fetch, scripts=True, remove=remove)

    async def crawler(self, target: Target, snapshot: Snapshot) -> Screenshot:
        """The snapshot as seen by a crawler that runs no scripts. Raises RenderError."""
        return await self._static(f"crawler {target.key} {snapshot.etag}", target, snapshot.body)

    async def preview(self, target: Target, image: str) -> Screenshot:
        """The image of a link preview, in the size that social networks use. Raises RenderError."""
        quoted = image.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        body = (
            "<!doctype html><style>body{margin:0;background:#ddd}img{display:block;width:1280px;"
            f'height:670px;object-fit:cover}}</style><img alt="" src="{quoted}">'
        )
        return await self._static(f"preview {target.key} {image}", target, body.encode(), 670)

    async def _static(self, name: str, target: Target, body: bytes, height: int = 0) -> Screenshot:
        async def made() -> Document:
            return Document(200, CIMultiDict({"Content-Type": _HTML}), body)

        return await self._look(name, target, made, scripts=False, height=height)

    async def _look(
        self,
        name: str,
        target: Target,
        fetch: Fetching,
        *,
        scripts: bool,
        height: int = 0,
        remove: Sequence[str] = (),
    ) -> Screenshot:
        deadline = time.monotonic() + self._limits.timeout
        async with self._turn:
            if isinstance(seen := self.cache.peek(name), Screenshot):
                return seen
            left = deadline - time.monotonic()
            try:
                async with asyncio.timeout(left), self._pool.place(_SECTION) as place:
                    page_document = await fetch()
                    async with self._pool.page(place, left, first=True) as page:
                        with page.visit(page_document, target.variant) as visit:
                            picture = await look(
                                page,
                                target.url,
                                visit,
                                self._limits,
                                scripts=scripts,
                                height=height,
                                variant=target.variant,
                                remove=remove,
                            )
            except TimeoutError:
                raise RenderTimeout(
                    "no screenshot within the time limit", about=target.url
                ) from None
            await self.cache.set(name, picture, _CACHE_SECONDS)
            return picture


def viewer_of(settings: Settings, parts: Rendering) -> Viewer:
    """The viewer that takes screenshots, with the browser of the renderer."""
    navigation = parts.gateway.navigation
    return Viewer(settings.public_url, parts.upstream, navigation, parts.pool, settings.render)
