"""Loads settings from a TOML file and the environment, and reports all problems at once.

The environment takes precedence over the file, and the file over defaults. Nothing is read at import
time.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from prerender.config.lists import items_of
from prerender.config.settings import Settings
from prerender.config.validation import in_words
from prerender.errors import ConfigError

ENVIRONMENT_PREFIX = "PRERENDER_"
# Accepted in addition to the regular name, because people try it first.
ALIASES = {"PRERENDER_ORIGIN": ("origin", "url")}

# Maps a section and key to the file or variable that the setting comes from.
SettingSources = dict[tuple[str, ...], str]

# Kubernetes puts variables like these into every container of a namespace that has a service named
# "prerender" or, for example, "prerender-admin"; they are no settings (kubernetes.io: Accessing the
# Service, environment variables).
_OF_A_KUBERNETES_SERVICE = re.compile(
    r"(\w+_)?SERVICE_(HOST|PORT(_\w+)?)|(\w+_)?PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
# Variables of middlewares for prerender services, which often share an .env file with this proxy.
_OF_MIDDLEWARES = frozenset({"PRERENDER_TOKEN", "PRERENDER_SERVICE_URL"})
_KUBERNETES_PORT = re.compile(r"(tcp|udp|sctp)://.*")


def load(
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Mapping[str, object]] | None = None,
    *,
    origin_needed: bool = True,
) -> Settings:
    """The effective settings.

    ``overrides`` (from the command line) take precedence over the environment, which takes
    precedence over ``file``. ``origin_needed``: [origin] url is required. Raises ConfigError with one
    line for each problem. Secrets are masked.
    """
    return load_with_sources(file, environ, overrides, origin_needed=origin_needed)[0]


def load_with_sources(
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, Mapping[str, object]] | None = None,
    *,
    origin_needed: bool = True,
) -> tuple[Settings, SettingSources]:
    """Like ``load``, with the source of each setting that is not the default."""
    problems: list[str] = []
    values: dict[str, dict[str, object]] = {}
    sources: SettingSources = {}
    complete = file is None or _read_file(file, values, sources, problems)
    _read_environment(environ, values, sources, problems)
    for section, keys in (overrides or {}).items():
        for key, value in keys.items():
            values.setdefault(section, {})[key] = value
            sources[section, key] = "the command line"
    # An absent [origin] would be reported as a missing table, not as the setting that is missing.
    origin = values.setdefault("origin", {})
    if not origin_needed:
        origin.setdefault("url", "http://localhost")
    try:
        settings = Settings.model_validate(values)
        problems += _same_port(settings)
    except ValidationError as error:
        problems += [
            _explain(detail, sources)
            for detail in _one_for_each_setting(error)
            if complete or detail["type"] != "missing"
        ]
    if problems:
        raise ConfigError([_one_line(problem) for problem in problems])
    return settings, sources


def _read_file(
    file: Path,
    values: dict[str, dict[str, object]],
    sources: SettingSources,
    problems: list[str],
) -> bool:
    """Read the file. Returns whether that succeeded."""
    try:
        # Some editors write a byte order mark.
        content = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        problems.append(f"{file}: cannot be read: {error.strerror}")
        return False
    except UnicodeDecodeError:
        problems.append(f"{file}: is not UTF-8")
        return False
    except (ValueError, RecursionError) as error:
        # Not only TOMLDecodeError: very long numbers and deep nesting raise other errors.
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
    sources: SettingSources,
    problems: list[str],
) -> None:
    names = {
        _variable(section, key): (section, key)
        for section in Settings.model_fields
        for key in _keys(section)
    }
    # The regular names come after the aliases and so win over them.
    for name, (section, key) in (ALIASES | names).items():
        if name in environ and not _is_from_kubernetes(name, environ[name]):
            values.setdefault(section, {})[key] = environ[name]
            sources[section, key] = name
    for name in sorted(environ):
        if (
            name.startswith(ENVIRONMENT_PREFIX)
            and name not in names
            and name not in ALIASES
            and name not in _OF_MIDDLEWARES
            and not _is_from_kubernetes(name, environ[name])
        ):
            problems.append(f"{name}: unknown setting{_like_variable(name, names)}")


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
    """A union reports every failed branch. One line per setting is enough."""
    first: dict[tuple[int | str, ...], ErrorDetails] = {}
    for detail in error.errors(include_url=False):
        first.setdefault(detail["loc"][:2], detail)
    return list(first.values())


def _explain(detail: ErrorDetails, sources: SettingSources) -> str:
    location = tuple(str(part) for part in detail["loc"][:2])
    section, key = (*location, "")[:2]
    where = sources.get(location) or sources.get(location[:1])
    name = f"[{section}] {key}" if key else f"[{section}]"
    source = f" (from {where})" if where else ""
    if detail["type"] == "extra_forbidden":
        like = _like_key(section, key) if key else _like(section, list(Settings.model_fields))
        return f"{name}{source}: unknown setting{like}"
    if detail["type"] == "missing":
        return f"{name}: is required; set it in the file or as {_variable(section, key)}"
    hidden = detail["input"] and is_secret(section, key)
    shown = "***" if hidden else _shown(detail["input"])
    # Nothing is given, but another setting needs a value.
    is_default = detail["input"] in ("", (), []) and _default(section, key) in ("", ())
    problem = in_words(detail)
    # The checks of settings quote the item of a list that is wrong.
    for text in _texts(detail["input"]):
        problem = problem.replace(repr(text), "***" if hidden else _masked(text))
    return f"{name}{source}: {'' if is_default else f'{shown}: '}{problem}"


def _texts(value: object) -> Iterator[str]:
    """The strings in a value that may have a user name and password."""
    if isinstance(value, str):
        if "@" in value:
            yield value
            with suppress(ValueError):
                if (items := items_of(value, "")) != [value]:
                    yield from _texts(items)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _same_port(settings: Settings) -> Iterator[str]:
    """What is wrong if both listeners have the same port and address: the error of the second one to
    listen would name only its own settings.
    """
    server, admin = settings.server, settings.admin
    hosts = {server.host, admin.host}
    families = {":" in host for host in hosts}
    overlap = len(hosts) == 1 or (len(families) == 1 and not hosts.isdisjoint(("0.0.0.0", "::")))  # noqa: S104
    if server.port == admin.port and server.port and overlap:
        yield f"[server] port: {server.port}: the same as [admin] port"


def _default(section: str, key: str) -> object:
    field = _section_model(Settings.model_fields[section].annotation).model_fields.get(key)
    return None if field is None else field.default


def is_secret(section: str, key: str) -> bool:
    """Whether the value of a setting must not be printed."""
    field = _section_model(Settings.model_fields[section].annotation).model_fields.get(key)
    return field is not None and not field.repr


def _shown(value: object) -> str:
    """The rejected value, without user name and password."""
    text = _masked(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _masked(value: object) -> str:
    """Without user name and password, even if the URL is misspelled."""
    return re.sub(r"^(\W?(?:[a-z]+://)?).*@", r"\1***@", repr(value), flags=re.IGNORECASE)


def _one_line(problem: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in problem)


def _like_variable(name: str, known: Mapping[str, tuple[str, str]]) -> str:
    rest = name.removeprefix(ENVIRONMENT_PREFIX)
    if same := [name for name, (_, key) in known.items() if key.upper() == rest]:
        return f"; did you mean {' or '.join(same)}?"
    close = get_close_matches(rest, [name.removeprefix(ENVIRONMENT_PREFIX) for name in known], n=1)
    if close:
        return f"; did you mean {ENVIRONMENT_PREFIX}{close[0]}?"
    return "; prerender config --example prints all settings"


def _like_key(section: str, key: str) -> str:
    if elsewhere := [f"[{other}] {key}" for other in Settings.model_fields if key in _keys(other)]:
        return f"; did you mean {' or '.join(elsewhere)}?"
    return _like(key, _keys(section))


def _like(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
