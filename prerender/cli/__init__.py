"""The command line: one file a command; program.py knows them all."""

from prerender.cli.program import main

__all__ = ["main"]
