"""``prerender COMMAND``: the list of commands, and their exit statuses."""

import argparse
import sys
from collections.abc import Container, Sequence
from importlib import import_module

from prerender import __version__
from prerender.cli import terminal
from prerender.cli.terminal import FAILED, INTERRUPTED, USAGE
from prerender.errors import ConfigError, PrerenderError

# By name: the module, with add(parser), which sets run(options); the help; and examples. Only the
# module of the requested command is imported, because some imports take a second.
_COMMANDS = {
    "serve": ("serve", "run the proxy", (
        "prerender serve http://127.0.0.1:3000 --site https://www.example.com --preset crawlers",
        "prerender serve --config /etc/prerender.toml",
    )),
    "render": ("render", "print the snapshot of one page and exit", (
        "prerender render 'https://www.example.com/#!/items/3'",
        "prerender render localhost:3000/about --json",
        "prerender render www.example.com --markdown --output page.md --screenshot page.png",
    )),
    "purge": ("purge", "remove snapshots from a running proxy", (
        "prerender purge --url 'https://www.example.com/#!/items/3'",
        "prerender purge --tag lamps --soft",
    )),
    "explain": ("explain", "say how a running proxy would respond to a request, and why", (
        "prerender explain 'https://www.example.com/#!/items/3'",
        "prerender explain /about --user-agent Googlebot --admin http://127.0.0.1:8081",
    )),
    "check": ("check", "audit a site as a crawler, and compare it with what visitors see", (
        "prerender check https://www.example.com/",
        "prerender check https://www.example.com/sitemap.xml --via http://127.0.0.1:8080",
    )),
    "warm": ("warm", "fill the cache of running proxies", (
        "prerender warm https://www.example.com/sitemap.xml",
    )),
    "export": ("export", "write snapshots to files", (
        "prerender export https://www.example.com/sitemap.xml --to /srv/snapshots",
    )),
    "import": ("import_", "load exported snapshots into a running proxy", (
        "prerender import /srv/snapshots --admin http://127.0.0.1:8081",
    )),
    "sitemap": ("sitemap", "crawl a site and print its sitemap", (
        "prerender sitemap https://www.example.com/ --to public",
    )),
    "llms": ("llms", "write llms.txt and llms-full.txt for the pages of a sitemap", (
        "prerender llms https://www.example.com/sitemap.xml --to public",
    )),
    "report": ("report", "print what crawlers got, from a running proxy", (
        "prerender report --days 90 --by day,crawler --csv",
        "prerender report errors",
        "prerender report change --date 2026-03-31",
        "prerender report gap --sitemap https://www.example.com/sitemap.xml",
        "prerender report snapshots --finding noindex",
    )),
    "config": ("configuration", "print the effective settings with their sources", (
        "prerender config --config /etc/prerender.toml",
        "prerender config --example > /etc/prerender.toml",
    )),
    "doctor": ("doctor", "check everything that the proxy needs", (
        "prerender doctor http://127.0.0.1:3000",
    )),
    "completion": ("completion", "print a shell completion script", (
        "prerender completion bash > /etc/bash_completion.d/prerender",
        "prerender completion zsh > \"${fpath[1]}/_prerender\"",
    )),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    0: success; 1: it failed or found errors; 2: wrong usage or invalid settings; 130: interrupted
    (128 + SIGINT, as in shells).
    """
    terminal.open_standard_streams()
    if not sys.platform.startswith("linux"):
        terminal.say(
            f"prerender runs on Linux, not on {sys.platform}: run its container image instead, in a "
            "clone of the repository by: docker compose up --build"
        )
        return FAILED
    if arguments is None:
        arguments = sys.argv[1:]
    try:
        # No global option takes a value, so the first other argument is the command.
        asked = next((word for word in arguments if not word.startswith("-")), "")
        options = _parser((asked,)).parse_args(arguments)
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


def whole_parser() -> argparse.ArgumentParser:
    """A parser with the arguments of all commands, for completion."""
    return _parser(_COMMANDS)


def _parser(asked: Container[str]) -> argparse.ArgumentParser:
    """The parser. Only the commands in ``asked`` have their arguments."""
    parser = argparse.ArgumentParser(
        prog="prerender",
        description="A reverse proxy that serves crawlers HTML snapshots of JavaScript pages.",
    )
    parser.add_argument("--version", action="version", version=f"prerender {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, what, examples) in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=what,
            description=f"{what[:1].upper()}{what[1:]}.",
            epilog="\n  ".join(("examples:", *examples)).replace("%", "%%"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in asked:
            import_module(f"prerender.cli.{module}").add(command)
    return parser
