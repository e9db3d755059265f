"""What must not be written down: the values of query parameters that are secrets. Pure."""

import re
from collections.abc import Iterable
from functools import lru_cache

MASK = "***"
# Before a value: in a URL, in a state after #, or in a URL that is itself a value, and so encoded.
_NAME = re.compile(r"(?:[?&;#]|(%3[fF]|%26|%23))([\w.~\[\]-]+)(?:=|%3[dD])", re.ASCII)
_VALUE = re.compile(r"[^&;#\s\"'<>]*")
_ENCODED_VALUE = re.compile(r"(?:(?!%26|%23)[^&;#\s\"'<>])*")


class Redaction:
    """Masks the values of parameters with these ``names``: ``*`` is any text, in any case."""

    def __init__(self, names: Iterable[str]) -> None:
        words = (re.escape(name).replace(r"\*", ".*") for name in names)
        self._secret = re.compile("|".join(words) or "(?!)", re.IGNORECASE)
        self._is_secret = lru_cache(maxsize=1024)(self._matches)

    def __call__(self, text: str) -> str:
        """The text with what is secret masked in all URLs that are in it."""
        if "=" not in text and "%3" not in text:
            return text
        parts: list[str] = []
        end = 0
        for found in _NAME.finditer(text):
            if found.start() >= end and self._is_secret(found[2]):
                parts += (text[end : found.end()], MASK)
                value = (_ENCODED_VALUE if found[1] else _VALUE).match(text, found.end())
                assert value is not None
                end = value.end()
        return "".join((*parts, text[end:])) if parts else text

    def _matches(self, name: str) -> bool:
        return self._secret.fullmatch(name) is not None
