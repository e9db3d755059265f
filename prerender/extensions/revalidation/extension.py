"""Renews expired snapshots without rendering: [cache] revalidate."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

from prometheus_client.core import Metric

from prerender.browser.defaults import page_count
from prerender.config import Settings
from prerender.extension import Proxy
from prerender.extensions.revalidation.eligibility import Ineligible, Made, manifest_of
from prerender.extensions.revalidation.maker import Maker
from prerender.extensions.revalidation.revalidator import CHECKS, Revalidator
from prerender.gateway.document import Document
from prerender.gateway.egress import split_url
from prerender.gateway.visit import Visit
from prerender.rendering.from_settings import Rendering
from prerender.snapshots.learned import Learned
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.stores.notes import Notes
from prerender.snapshots.target import Target
from prerender.telemetry.scraped_metrics import counter
from prerender.urls.patterns import comparable, matches

# The share of the time of a render that asking may take: the render may have to follow.
_SHARE = 0.5


def _metrics(revalidator: Revalidator | None) -> Iterable[Metric]:
    """The counters; without a revalidator, nothing has happened."""
    yield counter(
        "prerender_revalidations",
        "Expired snapshots that were to be renewed without rendering, by result and reason.",
        {("same", ""): 0} if revalidator is None else revalidator.results,
        "result",
        "reason",
    )
    yield counter(
        "prerender_revalidation_checks",
        "Renewals that were checked by rendering, by result.",
        dict.fromkeys(CHECKS, 0) if revalidator is None else revalidator.checks,
        "result",
    )


def revalidator_of(settings: Settings, parts: Rendering, notes: Notes) -> Revalidator:
    """The revalidator; from then on, new snapshots have a manifest."""
    gateway, renderer = parts.gateway, parts.renderer
    maker = Maker(settings, gateway.navigation)
    listed = settings.cache.revalidate_post

    def may_repeat(url: str) -> bool:
        target = comparable(split_url(url)[1]) if listed else ""
        return any(matches(pattern, target) for pattern in listed)

    gateway.egress.keeps_body = may_repeat
    renderer.with_manifest = _with_manifest(maker, may_repeat)
    return Revalidator(
        gateway.egress,
        gateway.assets.store,
        gateway.limits,
        renderer,
        maker=maker,
        notes=notes,
        seconds=settings.render.timeout * _SHARE,
        pages=page_count(settings),
        max_age=settings.cache.max_age_without_render,
    )


def _with_manifest(
    maker: Maker, may_repeat: Callable[[str], bool]
) -> Callable[[Snapshot, Target, Document, Visit, float], Snapshot]:
    def with_manifest(
        snapshot: Snapshot, target: Target, document: Document, visit: Visit, now: float
    ) -> Snapshot:
        made = Made(snapshot, target, now)
        try:
            manifest = manifest_of(maker.name, made, document, visit, may_repeat=may_repeat)
        except Ineligible as reason:
            return replace(snapshot, unrenewable=str(reason))
        return replace(snapshot, manifest=manifest)

    return with_manifest


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Renew while the proxy serves, if it is switched on."""
    revalidator = None
    if proxy.settings.cache.revalidate:
        revalidator = revalidator_of(proxy.settings, proxy.rendering, proxy.store.notes)
        proxy.snapshots.revalidation = revalidator
        sections = Learned(proxy.store.notes, (revalidator.sections,), "learned sections")
        proxy.while_serving.append(sections.shared())
    proxy.metrics.watch(_metrics, revalidator)
    yield
