"""Lists as settings have them: in the environment, texts separated by commas or a JSON array."""

import json
import re

# A list of addresses such as [::1]:53 begins with a bracket too.
_ARRAY = re.compile(r"""\s*\[\s*(["'{\]]|$)""")


def items_of(value: object, help_text: str) -> list[object]:
    """A list. Raises ValueError, as all functions here do.

    A text is a JSON array, or has texts separated by commas; what has a comma in it needs the former.
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
    """A list of texts."""
    found = items_of(value, help_text)
    if not all(isinstance(item, str) for item in found):
        raise ValueError(help_text)
    return tuple(map(str, found))


def tables_of(value: object, keys: tuple[str, str], help_text: str) -> list[dict[str, object]]:
    """Tables that have exactly two keys."""
    tables: list[dict[str, object]] = []
    for table in items_of(value, help_text):
        if not isinstance(table, dict) or set(table) != set(keys):
            raise ValueError(f"{help_text}, each with {' and '.join(keys)}")
        tables.append(table)
    return tables
