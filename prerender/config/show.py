"""Effective settings as TOML or JSON, each with its source, without secrets. Pure."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic.fields import FieldInfo

from prerender.config.load import SettingSources, is_secret
from prerender.config.settings import Settings
from prerender.config.types import TableKeys

DEFAULT = "default"
_HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Shown:
    """A setting. ``hidden``: its value is masked."""

    section: str
    key: str
    value: object
    source: str
    hidden: bool


def shown(settings: Settings, sources: SettingSources) -> Iterator[Shown]:
    """Every setting, in the order of settings.py."""
    for section, keys in settings.model_dump(mode="json").items():
        fields = type(getattr(settings, section)).model_fields
        for key, value in keys.items():
            source = sources.get((section, key), DEFAULT)
            printed = as_in_a_file(fields[key], value)
            hidden = is_secret(section, key) and bool(value)
            if hidden:
                printed = _names(value) if key == "headers" else _without_secret(value)
                hidden = printed != value
            yield Shown(section, key, printed, source, hidden)


def as_toml(settings: Settings, sources: SettingSources) -> str:
    """An equivalent settings file, with secrets masked."""
    lines: list[str] = []
    section = ""
    for setting in shown(settings, sources):
        if setting.section != section:
            section = setting.section
            lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
        line = f"{setting.key} = {toml(setting.value)}"
        if setting.hidden:
            line = f"# {line}, hidden here"
        lines.append(f"{line}  # {setting.source}")
    return "\n".join(lines) + "\n"


def as_json(settings: Settings, sources: SettingSources) -> dict[str, dict[str, dict[str, object]]]:
    """Settings by section and key: ``value``, ``source``, and ``hidden`` if it is masked."""
    values_by_name: dict[str, dict[str, dict[str, object]]] = {}
    for setting in shown(settings, sources):
        values: dict[str, object] = {"value": setting.value, "source": setting.source}
        if setting.hidden:
            values["hidden"] = True
        values_by_name.setdefault(setting.section, {})[setting.key] = values
    return values_by_name


def toml(value: object) -> str:
    """A value in TOML 1.0."""
    match value:
        case bool():
            return "true" if value else "false"
        case float() if value == math.floor(value):
            return str(int(value))
        case int() | float():
            return str(value)
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{ {', '.join(f'{key} = {toml(item)}' for key, item in value.items())} }}"
    # A JSON string is a basic string in TOML, except for DEL.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def as_in_a_file(field: FieldInfo, value: object) -> object:
    """A value in the form of a settings file, where rules are tables."""
    keys = next((keys for keys in field.metadata if isinstance(keys, TableKeys)), None)
    if keys is None or not isinstance(value, list):
        return value
    return [dict(zip(keys, row, strict=True)) for row in value]


def _names(headers: object) -> object:
    """Headers without their values."""
    assert isinstance(headers, list)
    return [f"{header.partition(':')[0]}: {_HIDDEN}" for header in headers]


def _without_secret(value: object) -> object:
    """A URL without user name and password. Any other value is masked completely."""
    if isinstance(value, list):
        return [_without_secret(one) for one in value]
    if not isinstance(value, str) or "://" not in value:
        return _HIDDEN
    netloc = urlsplit(value).netloc
    if "@" not in netloc:
        return value
    return value.replace(netloc, f"{_HIDDEN}@{netloc.rpartition('@')[2]}", 1)
