"""Lists as settings have them: TOML's own, in the environment JSON arrays. All raise ValueError."""

import json


def items_of(value: object, help_text: str) -> list[object]:
    """A list; in the environment a JSON array."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(help_text) from None
    if not isinstance(value, list | tuple):
        raise ValueError(help_text)
    return list(value)


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
