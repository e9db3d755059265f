"""The headers of a message, as raw lines. Pure."""

from collections.abc import Sequence
from functools import lru_cache


class Fields:
    """Headers. ``lines``: (lower-case name, line without its end), in order.

    ``names``: the last line of each name; ``repeated``: whether a name occurs more than once;
    ``shared``: other requests with the same headers have this object, too.
    """

    __slots__ = ("lines", "names", "repeated", "shared")

    def __init__(self, lines: list[tuple[str, bytes]]) -> None:
        self.lines = lines
        self.names = dict(lines)
        self.repeated = len(self.names) < len(lines)
        self.shared = False

    def __contains__(self, name: str) -> bool:
        return name in self.names or name.lower() in self.names

    def values(self, name: str) -> list[bytes]:
        """The values of all lines with this lower-case name."""
        if name not in self.names:
            return []
        if not self.repeated:
            return [value_of(self.names[name])]
        return [value_of(line) for lower, line in self.lines if lower == name]

    def getall(self, name: str, default: Sequence[str] = ()) -> Sequence[str]:
        """The values of all lines with this name, as Latin-1; ``default`` if there are none."""
        name = name.lower()
        if name not in self.names:
            return default
        if not self.repeated:
            return [value_of(self.names[name]).decode("latin-1")]
        return [value.decode("latin-1") for value in self.values(name)]

    def get(self, name: str, default: str = "") -> str:
        """The combined value of a list header (RFC 9110 section 5.3)."""
        if name not in self.names:
            name = name.lower()
        if not self.repeated:
            line = self.names.get(name)
            return default if line is None else value_of(line).decode("latin-1") or default
        return b", ".join(self.values(name)).decode("latin-1") or default


def value_of(line: bytes) -> bytes:
    """The value of a header line."""
    return line.partition(b":")[2].strip(b" \t")


def members(value: str) -> frozenset[str]:
    """The members of a list header in lower case (RFC 9110 section 5.6.1)."""
    return (_remembered if len(value) <= _LONGEST_REMEMBERED else _members)(value)


def _members(value: str) -> frozenset[str]:
    return frozenset(part.strip(" \t").lower() for part in value.split(",")) - {""}


_LONGEST_REMEMBERED = 256
_remembered = lru_cache(maxsize=256)(_members)


def is_html(content_type: str) -> bool:
    """Whether a Content-Type is that of a page."""
    return content_type.partition(";")[0].strip().lower() in ("text/html", "application/xhtml+xml")


def charset_of(content_type: str) -> str | None:
    """The charset that a Content-Type names."""
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"') or None
    return None
