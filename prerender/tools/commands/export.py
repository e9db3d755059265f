"""Write snapshots to files.

Examples:
  prerender export https://www.example.com/sitemap.xml --to /srv/snapshots
  prerender export https://www.example.com/sitemap.xml --static --to /srv/static
"""

import argparse
import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from prerender.browser import defaults
from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED
from prerender.config import Settings
from prerender.config.crawler_classes import CLASSES, PRESETS
from prerender.crawlers.from_settings import triggers_of
from prerender.errors import ConfigError
from prerender.rendering import from_settings
from prerender.tools.export import nginx
from prerender.tools.export.archive import Archive
from prerender.tools.export.export import AHEAD, Export, Exported
from prerender.tools.export.hydration import WithScripts
from prerender.tools.export.static import StaticFiles
from prerender.tools.url_sources import read_listing

_SHOWN_FAILURES = 20
# The names of nginx's files, without and with --static.
_CONFIGURED = (
    f"{nginx.HTTP_FILE} and {nginx.SERVER_FILE}",
    f"{nginx.STATIC_HTTP_FILE} and {nginx.STATIC_SERVER_FILE}",
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_sources(parser, follow=False)
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="output folder")
    parser.add_argument(
        "--static",
        action="store_true",
        help="write a file at the path of each ordinary URL: /a is a/index.html",
    )
    parser.add_argument(
        "--keep-scripts",
        action="store_true",
        help="keep the scripts of pages, for files that visitors get, too; implies --static",
    )
    common.add_json(parser)
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Export the pages and print a summary. Returns 1 if a page failed or a sitemap was not read."""
    folder = str(options.to.absolute())
    if not folder.isprintable() or any(character in folder for character in "$\"'\\"):
        raise ConfigError(
            [f"--to: {folder!r}: give a folder name without $, quotes and backslashes"]
        )
    options.static = options.static or options.keep_scripts
    result = common.run(_export(options))
    if options.json:
        written = terminal.write_json({"folder": folder, **asdict(result)})
    else:
        written = terminal.write(_summary(result, folder, _CONFIGURED[options.static]))
    return FAILED if result.failures or result.unread_sitemaps or not written else 0


async def _export(options: argparse.Namespace) -> Exported:
    async with AsyncExitStack() as stack:
        site, settings, urls, unread, progress = await read_listing(options, stack)
        made_in = StaticFiles if options.static else Archive
        archive = made_in.create(options.to, site)

        rendering = await stack.enter_async_context(from_settings.rendering(settings))
        most = settings.render.max_bytes
        keeping = WithScripts(rendering.renderer, rendering.upstream, settings.public_url, most)
        export = Export(
            keeping if options.keep_scripts else rendering.renderer,
            archive,
            obey_origin=settings.cache.obey_origin,
            on_page=lambda _: progress.done(),
        )
        concurrency = defaults.page_count(settings) + AHEAD
        try:
            exported = await export.run(urls, concurrency)
            if unread:
                # What is not listed may be in what was not read.
                archive.keep_all()
                exported.unread_sitemaps = unread
            return exported
        except BaseException:
            # An interrupted run keeps its own snapshots and those of the run before.
            archive.keep_all()
            raise
        finally:
            folder = str(options.to.absolute())
            if isinstance(archive, Archive):
                pages = archive.pages.values()
                files = await asyncio.to_thread(nginx.configuration, pages, folder)
            else:
                files = nginx.static_configuration(_crawlers(settings), folder)
            await asyncio.to_thread(archive.finish, files)


def _crawlers(settings: Settings) -> list[str]:
    """The names of crawlers that get snapshots; without a preset, those of "ai", which is the largest
    group that reads pages for others."""
    triggers = triggers_of(settings)
    classes = {one for one in CLASSES if triggers.action(one) in ("render", "markdown")}
    classes = classes or set(PRESETS["ai"])
    return [one.name for one in triggers.crawlers.crawlers if one.crawler in classes]


def _summary(result: Exported, folder: str, configured: str) -> str:
    files = f"; nginx serves them with its {configured}"
    lines = [f"{terminal.counted(result.pages, 'page')} in {folder}{files if result.pages else ''}"]
    if result.unread_sitemaps:
        unread = terminal.counted(result.unread_sitemaps, "sitemap")
        lines.append(f"{unread} not read to the end: pages of the last export stay")
    for word, failures in (("failed", result.failures), ("doubtful", result.doubtful)):
        lines += [f"{word}: {one.url}: {one.reason}" for one in failures[:_SHOWN_FAILURES]]
        if len(failures) > _SHOWN_FAILURES:
            lines.append(f"{word}: {len(failures) - _SHOWN_FAILURES} more (use --json for all)")
    return "\n".join([*lines, ""])
