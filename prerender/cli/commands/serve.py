"""Run the proxy.

Examples:
  prerender serve http://127.0.0.1:3000 --site https://www.example.com --preset crawlers
  prerender serve --config /etc/prerender.toml
"""

import argparse
import asyncio
import os
import signal

import structlog
import uvloop

from prerender import app
from prerender.cli import common
from prerender.cli.terminal import FAILED
from prerender.config import load
from prerender.errors import ConfigError
from prerender.telemetry import logs

log = structlog.get_logger(__name__)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_settings(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. SIGHUP reloads the settings."""
    settings = load(options.config, overrides=common.overrides_of(options))
    logs.configure(settings.log)
    app.raise_file_limit()

    async def until_stopped() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        started: list[app.Running] = []

        def on_stop() -> None:
            if stop.is_set():
                # Second signal: exit at once. The guardians kill the browsers.
                os._exit(FAILED)
            stop.set()

        def on_reload() -> None:
            nonlocal settings
            try:
                new = load(options.config, overrides=common.overrides_of(options))
                for running in started:
                    settings = app.reload(running, settings, new)
            except ConfigError as error:
                log.warning("reload_failed", problems=error.problems)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_stop)
        loop.add_signal_handler(signal.SIGHUP, on_reload)
        async with app.serving(settings) as running:
            started.append(running)
            await stop.wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_stopped())
    return 0
