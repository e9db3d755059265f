"""Adds tags to snapshots and passes purges on, if [cdn] or [webhooks] events says so."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from prerender.extension import Proxy
from prerender.extensions.cdn.providers import CdnClient, header_of
from prerender.extensions.cdn.purge_forwarding import PurgeForwarding, cdn_metrics
from prerender.extensions.cdn.tags import TagHeader, Tags
from prerender.http.forwarding_headers import authority
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.target import Target


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Pass purges on while the context is open."""
    settings = proxy.settings
    tags = Tags(authority(settings.public_url))
    if (header := header_of(settings.cdn)) is not None:
        proxy.remembered["cdn_tags"] = tags
        proxy.handler.lines_of = partial(_line, tags, header)
    outbox = proxy.outbox if "snapshots.purged" in settings.webhooks.events else None
    async with AsyncExitStack() as stack:
        client = forwarding = None
        if settings.cdn.provider != "none":
            client = await stack.enter_async_context(CdnClient.open(settings.cdn))
        if client is not None or outbox is not None:
            site = str(settings.public_url.origin())
            forwarding = PurgeForwarding(proxy.store, tags, client, outbox=outbox, site=site)
            if client is not None:
                stored = forwarding.stored
                proxy.snapshots.when_stored(
                    lambda target, old, new: stored(target, old.etag if old else "", new)
                )
            proxy.remembered["cdn_purges"] = forwarding
            await stack.enter_async_context(forwarding.forwarding())
        proxy.metrics.watch(cdn_metrics, forwarding)
        yield


def _line(tags: Tags, header: TagHeader, target: Target, snapshot: Snapshot) -> bytes:
    line = tags.line if target.is_long else tags.remembered_line
    return line(header, target.path, snapshot.tags)
