"""Keeps what crawlers got ([visits]), sends alerts, and adds the report to the admin listener."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from prerender.errors import ConfigError
from prerender.extension import Proxy
from prerender.extensions.dashboard.snapshot_lists import Lists
from prerender.telemetry.redaction import Redaction
from prerender.visits.alerts import Alerts
from prerender.visits.api import ReportApi
from prerender.visits.from_settings import open_visits
from prerender.visits.recorder import CrawlerNames, VisitMetrics, Visits
from prerender.webhooks import WebhookMetrics, Webhooks, key_of


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Keep visits while the context is open, unless [visits] days is 0."""
    settings, visits = proxy.settings, None
    async with AsyncExitStack() as stack:
        if settings.visits.days:
            names = CrawlerNames(proxy.triggers.user_agents)
            clean = Redaction(settings.log.secrets)
            visits = Visits(open_visits(settings), names, clean, settings.visits.days)
            proxy.metrics.watch(VisitMetrics(visits))
            proxy.telemetry.requests.subscribe(visits)
            recorder = visits
            proxy.snapshots.when_stored(lambda target, _, made: recorder.stored(target, made))
            await stack.enter_async_context(visits.storing())
            await stack.enter_async_context(_alerts(proxy, visits))
        elif settings.webhooks.url:
            raise ConfigError(["[webhooks] url: alerts need figures: set [visits] days"])
        upstream = proxy.rendering.upstream
        proxy.admin.add(ReportApi(visits, proxy.site, Lists(proxy.store), upstream))
        proxy.remembered["visits_to_write"] = visits
        yield


@asynccontextmanager
async def _alerts(proxy: Proxy, visits: Visits) -> AsyncIterator[None]:
    """Send alerts while the context is open, if [webhooks] url is set."""
    settings, metrics = proxy.settings, proxy.metrics
    url = settings.webhooks.url
    if not url:
        metrics.watch(WebhookMetrics(None))
        yield
        return
    async with Webhooks.open(url, [*map(key_of, settings.webhooks.secret)]) as webhooks:
        metrics.watch(WebhookMetrics(webhooks))
        alerts = Alerts(visits, proxy.store, webhooks, str(settings.public_url.origin()))
        async with alerts.watching():
            yield
