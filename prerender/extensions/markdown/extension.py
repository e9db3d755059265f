"""Serves snapshots as Markdown to those who ask for it, and with [markdown] at URLs of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prerender.extension import Proxy
from prerender.extensions.markdown.discovery import MarkdownDiscovery, OriginFiles
from prerender.extensions.markdown.live_llms import LlmsFiles
from prerender.extensions.markdown.snapshots import MarkdownSnapshots


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Convert snapshots while the context is open."""
    proxy.handler.markdown = markdown = MarkdownSnapshots(proxy.snapshots, proxy.store)
    settings, llms = proxy.settings, None
    if settings.markdown.enabled:
        files = OriginFiles(proxy.rendering.upstream, settings.public_url)
        signal = settings.markdown.content_signal
        proxy.handler.discover(
            MarkdownDiscovery(files, proxy.handler.hosts, proxy.triggers, signal)
        )
        proxy.respond = llms = LlmsFiles(proxy, files, markdown)
    try:
        yield
    finally:
        if llms is not None:
            await llms.close()
        await markdown.close()
