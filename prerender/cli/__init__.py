"""The command line: one module per command. program.py lists them."""

from prerender.cli.program import main

__all__ = ["main"]
