"""Keeps what crawlers got ([visits]), sends alerts, and adds the report to the admin listener."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from prerender.errors import ConfigError
from prerender.extension import Proxy
from prerender.snapshots.snapshot_lists import Lists
from prerender.telemetry.redaction import Redaction
from prerender.visits.alerts import Alerts
from prerender.visits.api import ReportApi
from prerender.visits.from_settings import open_visits
from prerender.visits.recorder import CrawlerNames, VisitMetrics, Visits


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Keep visits while the context is open, unless [visits] days is 0."""
    settings, visits = proxy.settings, None
    async with AsyncExitStack() as stack:
        if settings.visits.days:
            names = CrawlerNames(proxy.triggers.user_agents)
            clean = Redaction(settings.log.secrets)
            requests = proxy.telemetry.crawler_requests
            visits = Visits(requests, open_visits(settings), names, clean, settings.visits.days)
            proxy.metrics.watch(VisitMetrics(visits, requests))
            recorder = visits
            proxy.snapshots.when_stored(lambda target, _, made: recorder.stored(target, made))
            await stack.enter_async_context(visits.storing())
            if proxy.outbox is not None and "alert" in settings.webhooks.events:
                site = str(settings.public_url.origin())
                alerts = Alerts(visits, proxy.store, proxy.outbox, site)
                await stack.enter_async_context(alerts.watching())
        elif settings.webhooks.url and "alert" in settings.webhooks.events:
            raise ConfigError(
                ['[webhooks] events: alerts need figures: set [visits] days, or leave out "alert"']
            )
        upstream = proxy.rendering.upstream
        proxy.admin.add(ReportApi(visits, proxy.site, Lists(proxy.store), upstream))
        proxy.remembered["visits_to_write"] = visits
        yield
