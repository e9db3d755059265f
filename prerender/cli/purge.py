"""``prerender purge``: has a running proxy make snapshots anew."""

import argparse
from typing import Any

from prerender.admin import client
from prerender.cli import options as common
from prerender.cli import terminal
from prerender.cli.terminal import FAILED
from prerender.config import load

_WORDS = {
    "url": "the snapshot of a page, by its pretty or ugly URL",
    "prefix": "of all pages whose URLs begin like this",
    "pattern": "of all pages with such a URL; * stands for anything",
    "tag": "of all pages with this tag",
}


def add(commands: Any) -> None:
    """Add the command to the others."""
    parser = commands.add_parser("purge", help="have a running proxy make snapshots anew")
    for word, help_text in _WORDS.items():
        parser.add_argument(f"--{word}", action="append", default=[], help=help_text)
    parser.add_argument("--all", action="store_true", help="all snapshots")
    parser.add_argument("--soft", action="store_true", help="show them until there are new ones")
    common.add_json(parser)
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Purge. Raises AdminError."""
    what: dict[str, object] = {word: getattr(options, word) for word in _WORDS}
    settings = load(options.config)
    count = client.purge(settings, what | {"all": options.all, "soft": options.soft})
    if options.json:
        written = terminal.write_json({"purged": count})
    else:
        written = terminal.write(f"purged: {count}\n")
    return 0 if written else FAILED
