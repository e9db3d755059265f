"""Write llms.txt and llms-full.txt for the pages of a sitemap.

Examples:
  prerender llms https://www.example.com/sitemap.xml --to public
"""

import argparse
from contextlib import AsyncExitStack
from pathlib import Path

from prerender.browser import resources
from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED
from prerender.errors import PrerenderError
from prerender.extensions.markdown import llms
from prerender.rendering import from_settings
from prerender.tools.url_sources import read_listing
from prerender.urls.addresses import site_of


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_sources(parser, follow=False)
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="output folder")
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Render the pages and write the files. Returns 1 if a page is missing in them."""
    pages = common.run(_collected(options))
    for url, reason in pages.failures.items():
        terminal.say(f"skipped: {url}: {reason}")
    if not pages.found:
        raise PrerenderError(f"{', '.join(options.sources)}: no page has content")
    found = list(pages.found.values())
    try:
        options.to.mkdir(parents=True, exist_ok=True)
        (options.to / "llms.txt").write_text(llms.llms_txt(found), "utf-8")
        (options.to / "llms-full.txt").write_text(llms.llms_full_txt(found), "utf-8")
    except OSError as error:
        raise PrerenderError(f"{options.to}: cannot write: {error.strerror}") from error
    pages_in = terminal.counted(len(found), "page")
    files = f"{options.to / 'llms.txt'} and {options.to / 'llms-full.txt'}"
    written = terminal.write(f"{pages_in} in {files}\n")
    return FAILED if pages.failures or not written else 0


async def _collected(options: argparse.Namespace) -> llms.Pages:
    async with AsyncExitStack() as stack:
        site, settings, listed, progress = await read_listing(options, stack)
        urls = [entry.url for entry in listed if site_of(entry.url) == site_of(site)]
        progress.found(len(urls))
        parts = await stack.enter_async_context(from_settings.rendering(settings))
        concurrency = resources.page_count(settings) + 1
        return await llms.collect(
            parts.renderer,
            site,
            urls,
            concurrency,
            progress.done,
            obey_origin=settings.cache.obey_origin,
        )
