"""Remove snapshots from a running proxy.

Examples:
  prerender purge --url 'https://www.example.com/#!/items/3'
  prerender purge --tag lamps --soft
"""

import argparse

from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED
from prerender.errors import ConfigError

_KINDS = {
    "url": "purge a page by its pretty or ugly URL",
    "prefix": "purge all pages whose URL begins with this",
    "pattern": "purge all pages whose URL matches; * matches any text",
    "tag": "purge all pages with this cache tag",
}
_NAMES = {kind: kind for kind in _KINDS} | {"url": "URL"}
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
    common.add_admin(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Purge. Raises AdminError, and ConfigError if no pages are named."""
    targets: dict[str, list[str]] = {
        kind: values for kind in _KINDS if (values := getattr(options, kind))
    }
    if not targets and not options.all:
        names = ", ".join(f"--{kind}" for kind in _KINDS)
        raise ConfigError([f"nothing to purge: give {names} or --all"])
    if targets and options.all:
        raise ConfigError(["--all stands alone: it purges every page"])
    query = {**targets, "all": options.all, "soft": options.soft}
    count = common.admin_of(options).purge(query)
    if options.json:
        written = terminal.write_json({**query, "snapshots": count})
    else:
        written = terminal.write(f"{_summary(targets, count, options)}\n")
    return 0 if written else FAILED


def _summary(targets: dict[str, list[str]], count: int | None, options: argparse.Namespace) -> str:
    done = "marked stale" if options.soft else "purged"
    what = (
        "all"
        if options.all
        else ", ".join(
            f"{len(values)} {_NAMES[kind] if len(values) == 1 else _PLURALS[kind]}"
            for kind, values in targets.items()
        )
    )
    if count is None:
        return f"{done}: {what}; this store cannot count its snapshots"
    if not count:
        return f"no snapshot {done}: none is stored" + ("" if options.all else f" for {what}")
    return f"{terminal.counted(count, 'snapshot')} {done} ({what})"
