"""What several commands are asked by, and how they make settings of it."""

import argparse
import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from pydantic import BaseModel, ValidationError
from yarl import URL

from prerender.config import Settings, load
from prerender.config.settings import Log, Origin
from prerender.errors import ConfigError
from prerender.telemetry import logs
from prerender.urls.addresses import pretty_of

T = TypeVar("T")
# The settings that matter first, but for the admin token, which others on the machine could read.
_SETTINGS = (
    ("--site", "site", "url", "URL"),
    ("--host", "server", "host", "ADDRESS"),
    ("--port", "server", "port", "PORT"),
    ("--preset", "triggers", "preset", "NAME"),
    ("--cache", "cache", "url", "URL"),
    ("--ttl", "cache", "ttl", "DURATION"),
    ("--stale", "cache", "stale", "DURATION"),
    ("--pages", "browser", "pages", "N"),
)
_ORIGINS = ("PRERENDER_ORIGIN", "PRERENDER_ORIGIN_URL")


def add_config(parser: argparse.ArgumentParser) -> None:
    """``--config FILE``."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with settings")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """``ORIGIN``, ``--config FILE`` and the settings that matter first, as options."""
    parser.add_argument(
        "origin", nargs="?", metavar="ORIGIN", help="the site's own server: [origin] url"
    )
    add_config(parser)
    for option, section, key, value in _SETTINGS:
        model = Settings.model_fields[section].annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        help_text = f"{model.model_fields[key].description} [{section}] {key}"
        parser.add_argument(option, metavar=value, help=help_text.replace("%", "%%"))


def overrides_of(options: argparse.Namespace) -> dict[str, dict[str, object]]:
    """The settings that are given as options; what names a site needs no scheme."""
    given: dict[str, dict[str, object]] = {}
    if options.origin is not None:
        given["origin"] = {"url": with_scheme(options.origin)}
    for option, section, key, _ in _SETTINGS:
        if (value := getattr(options, option[2:])) is not None:
            value = with_scheme(value) if option == "--site" else value
            given.setdefault(section, {})[key] = value
    return given


def with_scheme(url: str) -> str:
    """A URL as people write it: https unless it names a port or this machine."""
    if "://" in url or not re.match(r"[\w.:\[-]", url, re.ASCII) or url.startswith("mailto:"):
        return url
    if url.startswith(":"):
        url = f"127.0.0.1{url}"
    host = re.split(r"[/?#]", url, maxsplit=1)[0]
    local = host == "localhost" or re.fullmatch(r"[\d.]+", host, re.ASCII)
    return f"http://{url}" if local or re.search(r":\d+$", host, re.ASCII) else f"https://{url}"


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_via(parser: argparse.ArgumentParser) -> None:
    """``--via URL``."""
    parser.add_argument(
        "--via",
        type=_server,
        metavar="URL",
        help="where to send the requests instead of to the site: a proxy, or a balancer of many",
    )


def add_concurrency(parser: argparse.ArgumentParser, default: int) -> None:
    """``--concurrency N``."""
    parser.add_argument(
        "--concurrency",
        type=whole(1, 256),
        default=default,
        metavar="N",
        help=f"pages at a time; default: {default}",
    )


def add_sources(parser: argparse.ArgumentParser, *, follow: bool = True) -> None:
    """Where to find pages: ``SITEMAP...`` and perhaps ``--follow DEPTH``."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SITEMAP",
        help="a sitemap or an index (URL or file, also .gz), a list of URLs, - for standard input, "
        "or a page",
    )
    if follow:
        parser.add_argument(
            "--follow",
            type=whole(0, 100),
            default=0,
            metavar="DEPTH",
            help="follow links of the snapshots so far",
        )


def rate(text: str) -> float:
    """The type of an argument that is so many a second; 0 stands for no limit."""
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r}: give a number, for example 5 or 0.5")
    return float(text)


def whole(least: int, most: int = 10**9) -> Callable[[str], int]:
    """The type of an argument that is a whole number."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", text, re.ASCII) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: give a number from {least} to {most}")
        return int(text)

    return number


def _server(text: str) -> str:
    try:
        return Origin(url=text).url
    except ValidationError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: give scheme, host and port, for example http://127.0.0.1:8080"
        ) from None


def site_of(url: str) -> str:
    """Scheme and host of a page. Raises ConfigError."""
    try:
        pretty_of(url)
    except ValueError as error:
        raise ConfigError([f"URL: {error}"]) from error
    return str(URL(url, encoded=True).origin())


def settings_for_site(
    site: str, config: Path | None, overrides: Mapping[str, Mapping[str, object]] | None = None
) -> Settings:
    """The settings with ``site`` (scheme and host) as the public one.

    Without an origin in the settings the site itself is asked.
    """
    values: dict[str, dict[str, object]] = {"site": {"url": site}}
    for section, keys in (overrides or {}).items():
        values.setdefault(section, {}).update(keys)
    if config is None and not any(name in os.environ for name in _ORIGINS):
        values.setdefault("origin", {}).setdefault("url", site)
    return load(config, os.environ, values)


def settings_if_any(config: Path | None) -> Settings | None:
    """The settings, for commands that do without if there are none."""
    if config is None and not any(name in os.environ for name in _ORIGINS):
        return None
    return load(config)


def quiet_logs(settings: Log) -> None:
    """Log for a command: the ordinary course of things is for the log of a server."""
    level = "warning" if settings.level == "info" else settings.level
    logs.configure(settings.model_copy(update={"level": level}))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work. An interruption cancels it, and is raised when it has cleaned up."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
