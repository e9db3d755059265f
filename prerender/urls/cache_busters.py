"""Cache-busters: query parameters with the current time, which get pages past caches. Pure."""

import re

_HOUR_SECONDS = 3600
# Seconds or milliseconds since 1970, as Date.now() gives them.
_TIME = re.compile(r"1[0-9]{9}(?:[0-9]{3})?")


def has_current_time(parameter: str, now: float) -> bool:
    """Whether the value of a parameter is the time, which gets past caches. Other numbers as long are
    ids, or times that the content depends on. ``now``: Unix seconds."""
    value = parameter.rpartition("=")[2]
    # Some round it, and the clock of a page is ahead by the timers that it did not wait for.
    return bool(_TIME.fullmatch(value)) and abs(int(value[:10]) - now) < _HOUR_SECONDS


def is_same_page(url: str, other: str, now: float) -> bool:
    """Whether a page that goes from one URL to another, both without fragments, stays itself. Pages
    reload themselves with the current time as a parameter, maybe in place of an older one."""
    path, _, query = url.partition("?")
    other_path, _, other_query = other.partition("?")
    if path != other_path:
        return False
    old, new = query.split("&"), other_query.split("&")
    gone = [parameter for parameter in old if parameter and parameter not in new]
    added = [parameter for parameter in new if parameter and parameter not in old]
    if not (added or gone):
        return True
    if len(added) != 1 or not has_current_time(added[0], now):
        return False
    name = added[0].rpartition("=")[0]
    older = [parameter.rpartition("=") for parameter in gone]
    return len(gone) <= 1 and all(old[0] == name and _TIME.fullmatch(old[2]) for old in older)


def added_time(url: str, other: str, now: float) -> str:
    """The parameter with the current time that only the other URL has, or ''."""
    old, new = (one.partition("#")[0].partition("?")[2].split("&") for one in (url, other))
    return next((one for one in new if one not in old and has_current_time(one, now)), "")
