"""The kinds of values that settings have, each with its check.

Every check raises ValueError with what is allowed; the name and the source of the setting are added
by whoever loads it (load.py).
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator
from yarl import URL

from prerender import hosts

_Number = TypeVar("_Number", int, float)

_DURATION_UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_WHOLE_NUMBER = re.compile(r"\s*\d{1,18}\s*", re.ASCII)
_LONGEST = 365 * 86400
_LARGEST = 2**46
_DURATION_HELP = 'not a duration: give seconds, or for example "30s", "10m", "1h"'
_SIZE_HELP = 'not a size: give bytes, or for example "64KiB", "256MiB", "1GB"'


def _duration(value: object) -> float:
    seconds = _quantity(value, _DURATION_UNITS, _DURATION_HELP)
    if not 0 <= seconds <= _LONGEST:
        raise ValueError("must be from 0 to 365d")
    return float(seconds)


def _positive(quantity: _Number) -> _Number:
    if quantity == 0:
        raise ValueError("must be more than 0")
    return quantity


def _size(value: object) -> int:
    size = _quantity(value, _SIZE_UNITS, _SIZE_HELP)
    if not 0 <= size <= _LARGEST:
        raise ValueError(f"must be from 0 to {_LARGEST // 1024**3}GiB")
    return round(size)


def _quantity(value: object, units: Mapping[str, float], help_text: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in units:
        raise ValueError(help_text)
    return float(match[1]) * units[match[2].lower()]


def whole_number(least: int, most: int, *, word: str | None = None) -> BeforeValidator:
    """A whole number in a range, or ``word``. Pydantic alone would take true for 1."""

    def parse(value: object) -> int | str:
        if value == word and isinstance(value, str):
            return value
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            also = f', or "{word}"' if word else ""
            raise ValueError(f"give a whole number from {least} to {most}{also}")
        return value

    return BeforeValidator(parse)


def _texts(value: object, help_text: str) -> tuple[str, ...]:
    """A list of texts; in the environment a JSON array."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(help_text) from None
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(help_text)
    return tuple(value)


def _patterns(value: object) -> tuple[str, ...]:
    """Regular expressions."""
    help_text = (
        'give a list of regular expressions, for example ["build [0-9]+", "token=[0-9a-f]+"]'
    )
    patterns = _texts(value, help_text)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return patterns


def _hosts(value: object) -> tuple[str, ...]:
    """Hosts, domains, networks and origins (prerender/hosts.py)."""
    entries = _texts(
        value, 'give a list of hosts, for example ["cdn.example.com", "*.ads.example"]'
    )
    for entry in entries:
        hosts.parse(entry)
    return entries


def words(*known: str) -> BeforeValidator:
    """A list of some of the words ``known``."""
    help_text = f"give a list of some of {json.dumps(known)}"

    def parse(value: object) -> tuple[str, ...]:
        found = _texts(value, help_text)
        if not set(found) <= set(known):
            raise ValueError(help_text)
        return found

    return BeforeValidator(parse)


def _flag(value: object) -> bool:
    """Pydantic alone would take many more words, and numbers."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("give true or false")
    return value


def _address(value: str) -> str:
    # An empty one would listen on every address there is.
    if not value.strip():
        raise ValueError('give an address to listen on, for example "127.0.0.1" or "0.0.0.0"')
    return value.strip()


def _site_url(value: str) -> str:
    """An absolute http(s) URL of a site: scheme, host, perhaps a port, and nothing else."""
    text = value.strip()
    try:
        url = URL(text)
        explicit = url.scheme in ("http", "https") and bool(url.host) and bool(url.port)
    except ValueError:
        explicit = False
    if not explicit or " " in text or not text.isprintable():
        raise ValueError('not a URL of a site: give for example "http://127.0.0.1:3000"')
    if url.user is not None or url.password is not None:
        raise ValueError("must not carry a user name or password")
    if url.path not in ("", "/") or url.query_string or url.fragment:
        raise ValueError("must be scheme, host and port only, with no path, query or fragment")
    return str(url.origin())


def _site_url_or_nothing(value: str) -> str:
    return _site_url(value) if value else ""


Duration = Annotated[float, BeforeValidator(_duration)]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
Size = Annotated[int, BeforeValidator(_size)]
PositiveSize = Annotated[Size, AfterValidator(_positive)]
Address = Annotated[str, AfterValidator(_address)]
Port = Annotated[int, whole_number(0, 65535)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(_patterns)]
HostList = Annotated[tuple[str, ...], BeforeValidator(_hosts)]
SiteURL = Annotated[str, AfterValidator(_site_url)]
SiteURLOrNothing = Annotated[str, AfterValidator(_site_url_or_nothing)]
