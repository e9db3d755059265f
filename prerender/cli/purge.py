"""``prerender purge``: removes snapshots from a running proxy."""

import argparse

from prerender.admin import client
from prerender.cli import options as common
from prerender.cli import terminal
from prerender.cli.terminal import FAILED
from prerender.config import load
from prerender.errors import ConfigError

_KINDS = {
    "url": "the snapshots of a page, by its pretty or ugly URL",
    "prefix": "of all pages whose URLs begin with this",
    "pattern": "of all pages whose URLs match; * stands for any text",
    "tag": "of all pages with this cache tag",
}
_PLURALS = {"url": "URLs", "prefix": "prefixes", "pattern": "patterns", "tag": "tags"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    for kind, help_text in _KINDS.items():
        parser.add_argument(f"--{kind}", action="append", default=[], help=help_text)
    parser.add_argument("--all", action="store_true", help="all snapshots")
    parser.add_argument(
        "--soft",
        action="store_true",
        help="mark them stale: they are shown until they are replaced",
    )
    common.add_json(parser)
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Purge. Raises AdminError, and ConfigError when there is nothing to purge."""
    targets: dict[str, list[str]] = {
        kind: found for kind in _KINDS if (found := getattr(options, kind))
    }
    if not targets and not options.all:
        names = ", ".join(f"--{kind}" for kind in _KINDS)
        raise ConfigError([f"what to purge is missing: give {names} or --all"])
    settings = load(options.config)
    client.purge(settings, {**targets, "all": options.all, "soft": options.soft})
    if options.json:
        written = terminal.write_json({**targets, "all": options.all, "soft": options.soft})
    else:
        done = "marked stale" if options.soft else "purged"
        written = terminal.write(f"{done}: {_counted(targets, everything=options.all)}\n")
    return 0 if written else FAILED


def _counted(targets: dict[str, list[str]], *, everything: bool) -> str:
    """What was purged. How many snapshots that are is not known: each is judged when it is read."""
    if everything:
        return "all snapshots"
    return ", ".join(
        f"{len(found)} {kind.upper() if kind == 'url' else kind}"
        if len(found) == 1
        else f"{len(found)} {_PLURALS[kind]}"
        for kind, found in targets.items()
    )
