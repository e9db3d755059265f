"""Puts the dashboard and its API on the admin listener."""

from aiohttp import web

from prerender.admin.api import Api
from prerender.admin.figures import Figures
from prerender.admin.files import DashboardFiles
from prerender.admin.guard import Guard
from prerender.admin.pages import Pages
from prerender.admin.problem import as_problems
from prerender.admin.purge import Purging
from prerender.admin.recent import Recent
from prerender.config import Settings
from prerender.rendering.pool import Pool
from prerender.rendering.viewer import Viewer
from prerender.snapshots.cached import CachedSnapshots
from prerender.snapshots.histories import Histories
from prerender.snapshots.stores.store import Store
from prerender.snapshots.tracking import Tracking
from prerender.telemetry.records import Telemetry


def add_dashboard(
    app: web.Application,
    settings: Settings,
    *,
    telemetry: Telemetry,
    pool: Pool,
    store: Store,
    snapshots: CachedSnapshots,
    tracking: Tracking,
    purging: Purging,
    histories: Histories,
    viewer: Viewer,
) -> None:
    """Add the routes, who may use them, and what listens to the records from now on."""
    figures, recent = Figures(), Recent()
    telemetry.requests.subscribe(figures.request)
    telemetry.requests.subscribe(recent.request)
    telemetry.renders.subscribe(figures.render)
    telemetry.renders.subscribe(recent.render)
    guard = Guard(settings.admin.token, settings.admin.hosts)
    app.middlewares.append(guard.middleware)
    app.middlewares.append(as_problems)
    Api(
        public=settings.public_url,
        tracking=tracking,
        pool=pool,
        store=store,
        snapshots=snapshots,
        figures=figures,
        recent=recent,
        purging=purging,
        guard=guard,
    ).add_to(app)
    Pages(settings.public_url, tracking, store, histories, viewer).add_to(app)
    DashboardFiles().add_to(app)
