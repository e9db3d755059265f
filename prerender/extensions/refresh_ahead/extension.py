"""Renews snapshots before they expire, and after a deploy: [cache] refresh and deploys."""

import math
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from prometheus_client.core import Metric

from prerender.browser.defaults import page_count
from prerender.extension import Proxy
from prerender.extensions.refresh_ahead.deploys import Deploys
from prerender.extensions.refresh_ahead.popularity import Popularity
from prerender.extensions.refresh_ahead.refresher import Refresher
from prerender.rendering.spare_capacity import SpareCapacity
from prerender.telemetry.scraped_metrics import counter


def _metrics(refresher: Refresher) -> Iterable[Metric]:
    yield counter(
        "prerender_refreshes_ahead",
        "Snapshots that were to be rendered again before they expire, by result.",
        refresher.results,
        "result",
    )


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Renew while the proxy serves."""
    cache = proxy.settings.cache
    popularity = Popularity()
    if cache.deploys or cache.refresh:
        proxy.telemetry.requests.subscribe(popularity)
    spare = SpareCapacity(proxy.rendering.pool)
    refresher = Refresher(
        proxy.snapshots,
        proxy.store,
        popularity,
        before=cache.refresh_before,
        most=math.ceil(page_count(proxy.settings) * cache.refresh),
        has_room=spare.has_room,
        is_crowded=spare.is_crowded,
    )
    proxy.metrics.watch(_metrics, refresher)
    proxy.remembered["popularity"] = popularity
    proxy.while_serving.append(refresher.refreshing())
    if cache.deploys:
        deploys = Deploys(proxy.snapshots, proxy.store, popularity.most_first)
        proxy.while_serving.append(deploys.renewing())
    yield
