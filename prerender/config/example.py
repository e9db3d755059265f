"""A settings file with all settings, their descriptions and defaults, made from settings.py. Pure."""

from collections.abc import Iterator, Mapping
from textwrap import fill
from typing import Any, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from prerender.config.settings import FIRST, Settings
from prerender.config.show import as_in_a_file, toml
from prerender.config.types import (
    Duration,
    PositiveDuration,
    PositiveSize,
    Size,
    SizeOrAuto,
)

_WIDTH = 100
ORIGIN = "http://127.0.0.1:3000"
_DURATIONS = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
_SIZES = {"GiB": 1024**3, "MiB": 1024**2, "KiB": 1024, "MB": 1000**2, "kB": 1000}
_HEAD = """\
# All settings with their defaults. Only [origin] url is required.
#
#     prerender serve --config FILE
#
# Environment variables take precedence over this file: [server] port is PRERENDER_SERVER_PORT.
# PRERENDER_ORIGIN is short for PRERENDER_ORIGIN_URL. An empty variable is an empty value. In the
# environment, lists are comma-separated (a,b) or JSON arrays, and lists of tables are JSON arrays.
#
{important}
#
# Durations are seconds, or a number with ms, s, m, h or d. Sizes are bytes, or a number with kB, MB,
# GB, KiB, MiB or GiB.
"""


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    """The sections with their models."""
    for name, field in Settings.model_fields.items():
        assert isinstance(field.annotation, type)
        yield name, field.annotation


def defaults() -> dict[str, dict[str, Any]]:
    """The defaults by section and key, as a file has them."""
    settings = Settings.model_validate({"origin": {"url": ORIGIN}})
    sections: dict[str, dict[str, Any]] = {}
    for section, model in models():
        hints = get_type_hints(model, include_extras=True)
        values = getattr(settings, section).model_dump(mode="json")
        sections[section] = {
            key: _written(model.model_fields[key], hints[key], value)
            for key, value in values.items()
        }
    return sections


def example() -> str:
    """The file."""
    lines = [_HEAD.format(important=_important())]
    for section, model in models():
        values = defaults()[section]
        lines.append(f"# {' '.join((model.__doc__ or '').split())}\n[{section}]")
        for key, field in model.model_fields.items():
            lines.append(f"# {field.description}\n{_wrapped(f'{key} = {toml(values[key])}')}")
        lines.append("")
    return "\n".join(lines)


def _written(field: FieldInfo, hint: Any, value: Any) -> Any:
    """A value as people write it."""
    if hint in (Duration, PositiveDuration):
        return _in_units(value, _DURATIONS)
    if hint in (Size, PositiveSize, SizeOrAuto):
        return _in_units(value, _SIZES)
    return as_in_a_file(field, value)


def _in_units(value: Any, units: Mapping[str, float]) -> Any:
    """A number with the largest unit that gives a whole number."""
    if not isinstance(value, int | float) or not value:
        return value
    fitting = (name for name, size in units.items() if value / size == round(value / size))
    return next((f"{round(value / units[name])}{name}" for name in fitting), value)


def _wrapped(line: str) -> str:
    """A long list on several lines."""
    if len(line) <= _WIDTH or not line.endswith("]"):
        return line
    start, _, items = line[:-1].partition("[")
    indented = fill(items, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    return f"{start}[\n{indented},\n]"


def _important() -> str:
    keys: dict[str, list[str]] = {}
    for section, key in FIRST:
        keys.setdefault(section, []).append(key)
    text = ", ".join(f"[{section}] {', '.join(of_it)}" for section, of_it in keys.items())
    return fill(f"Important settings: {text}.", _WIDTH, initial_indent="# ", subsequent_indent="# ")
