"""The API of jobs: ``/api/v1/jobs``. models.py says what it accepts and returns."""

import asyncio
import itertools
from dataclasses import asdict
from typing import cast

from aiohttp import web

from prerender.admin.page_urls import Site
from prerender.admin.parameters import body_of, large_body
from prerender.admin.routes import route
from prerender.extensions.jobs import models
from prerender.extensions.jobs.job import JobProgress, PageOutcome, PageRow
from prerender.extensions.jobs.jobs import Jobs, TooManyJobs
from prerender.extensions.jobs.sitemap_watch import SitemapWatch
from prerender.sitemaps.parsing import Listed

MAX_BYTES = 16 * 1024**2


class JobsApi:
    """Handles requests for jobs. auth.py authorizes them."""

    def __init__(self, jobs: Jobs, site: Site) -> None:
        self._jobs = jobs
        self._site = site

    @route("POST", "/jobs", takes=models.JobBody, errors=(429, 503))
    async def create(self, request: web.Request) -> models.JobState:
        """Render a list of pages in the background."""
        body = await asyncio.to_thread(
            body_of, await large_body(request, MAX_BYTES), models.JobBody
        )
        if bool(body.url) == bool(body.sitemap):
            raise ValueError("give either url or sitemap")
        if body.lastmod and len(body.lastmod) != len(body.url):
            raise ValueError("lastmod: give as many as URLs")
        pages = itertools.zip_longest(body.url, body.lastmod)
        try:
            job = await self._jobs.create(
                itertools.starmap(Listed, pages),
                body.sitemap,
                priority=body.priority,
                rate=body.rate,
                stale_only=body.stale_only,
            )
        except TooManyJobs as error:
            raise web.HTTPTooManyRequests(text=str(error)) from None
        return _of(await self._progress(job.id))

    @route("GET", "/jobs", errors=(503,))
    async def list(self) -> models.JobList:
        """List jobs."""
        jobs = await self._jobs.job_store.jobs()
        return {
            "kept_in": self._jobs.job_store.kind,  # type: ignore[typeddict-item]
            "items": [_of(one) for one in reversed(jobs)],
        }

    @route("GET", "/jobs/{job}", errors=(404, 503))
    async def one(self, job: str) -> models.JobState:
        """Say how far a job is."""
        return _of(await self._progress(job))

    @route("GET", "/jobs/{job}/pages", errors=(404, 503))
    async def pages(self, job: str, query: models.JobPagesQuery) -> models.JobPages:
        """List the pages of a job with their results."""
        await self._progress(job)
        rows, after = await self._jobs.job_store.rows(job, query.outcome, query.cursor, query.limit)
        return {"items": [self._page(row) for row in rows], "next": after}

    @route("DELETE", "/jobs/{job}", errors=(404, 503))
    async def cancel(self, job: str) -> models.JobState:
        """Cancel a job.

        What it has rendered stays.
        """
        await self._progress(job)
        await self._jobs.cancel(job)
        return _of(await self._progress(job))

    async def _progress(self, job: str) -> JobProgress:
        progress = await self._jobs.progress(job)
        if progress is None:
            raise web.HTTPNotFound(text="there is no job with this id")
        return progress

    def _page(self, row: PageRow) -> models.JobPage:
        path, result = row
        is_path = result is None or result.outcome != "invalid"
        return {
            "url": f"{self._site.url}{path}" if is_path else path,
            "outcome": result.outcome if result else None,
            "status": result.status if result else 0,
            "reason": result.reason if result else "",
            "time": result.time if result else None,
        }


class SitemapsApi:
    """Handles requests for watched sitemaps; None: they are not watched."""

    def __init__(self, watch: SitemapWatch | None) -> None:
        self._watch = watch

    @route("GET", "/sitemaps", errors=(503,))
    async def sitemaps(self) -> models.Sitemaps:
        """Say what the last reading of the sitemaps has found."""
        if self._watch is None:
            return {"watched": False}
        reading = await self._watch.reading()
        return {"watched": True, **(asdict(reading) if reading else {})}  # type: ignore[typeddict-item]

    @route("POST", "/sitemaps", errors=(409,))
    async def read(self) -> None:
        """Read the sitemaps as soon as possible."""
        if self._watch is None:
            raise web.HTTPConflict(text="sitemaps are not watched: set [sitemaps] watch")
        self._watch.read_now()


def _of(progress: JobProgress) -> models.JobState:
    return {
        **cast("models.JobState", asdict(progress.job)),
        "ended": progress.ended or None,
        "state": progress.state,
        "pages": progress.pages,
        "waiting": progress.waiting,
        "outcomes": cast("dict[PageOutcome, int]", dict(progress.outcomes)),
        "duplicates": progress.duplicates,
        "note": progress.note,
    }
