"""Adds the dashboard and its API to the admin listener."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from prerender.admin.auth import AdminAuth
from prerender.admin.page_urls import Site
from prerender.admin.problem_details import as_problems
from prerender.browser.pool import Pool
from prerender.config import Settings
from prerender.config.types import CLASSES
from prerender.crawlers.from_settings import preset_for
from prerender.crawlers.published import PublishedRanges
from prerender.crawlers.triggers import Triggers
from prerender.extensions.dashboard.api import Api
from prerender.extensions.dashboard.bots import Bots
from prerender.extensions.dashboard.crawlers import Crawlers
from prerender.extensions.dashboard.dashboard_files import DashboardFiles
from prerender.extensions.dashboard.histories import Histories
from prerender.extensions.dashboard.kept_problems import KeptProblems
from prerender.extensions.dashboard.last_hour import Figures
from prerender.extensions.dashboard.recent_activity import Recent
from prerender.extensions.dashboard.screenshots import Viewer
from prerender.extensions.dashboard.snapshot_details import Pages
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.store import Store
from prerender.telemetry.metrics import Metrics
from prerender.telemetry.records import Telemetry


@asynccontextmanager
async def dashboard(
    app: web.Application,
    settings: Settings,
    *,
    triggers: Triggers,
    published: Sequence[PublishedRanges],
    telemetry: Telemetry,
    metrics: Metrics,
    pool: Pool,
    store: Store,
    snapshots: CachedSnapshots,
    site: Site,
    histories: Histories,
    viewer: Viewer,
    auth: AdminAuth,
) -> AsyncIterator[dict[str, object]]:
    """Add routes, authentication and error handling. Figures are sampled while the context is open.

    Yields the objects that remember requests and pages, by name.
    """
    figures, recent = Figures(metrics.requests.answers), Recent()
    crawlers = Crawlers(triggers.user_agents)
    bots = Bots()
    telemetry.requests.subscribe(crawlers)
    telemetry.requests.subscribe(bots)
    telemetry.requests.subscribe(recent.request)
    telemetry.renders.subscribe(figures.render)
    telemetry.renders.subscribe(recent.render)
    app.on_response_prepare.append(_without_versions)
    app.middlewares.append(auth.middleware)
    app.middlewares.append(as_problems)
    Api(
        site=site,
        pool=pool,
        store=store,
        snapshots=snapshots,
        figures=figures,
        recent=recent,
        crawlers=crawlers,
        bots=bots,
        more=settings.triggers.more,
        listed=triggers.crawlers.date,
        published=published,
        presets={one: preset_for(settings, one) or "" for one in CLASSES},
        notices=telemetry.notices,
        auth=auth,
    ).add_to(app)
    Pages(site, store, histories, viewer).add_to(app)
    DashboardFiles().add_to(app)
    async with figures.kept(), KeptProblems(store.notes, recent).kept():
        yield {
            "recent_requests": recent,
            "crawlers": crawlers,
            "unknown_bots": bots,
            "last_hour": figures,
            "screenshots": viewer.cache.values,
        }


async def _without_versions(_: web.Request, response: web.StreamResponse) -> None:
    """Do not disclose the versions of Python and aiohttp."""
    response.headers.pop("Server", None)
