"""Submits changed pages to search engines if [indexnow] key is set."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prerender.extension import Proxy
from prerender.extensions.indexnow.indexnow import IndexNow, KeyFile


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Submit changes while the context is open, and serve the key."""
    settings = proxy.settings.indexnow
    if not settings.key:
        yield
        return
    proxy.respond = KeyFile(settings.key, proxy.respond)
    async with IndexNow.open(
        proxy.settings.public_url, settings.key, settings.endpoint, settings.interval
    ) as indexnow:
        proxy.snapshots.when_stored(
            lambda target, before, snapshot: indexnow.stored(target, before, snapshot.etag)
        )
        yield
