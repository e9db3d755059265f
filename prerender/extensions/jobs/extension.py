"""Adds jobs to the admin listener, and does them while the proxy serves."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from prometheus_client.core import Metric

from prerender.config import Settings
from prerender.errors import ConfigError
from prerender.extension import Proxy
from prerender.extensions.jobs.api import JobsApi, SitemapsApi
from prerender.extensions.jobs.file import FileJobs
from prerender.extensions.jobs.job import JobStore
from prerender.extensions.jobs.jobs import Jobs
from prerender.extensions.jobs.redis import RedisJobs
from prerender.extensions.jobs.sitemap_watch import CHANGES, SitemapWatch
from prerender.extensions.jobs.worker import Worker
from prerender.http.forwarding_headers import authority
from prerender.rendering.spare_capacity import SpareCapacity
from prerender.sitemaps.origin_sitemaps import OriginSitemaps
from prerender.snapshots.stores.from_settings import beside
from prerender.telemetry.scraped_metrics import counter, gauge


def _metrics(worker: Worker, watch: SitemapWatch | None) -> Iterable[Metric]:
    text = "Pages of jobs that are done, by outcome."
    yield counter("prerender_job_pages", text, worker.results, "outcome")
    unfinished = worker.unfinished
    text = "Unfinished jobs, of all replicas."
    yield gauge("prerender_jobs_unfinished", text, len(unfinished))
    text = "Pages of unfinished jobs that are not done, of all replicas."
    yield gauge("prerender_job_pages_waiting", text, sum(one.waiting for one in unfinished))
    text = "Pages of watched sitemaps that this replica found new, changed or gone."
    changes = watch.changes if watch else dict.fromkeys(CHANGES, 0)
    yield counter("prerender_sitemap_changes", text, changes, "change")
    last = watch.last if watch else None
    text = "When the watched sitemaps were read last, by any replica, in Unix seconds; 0: never."
    yield gauge("prerender_sitemaps_read_timestamp_seconds", text, last.time if last else 0.0)
    text = "Known pages of the watched sitemaps."
    yield gauge("prerender_sitemap_pages", text, last.pages if last else 0)
    text = "Watched sitemaps that could not be read to their end."
    errors = sum(bool(one.error) for one in last.sitemaps) if last else 0
    yield gauge("prerender_sitemaps_unreadable", text, errors)


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Add the routes, and work while the proxy serves."""
    settings, store = proxy.settings, proxy.store
    job_store = open_jobs(settings)
    sitemaps = OriginSitemaps(proxy.rendering.upstream, settings.public_url)
    jobs = Jobs(job_store, store, proxy.site, proxy.triggers, sitemaps)
    worker = Worker(
        jobs,
        proxy.snapshots,
        store,
        proxy.freshness,
        proxy.site,
        spare=SpareCapacity(proxy.rendering.pool),
        # It may wait for the render of another replica first.
        claim_seconds=2 * settings.render.timeout + 10,
    )
    watch = _watch(proxy, jobs, sitemaps)
    proxy.admin.add(JobsApi(jobs, proxy.site), SitemapsApi(watch))
    proxy.metrics.watch(_metrics, worker, watch)
    proxy.while_serving.append(worker.working())
    if watch is not None:
        proxy.while_serving.append(watch.watching())
    try:
        yield
    finally:
        await job_store.close()


def _watch(proxy: Proxy, jobs: Jobs, sitemaps: OriginSitemaps) -> SitemapWatch | None:
    """What watches the sitemaps of the settings. Raises ConfigError."""
    settings = proxy.settings.sitemaps
    if not settings.watch:
        return None
    try:
        urls = [jobs.sitemap(url) for url in settings.urls]
    except ValueError as error:
        raise ConfigError([f"[sitemaps] urls: {error}"]) from error
    return SitemapWatch(
        jobs,
        proxy.store,
        sitemaps,
        urls,
        settings.interval,
        variants=proxy.variants,
        site=proxy.site,
    )


def open_jobs(settings: Settings) -> JobStore:
    """Where jobs are kept. It connects when it is used."""
    site = authority(settings.public_url)
    match beside(settings):
        case str(url):
            return RedisJobs(url, f"prerender:{{{site}:jobs}}")
        case None:
            return FileJobs(None)
        case folder:
            return FileJobs(folder / f"jobs-{site}.sqlite3")
