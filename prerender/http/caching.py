"""Caching rules of the gateway (RFC 9111). Pure.

Stricter than a shared cache must be: no heuristic freshness (section 4.2.2), no stale responses
(4.2.4), and documents and data only if they are explicitly public.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from multidict import CIMultiDict, CIMultiDictProxy

from prerender.http.conditional import parse_http_date

Headers = CIMultiDict[str] | CIMultiDictProxy[str]

# Headers that the browser itself sends. Others were set by scripts of the page, and responses to such
# requests must not be shared.
_BROWSERS_OWN = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "connection",
        "cookie",
        "dnt",
        "host",
        "if-modified-since",
        "if-none-match",
        "origin",
        "pragma",
        "priority",
        "purpose",
        "referer",
        "save-data",
        "upgrade-insecure-requests",
        "user-agent",
    }
)
# Scripts can set these, too, so they are part of the cache key regardless of Vary.
_ALWAYS_SELECTING = ("Accept", "Accept-Encoding", "Accept-Language", "Origin", "User-Agent")
# Without one of these, a response may have been made from the cookies of one render.
_FOR_EVERYBODY = frozenset({"public", "s-maxage"})
# Media types of assets, without documents and data.
_ASSET = re.compile(
    r"(?:image|font|audio|video)/.*|text/css|(?:text|application)/(?:x-)?(?:java|ecma)script"
    r"|application/(?:wasm|manifest\+json|vnd\.ms-fontobject|(?:x-)?font-.*)",
    re.IGNORECASE,
)
_DIRECTIVE = re.compile(r'([^\s=,;"]+)(?:=("(?:[^"\\]|\\.)*"|[^\s,;]*))?')
# Response headers that make the browser remember something beyond the page and its storage.
_REMEMBERED = (
    "Accept-CH",
    "Alt-Svc",
    "Critical-CH",
    "NEL",
    "Report-To",
    "Reporting-Endpoints",
    "Secure-Session-Registration",
    "Set-Login",
    "Strict-Transport-Security",
    "Use-As-Dictionary",
)
_PASSWORD_SCHEMES = re.compile(r"\b(?:basic|digest|negotiate|ntlm)\b", re.IGNORECASE)
_LONGEST_SECONDS = 2**31  # section 1.2.2
# Headers that a 304 does not update (section 3.2).
_NOT_REFRESHED = frozenset({"content-encoding", "content-length", "content-range", "content-type"})

Selecting = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """Freshness lifetime and age on arrival, in seconds, of a storable response."""

    lifetime: float
    age: float


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A stored response (status 200). ``born``: monotonic seconds when its age was 0. ``digest``: of
    its body, for the caller."""

    selecting: Selecting
    headers: CIMultiDict[str]
    body: bytes
    lifetime: float
    born: float
    digest: str = ""

    def age(self, now: float) -> float:
        """Seconds since the origin generated or validated it (section 4.2.3)."""
        return max(0.0, now - self.born)

    def is_fresh(self, now: float) -> bool:
        """Whether it may be used without validation (section 4.2)."""
        return self.age(now) < self.lifetime

    def fits(self, request: Headers) -> bool:
        """Whether its selecting headers match ``request`` (section 4.1)."""
        return all(_line(request, name) == value for name, value in self.selecting)

    def conditions(self) -> dict[str, str]:
        """The conditional headers that validate it (section 4.3.1)."""
        pairs = (("If-None-Match", "ETag"), ("If-Modified-Since", "Last-Modified"))
        return {ask: self.headers[have] for ask, have in pairs if have in self.headers}


def directives(headers: Headers) -> dict[str, str]:
    """Cache-Control directives by lower-case name; the first of repeated ones counts."""
    return _directives(_line(headers, "Cache-Control"))


def _directives(cache_control: str) -> dict[str, str]:
    by_name: dict[str, str] = {}
    for name, value in _DIRECTIVE.findall(cache_control):
        by_name.setdefault(name.lower(), value.strip('"'))
    return by_name


def forbids_storing(cache_control: str) -> bool:
    """Whether the Cache-Control of a response forbids shared caches to store it (section 5.2.2)."""
    return bool(_directives(cache_control).keys() & {"private", "no-store"})


def may_be_shared(method: str, request: Headers) -> bool:
    """Whether the response to a request may be shared with other renders."""
    if method != "GET" or "no-store" in directives(request):
        return False
    return all(name.lower() in _BROWSERS_OWN or name.lower().startswith("sec-") for name in request)


