"""What several commands share: options, the settings that they make, and running a coroutine."""

import argparse
import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import uvloop
from pydantic import BaseModel, TypeAdapter, ValidationError
from yarl import URL

from prerender.admin.client import AdminClient
from prerender.config import Settings, load
from prerender.config.settings import LogSettings, OriginSettings
from prerender.config.types import PositiveDuration
from prerender.config.validation import in_words
from prerender.errors import ConfigError, PrerenderError
from prerender.telemetry import logs
from prerender.urls.addresses import ascii_host, pretty_of

T = TypeVar("T")
# The important settings, except for the admin token, which other users could see in the process list.
_SETTINGS = (
    ("--site", "site", "url", "URL"),
    ("--host", "server", "host", "ADDRESS"),
    ("--port", "server", "port", "PORT"),
    ("--admin-port", "admin", "port", "PORT"),
    ("--preset", "triggers", "preset", "NAME"),
    ("--cache", "cache", "url", "URL"),
    ("--ttl", "cache", "ttl", "DURATION"),
    ("--stale", "cache", "stale", "DURATION"),
    ("--pages", "browser", "pages", "N"),
)
_ORIGINS = ("PRERENDER_ORIGIN", "PRERENDER_ORIGIN_URL")


class SiteHeaders(NamedTuple):
    """Headers for requests to the site's own servers, which are ``servers`` (scheme, host and port)."""

    servers: frozenset[URL] = frozenset()
    headers: tuple[tuple[str, str], ...] = ()

    def of(self, url: URL) -> tuple[tuple[str, str], ...]:
        """Those for a URL."""
        return self.headers if url.origin() in self.servers else ()


NO_HEADERS = SiteHeaders()


def add_config(parser: argparse.ArgumentParser) -> None:
    """``--config FILE``."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (TOML)")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """``ORIGIN``, ``--config FILE`` and the important settings as options."""
    parser.add_argument(
        "origin", nargs="?", metavar="ORIGIN", help="URL of the site's own server: [origin] url"
    )
    add_config(parser)
    for option, section, key, value in _SETTINGS:
        model = Settings.model_fields[section].annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        help_text = f"{model.model_fields[key].description} [{section}] {key}"
        parser.add_argument(option, metavar=value, help=help_text.replace("%", "%%"))


def overrides_of(options: argparse.Namespace) -> dict[str, dict[str, object]]:
    """The settings given as options. URLs of sites need no scheme."""
    given: dict[str, dict[str, object]] = {}
    if options.origin is not None:
        given["origin"] = {"url": with_scheme(options.origin)}
    for option, section, key, _ in _SETTINGS:
        if (value := getattr(options, option[2:].replace("-", "_"))) is not None:
            value = with_scheme(value) if option == "--site" else value
            given.setdefault(section, {})[key] = value
    return given


def with_scheme(url: str) -> str:
    """Add a missing scheme: https, but http with a port, an address or localhost."""
    if "://" in url or not re.match(r"[\w.:\[-]", url, re.ASCII) or url.startswith("mailto:"):
        return url
    if url.startswith(":"):
        url = f"127.0.0.1{url}"
    host = re.split(r"[/?#]", url, maxsplit=1)[0]
    local = host == "localhost" or re.fullmatch(r"[\d.]+", host, re.ASCII)
    return f"http://{url}" if local or re.search(r":\d+$", host, re.ASCII) else f"https://{url}"


_ADMIN = (
    "admin listener of the proxy; default: [admin] host and port of the settings, "
    "http://127.0.0.1:8081. The token is [admin] token (PRERENDER_ADMIN_TOKEN)"
)


def add_admin(parser: argparse.ArgumentParser, text: str = _ADMIN) -> None:
    """``--admin URL`` and ``--config FILE``, for commands that use the admin listener."""
    parser.add_argument("--admin", type=_server, metavar="URL", help=text)
    add_config(parser)


def admin_of(options: argparse.Namespace) -> AdminClient:
    """The admin listener of ``add_admin``. Raises ConfigError and AdminError."""
    return AdminClient.of(load(options.config, origin_needed=False).admin, options.admin)


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_via(parser: argparse.ArgumentParser) -> None:
    """``--via URL``."""
    parser.add_argument(
        "--via",
        type=_server,
        metavar="URL",
        help="send the requests to this server instead of the site: a proxy or a load balancer",
    )


def add_concurrency(parser: argparse.ArgumentParser, default: int) -> None:
    """``--concurrency N``."""
    parser.add_argument(
        "--concurrency",
        type=whole(1, 256),
        default=default,
        metavar="N",
        help=f"pages at the same time; default: {default}",
    )


def add_sources(parser: argparse.ArgumentParser, *, follow: bool = True) -> None:
    """``SITEMAP...`` and, optionally, ``--follow DEPTH``."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SITEMAP",
        help="a sitemap or sitemap index (URL or file, also .gz), a list of URLs, - for standard "
        "input, or a page",
    )
    if follow:
        parser.add_argument(
            "--follow",
            type=whole(0, 100),
            default=0,
            metavar="DEPTH",
            help="follow links in snapshots to this depth; default: 0",
        )


