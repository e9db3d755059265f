"""Print a shell completion script.

Examples:
  prerender completion bash > /etc/bash_completion.d/prerender
  prerender completion zsh > "${fpath[1]}/_prerender"
"""

import argparse

import shtab

from prerender.cli import terminal
from prerender.cli.terminal import FAILED


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from prerender.cli import program  # noqa: PLC0415 - which imports this one

    script = shtab.complete(program.whole_parser(), shell=options.shell)
    return 0 if terminal.write(f"{script}\n") else FAILED
