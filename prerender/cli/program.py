"""``prerender COMMAND``: finds the commands, and has their exit statuses.

A command is a module in ``commands/``, of this package or of an extension, with ``add(parser)``, which
sets ``run(options)``. Its docstring is the help: what it does, and examples. Only the module of the
requested command is imported, because some imports take a second.
"""

import argparse
import ast
import signal
import sys
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from prerender import __version__, plugins
from prerender.cli import terminal
from prerender.cli.terminal import FAILED, INTERRUPTED, USAGE
from prerender.errors import AdminError, ConfigError, PrerenderError


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
        wanted = next((word for word in arguments if not word.startswith("-")), "")
        if wanted == "serve":
            # It reloads settings at this signal, which can arrive before it is ready to do so.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        options = _parser((wanted,)).parse_args(arguments)
        status: int = options.run(options)
    except ConfigError as error:
        terminal.say(_problems(options.command, error.problems))
        return USAGE
    except PrerenderError as error:
        terminal.say(f"prerender: {' '.join(str(error).split())}")
        # The proxy validates what the command passes on.
        refused = isinstance(error, AdminError) and error.answered_with == 400
        return USAGE if refused else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _problems(command: str, problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return f"prerender {command}: {problems[0]}"
    return "\n".join(
        [f"prerender {command}: {len(problems)} problems:", *(f"  {line}" for line in problems)]
    )


def commands() -> Mapping[str, str]:
    """The modules of the commands, by name."""
    modules = {
        module.name.rstrip("_"): f"{package}.{module.name}"
        for package in plugins.having("commands")
        for module in iter_modules(import_module(package).__path__)
    }
    return dict(sorted(modules.items()))


def help_of(module: str) -> tuple[str, str]:
    """What a command does, and its examples: from its docstring, without importing it."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text("utf-8"))) or ""
    what, _, examples = text.partition("\n\n")
    return what, examples


def whole_parser() -> argparse.ArgumentParser:
    """A parser with the arguments of all commands, for completion."""
    usable = []
    for name, module in commands().items():
        with suppress(PrerenderError):
            imported(name, module)
            usable.append(name)
    return _parser(usable)


def imported(needed_by: str, module: str) -> ModuleType:
    """A module of a command. Raises PrerenderError if it needs an extension that is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("prerender."):
            raise
        raise PrerenderError(f"{needed_by} needs {error.name}, which is not installed") from error


def _parser(wanted: Container[str]) -> argparse.ArgumentParser:
    """The parser. Only the commands in ``wanted`` have their arguments."""
    parser = argparse.ArgumentParser(
        prog="prerender",
        description="A reverse proxy that serves crawlers HTML snapshots of JavaScript pages.",
    )
    parser.add_argument("--version", action="version", version=f"prerender {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in commands().items():
        what, examples = help_of(module)
        command = subparsers.add_parser(
            name,
            help=f"{what[:1].lower()}{what[1:]}".rstrip("."),
            description=what,
            epilog=examples.lower()[:1] + examples[1:].replace("%", "%%"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in wanted:
            imported(name, module).add(command)
    return parser
