"""``prerender COMMAND``: what commands there are, and how they end."""

import argparse
from collections.abc import Sequence
from typing import Any

from prerender import __version__
from prerender.cli import (
    check,
    configuration,
    doctor,
    export,
    import_,
    purge,
    render,
    serve,
    sitemap,
    terminal,
    warm,
)
from prerender.cli.terminal import FAILED, INTERRUPTED, USAGE
from prerender.errors import ConfigError, PrerenderError

# Each has add(commands), which says what it is asked by, and leaves its run(options) there.
_COMMANDS = (
    serve, render, purge, check, warm, export, import_, sitemap, configuration, doctor,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status.

    0; 1 when it failed, or found what it looked for faults for; 2 when it was asked wrongly or a
    setting is wrong; 130 when it was interrupted (128 + SIGINT, as shells have it).
    """
    terminal.open_standard_streams()
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except ConfigError as error:
        terminal.say("\n".join(["prerender cannot start:", *error.problems]))
        return USAGE
    except PrerenderError as error:
        terminal.say(f"prerender: {' '.join(str(error).split())}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prerender",
        description="Answers crawlers with HTML snapshots of JavaScript pages.",
    )
    parser.add_argument("--version", action="version", version=f"prerender {__version__}")
    commands: Any = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add(commands)
    return parser
