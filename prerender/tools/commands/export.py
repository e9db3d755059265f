"""Write snapshots to files.

Examples:
  prerender export https://www.example.com/sitemap.xml --to /srv/snapshots
"""

import argparse
import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED, Progress
from prerender.errors import ConfigError
from prerender.rendering import from_settings
from prerender.tools.export import nginx
from prerender.tools.export.archive import Archive
from prerender.tools.export.export import Export, Exported
from prerender.tools.url_sources import read_listing
from prerender.urls.addresses import site_of

_SHOWN_FAILURES = 20
# Renders beyond the number of pages, so that no page is idle.
_AHEAD = 2


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_sources(parser, follow=False)
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="output folder")
    common.add_json(parser)
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Export the pages and print a summary. Returns 1 if a page failed."""
    folder = str(options.to.absolute())
    if not folder.isprintable() or any(character in folder for character in "$\"'\\"):
        raise ConfigError(
            [f"--to: {folder!r}: give a folder name without $, quotes and backslashes"]
        )
    result = common.run(_export(options))
    if options.json:
        written = terminal.write_json({"folder": folder, **asdict(result)})
    else:
        written = terminal.write(_summary(result, folder))
    return FAILED if result.failures or not written else 0


async def _export(options: argparse.Namespace) -> Exported:
    async with AsyncExitStack() as stack:
        site, settings, listed, progress = await read_listing(options, stack)
        urls = _own((entry.url for entry in listed), site, progress)
        progress.found(len(urls))
        archive = Archive.create(options.to, site)

        rendering = await stack.enter_async_context(from_settings.rendering(settings))
        export = Export(
            rendering.renderer,
            archive,
            obey_origin=settings.cache.obey_origin,
            on_page=lambda _: progress.done(),
        )
        concurrency = from_settings.page_count(settings) + _AHEAD
        try:
            return await export.run(urls, concurrency)
        except BaseException:
            # An interrupted run keeps its own snapshots and those of the run before.
            archive.keep_all()
            raise
        finally:
            folder = str(options.to.absolute())
            made = archive.pages.values()
            files = await asyncio.to_thread(nginx.configuration, made, folder)
            await asyncio.to_thread(archive.finish, files)


def _own(urls: Iterable[str], site: str, progress: Progress) -> list[str]:
    own: dict[str, None] = {}
    for url in urls:
        if site_of(url) == site_of(site):
            own[url] = None
        else:
            progress.line(f"skipped: {url}: not on {site}")
    return list(own)


def _summary(result: Exported, folder: str) -> str:
    files = f"; nginx serves them with its {nginx.HTTP_FILE} and {nginx.SERVER_FILE}"
    lines = [f"{terminal.counted(result.pages, 'page')} in {folder}{files if result.pages else ''}"]
    for word, failures in (("failed", result.failures), ("exported", result.doubtful)):
        lines += [f"{word}: {one.url}: {one.reason}" for one in failures[:_SHOWN_FAILURES]]
        if len(failures) > _SHOWN_FAILURES:
            lines.append(f"{word}: {len(failures) - _SHOWN_FAILURES} more (use --json for all)")
    return "\n".join([*lines, ""])
