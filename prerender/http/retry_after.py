"""The Retry-After header (RFC 9110 section 10.2.3). Pure."""

import re


def seconds_of(value: str) -> float:
    """The seconds to wait; 0.0 if there are none. Dates are ignored: clocks differ."""
    return float(value) if re.fullmatch(r"[0-9]{1,6}", value, re.ASCII) else 0.0