def rate(text: str) -> float:
    """Argument type: a rate per second."""
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text, re.ASCII) or not float(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give a number above 0, for example 5 or 0.5")
    return float(text)


def duration(text: str) -> float:
    """Argument type: a duration in seconds."""
    try:
        return TypeAdapter(PositiveDuration).validate_python(text)
    except ValidationError as error:
        reason = in_words(error.errors()[0])
        raise argparse.ArgumentTypeError(f"{text!r}: {reason}") from None


def whole(least: int, most: int = 10**9) -> Callable[[str], int]:
    """Argument type: a whole number."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", text, re.ASCII) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: give a number from {least} to {most}")
        return int(text)

    return number


def _server(text: str) -> str:
    try:
        return OriginSettings(url=with_scheme(text)).url
    except ValidationError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: give scheme, host and port, for example http://127.0.0.1:8080"
        ) from None


def site_of(url: str) -> str:
    """The scheme and host of a page. Raises ConfigError."""
    try:
        pretty_of(url)
    except ValueError as error:
        raise ConfigError([f"URL: {error}"]) from error
    return str(URL(ascii_host(url), encoded=True).origin())


def settings_for_site(
    site: str, config: Path | None, overrides: Mapping[str, Mapping[str, object]] | None = None
) -> Settings:
    """The settings with ``site`` (scheme and host) as the public URL.

    Without an origin in the settings, the site itself is the origin. [origin] headers are for the site
    of the settings only.
    """
    values: dict[str, dict[str, object]] = {"site": {"url": site}}
    for section, keys in (overrides or {}).items():
        values.setdefault(section, {}).update(keys)
    if config is None and not any(name in os.environ for name in _ORIGINS):
        values.setdefault("origin", {}).setdefault("url", site)
    settings = load(config, os.environ, values)
    if site_headers(config).servers.isdisjoint({URL(site), settings.origin_url}):
        origin = settings.origin.model_copy(update={"headers": ()})
        return settings.model_copy(update={"origin": origin})
    return settings


def site_headers(config: Path | None) -> SiteHeaders:
    """[origin] headers of the settings, for requests to the origin and to the public URL.

    None without an origin: then nothing says whose they are.
    """
    try:
        settings = settings_if_any(config)
    except ConfigError:
        return NO_HEADERS  # the command reports what is wrong when it loads its settings
    if settings is None:
        return NO_HEADERS
    servers = frozenset({settings.origin_url.origin(), settings.public_url.origin()})
    return SiteHeaders(servers, settings.origin.header_pairs)


def settings_if_any(config: Path | None) -> Settings | None:
    """The settings, or None without any. For commands that do not need settings."""
    if config is None and not any(name in os.environ for name in _ORIGINS):
        return None
    return load(config)


def quiet_logs(settings: LogSettings) -> None:
    """Configure logging for a command: no ``info`` events."""
    level = "warning" if settings.level == "info" else settings.level
    logs.configure(settings.model_copy(update={"level": level}))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. Ctrl-C cancels it, and KeyboardInterrupt is raised after its cleanup."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def try_to_write(file: Path) -> None:
    """Raise PrerenderError if a file cannot be written. Changes nothing; pipes are not opened."""
    is_new = not file.exists()
    if is_new or file.is_file() or file.is_dir():
        write_file(file, b"", mode="ab")
        if is_new:
            file.unlink(missing_ok=True)


def write_file(file: Path, data: bytes, mode: Literal["wb", "ab"] = "wb") -> None:
    """Write a file. Raises PrerenderError."""
    try:
        with file.open(mode) as opened:
            opened.write(data)
    except OSError as error:
        raise PrerenderError(f"{file}: cannot write: {error.strerror}") from error
