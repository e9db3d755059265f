"""Every setting, declared once: default, check and help.

A setting is ``[section] key`` in the TOML file and ``PRERENDER_SECTION_KEY`` in the environment;
environment over file over default. ``load`` reports every problem at once. Nothing here reads a
setting at import time, and nothing else in the project reads the environment.
"""

import json
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

# Kubernetes puts variables like these into every container of a namespace that has a service named
# "prerender"; they are not meant for us (kubernetes.io: Accessing the Service, environment variables).
_OF_A_KUBERNETES_SERVICE = re.compile(
    r"(\w+_)?SERVICE_(HOST|PORT(_\w+)?)|(\w+_)?PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_KUBERNETES_PORT = re.compile(r"(tcp|udp|sctp)://.*")

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
_WHOLE_NUMBER = re.compile(r"\s*\d{1,18}\s*", re.ASCII)
_LONGEST = 365 * 86400
_LARGEST = 2**46
_DURATION_HELP = 'not a duration: give seconds, or for example "30s", "10m", "1h"'
_SIZE_HELP = 'not a size: give bytes, or for example "64KiB", "256MiB", "1GB"'


def _duration(value: object) -> float:
    seconds = _quantity(value, _DURATION_UNITS, _DURATION_HELP)
    if not 0 <= seconds <= _LONGEST:
        raise ValueError("must be from 0 to 365d")
    return float(seconds)


def _positive(seconds: float) -> float:
    if seconds == 0:
        raise ValueError("must be more than 0")
    return seconds


def _size(value: object) -> int:
    size = _quantity(value, _SIZE_UNITS, _SIZE_HELP)
    if not 0 <= size <= _LARGEST:
        raise ValueError(f"must be from 0 to {_LARGEST // 1024**3}GiB")
    return round(size)


def _quantity(value: object, units: Mapping[str, float], help_text: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in units:
        raise ValueError(help_text)
    return float(match[1]) * units[match[2].lower()]


def _whole_number(least: int, most: int, *, word: str | None = None) -> BeforeValidator:
    """A whole number in a range, or ``word``. Pydantic alone would take true for 1."""

    def parse(value: object) -> int | str:
        if value == word and isinstance(value, str):
            return value
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            also = f', or "{word}"' if word else ""
            raise ValueError(f"give a whole number from {least} to {most}{also}")
        return value

    return BeforeValidator(parse)


def _patterns(value: object) -> tuple[str, ...]:
    """Regular expressions; in the environment as a JSON array."""
    help_text = (
        'give a list of regular expressions, for example ["build [0-9]+", "token=[0-9a-f]+"]'
    )
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(help_text) from None
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(help_text)
    for pattern in value:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return tuple(value)


def _flag(value: object) -> bool:
    """Pydantic alone would take many more words, and numbers."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("give true or false")
    return value


def _address(value: str) -> str:
    # An empty one would listen on every address there is.
    if not value.strip():
        raise ValueError('give an address to listen on, for example "127.0.0.1" or "0.0.0.0"')
    return value.strip()


def _site_url(value: str) -> str:
    """An absolute http(s) URL of a site: scheme, host, perhaps a port, and nothing else."""
    text = value.strip()
    try:
        url = URL(text)
        explicit = url.scheme in ("http", "https") and bool(url.host) and bool(url.port)
    except ValueError:
        explicit = False
    if not explicit or " " in text or not text.isprintable():
        raise ValueError('not a URL of a site: give for example "http://127.0.0.1:3000"')
    if url.user is not None or url.password is not None:
        raise ValueError("must not carry a user name or password")
    if url.path not in ("", "/") or url.query_string or url.fragment:
        raise ValueError("must be scheme, host and port only, with no path, query or fragment")
    return str(url.origin())


def _site_url_or_nothing(value: str) -> str:
    return _site_url(value) if value else ""


Duration = Annotated[float, BeforeValidator(_duration)]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
Size = Annotated[int, BeforeValidator(_size)]
Address = Annotated[str, AfterValidator(_address)]
Port = Annotated[int, _whole_number(0, 65535)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(_patterns)]
SiteURL = Annotated[str, AfterValidator(_site_url)]


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

    url: Annotated[str, AfterValidator(_site_url_or_nothing)] = Field(
        "", description="The public URL. Pages are rendered under it. Empty: the origin's."
    )


class Server(_Section):
    """The public listener."""

    host: Address = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8080, description="Port to listen on; 0 takes a free one.")
    grace: Duration = Field(
        25, description="How long a shutdown waits for running requests to finish."
    )


class Admin(_Section):
    """The listener for health checks. Keep it off the public network."""

    host: Address = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8081, description="Port to listen on; 0 takes a free one.")


class Cache(_Section):
    """Where snapshots are kept."""

    ttl: Duration = Field(3600, description="How long a snapshot is fresh; 0 keeps none.")
    max_bytes: Size = Field(256 * 1024**2, description="Bound of the memory that snapshots take.")


class Browser(_Section):
    """Headless Chromium."""

    path: str = Field("", description="The program. Empty: looked for under its usual names.")
    pages: Annotated[int | Literal["auto"], _whole_number(1, 256, word="auto")] = Field(
        "auto", description='Pages rendered at once; "auto": two for each CPU of the container.'
    )
    queue: Annotated[int, _whole_number(0, 100_000)] = Field(
        100, description="Renders that may wait for a page; more get a 503."
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


class Snapshot(_Section):
    """What is made of the finished page."""

    flatten_shadow_dom: Flag = Field(
        False,
        description="Shadow DOM as ordinary elements instead of declarative shadow DOM.",
    )
    remove_event_handlers: Flag = Field(
        False, description="Leave out inline handlers such as onclick; scripts always are."
    )
    canvas_images: Flag = Field(False, description="Canvases as pictures of what is drawn on them.")
    add_canonical: Flag = Field(
        False, description="Name the pretty URL as canonical where a page names none."
    )
    volatile: Patterns = Field(
        (),
        description="Regular expressions of what differs on every load (nonces, tokens, times) and "
        "does not make a snapshot a new one for conditional requests.",
    )


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
    snapshot: Snapshot = Snapshot()
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
    complete = file is None or _read_file(file, values, sources, problems)
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
        problems += [
            _explain(detail, sources)
            for detail in _one_for_each_setting(error)
            if complete or detail["type"] != "missing"
        ]
    if problems:
        raise ConfigError([_one_line(problem) for problem in problems])
    return settings


def _read_file(
    file: Path,
    values: dict[str, dict[str, object]],
    sources: dict[tuple[str, ...], str],
    problems: list[str],
) -> bool:
    """Whether the file could be read."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"{file}: cannot be read: {error.strerror}")
        return False
    except (ValueError, RecursionError) as error:
        # Not only TOMLDecodeError: endless digits and endless nesting have errors of their own.
        problems.append(f"{file}: is not TOML: {error}")
        return False
    for section, keys in content.items():
        if not isinstance(keys, dict):
            problems.append(f"{file}: {section}: settings belong in a [section]")
            continue
        values[section] = dict(keys)
        sources[(section,)] = str(file)
        sources.update({(section, key): str(file) for key in keys})
    return True


def _read_environment(
    environ: Mapping[str, str],
    values: dict[str, dict[str, object]],
    sources: dict[tuple[str, ...], str],
    problems: list[str],
) -> None:
    names = {
        _variable(section, key): (section, key)
        for section in Settings.model_fields
        for key in _keys(section)
    }
    # The regular names come after the aliases and so win over them.
    for name, (section, key) in (ALIASES | names).items():
        if name in environ:
            values.setdefault(section, {})[key] = environ[name]
            sources[section, key] = name
    for name in sorted(environ):
        if (
            name.startswith(ENVIRONMENT_PREFIX)
            and name not in names
            and name not in ALIASES
            and not _is_from_kubernetes(name, environ[name])
        ):
            problems.append(f"{name}: there is no such setting{_like_variable(name, names)}")


def _is_from_kubernetes(name: str, value: str) -> bool:
    rest = name.removeprefix(ENVIRONMENT_PREFIX)
    return bool(
        _OF_A_KUBERNETES_SERVICE.fullmatch(rest)
        or (rest.endswith("PORT") and _KUBERNETES_PORT.fullmatch(value))
    )


def _variable(section: str, key: str) -> str:
    return f"{ENVIRONMENT_PREFIX}{section}_{key}".upper()


def _keys(section: str) -> list[str]:
    """The keys of a section, none if there is no such section."""
    field = Settings.model_fields.get(section)
    return [] if field is None else list(_section_model(field.annotation).model_fields)


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
    source = f" (from {where})" if where else ""
    if detail["type"] == "extra_forbidden":
        like = _like_key(section, key) if key else _like(section, list(Settings.model_fields))
        return f"{name}{source}: there is no such setting{like}"
    if detail["type"] == "missing":
        return f"{name}: is required; set it in the file or as {_variable(section, key)}"
    message = detail["msg"].removeprefix("Value error, ")
    return f"{name}{source}: {_shown(detail['input'])}: {message[:1].lower()}{message[1:]}"


def _shown(value: object) -> str:
    """The rejected value, without what may be a user name and password, however it is misspelt."""
    text = re.sub(r"^(\W?(?:[a-z]+://)?).*@", r"\1***@", repr(value), flags=re.IGNORECASE)
    return text if len(text) <= 80 else text[:77] + "..."


def _one_line(problem: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in problem)


def _like_variable(name: str, known: Mapping[str, tuple[str, str]]) -> str:
    rest = name.removeprefix(ENVIRONMENT_PREFIX)
    if same := [name for name, (_, key) in known.items() if key.upper() == rest]:
        return f"; did you mean {' or '.join(same)}?"
    close = get_close_matches(rest, [name.removeprefix(ENVIRONMENT_PREFIX) for name in known], n=1)
    if close:
        return f"; did you mean {ENVIRONMENT_PREFIX}{close[0]}?"
    return f"; known: {', '.join(known)}"


def _like_key(section: str, key: str) -> str:
    if elsewhere := [f"[{other}] {key}" for other in Settings.model_fields if key in _keys(other)]:
        return f"; did you mean {' or '.join(elsewhere)}?"
    return _like(key, _keys(section))


def _like(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
