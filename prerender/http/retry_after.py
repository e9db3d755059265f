"""The Retry-After header (RFC 9110 section 10.2.3)."""

import re
import time

from prerender.http.conditional import parse_http_date

_LONGEST_SECONDS = 3600.0


def seconds_of(value: str) -> float | None:
    """The seconds to wait, at most an hour; None if the value is neither seconds nor a date."""
    if re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        seconds = float(value)
    else:
        now = time.time()
        if (at := parse_http_date(value, now=now)) is None:
            return None
        seconds = at - now
    return min(max(0.0, seconds), _LONGEST_SECONDS)
