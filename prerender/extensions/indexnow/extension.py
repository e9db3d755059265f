"""Submits changed pages to search engines if [indexnow] key is set."""

import re
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
    volatile = [re.compile(pattern) for pattern in proxy.settings.snapshot.volatile]
    indexnow = IndexNow(proxy.settings.public_url, settings, volatile=volatile)
    proxy.snapshots.when_stored(indexnow.stored)
    async with indexnow.submitting():
        yield
