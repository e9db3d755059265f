"""Lists in settings. In the environment, a list is comma-separated or a JSON array."""

import json
import re

# A comma-separated list may begin with a bracket, too: [::1]:53.
_ARRAY = re.compile(r"""\s*\[\s*(["'{\]]|$)""")


def items_of(value: object, help_text: str) -> list[object]:
    """Parse a list. Raises ValueError with ``help_text``, as all functions here do.

    A string is a JSON array or comma-separated. Items that contain a comma need a JSON array.
    """
    if isinstance(value, str):
        value = _array(value) if _ARRAY.match(value) else _separated(value)
    if not isinstance(value, list | tuple):
        raise ValueError(help_text)
    return list(value)


def _array(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _separated(text: str) -> list[str]:
    return [part for item in text.split(",") if (part := item.strip())]


def strings_of(value: object, help_text: str) -> tuple[str, ...]:
    """Parse a list of strings."""
    items = items_of(value, help_text)
    if not all(isinstance(item, str) for item in items):
        raise ValueError(help_text)
    return tuple(map(str, items))


def tables_of(value: object, keys: tuple[str, str], help_text: str) -> list[dict[str, object]]:
    """Parse a list of tables, each with exactly the two ``keys``."""
    tables: list[dict[str, object]] = []
    for table in items_of(value, help_text):
        if not isinstance(table, dict) or set(table) != set(keys):
            raise ValueError(f"{help_text}, each with {' and '.join(keys)}")
        tables.append(table)
    return tables
