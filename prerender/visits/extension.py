"""Keeps what crawlers got ([visits]), sends alerts, and adds the report to the admin listener."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from prerender.config import Settings
from prerender.errors import ConfigError
from prerender.extension import Proxy
from prerender.http.forwarding_headers import authority
from prerender.snapshots.snapshot_lists import Lists
from prerender.snapshots.stores.from_settings import beside
from prerender.telemetry.redaction import Redaction
from prerender.visits.alerts import Alerts
from prerender.visits.api import ReportApi
from prerender.visits.file import FileVisits
from prerender.visits.recorder import CrawlerNames, Visits, visit_metrics
from prerender.visits.redis import RedisVisits
from prerender.visits.storage import VisitStore


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
            proxy.metrics.watch(visit_metrics, visits, requests)
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


def open_visits(settings: Settings) -> VisitStore:
    """The store of visits. It connects when it is used."""
    site = authority(settings.public_url)
    match beside(settings):
        case None:
            return FileVisits(None)
        case str(url):
            return RedisVisits(url, f"prerender:{site}:visits:")
        case folder:
            return FileVisits(folder / f"visits-{site}.sqlite3")
