"""Print the effective settings with their sources.

Examples:
  prerender config --config /etc/prerender.toml
  prerender config --example > /etc/prerender.toml
"""

import argparse

from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED
from prerender.config import example, show
from prerender.config.load import load_with_sources
from prerender.crawlers import from_settings


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--check", action="store_true", help="only validate the settings")
    common.add_json(parser)
    parser.add_argument(
        "--example",
        action="store_true",
        help="print a settings file with all settings, their descriptions and defaults",
    )
    common.add_settings(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the settings. Raises ConfigError if they are invalid."""
    if options.example:
        return 0 if terminal.write(example.example()) else FAILED
    settings, sources = load_with_sources(options.config, overrides=common.overrides_of(options))
    if options.check:
        from_settings.check(settings)
        return 0
    if options.json:
        written = terminal.write_json(show.as_json(settings, sources))
    else:
        written = terminal.write_data(show.as_toml(settings, sources).encode())
    return 0 if written else FAILED
