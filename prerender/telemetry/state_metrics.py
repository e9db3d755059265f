"""Metrics of the current state of the proxy, read on scrape."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from prerender.browser.pool import Pool, PoolState
from prerender.crawlers.published import PublishedRanges
from prerender.gateway.gateway import Gateway
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.store import Store
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


class StateMetrics(Collector):
    """Reads the state of the proxy's parts."""

    def __init__(
        self,
        pool: Pool,
        gateway: Gateway,
        snapshots: CachedSnapshots,
        store: Store,
        server: Listener,
        *,
        published: Sequence[PublishedRanges],
    ) -> None:
        self._pool = pool
        self._gateway = gateway
        self._snapshots = snapshots
        self._store = store
        self._server = server
        self._published = published

    def collect(self) -> Iterable[Metric]:
        """The current metrics."""
        yield from self._of_clients()
        yield from self._of_rendering()
        yield from self._of_pages()
        yield from self._of_the_store()
        yield gauge(
            "prerender_crawler_ranges_age_seconds",
            "Age of the published lists of addresses of crawlers that were received.",
            ("url",),
            {
                (one.url,): max(0.0, time.time() - one.fetched)
                for one in self._published
                if one.fetched is not None
            },
        )

    def _of_clients(self) -> Iterable[Metric]:
        server = self._server
        busy = sum(client.busy for client in server.clients)
        yield gauge(
            "prerender_client_connections",
            "Open client connections; busy ones have a request in progress.",
            ("state",),
            {("busy",): busy, ("idle",): len(server.clients) - busy},
        )
        yield counter(
            "prerender_bad_requests",
            "Requests refused because they were malformed or too slow.",
            ("code",),
            {(str(code),): count for code, count in server.refused.items()},
        )
        yield GaugeMetricFamily(
            "prerender_draining", "1 while the proxy shuts down.", value=server.draining
        )

    def _of_rendering(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "prerender_ready", "1 if the browser can render.", value=self._pool.ready
        )
        yield from pool_metrics(self._pool.state)
        yield CounterMetricFamily(
            "prerender_browsers_started",
            "Started browsers.",
            value=self._pool.browsers_started,
        )
        if version := self._pool.browser_version:
            yield gauge(
                "prerender_browser_info",
                "1; the version of the newest browser is in the label.",
                ("version",),
                {(version,): 1},
            )
        yield counter(
            "prerender_browser_replacements",
            "Browsers that were replaced or did not start, by cause.",
            ("cause",),
            {(cause,): count for cause, count in self._pool.replacements.items()},
        )
        yield GaugeMetricFamily(
            "prerender_browser_memory_bytes",
            "Memory of all processes of the current browser.",
            value=self._pool.memory_bytes,
        )

    def _of_pages(self) -> Iterable[Metric]:
        traffic = self._gateway.traffic
        yield counter(
            "prerender_gateway_requests",
            "Finished requests of pages by verdict.",
            ("verdict",),
            {(verdict,): count for verdict, count in traffic.requests.items()},
        )
        yield counter(
            "prerender_gateway_received_bytes",
            "Bytes of bodies that pages received, by verdict of the request.",
            ("verdict",),
            {(verdict,): count for verdict, count in traffic.received_bytes.items()},
        )
        yield GaugeMetricFamily(
            "prerender_asset_cache_bytes",
            "Memory for scripts, styles, images and fonts that renders share.",
            value=self._gateway.assets.store.size_bytes,
        )

    def _of_the_store(self) -> Iterable[Metric]:
        store = self._store.state()
        yield GaugeMetricFamily(
            "prerender_refreshes_in_progress",
            "Snapshots that are being rendered again in the background.",
            value=self._snapshots.refreshing,
        )
        yield counter(
            "prerender_store_lookups",
            "Lookups of snapshots by layer of the store and result.",
            ("layer", "result"),
            {(layer, result): count for (layer, result), count in store.lookups.items()},
        )
        yield counter(
            "prerender_store_faults",
            "Failed operations of the store, and invalid entries.",
            ("operation",),
            {(operation,): count for operation, count in store.faults.items()},
        )
        yield GaugeMetricFamily(
            "prerender_store_available",
            "1 if the slower store (a file, Redis) answers as far as is known, or there is none.",
            value=store.available,
        )
        yield GaugeMetricFamily(
            "prerender_store_memory_bytes",
            "Memory of snapshots in memory.",
            value=store.memory_bytes,
        )
        yield GaugeMetricFamily(
            "prerender_store_memory_entries", "Snapshots in memory.", value=store.memory_entries
        )


def pool_metrics(pool: PoolState) -> Iterable[Metric]:
    """How many pages there are, and how many are needed."""
    yield GaugeMetricFamily(
        "prerender_pool_size", "Pages that may render at once.", value=pool.size
    )
    yield gauge(
        "prerender_pool_pages",
        "Open pages: idle ones are available, busy ones render or are being cleaned.",
        ("state",),
        {("idle",): pool.idle, ("busy",): pool.busy},
    )
    yield GaugeMetricFamily(
        "prerender_pages_wanted",
        "Pages that would be in use if there were enough: busy ones, and renders that wait for one.",
        value=pool.wanted,
    )
    yield GaugeMetricFamily(
        "prerender_queue_length", "Renders that wait for a page.", value=pool.waiting
    )
    yield GaugeMetricFamily(
        "prerender_queue_limit", "Renders that may wait for a page.", value=pool.queue_limit
    )
