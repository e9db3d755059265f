"""A snapshot, opened without scripts, shows what the rendered page shows (shown.js): nothing visible is
gone, nothing hidden has appeared, and a screen reader announces the same.

Page and snapshot are compared at the moment of serialization, on all pages of the corpora, and on small
pages with state that only scripts hold.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from multidict import CIMultiDict
from yarl import URL

from prerender.browser.page import Page
from prerender.browser.page_results import Rendered, SerializeOptions
from prerender.config.settings import RenderSettings, SnapshotSettings
from prerender.content.accessibility import lost
from prerender.content.page_views import announcements, listen
from prerender.errors import BrowserGone, NeedsNewContext
from prerender.gateway import document
from prerender.gateway.document import Document
from prerender.rendering.from_settings import Rendering, rendering
from prerender.rendering.snapshot_builder import SnapshotBuilder
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import Overrides, settings_for
from tests.sites.corpus import origin as corpus
from tests.sites.frameworks import origin as frameworks
from tests.sites.frameworks.routes import ROUTES
from tests.sites.wild import application, held_by_scripts
from tests.support import no_programs
from tests.support.readers import SHOWN

SITE = URL("https://www.example.com")
TIMEOUT = 60.0
LIMITS = RenderSettings(budget=10.0, patience=5.0)
MAX_BYTES = 10**8
HTML = CIMultiDict({"Content-Type": "text/html; charset=utf-8"})
PAGES = 3
# Its snapshot loads more pictures than a page may.
MANY_PICTURES = "lazy-images-4000"
# Shows only what is in view, but the snapshot everything.
BY_SCROLLING = "animation-by-scrolling"
# Their drawings change in each frame, so they are not in the snapshot.
MOVING = ("canvas-off-screen", "endless-animation-loop-that-draws")


class _Comparison:
    """Renders pages, and compares each with its snapshot."""

    def __init__(self, parts: Rendering) -> None:
        self._parts = parts
        self._builder = SnapshotBuilder(SITE, parts.upstream.base, MAX_BYTES, SnapshotSettings())
        self._room = asyncio.Semaphore(PAGES)

    @classmethod
    @asynccontextmanager
    async def of(cls, application: web.Application) -> AsyncIterator["_Comparison"]:
        no_programs.check()
        server = TestServer(application)
        await server.start_server()
        overrides: Overrides = {"site": {"url": str(SITE)}, "browser": {"pages": PAGES}}
        try:
            async with rendering(settings_for(str(server.make_url("")), overrides)) as parts:
                yield cls(parts)
        finally:
            await server.close()

    async def problems(self, paths: Iterable[str]) -> str:
        return "\n".join(filter(None, await asyncio.gather(*map(self._problem, paths))))

    async def _problem(self, path: str) -> str:
        async with self._room:
            try:
                return await self._compared(path, first=False)
            except (NeedsNewContext, BrowserGone):
                return await self._compared(path, first=True)

    async def _compared(self, path: str, *, first: bool) -> str:
        """What differs, or ''."""
        plain, _, state = path.partition("#!")
        target = Target.of(SITE, PrettyURL(plain, state))
        navigation = self._parts.gateway.navigation
        await navigation.known(TIMEOUT)
        headers = navigation.headers(target.variant)
        upstream = self._parts.upstream
        found = await document.fetch(upstream, SITE, target.request_target, MAX_BYTES, headers)
        async with self._page(first=first) as page:
            with page.visit(found) as visit:
                rendered = await page.render(
                    target.url, visit, LIMITS, timeout=TIMEOUT, options=SerializeOptions()
                )
                assert isinstance(rendered, Rendered), path
                seen, said = await shown(page), await announcements(page)
        snapshot = self._builder.build(target, found, visit, rendered, time.time())
        async with self._page(first=True) as page:
            with page.visit(Document(200, HTML, snapshot.body)) as visit:
                announced = await listen(page, target.url, visit, LIMITS, timeout=TIMEOUT)
                ours = await shown(page)
        if ours != seen:
            return f"{path}: {ours} instead of {seen}"
        if missing := lost(said, announced):
            return f"{path}: a screen reader misses {missing}"
        return f"{path}: a blob: URL" if b"blob:http" in snapshot.body else ""

    @asynccontextmanager
    async def _page(self, *, first: bool) -> AsyncIterator[Page]:
        pool = self._parts.pool
        async with pool.place() as place, pool.page(place, TIMEOUT, first=first) as page:
            yield page


async def shown(page: Page) -> Any:
    """The visible content of an open page."""
    session, frame_id = page._tab.session, page._tab.target_id
    world = await session.call("Page.createIsolatedWorld", frameId=frame_id, worldName="test")
    return await session.evaluate(SHOWN, contextId=world["executionContextId"])


@pytest.mark.ci_only
@pytest.mark.parametrize(
    "every", [14, pytest.param(1, marks=pytest.mark.long)], ids=["a few", "all"]
)
async def test_state_that_only_scripts_hold(every: int) -> None:
    names = sorted(held_by_scripts.PAGES.keys() - {BY_SCROLLING})[::every]
    async with _Comparison.of(application.application()) as comparison:
        problems = await comparison.problems(f"/held/{name}" for name in names)
    assert not problems, problems


@pytest.mark.parametrize(
    "every", [59, pytest.param(1, marks=pytest.mark.long)], ids=["a few", "all"]
)
async def test_corpus(every: int) -> None:
    names = [name for name in corpus.page_names() if name not in (MANY_PICTURES, *MOVING)]
    async with _Comparison.of(corpus.application()) as comparison:
        problems = await comparison.problems(f"/{name}.html" for name in names[::every])
    assert not problems, problems


@pytest.mark.long
async def test_frameworks() -> None:
    async with _Comparison.of(frameworks.application()) as comparison:
        problems = await comparison.problems(route.path for route in ROUTES)
    assert not problems, problems
