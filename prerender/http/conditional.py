"""Conditional requests on snapshots: RFC 9110, section 13, and the HTTP dates they need.

Lives here: whether a stored snapshot is sent, answered with 304 or refused with 412, and reading
and writing HTTP dates (section 5.6.7). Must not live here: making entity-tags, building answers,
reading the clock. Pure: no I/O, no third-party import.

What is malformed never matches: a needless 200 costs bytes, a wrong 304 leaves the crawler with
stale content. If-Range has no say, since ranges of a snapshot are not served.
"""

import re
import time
from collections.abc import Sequence
from datetime import date
from email.utils import formatdate
from enum import IntEnum
from functools import lru_cache
from typing import Protocol


class FieldLines(Protocol):
    """Headers by case-insensitive name, such as multidict's ``CIMultiDictProxy[str]``."""

    def getall(self, name: str, default: Sequence[str], /) -> Sequence[str]:
        """The values of all lines with this name, in the order received; ``default`` without any."""


class ConditionalResult(IntEnum):
    """The outcome of a request's conditions. The value is the HTTP status."""

    SEND = 200
    NOT_MODIFIED = 304
    PRECONDITION_FAILED = 412


# An entity-tag (section 8.8.3) that is a whole list member (5.6.1). Commas may stand inside a tag,
# spaces may not. Octets above 0x7F arrive as whatever characters the header parser made of them.
_ENTITY_TAGS = re.compile(r'(?:\A|,)[ \t]*(W/)?("[^\x00-\x20"\x7f]*")[ \t]*(?=,|\Z)')
_STRONG = re.compile(r'"[!#-~]*"')

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WKDAYS = tuple(name[:3] for name in _WEEKDAYS)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# The three forms of HTTP-date (section 5.6.7): case sensitive, always GMT, second 60 is a leap.
_WKDAY = f"(?:{'|'.join(_WKDAYS)})"
_WEEKDAY = f"(?:{'|'.join(_WEEKDAYS)})"
_DAY = "(?P<day>[0-9]{2})"
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_YEAR = "(?P<year>[0-9]{4})"
_TIME = "(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9]|60)"
_IMF_FIXDATE = re.compile(f"{_WKDAY}, {_DAY} {_MONTH} {_YEAR} {_TIME} GMT")
_RFC850 = re.compile(f"{_WEEKDAY}, {_DAY}-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT")
_ASCTIME = re.compile(f"{_WKDAY} {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} {_YEAR}")

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


def evaluate(
    method: str, headers: FieldLines, *, etag: str, last_modified: int, now: float
) -> ConditionalResult:
    """Evaluate a request's conditions against a snapshot, in the order of section 13.2.2.

    ``etag`` is the snapshot's ETag in the form of the header (``"abc"`` or ``W/"abc"``),
    ``last_modified`` and ``now`` are Unix seconds. Conditions count for GET and HEAD only: no other
    method gets a snapshot. Call this only if the response without conditions would be a 200:
    errors and redirects are sent regardless of conditions (section 13.2.1). Never raises.
    """
    if method not in ("GET", "HEAD"):
        return ConditionalResult.SEND
    if not _is_as_expected(headers, etag, last_modified, now):
        return ConditionalResult.PRECONDITION_FAILED
    if _is_held_already(headers, etag, last_modified, now):
        return ConditionalResult.NOT_MODIFIED
    return ConditionalResult.SEND


def _is_as_expected(headers: FieldLines, etag: str, last_modified: int, now: float) -> bool:
    """Steps 1 and 2: If-Match, or else If-Unmodified-Since."""
    if lines := headers.getall("if-match", ()):
        return _names(lines, etag, weakly=False)
    if lines := headers.getall("if-unmodified-since", ()):
        since = _only_date(lines, now)
        return since is None or last_modified <= since
    return True


def _is_held_already(headers: FieldLines, etag: str, last_modified: int, now: float) -> bool:
    """Steps 3 and 4: If-None-Match, or else (even if no tag in it is valid) If-Modified-Since."""
    if lines := headers.getall("if-none-match", ()):
        return _names(lines, etag, weakly=True)
    if lines := headers.getall("if-modified-since", ()):
        since = _only_date(lines, now)
        return since is not None and last_modified <= since
    return False


def _names(lines: Sequence[str], etag: str, *, weakly: bool) -> bool:
    """Whether the lines, combined (section 5.3), name ``etag``; comparison as in 8.8.3.2."""
    value = ", ".join(lines)
    if value == etag and _is_strong(etag):
        return True  # nearly always
    if value.strip(" \t") == "*":
        return True
    tags = _ENTITY_TAGS.findall(value)
    if weakly:
        opaque_tag = etag.removeprefix("W/")
        return any(opaque == opaque_tag for _, opaque in tags)
    return ("", etag) in tags  # a weak ``etag`` never matches strongly


@lru_cache(maxsize=1024)
def _is_strong(etag: str) -> bool:
    return _STRONG.fullmatch(etag) is not None


def _only_date(lines: Sequence[str], now: float) -> int | None:
    # A header with several values is ignored (sections 13.1.3 and 13.1.4).
    return parse_http_date(lines[0], now=now) if len(lines) == 1 else None


def parse_http_date(text: str, *, now: float) -> int | None:
    """Unix seconds of an HTTP-date (section 5.6.7); None if it is not one. Never raises.

    ``now`` (Unix seconds) determines the century of a two-digit year. A wrong day name is accepted,
    as by nginx and Go.
    """
    match = _IMF_FIXDATE.fullmatch(text) or _RFC850.fullmatch(text) or _ASCTIME.fullmatch(text)
    if match is None:
        return None
    year, day, hour, minute, second = map(
        int, match.group("year", "day", "hour", "minute", "second")
    )
    month = _MONTHS.index(match["month"]) + 1
    if match.re is _RFC850:
        year = _full_year(year, (month, day, hour, minute, second), now)
    try:
        days = date(year, month, day).toordinal() - _EPOCH_ORDINAL
    except ValueError:  # the month has no such day, or the year is 0
        return None
    return days * 86_400 + hour * 3_600 + minute * 60 + second


def _full_year(two_digits: int, rest_of_date: tuple[int, ...], now: float) -> int:
    """The latest year with these digits for which the date is at most 50 years after ``now``."""
    today = time.gmtime(now)
    latest = today.tm_year + 50
    year = latest - (latest - two_digits) % 100
    return year - 100 if (year, *rest_of_date) > (latest, *today[1:6]) else year


def format_http_date(seconds: int) -> str:
    """IMF-fixdate (section 5.6.7) of Unix seconds, from 0 to 253402300799 (the end of 9999)."""
    return formatdate(seconds, usegmt=True)
