"""Writes and parses Cache-Status (RFC 9211): which caches handled a request, and how. Pure."""

from collections.abc import Iterable, Mapping
from typing import cast

import http_sf

# The name of this proxy.
CACHE_NAME = "prerender"


def cache_status(how: str, stored: bool, ttl: int, detail: str) -> str:
    """This proxy's Cache-Status. ``how``: a CacheResult; ``ttl``: seconds."""
    if how in ("hit", "stale"):
        return f"{CACHE_NAME}; hit; ttl={ttl}{f'; detail={detail}' if detail else ''}"
    parts = [CACHE_NAME, "fwd=stale" if how in ("kept", "revalidated") else "fwd=miss"]
    details = [detail] if detail else []
    if how == "coalesced":
        parts.append("collapsed")
        details.append("coalesced")
    if stored:
        parts += ["stored", f"ttl={ttl}"]
    if details:
        parts.append(f"detail={'-'.join(details)}")
    return "; ".join(parts)


def parameters_of(cache: str, lines: Iterable[str]) -> Mapping[str, str] | None:
    """What a cache says about itself in Cache-Status headers; None if it says nothing.

    Strings are unquoted, and a flag has the value "?1". Flags that are false (``hit=?0``) are left out.
    If several caches have the name, the last counts: it is the nearest to the client. A header with a
    syntax error is ignored as a whole (RFC 9651 section 4.2).
    """
    try:
        text = ",".join(lines).encode("latin-1", "replace")
        members = cast("list[tuple[object, dict[str, object]]]", http_sf.parse(text, tltype="list"))
    except ValueError:
        return None
    parameters = None
    for name, values in members:
        if isinstance(name, str | http_sf.Token) and name == cache:
            parameters = {key: _text(value) for key, value in values.items() if value is not False}
    return parameters


def _text(value: object) -> str:
    return value if isinstance(value, str) else http_sf.ser(cast("bool", value))
