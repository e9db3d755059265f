"""Serves snapshots as Markdown to those who ask for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prerender.extension import Proxy
from prerender.extensions.markdown.snapshots import MarkdownSnapshots


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Convert snapshots while the context is open."""
    proxy.handler.markdown = markdown = MarkdownSnapshots(proxy.snapshots, proxy.store)
    try:
        yield
    finally:
        await markdown.close()
