"""Sends events of pages if [webhooks] events has any of them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prerender.extension import Proxy
from prerender.extensions.page_events.page_events import PageEvents
from prerender.extensions.page_events.page_state import KINDS


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Follow renders and stored snapshots while the context is open."""
    settings = proxy.settings
    kinds = {*settings.webhooks.events} & {*KINDS}
    if proxy.outbox is None or not kinds:
        yield
        return
    volatile = [re.compile(pattern) for pattern in settings.snapshot.volatile]
    site = str(settings.public_url.origin())
    events = PageEvents(proxy.store, proxy.outbox, kinds, site, volatile)
    proxy.telemetry.renders.subscribe(events.rendered)
    proxy.snapshots.when_stored(lambda target, _, snapshot: events.stored(target, snapshot))
    proxy.remembered["page_events"] = events
    async with events.sending():
        yield
