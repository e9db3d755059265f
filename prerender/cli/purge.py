"""``prerender purge``: removes snapshots from a running proxy."""

import argparse

from prerender.admin import client
from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED
from prerender.config import load
from prerender.errors import ConfigError

_KINDS = {
    "url": "purge a page by its pretty or ugly URL",
    "prefix": "purge all pages whose URL begins with this",
    "pattern": "purge all pages whose URL matches; * matches any text",
    "tag": "purge all pages with this cache tag",
}
_PLURALS = {"url": "URLs", "prefix": "prefixes", "pattern": "patterns", "tag": "tags"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    for kind, help_text in _KINDS.items():
        parser.add_argument(f"--{kind}", action="append", default=[], help=help_text)
    parser.add_argument("--all", action="store_true", help="purge all snapshots")
    parser.add_argument(
        "--soft",
        action="store_true",
        help="mark snapshots stale: they are served for [cache] stale while new ones are rendered",
    )
    common.add_json(parser)
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Purge. Raises AdminError, and ConfigError if no pages are named."""
    targets: dict[str, list[str]] = {
        kind: found for kind in _KINDS if (found := getattr(options, kind))
    }
    if not targets and not options.all:
        names = ", ".join(f"--{kind}" for kind in _KINDS)
        raise ConfigError([f"nothing to purge: give {names} or --all"])
    settings = load(options.config)
    client.purge(settings, {**targets, "all": options.all, "soft": options.soft})
    if options.json:
        written = terminal.write_json({**targets, "all": options.all, "soft": options.soft})
    else:
        done = "marked stale" if options.soft else "purged"
        written = terminal.write(f"{done}: {_counted(targets, everything=options.all)}\n")
    return 0 if written else FAILED


def _counted(targets: dict[str, list[str]], *, everything: bool) -> str:
    """What was purged. The number of snapshots is unknown: purges apply when entries are read."""
    if everything:
        return "all snapshots"
    return ", ".join(
        f"{len(found)} {kind.upper() if kind == 'url' else kind}"
        if len(found) == 1
        else f"{len(found)} {_PLURALS[kind]}"
        for kind, found in targets.items()
    )
