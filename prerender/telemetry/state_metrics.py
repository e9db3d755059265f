"""Metrics of the current state of the proxy, read on scrape."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client.core import Metric

from prerender.browser.pool import Pool, PoolState
from prerender.crawlers.published import PublishedRanges
from prerender.gateway.gateway import Gateway
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.store import Store, StoreState
from prerender.telemetry.scraped_metrics import counter, gauge


class OpenConnection(Protocol):
    """A client connection."""

    @property
    def busy(self) -> bool:
        """Whether a request is in progress."""


class Listener(Protocol):
    """The public listener."""

    @property
    def clients(self) -> Collection[OpenConnection]:
        """Open connections."""

    @property
    def refused(self) -> Mapping[int, int]:
        """Requests refused as malformed or too slow, by status."""

    @property
    def draining(self) -> bool:
        """Whether the proxy is shutting down."""


def state_metrics(
    pool: Pool,
    gateway: Gateway,
    snapshots: CachedSnapshots,
    store: Store,
    server: Listener,
    *,
    published: Sequence[PublishedRanges],
) -> Iterable[Metric]:
    """The state of the proxy's parts."""
    yield from _of_clients(server)
    yield from _of_rendering(pool)
    yield from _of_pages(gateway)
    text = "Snapshots that are being rendered again in the background."
    yield gauge("prerender_refreshes_in_progress", text, snapshots.refreshing)
    yield from _of_the_store(store.state())
    yield gauge(
        "prerender_crawler_ranges_age_seconds",
        "Age of the published lists of addresses of crawlers that were received.",
        {
            one.url: max(0.0, time.time() - one.fetched)
            for one in published
            if one.fetched is not None
        },
        "url",
    )


def _of_clients(server: Listener) -> Iterable[Metric]:
    busy = sum(client.busy for client in server.clients)
    yield gauge(
        "prerender_client_connections",
        "Open client connections; busy ones have a request in progress.",
        {"busy": busy, "idle": len(server.clients) - busy},
        "state",
    )
    yield counter(
        "prerender_bad_requests",
        "Requests refused because they were malformed or too slow.",
        {str(code): count for code, count in server.refused.items()},
        "code",
    )
    yield gauge("prerender_draining", "1 while the proxy shuts down.", server.draining)


def _of_rendering(pool: Pool) -> Iterable[Metric]:
    yield gauge("prerender_ready", "1 if the browser can render.", pool.ready)
    yield from pool_metrics(pool.state)
    yield counter("prerender_browsers_started", "Started browsers.", pool.browsers_started)
    if version := pool.browser_version:
        text = "1; the version of the newest browser is in the label."
        yield gauge("prerender_browser_info", text, {version: 1}, "version")
    text = "Browsers that were replaced or did not start, by cause."
    yield counter("prerender_browser_replacements", text, pool.replacements, "cause")
    text = "Memory of all processes of the current browser."
    yield gauge("prerender_browser_memory_bytes", text, pool.memory_bytes)


def _of_pages(gateway: Gateway) -> Iterable[Metric]:
    traffic = gateway.traffic
    text = "Finished requests of pages by verdict."
    yield counter("prerender_gateway_requests", text, traffic.requests, "verdict")
    text = "Bytes of bodies that pages received, by verdict of the request."
    yield counter("prerender_gateway_received_bytes", text, traffic.received_bytes, "verdict")
    text = "Memory for scripts, styles, images and fonts that renders share."
    yield gauge("prerender_asset_cache_bytes", text, gateway.assets.store.size_bytes)


def _of_the_store(store: StoreState) -> Iterable[Metric]:
    text = "Lookups of snapshots by layer of the store and result."
    yield counter("prerender_store_lookups", text, store.lookups, "layer", "result")
    text = "Failed operations of the store, and invalid entries."
    yield counter("prerender_store_faults", text, store.faults, "operation")
    text = "1 if the slower store (a file, Redis) answers as far as is known, or there is none."
    yield gauge("prerender_store_available", text, store.available)
    text = "Memory of snapshots in memory."
    yield gauge("prerender_store_memory_bytes", text, store.memory_bytes)
    yield gauge("prerender_store_memory_entries", "Snapshots in memory.", store.memory_entries)


def pool_metrics(pool: PoolState) -> Iterable[Metric]:
    """How many pages there are, and how many are needed."""
    yield gauge("prerender_pool_size", "Pages that may render at once.", pool.size)
    yield gauge(
        "prerender_pool_pages",
        "Open pages: idle ones are available, busy ones render or are being cleaned.",
        {"idle": pool.idle, "busy": pool.busy},
        "state",
    )
    yield gauge(
        "prerender_pages_wanted",
        "Pages that would be in use if there were enough: busy ones, and renders that wait for one.",
        pool.wanted,
    )
    yield gauge("prerender_queue_length", "Renders that wait for a page.", pool.waiting)
    yield gauge("prerender_queue_limit", "Renders that may wait for a page.", pool.queue_limit)
