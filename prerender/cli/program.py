"""``prerender COMMAND``: what commands there are, and how they end."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from prerender import __version__
from prerender.cli import terminal
from prerender.cli.terminal import FAILED, INTERRUPTED, USAGE
from prerender.errors import ConfigError, PrerenderError

# By name: the module, which has add(parser) and leaves its run(options) there, and what the command
# does. Only the module of the command that is asked for is imported: some take more than a second.
_COMMANDS = {
    "serve": ("serve", "run the proxy"),
    "render": ("render", "print the snapshot of one page and exit"),
    "purge": ("purge", "remove snapshots from a running proxy"),
    "check": ("check", "look at a site as crawlers do, and compare it with what people see"),
    "warm": ("warm", "fill the cache of running proxies"),
    "export": ("export", "write snapshots to files"),
    "import": ("import_", "load exported snapshots into a running proxy"),
    "sitemap": ("sitemap", "make a sitemap of what a crawl finds"),
    "config": ("configuration", "print the settings in force"),
    "doctor": ("doctor", "check that everything the proxy needs is there"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status.

    0; 1 when it failed, or found what it looked for faults for; 2 when it was asked wrongly or a
    setting is wrong; 130 when it was interrupted (128 + SIGINT, as shells have it).
    """
    terminal.open_standard_streams()
    if arguments is None:
        arguments = sys.argv[1:]
    try:
        options = _parser(arguments).parse_args(arguments)
        status: int = options.run(options)
    except ConfigError as error:
        terminal.say(_problems(options.command, error.problems))
        return USAGE
    except PrerenderError as error:
        terminal.say(f"prerender: {' '.join(str(error).split())}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _problems(command: str, problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return f"prerender {command}: {problems[0]}"
    return "\n".join(
        [f"prerender {command}: {len(problems)} problems:", *(f"  {line}" for line in problems)]
    )


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prerender",
        description="Answers crawlers with HTML snapshots of JavaScript pages.",
    )
    parser.add_argument("--version", action="version", version=f"prerender {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # No option of the program itself takes a value, so this is the command.
    asked = next((word for word in arguments if not word.startswith("-")), "")
    for name, (module, what) in _COMMANDS.items():
        command = commands.add_parser(name, help=what, description=f"{what[:1].upper()}{what[1:]}.")
        if name == asked:
            import_module(f"prerender.cli.{module}").add(command)
    return parser
