"""``prerender render URL``: prints one snapshot."""

import argparse

from prerender.cli import options as common
from prerender.cli import terminal
from prerender.cli.terminal import FAILED
from prerender.config import Settings
from prerender.errors import ConfigError, NotRenderable, OriginError, PrerenderError
from prerender.rendering import opening
from prerender.snapshots.snapshot import Snapshot, Target
from prerender.urls.addresses import pretty_of


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("url", help="the page's URL, pretty (#!) or ugly")
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Render a page and print it."""
    site = common.site_of(options.url)
    settings = common.settings_for_site(site, options.config, {"browser": {"pages": 1}})
    target = Target.of(settings.public_url, pretty_of(options.url))
    common.quiet_logs(settings.log)
    try:
        snapshot = common.run(_snapshot(settings, target))
    except ConfigError:
        raise
    except PrerenderError as error:
        terminal.say(f"prerender: {failure(target, error)}")
        return FAILED
    if snapshot.status != 200:
        headers = "".join(f", {name}: {value}" for name, value in snapshot.headers)
        terminal.say(f"prerender: {target.url}: status {snapshot.status}{headers}")
    return 0 if terminal.write(snapshot.body) else FAILED


async def _snapshot(settings: Settings, target: Target) -> Snapshot:
    async with opening.rendering(settings) as rendering:
        return (await rendering.renderer.snapshot(target)).snapshot


def failure(target: Target, error: PrerenderError) -> str:
    """Why there is no snapshot of a target, in one line."""
    match error:
        case NotRenderable():
            text = f"{target.url}: no HTML page: {error}"
        case OriginError():
            text = f"{target.url}: the site's server failed: {error}"
        case _:
            text = str(error)
    return " ".join(text.split())
