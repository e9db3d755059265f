"""``prerender warm SITEMAP...``: fills the cache of running proxies."""

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack, closing
from dataclasses import asdict
from pathlib import Path

from yarl import URL

from prerender.admin import client
from prerender.cli import options as common
from prerender.cli import terminal
from prerender.cli.sources import Sources
from prerender.cli.terminal import FAILED
from prerender.config import Settings
from prerender.errors import AdminError, ConfigError
from prerender.tools.crawler import Crawler
from prerender.tools.warming import Job, Journal, Totals, Warming

_SHOWN_FAILURES = 20
# More purges of single pages would be merged into one of all pages (purges.py).
_MOST_PURGES = 1000


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_sources(parser)
    common.add_via(parser)
    common.add_concurrency(parser, default=8)
    parser.add_argument(
        "--rate", type=common.rate, default=0.0, metavar="N", help="maximum pages per second"
    )
    parser.add_argument(
        "--max-pages", type=common.whole(1), default=0, metavar="N", help="maximum pages in all"
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="record finished pages, and skip those that were finished before and have not changed",
    )
    common.add_json(parser)
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Warm the cache and print a summary. Returns 1 if a page failed."""
    settings = common.settings_if_any(options.config)
    try:
        journal = Journal(options.state)
    except OSError as error:
        raise ConfigError([f"--state: {options.state}: {error.strerror}"]) from error
    with closing(journal):
        try:
            totals = common.run(_warm(options, settings, journal))
        except KeyboardInterrupt:
            if options.state:
                terminal.say(f"interrupted: continue with --state {options.state}")
            raise
    if options.json:
        terminal.write_json(_of_totals(totals))
    else:
        terminal.write(_summary(totals))
    return FAILED if totals.failures else 0


async def _warm(options: argparse.Namespace, settings: Settings | None, journal: Journal) -> Totals:
    via = URL(options.via) if options.via else None
    async with AsyncExitStack() as stack:
        progress = stack.enter_context(terminal.progress("page"))
        purges = _MOST_PURGES if settings is not None and settings.admin.token else 0

        async def purge(url: str) -> bool:
            nonlocal purges
            if settings is None or not purges:
                return False
            purges -= 1
            try:
                await asyncio.to_thread(client.purge, settings, {"url": url, "soft": True})
            except AdminError as error:
                progress.line(f"outdated snapshots are not renewed: {error}")
                purges = 0
                return False
            return True

        timeout = settings.render.timeout + 10 if settings is not None else 60.0
        crawler = await stack.enter_async_context(Crawler.open(via, timeout=timeout))
        sources = Sources(crawler, progress)
        listed = await sources.read(options.sources, follow=options.follow)

        warming = Warming(
            crawler,
            journal,
            concurrency=options.concurrency,
            rate=options.rate,
            most=options.max_pages,
            purge=purge,
            told=lambda _: progress.done(),
            found=progress.found,
            page_of=sources.own_page,
        )
        jobs = [Job(entry.url, entry.lastmod, options.follow) for entry in listed]
        try:
            return await warming.run(jobs)
        except asyncio.CancelledError:
            print(_summary(warming.totals), end="", file=sys.stderr)
            raise


def _of_totals(totals: Totals) -> dict[str, object]:
    return {
        "pages": totals.counts.total(),
        "outcomes": dict(totals.counts),
        "skipped": totals.skipped,
        "left_out": totals.left_out,
        "seconds": round(totals.seconds, 3),
        "failures": [asdict(failure) for failure in totals.failures],
    }


def _summary(totals: Totals) -> str:
    pages = totals.counts.total()
    speed = pages / totals.seconds if totals.seconds else 0.0
    parts = [f"{count} {name}" for name, count in totals.counts.most_common()]
    if totals.skipped:
        parts.append(f"{totals.skipped} skipped (finished before)")
    if totals.left_out:
        parts.append(f"{totals.left_out} skipped (--max-pages)")
    took = f"{terminal.counted(pages, 'page')} in {totals.seconds:.1f} s ({speed:.1f} per second)"
    lines = [f"{took}: {', '.join(parts)}"]
    if totals.counts["outdated"]:
        lines.append(
            f"{terminal.counted(totals.counts['outdated'], 'snapshot')} older than lastmod: to render "
            "them again, give the settings of the proxy with an [admin] token (--config)"
        )
    lines += [f"failed: {one.url}: {one.reason}" for one in totals.failures[:_SHOWN_FAILURES]]
    if len(totals.failures) > _SHOWN_FAILURES:
        lines.append(f"and {len(totals.failures) - _SHOWN_FAILURES} more (use --json for all)")
    return "\n".join([*lines, ""])
