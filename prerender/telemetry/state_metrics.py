"""What the parts of the proxy are at this moment, for Prometheus: read when somebody asks."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from prerender.http1.server import Server
from prerender.rendering.gateway import Gateway
from prerender.rendering.pool import Pool
from prerender.snapshots.cached import CachedSnapshots
from prerender.snapshots.stores.store import Store


class StateMetrics(Collector):
    """Looks at the parts of a proxy."""

    def __init__(
        self,
        pool: Pool,
        gateway: Gateway,
        snapshots: CachedSnapshots,
        store: Store,
        server: Server,
    ) -> None:
        self._pool = pool
        self._gateway = gateway
        self._snapshots = snapshots
        self._store = store
        self._server = server

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        yield from self._of_rendering()
        yield from self._of_the_store()
        connections = GaugeMetricFamily(
            "prerender_client_connections",
            "Open connections of clients; busy ones have a request that is being answered.",
            labels=("state",),
        )
        busy = sum(connection.busy for connection in self._server.connections)
        connections.add_metric(("busy",), busy)
        connections.add_metric(("idle",), len(self._server.connections) - busy)
        yield connections
        refused = CounterMetricFamily(
            "prerender_bad_requests",
            "Requests that were refused because they are not well-formed, or took too long.",
            labels=("code",),
        )
        for code, count in sorted(self._server.refused.items()):
            refused.add_metric((str(code),), count)
        yield refused
        yield GaugeMetricFamily(
            "prerender_draining",
            "1 while the proxy shuts down.",
            value=self._server.draining,
        )

    def _of_rendering(self) -> Iterable[Metric]:
        pool = self._pool.state
        yield GaugeMetricFamily(
            "prerender_ready", "1 if a page of the browser can be had.", value=self._pool.ready
        )
        yield GaugeMetricFamily(
            "prerender_pool_size", "Pages that may render at once.", value=pool.size
        )
        pages = GaugeMetricFamily(
            "prerender_pool_pages",
            "Pages of the browser: idle ones can be had at once, busy ones render or are cleaned.",
            labels=("state",),
        )
        pages.add_metric(("idle",), pool.idle)
        pages.add_metric(("busy",), pool.busy)
        yield pages
        yield GaugeMetricFamily(
            "prerender_queue_length", "Renders that wait for a page.", value=pool.waiting
        )
        yield GaugeMetricFamily(
            "prerender_queue_limit", "Renders that may wait for a page.", value=pool.queue_limit
        )
        yield CounterMetricFamily(
            "prerender_browsers_started",
            "Browsers that have been started.",
            value=self._pool.browsers_started,
        )
        ends = CounterMetricFamily(
            "prerender_browser_replacements",
            "Browsers that had to be replaced, or did not start, by the cause.",
            labels=("cause",),
        )
        for cause, count in sorted(self._pool.replacements.items()):
            ends.add_metric((cause,), count)
        yield ends
        yield GaugeMetricFamily(
            "prerender_browser_memory_bytes",
            "Memory of all processes of the browser in use.",
            value=self._pool.memory_bytes,
        )
        traffic = self._gateway.traffic
        requests = CounterMetricFamily(
            "prerender_gateway_requests",
            "Requests of pages that are over, by what became of them.",
            labels=("verdict",),
        )
        received = CounterMetricFamily(
            "prerender_gateway_received_bytes",
            "Bytes of bodies that pages were given, by what became of the requests.",
            labels=("verdict",),
        )
        for verdict, count in sorted(traffic.requests.items()):
            requests.add_metric((verdict,), count)
            received.add_metric((verdict,), traffic.received_bytes[verdict])
        yield requests
        yield received
        assets = self._gateway.assets.store
        yield GaugeMetricFamily(
            "prerender_asset_cache_bytes",
            "Memory for scripts, styles, images and fonts that renders share.",
            value=assets.size_bytes,
        )

    def _of_the_store(self) -> Iterable[Metric]:
        store = self._store
        yield GaugeMetricFamily(
            "prerender_refreshes_in_progress",
            "Stale snapshots that are being renewed.",
            value=self._snapshots.refreshing,
        )
        lookups = CounterMetricFamily(
            "prerender_store_lookups",
            "Look-ups of snapshots, by the layer of the store and what came of it.",
            labels=("layer", "result"),
        )
        for (layer, result), count in sorted(store.lookups.items()):
            lookups.add_metric((layer, result), count)
        yield lookups
        faults = CounterMetricFamily(
            "prerender_store_faults",
            "Operations of the store that failed, and entries that could not be read.",
            labels=("operation",),
        )
        for operation, count in sorted(store.counts.items()):
            faults.add_metric((operation,), count)
        yield faults
        yield GaugeMetricFamily(
            "prerender_store_available",
            "1 if the slower store (a file, Redis) answers as far as is known, or there is none.",
            value=store.available,
        )
        yield GaugeMetricFamily(
            "prerender_store_memory_bytes",
            "Memory of the snapshots in memory.",
            value=store.memory_bytes,
        )
        yield GaugeMetricFamily(
            "prerender_store_memory_entries",
            "Snapshots in memory.",
            value=store.memory_entries,
        )
