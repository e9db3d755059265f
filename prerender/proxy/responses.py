"""The proxy's own responses: snapshots, 304s and errors."""

import math
import time
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus

from prerender.errors import OriginError, PrerenderError, RenderError
from prerender.http import conditional
from prerender.http.cache_status import CACHE_NAME, cache_status
from prerender.http.conditional import ConditionalResult, format_http_date
from prerender.http.encodings import accepted
from prerender.http.message_head import Request, status_line
from prerender.snapshots.snapshot import UNUSABLE, CacheResult, SnapshotResult, Timings

# The conditional headers of RFC 9110 section 13.1 that apply to snapshots.
_CONDITIONS = frozenset({"if-match", "if-none-match", "if-modified-since", "if-unmodified-since"})
_NOT_MODIFIED = status_line(304)
_NO_STORE = b"Cache-Control: no-store\r\n"
RETRY_AFTER_SECONDS = 10


@dataclass(slots=True)  # not frozen, as SnapshotResult
class WholeResponse:
    """A complete response.

    ``head``: without Connection and without the empty line at its end; ``body``: None for a response
    without one (304).
    """

    status: int
    head: bytes
    body: bytes | None


def whole(status: int, fields: bytes, body: bytes | None) -> WholeResponse:
    """A response with these header lines, Date and Content-Length."""
    length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
    return WholeResponse(status, b"".join((status_line(status), fields, date_line(), length)), body)


def date_line() -> bytes:
    """The current Date header."""
    return _date_line(int(time.time()))


@lru_cache(maxsize=2)
def _date_line(seconds: int) -> bytes:
    return f"Date: {format_http_date(seconds)}\r\n".encode()


def snapshot_response(request: Request, result: SnapshotResult, more: bytes) -> WholeResponse:
    """The response to a GET or HEAD for a snapshot: the snapshot, or a 304 or 412.

    ``more``: header lines, with Vary.
    """
    snapshot, headers = result.snapshot, request.headers
    own = _fields_of(result)
    chosen = snapshot.best(accepted(headers.get("accept-encoding")))
    # Conditions apply to successful responses only (RFC 9110 section 13.2.1).
    if snapshot.status == 200 and not headers.names.keys().isdisjoint(_CONDITIONS):
        outcome = conditional.evaluate(
            request.method,
            headers,
            etag=chosen.etag,
            last_modified=snapshot.last_modified,
            now=time.time(),
        )
        if outcome is ConditionalResult.NOT_MODIFIED:
            head = b"".join((_NOT_MODIFIED, chosen.fields, own, more, date_line()))
            return WholeResponse(304, head, None)
        if outcome is ConditionalResult.PRECONDITION_FAILED:
            # Only for this condition.
            return whole(412, b"".join((chosen.fields, _NO_STORE, more)), b"")
    head = b"".join((chosen.head, own, more, date_line()))
    return WholeResponse(snapshot.status, head, chosen.body)


def _fields_of(result: SnapshotResult) -> bytes:
    lines = _lines_of_cache(
        result.how,
        result.stored,
        math.floor(result.ttl),
        math.floor(result.age),
        result.detail,
        storable=result.snapshot.storable,
    )
    if result.timings is None:
        return lines
    return lines + f"Server-Timing: {server_timing(result.timings)}\r\n".encode()


@lru_cache(maxsize=1024)
def _lines_of_cache(
    how: CacheResult, stored: bool, ttl: int, age: int, detail: str, *, storable: bool
) -> bytes:
    """Caching headers, which are equal for all hits with the same age in seconds.

    Without ``storable``, and if the proxy heeds it, other caches must not store the page either.
    max-age is what is left of the TTL, without an Age field: caches by RFC 9111 (section 4.2.3) would
    subtract the age once more, and nginx does not know it. The age is a parameter of Cache-Status.
    """
    freshness = f"max-age={ttl}" if ttl > 0 else "no-cache" if storable else "no-store"
    if how is not CacheResult.KEPT and detail in UNUSABLE:
        freshness = "no-store"
    shown_age = f"; age={age}" if how.is_hit else ""
    return (
        f"Cache-Control: {freshness}\r\n"
        f"Cache-Status: {cache_status(how, stored, ttl, detail)}{shown_age}\r\n"
    ).encode()


def server_timing(timings: Timings) -> str:
    """The Server-Timing header: milliseconds of each phase (W3C Server Timing, section 3)."""
    phases = timings.phases().items()
    return ", ".join(f"{phase};dur={seconds * 1000:.1f}" for phase, seconds in phases)


def error_response(error: PrerenderError) -> WholeResponse:
    """An error response in plain text, without internals and not cacheable."""
    fields = b"Content-Type: text/plain; charset=utf-8\r\n" + _NO_STORE
    if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
        fields += b"Allow: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT\r\n"
    if error.status == HTTPStatus.UNAUTHORIZED:
        fields += b'WWW-Authenticate: X-Prerender-Token realm="snapshots"\r\n'
    if isinstance(error, RenderError | OriginError):
        fields += b"Retry-After: %d\r\n" % RETRY_AFTER_SECONDS
    if isinstance(error, RenderError):
        fields += f"Cache-Status: {CACHE_NAME}; fwd=miss; detail={error.detail}\r\n".encode()
    return whole(error.status, fields, f"{error.public}\n".encode())
