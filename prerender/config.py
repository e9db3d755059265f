"""Every setting, declared once: default, check and help.

A setting is ``[section] key`` in the TOML file and ``PRERENDER_SECTION_KEY`` in the environment;
environment over file over default. ``load`` reports every problem at once. Nothing here reads a
setting at import time, and nothing else in the project reads the environment.
"""

import math
import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails
from yarl import URL

from prerender.errors import ConfigError

ENVIRONMENT_PREFIX = "PRERENDER_"
# Accepted beside the regular name, because it is what people try first.
ALIASES = {"PRERENDER_ORIGIN": ("origin", "url")}

_DURATION_UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_YEAR = 365 * 86400


_DURATION_HELP = 'not a duration: give seconds, or for example "30s", "10m", "1h"'
_SIZE_HELP = 'not a size: give bytes, or for example "64KiB", "256MiB", "1GB"'


def _parse_duration(value: object) -> float:
    return _quantity(value, _DURATION_UNITS, _DURATION_HELP)


def _parse_size(value: object) -> int:
    return round(_quantity(value, _SIZE_UNITS, _SIZE_HELP))


def _quantity(value: object, units: Mapping[str, float], help_text: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(help_text)
    if not isinstance(value, str):
        if not math.isfinite(value):
            raise ValueError(help_text)
        return value
    match = _QUANTITY.fullmatch(value)
    if match is None or match[2].lower() not in units:
        raise ValueError(help_text)
    return float(match[1]) * units[match[2].lower()]


def _site_url(value: str) -> str:
    """An absolute http(s) URL of a site: scheme, host, perhaps a port, and nothing else."""
    try:
        url = URL(value.strip())
        explicit = url.scheme in ("http", "https") and bool(url.host)
    except ValueError:
        explicit = False
    if not explicit:
        raise ValueError('not a URL of a site: give for example "http://127.0.0.1:3000"')
    if url.user is not None or url.password is not None:
        raise ValueError("must not carry a user name or password")
    if url.path not in ("", "/") or url.query_string or url.fragment:
        raise ValueError("must be scheme, host and port only, with no path, query or fragment")
    return str(url.origin())


Duration = Annotated[float, BeforeValidator(_parse_duration), Field(ge=0, le=_YEAR)]
PositiveDuration = Annotated[float, BeforeValidator(_parse_duration), Field(gt=0, le=_YEAR)]
Size = Annotated[int, BeforeValidator(_parse_size), Field(ge=0, le=2**46)]
SiteURL = Annotated[str, AfterValidator(_site_url)]
Port = Annotated[int, Field(ge=0, le=65535)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Origin(_Section):
    """The site's own server."""

    url: SiteURL = Field(description="Where the site's own server listens (required).")
    connect_timeout: PositiveDuration = Field(5, description="Longest wait for a connection.")
    timeout: PositiveDuration = Field(
        60, description="Longest silence of the origin while it answers a request."
    )


class Site(_Section):
    """The site as its visitors know it."""

    url: SiteURL | Literal[""] = Field(
        "", description="The public URL. Pages are rendered under it. Empty: the origin's."
    )


class Server(_Section):
    """The public listener."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8080, description="Port to listen on; 0 takes a free one.")
    grace: Duration = Field(
        25, description="How long a shutdown waits for running requests to finish."
    )


class Admin(_Section):
    """The listener for health checks. Keep it off the public network."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8081, description="Port to listen on; 0 takes a free one.")


class Cache(_Section):
    """Where snapshots are kept."""

    ttl: Duration = Field(3600, description="How long a snapshot is fresh; 0 keeps none.")
    max_bytes: Size = Field(256 * 1024**2, description="Bound of the memory that snapshots take.")


class Browser(_Section):
    """Headless Chromium."""

    path: str = Field("", description="The program. Empty: looked for under its usual names.")
    pages: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = Field(
        "auto", description='Pages rendered at once; "auto": two for each CPU of the container.'
    )
    queue: int = Field(
        100, ge=0, le=100_000, description="Renders that may wait for a page; more get a 503."
    )
    sandbox: Literal["auto", "on", "off"] = Field(
        "auto",
        description='"auto": on where it can be, off with a warning where it cannot (as root).',
    )


class Render(_Section):
    """How long a page may take."""

    timeout: PositiveDuration = Field(
        20, description="Wall-clock limit of one render, its wait for a page included."
    )
    budget: PositiveDuration = Field(
        10, description="Virtual time that a page's timers may use before it is taken as done."
    )
    max_bytes: Size = Field(20 * 1024**2, description="Largest snapshot, and largest document.")


class Log(_Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is written."
    )
    format: Literal["console", "json"] = Field("console", description="How a line looks.")


class Settings(_Section):
    """All of them. Frozen: a change of settings is a restart."""

    origin: Origin
    site: Site = Site()
    server: Server = Server()
    admin: Admin = Admin()
    cache: Cache = Cache()
    browser: Browser = Browser()
    render: Render = Render()
    log: Log = Log()

    @property
    def origin_url(self) -> URL:
        """Where the site's own server listens."""
        return URL(self.origin.url)

    @property
    def public_url(self) -> URL:
        """The site's public URL, without a path."""
        return URL(self.site.url or self.origin.url)


def load(
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Mapping[str, object]] | None = None,
) -> Settings:
    """The settings in force.

    ``overrides`` (from the command line) win over the environment, which wins over ``file``.
    Raises ConfigError with one line for each problem, in no case with a secret in it.
    """
    problems: list[str] = []
    values: dict[str, dict[str, object]] = {}
    sources: dict[tuple[str, ...], str] = {}
    if file is not None:
        _read_file(file, values, sources, problems)
    _read_environment(environ, values, sources, problems)
    for section, keys in (overrides or {}).items():
        for key, value in keys.items():
            values.setdefault(section, {})[key] = value
            sources[section, key] = "the command line"
    # An absent [origin] would be reported as a missing table, not as the setting that is missing.
    values.setdefault("origin", {})
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        problems += [_explain(detail, sources) for detail in _one_for_each_setting(error)]
    if problems:
        raise ConfigError(problems)
    return settings


def _read_file(
    file: Path,
    values: dict[str, dict[str, object]],
    sources: dict[tuple[str, ...], str],
    problems: list[str],
) -> None:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"{file}: cannot be read: {error.strerror}")
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{file}: is not TOML: {error}")
        return
    for section, keys in content.items():
        if not isinstance(keys, dict):
            problems.append(f"{file}: {section}: settings belong in a [section]")
            continue
        values[section] = dict(keys)
        sources[(section,)] = str(file)
        sources.update({(section, key): str(file) for key in keys})


