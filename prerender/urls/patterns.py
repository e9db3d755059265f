"""Path patterns of rules, purges and triggers. Pure."""

import re
import string
from urllib.parse import quote

from prerender.urls.ajax_crawling import UNESCAPED_IN_STATES

_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


def comparable(text: str) -> str:
    """A path with query and ``#!`` state, a pattern or a prefix in the one form for comparison: escaped
    as by browsers, in upper case. Raises ValueError."""
    path, hash_bang, state = text.partition("#!")
    escaped = quote(path, safe=string.punctuation, errors="surrogateescape") + hash_bang
    escaped += quote(state, safe=UNESCAPED_IN_STATES, errors="surrogateescape")
    return with_upper_escapes(escaped)


def with_upper_escapes(text: str) -> str:
    """A text with its escapes in upper case (RFC 3986 section 6.2.2.1)."""
    return _ESCAPE.sub(lambda match: match[0].upper(), text) if "%" in text else text


def matches(pattern: str, path: str) -> bool:
    """Whether a pattern matches a whole path with query and ``#!`` fragment, both ``comparable``.

    ``*`` matches any number of characters, everything else itself. A regular expression could
    take polynomial time for paths that a client chooses.
    """
    first, *others = pattern.split("*")
    if not others:
        return path == pattern
    *middle, last = others
    position, end = len(first), len(path) - len(last)
    if position > end or not path.startswith(first) or not path.endswith(last):
        return False
    for part in middle:
        position = path.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return True
