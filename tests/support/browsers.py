"""Browsers that tests share, one after the other: a start takes a second, a snapshot 30 ms.

A browser is lent with its gateway, so only to a proxy with the same settings in [origin], [site],
[browser], [network] and [render] optional. If fetched data is left in it, its pages are replaced
before it is lent again.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from prerender.browser.page import Page
from prerender.config import Settings
from prerender.gateway.assets import AssetStore
from prerender.gateway.needed_requests import Hanging
from prerender.rendering.from_settings import Browsing, Rendering, browsing, rendering_with
from tests.support import no_programs

# Most tests need one of a few kinds.
_KEPT = 4
_CALM_SECONDS = 10.0


class Browsers:
    """The unused browsers with their settings, that which was used last at the end."""

    def __init__(self) -> None:
        self._idle: list[tuple[str, _Browser]] = []

    @asynccontextmanager
    async def lend(self, settings: Settings) -> AsyncIterator[Rendering]:
        """Lend a browser; start it if there is none."""
        site = (settings.origin, settings.public_url)
        kind = repr((*site, settings.browser, settings.network, settings.render.optional))
        found = next((one for one in reversed(self._idle) if one[0] == kind), None)
        if found:
            self._idle.remove(found)
        browser = found[1] if found else await _Browser.start(settings)
        try:
            yield rendering_with(browser.parts, settings)
        finally:
            if await browser.become_as_new():
                self._idle.append((kind, browser))
                await self.close(keep=_KEPT)
            else:
                await browser.close()

    async def close(self, *, keep: int = 0) -> None:
        """Close the browsers that were unused for longest."""
        while len(self._idle) > keep:
            _, browser = self._idle.pop(0)
            await browser.close()


class _Browser:
    def __init__(self, settings: Settings, parts: Browsing, stack: AsyncExitStack) -> None:
        self.parts = parts
        self._settings = settings
        self._stack = stack

    @classmethod
    async def start(cls, settings: Settings) -> "_Browser":
        no_programs.check()
        async with AsyncExitStack() as stack:
            parts = await stack.enter_async_context(browsing(settings))
            return cls(settings, parts, stack.pop_all())

    async def become_as_new(self) -> bool:
        """Forget what was fetched. Returns whether all pages are idle then."""
        gateway = self.parts.gateway
        gateway.hanging = Hanging()
        if not await self._is_calm():
            return False
        if gateway.assets.store.size_bytes:
            gateway.assets.store = AssetStore(self._settings.network.cache_bytes)
            # Chromium's own caches end with its processes.
            async with self._all_pages() as pages:
                for page in pages:
                    page.broken = True
            return await self._is_calm()
        return True

    async def _is_calm(self) -> bool:
        pool = self.parts.pool
        with suppress(TimeoutError):
            async with asyncio.timeout(_CALM_SECONDS):
                while (pool.state.idle, pool.state.waiting) != (pool.state.size, 0):
                    await asyncio.sleep(0.002)
                return True
        return False

    @asynccontextmanager
    async def _all_pages(self) -> AsyncIterator[list[Page]]:
        pool = self.parts.pool
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(
                    pool.page(await stack.enter_async_context(pool.place()), _CALM_SECONDS)
                )
                for _ in range(pool.state.size)
            ]

    async def close(self) -> None:
        await self._stack.aclose()
