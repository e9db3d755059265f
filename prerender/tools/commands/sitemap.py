"""Crawl a site and print its sitemap.

Examples:
  prerender sitemap https://www.example.com/ --to public
"""

import argparse
import time
from contextlib import AsyncExitStack
from pathlib import Path

from yarl import URL

from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED
from prerender.errors import SitemapError
from prerender.sitemaps import writing
from prerender.sitemaps.parsing import MOST_URLS, Listed
from prerender.tools.crawler import USER_AGENT, CrawlerClient
from prerender.tools.link_following import SiteCrawl


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("url", metavar="URL", help="page to start at")
    parser.add_argument(
        "--to",
        type=Path,
        metavar="DIR",
        help="write sitemap.xml to this folder; an index and several files if there are many pages",
    )
    parser.add_argument("--base", metavar="URL", help="URL of DIR on the site; default: the root")
    parser.add_argument(
        "--max-pages", type=common.whole(1), default=10_000, metavar="N", help="default: 10000"
    )
    common.add_concurrency(parser, default=8)
    parser.add_argument(
        "--rate", type=common.rate, default=0.0, metavar="N", help="maximum pages per second"
    )
    common.add_via(parser)
    parser.add_argument("--user-agent", default=USER_AGENT, help="User-Agent to send")
    common.add_json(parser)
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Crawl the site and print or write the sitemap. Raises SitemapError."""
    options.url = common.with_scheme(options.url)
    site = common.site_of(options.url)
    listed, crawl = common.run(_crawled(options, site))
    if not listed:
        raise SitemapError(f"{options.url}: no indexable page: {_why(crawl)}")
    parts = writing.sitemaps(listed)
    written = True
    if options.to is not None:
        _write(options.to, parts, options.base or f"{site}/")
    elif options.json:
        written = terminal.write_json(
            {
                "pages": [{"url": entry.url, "lastmod": _date(entry)} for entry in listed],
                "left_out": crawl.left_out,
                "beyond": crawl.beyond,
            }
        )
    elif len(parts) > 1:
        raise SitemapError(f"{len(listed)} pages, more than {MOST_URLS}: give --to DIR")
    else:
        written = terminal.write_data(parts[0])
    more = f", {crawl.beyond} more found (--max-pages)" if crawl.beyond else ""
    terminal.say(
        f"{terminal.counted(len(listed), 'page')} listed, {len(crawl.left_out)} skipped{more}"
    )
    return 0 if written else FAILED


async def _crawled(options: argparse.Namespace, site: str) -> tuple[list[Listed], SiteCrawl]:
    via = URL(options.via) if options.via else None
    async with AsyncExitStack() as stack:
        progress = stack.enter_context(terminal.progress("page"))
        own = common.site_headers(options.config)
        crawler = await stack.enter_async_context(
            CrawlerClient.open(via, options.user_agent, site_headers=own)
        )
        crawl = SiteCrawl(
            site,
            crawler,
            most=options.max_pages,
            concurrency=options.concurrency,
            rate=options.rate,
            user_agent=options.user_agent,
            done=progress.done,
            on_new_pages=progress.add_to_total,
        )
        listed = await crawl.find([options.url])
        # Where nothing was found the error says why.
        for url, reason in crawl.left_out.items() if listed else ():
            progress.line(f"skipped: {url}: {reason.removeprefix(f'{url}: ')}")
        return listed, crawl


def _why(crawl: SiteCrawl) -> str:
    for url, reason in crawl.left_out.items():
        return reason.removeprefix(f"{url}: ")
    return "nothing was found"


def _date(entry: Listed) -> str | None:
    return None if entry.lastmod is None else writing.w3c_date(entry.lastmod)


def _write(folder: Path, parts: list[bytes], base: str) -> None:
    base = base if base.endswith("/") else f"{base}/"
    files = {"sitemap.xml": parts[0]}
    if len(parts) > 1:
        files = {f"sitemap-{number}.xml": part for number, part in enumerate(parts, start=1)}
        index = writing.index([f"{base}{name}" for name in files], time.time())
        # Write the index last: until then it lists the old files.
        files["sitemap.xml"] = index
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            new = folder / f".{name}.new"
            new.write_bytes(data)
            new.replace(folder / name)
    except OSError as error:
        raise SitemapError(f"{folder}: {error.strerror}") from error
