"""Writes and parses Cache-Status (RFC 9211): which caches handled a request, and how. Pure."""

import re
from collections.abc import Iterable, Mapping

# The name of this proxy.
CACHE_NAME = "prerender"

# A list of tokens and strings with parameters (structured fields, RFC 9651 sections 3.1 to 3.3).
_KEY = r"[a-z*][a-z0-9_\-.*]*"
_NAME = r"[A-Za-z*][\w!#$%&'*+\-.^`|~:/]*"
_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
_VALUE = rf"-?\d{{1,15}}(?:\.\d{{1,3}})?|@-?\d{{1,15}}|\?[01]|:[\w+/=]*:|%?{_STRING}|{_NAME}"
_MEMBER = re.compile(
    rf"[ \t]*({_NAME}|{_STRING})((?:; *{_KEY}(?:=(?:{_VALUE}))?)*)[ \t]*(?:,|\Z)", re.ASCII
)
_PARAMETER = re.compile(rf"; *({_KEY})(?:=({_VALUE}))?", re.ASCII)


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
    text = ",".join(lines).strip(" ")
    parameters = None
    at = 0
    while at < len(text):
        member = _MEMBER.match(text, at)
        if member is None or (member.end() == len(text) and member[0].endswith(",")):
            return None
        if _unquoted(member[1]) == cache:
            last = dict(_PARAMETER.findall(member[2]))
            parameters = {
                key: _unquoted(value or "?1") for key, value in last.items() if value != "?0"
            }
        at = member.end()
    return parameters


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
