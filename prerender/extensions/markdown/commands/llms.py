"""Write llms.txt and llms-full.txt for the pages of a sitemap.

Examples:
  prerender llms https://www.example.com/sitemap.xml --to public
"""

import argparse
from contextlib import AsyncExitStack
from pathlib import Path

from prerender.browser import defaults
from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED
from prerender.errors import PrerenderError
from prerender.extensions.markdown import llms
from prerender.rendering import from_settings
from prerender.tools.export.export import AHEAD, Export, Failure
from prerender.tools.url_sources import read_listing
from prerender.urls.addresses import pretty_of


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_sources(parser, follow=False)
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="output folder")
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Render the pages and write the files. Returns 1 if a page or a sitemap is missing in them."""
    pages, failures, unread = common.run(_collected(options))
    for failure in failures:
        terminal.say(f"skipped: {failure.url}: {failure.reason}")
    if not pages:
        raise PrerenderError(f"{', '.join(options.sources)}: no page has content")
    try:
        options.to.mkdir(parents=True, exist_ok=True)
        (options.to / "llms.txt").write_text(llms.llms_txt(pages), "utf-8")
        (options.to / "llms-full.txt").write_text(llms.llms_full_txt(pages), "utf-8")
    except OSError as error:
        raise PrerenderError(f"{options.to}: cannot write: {error.strerror}") from error
    pages_in = terminal.counted(len(pages), "page")
    files = f"{options.to / 'llms.txt'} and {options.to / 'llms-full.txt'}"
    written = terminal.write(f"{pages_in} in {files}\n")
    return FAILED if failures or unread or not written else 0


async def _collected(
    options: argparse.Namespace,
) -> tuple[list[llms.LlmsPage], list[Failure], int]:
    """The pages in the order of the sources, what is left out, and the number of unread sitemaps."""
    async with AsyncExitStack() as stack:
        site, settings, urls, unread, progress = await read_listing(options, stack)
        pages = llms.LlmsPages(site)
        parts = await stack.enter_async_context(from_settings.rendering(settings))
        export = Export(
            parts.renderer,
            pages,
            obey_origin=settings.cache.obey_origin,
            on_page=lambda _: progress.done(),
        )
        result = await export.run(urls, defaults.page_count(settings) + AHEAD)
        paths = dict.fromkeys(str(pretty_of(url)) for url in urls)
        written = [pages.by_path[path] for path in paths if path in pages.by_path]
        return llms.without_copies(written), result.failures, unread
