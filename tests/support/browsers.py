"""Browsers that tests share, one after the other: a start takes a second, a snapshot 30 ms.

A browser is lent with its gateway, so only to a proxy with the same [origin], [site], [browser] and
[network] settings. It is lent again only if nothing of the last test is left in it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from prerender.config import Settings
from prerender.rendering.from_settings import Browsing, Rendering, browsing, rendering_with

# Most tests need one of a few kinds.
_KEPT = 3
_CALM_SECONDS = 10.0


class Browsers:
    """The unused browsers, by settings."""

    def __init__(self) -> None:
        self._idle: OrderedDict[str, _Browser] = OrderedDict()

    @asynccontextmanager
    async def lend(self, settings: Settings) -> AsyncIterator[Rendering]:
        """Lend a browser; start it if there is none."""
        kind = repr((settings.origin, settings.public_url, settings.browser, settings.network))
        browser = self._idle.pop(kind, None) or await _Browser.start(settings)
        try:
            yield rendering_with(browser.parts, settings)
        finally:
            if await browser.is_as_new():
                self._idle[kind] = browser
                await self.close(keep=_KEPT)
            else:
                await browser.close()

    async def close(self, *, keep: int = 0) -> None:
        """Close the browsers that were unused for longest."""
        while len(self._idle) > keep:
            _, browser = self._idle.popitem(last=False)
            await browser.close()


class _Browser:
    def __init__(self, parts: Browsing, stack: AsyncExitStack) -> None:
        self.parts = parts
        self._stack = stack

    @classmethod
    async def start(cls, settings: Settings) -> "_Browser":
        async with AsyncExitStack() as stack:
            parts = await stack.enter_async_context(browsing(settings))
            return cls(parts, stack.pop_all())

    async def is_as_new(self) -> bool:
        """Whether all pages return, and no fetched data is left for the next render."""
        pool, assets = self.parts.pool, self.parts.gateway.assets
        with suppress(TimeoutError):
            async with asyncio.timeout(_CALM_SECONDS):
                while (pool.state.idle, pool.state.waiting) != (pool.state.size, 0):
                    await asyncio.sleep(0.002)
                return assets.store.size_bytes == 0
        return False

    async def close(self) -> None:
        await self._stack.aclose()
