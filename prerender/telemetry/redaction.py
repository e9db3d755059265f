"""Masks the values of secret query parameters. Pure."""

import re
from collections.abc import Iterable
from functools import lru_cache

MASK = "***"
# What precedes a value: in a URL, in a #! state, or in an encoded URL.
_NAME = re.compile(r"(?:[?&;#]|(%3[fF]|%26|%23))([\w.~\[\]-]+)(?:=|%3[dD])", re.ASCII)
_VALUE = re.compile(r"[^&;#\s\"'<>]*")
_ENCODED_VALUE = re.compile(r"(?:(?!%26|%23)[^&;#\s\"'<>])*")


class Redaction:
    """Masks the values of parameters with these ``names``; ``*`` matches any text, case-insensitive."""

    def __init__(self, names: Iterable[str]) -> None:
        words = (re.escape(name).replace(r"\*", ".*") for name in names)
        self._secret = re.compile("|".join(words) or "(?!)", re.IGNORECASE)
        self._is_secret = lru_cache(maxsize=1024)(self._matches)

    def __call__(self, text: str) -> str:
        """A text with secrets masked in all its URLs."""
        if "=" not in text and "%3" not in text:
            return text
        parts: list[str] = []
        end = 0
        for match in _NAME.finditer(text):
            if match.start() >= end and self._is_secret(match[2]):
                parts += (text[end : match.end()], MASK)
                value = (_ENCODED_VALUE if match[1] else _VALUE).match(text, match.end())
                assert value is not None
                end = value.end()
        return "".join((*parts, text[end:])) if parts else text

    def _matches(self, name: str) -> bool:
        return self._secret.fullmatch(name) is not None
