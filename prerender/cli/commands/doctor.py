"""Check everything that the proxy needs.

Examples:
  prerender doctor http://127.0.0.1:3000
"""

import argparse
import sys
from contextlib import aclosing
from dataclasses import asdict

from prerender.cli import common, terminal
from prerender.cli import diagnosis as doctor
from prerender.cli.terminal import FAILED
from prerender.config import Settings, load
from prerender.telemetry import logs

_COLOURS = {"ok": "\x1b[32m", "warning": "\x1b[33m", "problem": "\x1b[31m"}
_PLAIN = "\x1b[0m"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_json(parser)
    common.add_settings(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a line per check. Returns 1 if there is a problem."""
    settings = load(options.config, overrides=common.overrides_of(options))
    common.quiet_logs(settings.log.model_copy(update={"level": "error"}))
    lines = common.run(_lines(settings, json=options.json))
    written = not options.json or terminal.write_json([asdict(line) for line in lines])
    failed = any(line.state == "problem" for line in lines)
    return FAILED if failed or not written else 0


async def _lines(settings: Settings, *, json: bool) -> list[doctor.Line]:
    lines = []
    async with aclosing(doctor.examine(settings)) as examination:
        async for line in examination:
            lines.append(line)
            if not json:
                _write(line)
    return lines


def _write(line: doctor.Line) -> None:
    state = f"{line.state:<8}"
    if logs.is_coloured(sys.stdout):
        state = f"{_COLOURS[line.state]}{state}{_PLAIN}"
    remedy = f"\n{'':9}{'':13}→ {line.remedy}" if line.remedy else ""
    terminal.write(f" {line.name:<12} {line.text}{remedy}\n", before=state)
