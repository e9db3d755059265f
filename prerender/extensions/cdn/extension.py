"""Adds tags to snapshots and passes purges on, if [cdn] or [webhooks] events says so."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from prerender.extension import Proxy
from prerender.extensions.cdn.providers import Client, header_of
from prerender.extensions.cdn.purge_forwarding import CdnMetrics, PurgeForwarding
from prerender.extensions.cdn.tags import Tags
from prerender.http.forwarding_headers import authority


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Pass purges on while the context is open."""
    settings = proxy.settings
    tags = Tags(authority(settings.public_url))
    if (header := header_of(settings.cdn)) is not None:
        line = partial(tags.line, header)
        proxy.handler.lines_of = lambda target, snapshot: line(target.path, snapshot.tags)
    outbox = proxy.outbox if "snapshots.purged" in settings.webhooks.events else None
    async with AsyncExitStack() as stack:
        client = forwarding = None
        if settings.cdn.provider != "none":
            client = await stack.enter_async_context(Client.open(settings.cdn))
        if client is not None or outbox is not None:
            site = str(settings.public_url.origin())
            forwarding = PurgeForwarding(proxy.store, tags, client, outbox=outbox, site=site)
            if client is not None:
                proxy.snapshots.when_stored(forwarding.stored)
            proxy.remembered["cdn_purges"] = forwarding
            await stack.enter_async_context(forwarding.forwarding())
        proxy.metrics.watch(CdnMetrics(forwarding))
        yield
