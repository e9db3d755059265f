"""``prerender serve``: runs the proxy."""

import argparse
import asyncio
import os
import signal

import uvloop

from prerender import app
from prerender.cli import common
from prerender.cli.terminal import FAILED
from prerender.config import load
from prerender.telemetry import logs


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_settings(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    settings = load(options.config, overrides=common.overrides_of(options))
    logs.configure(settings.log)

    async def until_stopped() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()

        def asked_to_stop() -> None:
            if stop.is_set():
                # Second signal: exit at once. The guardians kill the browsers.
                os._exit(FAILED)
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, asked_to_stop)
        await app.serve(settings, stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_stopped())
    return 0
