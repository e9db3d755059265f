"""Fill the cache of running proxies.

Examples:
  prerender warm https://www.example.com/sitemap.xml
  prerender warm https://www.example.com/sitemap.xml --admin http://127.0.0.1:8081
"""

import argparse
import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, closing
from dataclasses import asdict
from pathlib import Path

from yarl import URL

from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED, Progress
from prerender.config import Settings
from prerender.errors import ConfigError, JournalError, ServerGone
from prerender.tools.crawler import CrawlerClient
from prerender.tools.url_sources import Sources
from prerender.tools.warming.jobs import WarmingByJobs
from prerender.tools.warming.journal import Journal, PageToWarm
from prerender.tools.warming.requests import Requests
from prerender.tools.warming.warming import Totals, Warming

_SHOWN_FAILURES = 20
_REPORT_SECONDS = 60.0


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_sources(parser)
    common.add_via(parser)
    common.add_concurrency(parser, default=8)
    parser.add_argument(
        "--rate", type=common.rate, default=0.0, metavar="N", help="maximum pages per second"
    )
    parser.add_argument(
        "--max-pages",
        type=common.whole(1),
        default=0,
        metavar="N",
        help="maximum pages to request, the last changed first",
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="record finished pages, and skip those that were finished before and have not changed",
    )
    parser.add_argument(
        "--max-age",
        type=common.duration,
        metavar="DURATION",
        help="with --state: request pages that were finished longer ago again, for example 7d",
    )
    common.add_json(parser)
    common.add_admin(
        parser,
        "admin listener of the proxy: it renders the pages itself, as a job, with spare browser "
        "capacity. The token is [admin] token (PRERENDER_ADMIN_TOKEN)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Warm the cache and print a summary. Returns 1 if a page failed or a sitemap could not be read."""
    settings = common.settings_if_any(options.config)
    if options.admin:
        return _ended(options, common.run(_by_jobs(options)))
    if options.max_age and not options.state:
        raise ConfigError(["--max-age: give --state, too"])
    try:
        journal = Journal(options.state, options.max_age)
    except JournalError as error:
        raise ConfigError([f"--state: {error}"]) from error
    with closing(journal):
        try:
            totals = common.run(_warm(options, settings, journal))
        except (KeyboardInterrupt, ServerGone):
            if options.state:
                terminal.say(f"interrupted: continue with --state {options.state}")
            raise
    return _ended(options, totals)


def _ended(options: argparse.Namespace, totals: Totals) -> int:
    if options.json:
        written = terminal.write_json(_of_totals(totals))
    else:
        written = terminal.write(_summary(totals))
    return FAILED if totals.failed or totals.unread or not written else 0


async def _by_jobs(options: argparse.Namespace) -> Totals:
    """Have the proxy render the pages. Raises AdminError, ConfigError and SitemapError."""
    wrong = [name for name in ("follow", "state", "max_age") if getattr(options, name)]
    if wrong:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
        raise ConfigError([f"{names}: not with --admin"])
    async with AsyncExitStack() as stack:
        progress = stack.enter_context(terminal.progress("page"))
        requests = await _requests(options, None, stack)
        warming = WarmingByJobs(
            common.admin_of(options),
            rate=options.rate,
            most=options.max_pages,
            done=progress.done,
            on_new_pages=progress.add_to_total,
        )
        sources = Sources(requests.stream, progress)
        reporting = asyncio.create_task(_report(warming.totals, progress), name="reports")
        try:
            return await warming.run(_pages(options, sources, warming.totals))
        finally:
            reporting.cancel()


async def _warm(options: argparse.Namespace, settings: Settings | None, journal: Journal) -> Totals:
    async with AsyncExitStack() as stack:
        progress = stack.enter_context(terminal.progress("page"))
        requests = await _requests(options, settings, stack)
        sources = Sources(requests.stream, progress)
        warming = Warming(
            requests,
            journal,
            concurrency=options.concurrency,
            most=options.max_pages,
            on_page=lambda _: progress.done(),
            on_new_pages=progress.add_to_total,
            page_of=sources.own_page,
        )
        reporting = asyncio.create_task(_report(warming.totals, progress), name="reports")
        try:
            return await warming.run(_pages(options, sources, warming.totals))
        except asyncio.CancelledError:
            terminal.say(_summary(warming.totals).rstrip())
            raise
        finally:
            reporting.cancel()


async def _requests(
    options: argparse.Namespace, settings: Settings | None, stack: AsyncExitStack
) -> Requests:
    timeout = settings.render.timeout + 10 if settings is not None else 60.0
    own = common.site_headers(options.config)
    via = URL(options.via) if options.via else None
    crawler = await stack.enter_async_context(
        CrawlerClient.open(via, timeout=timeout, site_headers=own)
    )
    return Requests(crawler, options.concurrency, options.rate, direct=via is None)


async def _pages(
    options: argparse.Namespace, sources: Sources, totals: Totals
) -> AsyncGenerator[PageToWarm]:
    """The pages of the sources. Raises SitemapError if there are none at all."""
    listed = sources.readable(options.sources, same_hosts=not options.via)
    try:
        async with aclosing(listed) as pages:
            async for page in pages:
                yield PageToWarm(page.url, page.lastmod, options.follow)
    finally:
        totals.unread = sources.unread


async def _report(totals: Totals, progress: Progress) -> None:
    """Tell the progress now and then where there is no bar."""
    while not progress.has_bar:
        await asyncio.sleep(_REPORT_SECONDS)
        progress.line(
            f"{totals.counts.total()} of {terminal.counted(totals.pages, 'page')}, "
            f"{totals.failed} failed, {totals.skipped} skipped"
        )


def _of_totals(totals: Totals) -> dict[str, object]:
    return {
        "pages": totals.counts.total(),
        "outcomes": dict(totals.counts),
        "skipped": totals.skipped,
        "left_out": totals.left_out,
        "unread_sitemaps": totals.unread,
        "seconds": round(totals.seconds, 3),
        "failed": totals.failed,
        "failures": [asdict(failure) for failure in totals.failures],
    }


def _summary(totals: Totals) -> str:
    pages = totals.counts.total()
    speed = pages / totals.seconds if totals.seconds else 0.0
    parts = [f"{count} {name.replace('_', ' ')}" for name, count in totals.counts.most_common()]
    if totals.skipped:
        parts.append(f"{totals.skipped} skipped (finished before)")
    if totals.left_out:
        parts.append(f"{totals.left_out} skipped (--max-pages)")
    if totals.unread:
        parts.append(f"{terminal.counted(totals.unread, 'sitemap')} not read to the end")
    took = f"{terminal.counted(pages, 'page')} in {totals.seconds:.1f} s ({speed:.1f} per second)"
    lines = [f"{took}: {', '.join(parts)}"]
    if totals.counts["outdated"]:
        lines.append(
            f"{terminal.counted(totals.counts['outdated'], 'snapshot')} older than lastmod: to render "
            "them again, give --admin"
        )
    shown = totals.failures[:_SHOWN_FAILURES]
    lines += [f"failed: {one.url}: {one.reason}" for one in shown]
    if totals.failed > len(shown):
        lines.append(f"and {totals.failed - len(shown)} more (--json names up to 1000)")
    return "\n".join([*lines, ""])
