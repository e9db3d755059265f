"""All metrics of one proxy, in its own registry: tests run several proxies in one process."""

import asyncio
import platform
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import ParamSpec

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from prerender import __version__
from prerender.background import running
from prerender.telemetry.remembered import Remembered
from prerender.telemetry.render_metrics import RenderMetrics
from prerender.telemetry.request_metrics import RequestMetrics
from prerender.telemetry.telemetry import Telemetry

_LAG_BUCKETS_SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0
)  # fmt: skip
_LAG_EVERY_SECONDS = 0.25
_STALLS_SECONDS = 300.0

# Creation times of counters are useless, and double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]


_P = ParamSpec("_P")


class _Watched(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


class Metrics:
    """The metrics of a proxy. Subscribes to the records of ``telemetry``."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.requests = RequestMetrics()
        self.registry.register(self.requests)
        telemetry.requests.subscribe(self.requests)
        telemetry.renders.subscribe(RenderMetrics(self.registry))
        build = Gauge(
            "prerender_build_info",
            "1; what is running is in the labels.",
            ("version", "python"),
            registry=self.registry,
        )
        build.labels(__version__, platform.python_version()).set(1)
        self._lag = Histogram(
            "prerender_event_loop_lag_seconds",
            "Delay of timers of the event loop, sampled four times a second.",
            buckets=_LAG_BUCKETS_SECONDS,
            registry=self.registry,
        )
        self._longest_stall = Gauge(
            "prerender_event_loop_longest_stall_seconds",
            "The longest delay of a timer of the event loop in the last five minutes.",
            registry=self.registry,
        )

    def watch(
        self, collect: Callable[_P, Iterable[Metric]], *args: _P.args, **kwargs: _P.kwargs
    ) -> None:
        """Also expose what ``collect`` returns with these arguments at each scrape."""
        self.registry.register(_Watched(partial(collect, *args, **kwargs)))

    @asynccontextmanager
    async def measuring(self, remembered: Remembered) -> AsyncIterator[None]:
        """Measure the lag of the event loop, and the memory of lists, while the context is open."""
        self.watch(remembered.collect)
        async with running(self._measure_lag(), "event loop lag"), remembered.measuring():
            yield

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the text format that ``accept`` prefers, and its media type."""
        encoder, media_type = choose_encoder(accept)
        return encoder(self.registry), media_type

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        lags: deque[tuple[float, float]] = deque()
        while True:
            due = loop.time() + _LAG_EVERY_SECONDS
            await asyncio.sleep(_LAG_EVERY_SECONDS)
            lag = max(0.0, loop.time() - due)
            self._lag.observe(lag)
            while lags and (lags[-1][1] <= lag):
                lags.pop()  # a longer one is later
            lags.append((due, lag))
            while lags[0][0] < due - _STALLS_SECONDS:
                lags.popleft()
            self._longest_stall.set(lags[0][1])
