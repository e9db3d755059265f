"""What pydantic reports, in the words of this project: what to give instead. Pure."""

import re

from pydantic_core import ErrorDetails

# By the type of the error, or by the beginning of its type.
_GIVE = {
    "int": "give a whole number",
    "float": "give a number",
    "bool": "give true or false",
    "string_too_short": "must not be empty",
    "string_too_long": "give at most {max_length} characters",
    "too_long": "give at most {max_length}",
    "string_pattern_mismatch": "does not match {pattern}",
    "string": "give a string",
    "list": "give a list",
    "dict": "give a table",
    "mapping": "give an object",
    "greater_than_equal": "give at least {ge}",
    "less_than_equal": "give at most {le}",
}


def in_words(detail: ErrorDetails) -> str:
    """What is wrong with a value, without the name and the value."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "literal_error":
        # 'hit', 'stale' or ''
        *others, last = [f'"{text}"' for text in re.findall(r"'([^']+)'", context["expected"])]
        return f"give {', '.join(others)} or {last}" if others else f"give {last}"
    for name in (kind, kind.partition("_")[0]):
        if name in _GIVE:
            return _GIVE[name].format_map(context)
    message = detail["msg"].removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]}"
