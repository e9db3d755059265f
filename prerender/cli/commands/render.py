"""Print the snapshot of one page and exit.

Examples:
  prerender render 'https://www.example.com/#!/items/3'
  prerender render localhost:3000/about --json
  prerender render www.example.com --markdown --output page.md --screenshot page.png
"""

import argparse
from pathlib import Path

from prerender.cli import common, terminal
from prerender.cli.program import imported
from prerender.cli.terminal import FAILED
from prerender.config import Settings
from prerender.errors import ConfigError, NotRenderable, OriginError, PrerenderError
from prerender.rendering import from_settings
from prerender.snapshots.snapshot import SnapshotResult, Timings
from prerender.snapshots.target import Target
from prerender.urls.addresses import pretty_of


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("url", help="URL of the page, pretty (#!) or ugly")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--markdown", action="store_true", help="print Markdown")
    forms.add_argument(
        "--json", action="store_true", help="print JSON with all details of the render"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to a file instead")
    parser.add_argument(
        "--screenshot", type=Path, metavar="FILE", help="also write a screenshot (PNG)"
    )
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Render a page and print it."""
    url = common.with_scheme(options.url)
    site = common.site_of(url)
    settings = common.settings_for_site(site, options.config, {"browser": {"pages": 1}})
    target = Target.of(settings.public_url, pretty_of(url))
    common.quiet_logs(settings.log)
    try:
        result, picture = common.run(_rendered(settings, target, pictured=bool(options.screenshot)))
    except ConfigError:
        raise
    except PrerenderError as error:
        terminal.say(f"prerender: {failure(target, error)}")
        return FAILED
    snapshot = result.snapshot
    if snapshot.status != 200 and not options.json:
        headers = "".join(f", {name}: {value}" for name, value in snapshot.headers)
        terminal.say(f"prerender: {target.url}: status {snapshot.status}{headers}")
    if options.screenshot is not None:
        common.write_file(options.screenshot, picture)
    if options.json:
        printed = terminal.as_json(_facts(target, result)).encode()
    else:
        printed = snapshot.body
        if options.markdown and printed:  # that of a redirect is empty
            convert = imported("--markdown", "prerender.extensions.markdown.convert")
            try:
                printed = convert.markdown_of(snapshot.body, target.url)
            except ValueError as error:
                raise PrerenderError(str(error)) from error
    if options.output is not None:
        common.write_file(options.output, printed)
        return 0
    return 0 if terminal.write_data(printed) else FAILED


async def _rendered(
    settings: Settings, target: Target, *, pictured: bool
) -> tuple[SnapshotResult, bytes]:
    async with from_settings.rendering(settings) as parts:
        result = await parts.renderer.snapshot(target)
        picture = b""
        if pictured:
            screenshots = imported("--screenshot", "prerender.extensions.dashboard.screenshots")
            viewer = screenshots.viewer_of(settings, parts)
            picture = (await viewer.user(target, result.snapshot.etag)).png
        return result, picture


def _facts(target: Target, result: SnapshotResult) -> dict[str, object]:
    snapshot, timings = result.snapshot, result.timings or Timings()
    return {
        "url": target.url,
        "status": snapshot.status,
        "headers": [list(header) for header in snapshot.headers],
        "title": snapshot.title,
        "etag": snapshot.etag,
        "tags": list(snapshot.tags),
        **snapshot.facts.described(),
        "phases": timings.phases(),
        "requests": [fetch._asdict() for fetch in timings.fetches],
        "html": snapshot.body.decode("utf-8", "replace"),
    }


def failure(target: Target, error: PrerenderError) -> str:
    """Why there is no snapshot of a target, as one line."""
    match error:
        case NotRenderable():
            text = f"{target.url}: not an HTML page: {error}"
        case OriginError():
            text = f"{target.url}: the origin failed: {error}"
        case _:
            text = str(error)
    return " ".join(text.split())
