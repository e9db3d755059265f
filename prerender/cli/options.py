"""What several commands are asked by, and how they make settings of it."""

import argparse
import asyncio
import os
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from prerender import logs
from prerender.config import Settings, load
from prerender.config.settings import Log

T = TypeVar("T")


def add_config(parser: argparse.ArgumentParser) -> None:
    """``--config FILE``."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with settings")


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def settings_for_site(
    site: str, config: Path | None, overrides: Mapping[str, Mapping[str, object]] | None = None
) -> Settings:
    """The settings with ``site`` (scheme and host) as the public one.

    Without an origin in the settings the site itself is asked.
    """
    values: dict[str, dict[str, object]] = {"site": {"url": site}}
    for section, keys in (overrides or {}).items():
        values.setdefault(section, {}).update(keys)
    if config is None and not {"PRERENDER_ORIGIN", "PRERENDER_ORIGIN_URL"} & set(os.environ):
        values.setdefault("origin", {}).setdefault("url", site)
    return load(config, os.environ, values)


def quiet_logs(settings: Log) -> None:
    """Log for a command: the ordinary course of things is for the log of a server."""
    level = "warning" if settings.level == "info" else settings.level
    logs.configure(settings.model_copy(update={"level": level}))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work. An interruption cancels it, and is raised when it has cleaned up."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