def demands_validation(request: Headers) -> bool:
    """Whether the page asks for validation (section 5.2.1)."""
    wanted = directives(request)
    if not wanted:
        return "no-cache" in request.get("Pragma", "").lower()
    return bool(wanted.keys() & {"no-cache", "max-age", "min-fresh"})


def is_personal(response: Headers) -> bool:
    """Whether a response is for one visitor only."""
    return forbids_storing(_line(response, "Cache-Control")) or "Set-Cookie" in response


def terms(status: int, response: Headers, now: float) -> Terms | None:
    """The terms on which a response to a shareable request may be stored; None if it may not.

    ``now``: Unix seconds of its arrival.
    """
    stated = directives(response)
    if status != 200 or is_personal(response) or "*" in _vary(response):
        return None
    media_type = response.get("Content-Type", "").partition(";")[0].strip()
    if not _ASSET.fullmatch(media_type) and not stated.keys() & _FOR_EVERYBODY:
        return None
    lifetime = 0.0 if "no-cache" in stated else _lifetime(stated, response, now)
    if lifetime <= 0 and not ("ETag" in response or "Last-Modified" in response):
        return None
    return Terms(lifetime, _age(response, now))


def stored(
    request: Headers, headers: CIMultiDict[str], body: bytes, on: Terms, now: float
) -> StoredResponse:
    """The stored form of a response; ``now`` in monotonic seconds."""
    stored_headers = CIMultiDict(
        (k, v) for k, v in headers.items() if k.lower() not in ("age", "date")
    )
    cookie = () if directives(headers).keys() & _FOR_EVERYBODY else ("Cookie",)
    names = dict.fromkeys(name.lower() for name in (*_ALWAYS_SELECTING, *cookie, *_vary(headers)))
    selecting = tuple((name, _line(request, name)) for name in names)
    return StoredResponse(selecting, stored_headers, body, on.lifetime, now - on.age)


def refreshed(old: StoredResponse, response: Headers, wall: float, now: float) -> StoredResponse:
    """A stored response after a 304 (section 4.3.4); ``wall``: Unix, ``now``: monotonic seconds."""
    headers = old.headers.copy()
    update = [
        (k, v) for k, v in response.items() if k.lower() not in (*_NOT_REFRESHED, "age", "date")
    ]
    for name, _ in update:
        headers.popall(name, None)
    headers.extend(update)
    dated = headers.copy()
    dated.extend((k, v) for k, v in response.items() if k.lower() in ("age", "date"))
    on = terms(200, dated, wall) or Terms(0.0, 0.0)
    return replace(old, headers=headers, lifetime=on.lifetime, born=now - on.age)


def forbid_memory(headers: CIMultiDict[str]) -> None:
    """Prevent the browser from storing anything of a response."""
    for name in _REMEMBERED:
        headers.popall(name, None)
    stated = [*headers.popall("Cache-Control", ()), "no-store"]
    headers["Cache-Control"] = ", ".join(dict.fromkeys(stated))


def asks_for_password(status: int, headers: Headers) -> bool:
    """Whether a response makes the browser ask for a password (RFC 9110 section 11.6.1)."""
    return status == 401 and bool(_PASSWORD_SCHEMES.search(_line(headers, "WWW-Authenticate")))


def _lifetime(stated: dict[str, str], response: Headers, now: float) -> float:
    """Explicit freshness in seconds (section 4.2.1); 0 when there is none or it makes no sense."""
    for name in ("s-maxage", "max-age"):
        if name in stated:
            text = stated[name]
            is_number = text.isascii() and text.isdigit()
            return float(min(int(text[:12]), _LONGEST_SECONDS)) if is_number else 0.0
    expires = parse_http_date(_line(response, "Expires"), now=now)
    if expires is None:
        return 0.0
    date = parse_http_date(_line(response, "Date"), now=now)
    return float(expires - (now if date is None else date))


def _age(response: Headers, now: float) -> float:
    date = parse_http_date(_line(response, "Date"), now=now)
    stated = response.get("Age", "")
    age = int(stated[:12]) if stated.isascii() and stated.isdigit() else 0
    return max(0.0, float(age), 0.0 if date is None else now - date)


def _vary(response: Headers) -> Iterable[str]:
    return {name.strip().lower() for name in _line(response, "Vary").split(",") if name.strip()}


def _line(headers: Headers, name: str) -> str:
    """The combined value of a field (RFC 9110 section 5.2), '' if there is none."""
    return ", ".join(headers.getall(name, ()))
