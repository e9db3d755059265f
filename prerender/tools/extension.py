"""Adds the import of exported snapshots to the admin listener."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prerender.extension import Proxy
from prerender.tools.export.imports import ImportApi


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Add the route."""
    public = proxy.settings.public_url
    proxy.admin.add(ImportApi(proxy.store, proxy.freshness, public, proxy.target_of))
    yield
