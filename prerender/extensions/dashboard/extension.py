"""Adds the dashboard and its API to the admin listener, and the last render of a page to /explain."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from prerender.admin.models import ExplainedRender, Explanation
from prerender.admin.reasons import in_words
from prerender.config.crawler_classes import CLASSES
from prerender.crawlers.from_settings import preset_for
from prerender.extension import Proxy
from prerender.extensions.dashboard.api import Api
from prerender.extensions.dashboard.bots import Bots
from prerender.extensions.dashboard.crawlers import CrawlerStatistics
from prerender.extensions.dashboard.dashboard_files import DashboardFiles
from prerender.extensions.dashboard.histories import Histories
from prerender.extensions.dashboard.history import RenderSummary
from prerender.extensions.dashboard.last_hour import Figures
from prerender.extensions.dashboard.needless import Needless
from prerender.extensions.dashboard.recent_activity import Recent
from prerender.extensions.dashboard.screenshots import viewer_of
from prerender.extensions.dashboard.snapshot_details import SnapshotHandlers
from prerender.extensions.dashboard.stored_problems import StoredProblems
from prerender.snapshots.snapshot_lists import Lists


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Remember requests and renders, and add the routes."""
    settings, telemetry, store = proxy.settings, proxy.telemetry, proxy.store
    figures, recent = Figures(proxy.metrics.requests.totals), Recent(telemetry.crawler_requests)
    crawlers, bots = (
        CrawlerStatistics(telemetry.crawler_requests, proxy.triggers.user_agents),
        Bots(),
    )
    needless = Needless(telemetry.notices)
    proxy.rendering.renderer.when_built.append(needless.built)
    histories = Histories(store.notes, settings.admin.versions)
    lists, viewer = Lists(store), viewer_of(settings, proxy.rendering)
    telemetry.requests.subscribe(bots)
    for render_listener in (figures.render, recent.render, histories, needless.rendered):
        telemetry.renders.subscribe(render_listener)
    proxy.snapshots.when_stored(lambda target, _, snapshot: histories.stored(target, snapshot))
    proxy.purging.count = lists.count

    async def add_last_render(key: str, explanation: Explanation) -> None:
        if history := await histories.of(key):
            render = history.render
            explanation["last_render"] = _explained(render) if render else None

    proxy.explanations.last_render = add_last_render
    api = Api(
        site=proxy.site,
        pool=proxy.rendering.pool,
        store=store,
        lists=lists,
        snapshots=proxy.snapshots,
        figures=figures,
        recent=recent,
        crawlers=crawlers,
        bots=bots,
        more=settings.triggers.more,
        listed=proxy.triggers.crawlers.date,
        published=proxy.published,
        presets={one: preset_for(settings, one) or "" for one in CLASSES},
        notices=telemetry.notices,
        auth=proxy.auth,
    )
    proxy.admin.add(api, SnapshotHandlers(proxy.site, store, histories, viewer, proxy.snapshots))
    DashboardFiles().add_to(proxy.admin.app)
    proxy.remembered |= {
        "recent_requests": recent,
        "crawlers": crawlers,
        "unknown_bots": bots,
        "last_hour": figures,
        "screenshots": viewer.cache.values,
        "histories_to_write": histories,
    }
    async with (
        histories.storing(),
        figures.sampling(),
        StoredProblems(store.notes, recent).storing(),
        bots.storing(store.notes),
    ):
        yield


def _explained(render: RenderSummary) -> ExplainedRender:
    facts = render.facts
    return {
        "ended": datetime.fromtimestamp(render.time, UTC).isoformat(timespec="seconds"),
        "verdict": facts.verdict if not render.error else "failed",
        "reason": in_words(render.error, render.reason) or facts.why,
        "requests": [
            *(
                f"{fetch.url}: {fetch.verdict}" + (f" ({fetch.reason})" if fetch.reason else "")
                for fetch in render.timings.fetches
                if fetch.verdict in ("blocked", "failed")
            ),
            *(f"{url}: no response" for url in facts.unanswered_requests),
        ],
        "errors": list(facts.errors),
    }