def _read_environment(
    environ: Mapping[str, str],
    values: dict[str, dict[str, object]],
    sources: dict[tuple[str, ...], str],
    problems: list[str],
) -> None:
    names = {
        f"{ENVIRONMENT_PREFIX}{section}_{key}".upper(): (section, key)
        for section, field in Settings.model_fields.items()
        for key in _section_model(field.annotation).model_fields
    }
    # The regular names come after the aliases and so win over them.
    for name, (section, key) in (ALIASES | names).items():
        if name in environ:
            values.setdefault(section, {})[key] = environ[name]
            sources[section, key] = name
    for name in sorted(environ):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in names and name not in ALIASES:
            problems.append(f"{name}: there is no such setting{_closest(name, names)}")


def _section_model(annotation: Any) -> type[BaseModel]:
    assert isinstance(annotation, type)
    assert issubclass(annotation, BaseModel)
    return annotation


def _one_for_each_setting(error: ValidationError) -> list[ErrorDetails]:
    """A union reports every branch that failed; one line a setting is enough."""
    first: dict[tuple[int | str, ...], ErrorDetails] = {}
    for detail in error.errors(include_url=False):
        first.setdefault(detail["loc"][:2], detail)
    return list(first.values())


def _explain(detail: ErrorDetails, sources: Mapping[tuple[str, ...], str]) -> str:
    location = tuple(str(part) for part in detail["loc"][:2])
    section, key = (*location, "")[:2]
    where = sources.get(location) or sources.get(location[:1])
    name = f"[{section}] {key}" if key else f"[{section}]"
    origin = f" (from {where})" if where else ""
    if detail["type"] == "extra_forbidden":
        return (
            f"{name}{origin}: there is no such setting{_closest(key or section, _known(section))}"
        )
    if detail["type"] == "missing":
        variable = f"{ENVIRONMENT_PREFIX}{section}_{key}".upper()
        return f"{name}: is required; set it in the file or as {variable}"
    return f"{name}{origin}: {_shown(detail['input'])}: {_allowed(section, key, detail)}"


def _allowed(section: str, key: str, detail: ErrorDetails) -> str:
    if (section, key) == ("browser", "pages"):
        return 'give a whole number from 1 to 256, or "auto"'
    message = detail["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _shown(value: object) -> str:
    """The rejected value, without what may be a password in a URL."""
    text = re.sub(r"//[^/@]*@", "//***@", repr(value))
    return text if len(text) <= 80 else text[:77] + "..."


def _known(section: str) -> list[str]:
    field = Settings.model_fields.get(section)
    if field is None:
        return list(Settings.model_fields)
    return list(_section_model(field.annotation).model_fields)


def _closest(name: str, known: Mapping[str, object] | list[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
