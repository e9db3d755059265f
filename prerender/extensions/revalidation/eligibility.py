"""Which snapshots can be renewed by their inputs, and the manifest of such a snapshot. Pure."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from prerender.extensions.revalidation.manifest import (
    Input,
    Manifest,
    encode,
    fingerprint_of_document,
    input_of,
)
from prerender.gateway.document import Document
from prerender.gateway.egress import split_url
from prerender.gateway.exchange import Exchange
from prerender.gateway.needed_requests import DATA
from prerender.gateway.visit import Visit
from prerender.http.caching import Headers
from prerender.http.fields import members
from prerender.snapshots.renewals import StoredSnapshot
from prerender.snapshots.snapshot import HTML, Snapshot
from prerender.snapshots.target import Target
from prerender.words import Word

_MOST_INPUTS = 500
_MOST_BYTES = 32 * 1024
_LONGEST_URL = 300
# Methods without effects on the server (RFC 9110 section 9.2.1).
_REPEATABLE = ("GET", "HEAD", "OPTIONS")
_ASSETS = ("script", "style", "image", "font", "worker", "sharedworker", "manifest", "track")
_DAY_SECONDS = 86400
# Unix seconds or milliseconds.
_EPOCH = re.compile(r"(?<![0-9])1[0-9]{9}(?:[0-9]{3})?(?![0-9])")
_DATE = re.compile(r"(?<![0-9])(20[0-9]{2})([-/.]?)([01][0-9])\2([0-3][0-9])(?![0-9])")


class UnrenewableReason(Word):
    """Why a snapshot cannot be renewed without rendering."""

    VERDICT = "verdict", "its last render is not complete"
    METHOD = (
        "method",
        "it sends a request other than GET that [cache] revalidate_post does not list",
    )
    BODY = "body", "the body of its POST request is over 16 KiB, or no text"
    STREAM = "stream", "it received messages of a WebSocket or a stream"
    COOKIES = "cookies", "a response depends on the cookies that it sets"
    FAILED = "failed", "a request failed or was refused"
    UNANSWERED = "unanswered", "a request had no complete response"
    VARYING = "varying", "the same request had different responses"
    TIME = "time", "a request contains the current time"
    SIZE = "size", "it makes too many requests"
    REQUESTS = "requests", "it makes other requests in each render"
    FUTILE = "futile", "its responses differ each time, although its content does not"
    WRONG = "wrong", "a check found other content, although all responses were the same"
    SECTION = "section", "checks found other content on several pages of this section"
    OLDER = "older", "its inputs are unknown: a redirect, or rendered with revalidation off"


def explained(code: str) -> str:
    """A reason with its URL, in words."""
    word, _, url = code.partition(" ")
    text = UnrenewableReason.text_of(word)
    return f"{text}: {url}" if url else text


class Ineligible(Exception):
    """The inputs do not tell whether the page has changed. The message is a code and a URL."""

    def __init__(self, reason: UnrenewableReason, url: str = "") -> None:
        super().__init__(f"{reason} {url[:_LONGEST_URL]}".rstrip())


class Made(NamedTuple):
    """A new snapshot of a target, made ``now`` (Unix seconds)."""

    snapshot: Snapshot
    target: Target
    now: float


def why_rendered(old: StoredSnapshot, now: float) -> str:
    """Why a stored snapshot is not renewed without rendering: a code and a URL, or ''."""
    state = old.renewals
    if state is None or not old.snapshot.manifest:
        return old.snapshot.unrenewable or UnrenewableReason.OLDER
    return state.why if now < state.suspended else ""


def manifest_of(
    maker: str,
    made: Made,
    document: Document,
    visit: Visit,
    *,
    may_repeat: Callable[[str], bool] = lambda _: False,
) -> bytes:
    """The manifest of a new snapshot in its stored form. ``may_repeat``: whether POST requests for a
    URL are queries. Raises Ineligible."""
    snapshot, target, now = made
    if snapshot.facts.verdict != "complete" or snapshot.content_type != HTML:
        raise Ineligible(UnrenewableReason.VERDICT)
    if visit.usage.is_flooded or len(visit.requests.exchanges) > _MOST_INPUTS:
        raise Ineligible(UnrenewableReason.SIZE)
    if _depends_on_own_cookies(document.headers):
        raise Ineligible(UnrenewableReason.COOKIES, target.url)
    inputs: dict[tuple[object, object], Input] = {}
    assets = set()
    exchanges = visit.requests.exchanges
    answered = {
        (one.method, one.url, one.sent_body) for one in exchanges if one.received is not None
    }
    served = False
    for exchange in exchanges:
        if exchange.destination == "document" and exchange.sent is None and not served:
            served = True  # the document itself
            continue
        if _is_unread(exchange) or (exchange.received is None and _is_repeated(exchange, answered)):
            continue
        new = _input(exchange, may_repeat)
        if is_asset := exchange.destination in _ASSETS:
            new = _from_the_site(new)
        first = inputs.setdefault(key := (new.key, new.headers), new)
        if first.fingerprint[:2] != new.fingerprint[:2]:
            raise Ineligible(UnrenewableReason.VARYING, exchange.url)
        if is_asset:
            assets.add(key)
    _check_times((it for key, it in inputs.items() if key not in assets), target, document, now)
    manifest = Manifest(
        maker,
        fingerprint_of_document(document),
        tuple(one for key, one in inputs.items() if key not in assets),
        tuple(sorted((inputs[key] for key in assets), key=lambda it: (it.key, it.headers))),
    )
    data = encode(manifest)
    if len(data) > _MOST_BYTES:
        raise Ineligible(UnrenewableReason.SIZE)
    return data


def _is_unread(exchange: Exchange) -> bool:
    """Whether the page can read nothing of the response: a beacon, or one that the settings block."""
    mode = "" if exchange.sent is None else exchange.sent.get("Sec-Fetch-Mode", "")
    is_beacon = mode == "no-cors" and exchange.destination in DATA
    return is_beacon or exchange.stubbed or (exchange.endless and not exchange.received_bytes)


def _is_repeated(exchange: Exchange, answered: set[tuple[str, str, str | None]]) -> bool:
    """Whether the page aborted the request before a response, and asked again."""
    return (
        not exchange.status
        and not exchange.endless
        and (exchange.method, exchange.url, exchange.sent_body) in answered
    )


def _input(exchange: Exchange, may_repeat: Callable[[str], bool]) -> Input:
    if exchange.endless:
        raise Ineligible(UnrenewableReason.STREAM, exchange.url)
    repeats = exchange.method == "POST" and not exchange.foreign and may_repeat(exchange.url)
    if exchange.method not in _REPEATABLE and not repeats:
        raise Ineligible(UnrenewableReason.METHOD, exchange.url)
    if (
        exchange.blocked
        or (exchange.completed and exchange.status >= 500)
        or exchange.status in (408, 425, 429)
    ):
        raise Ineligible(UnrenewableReason.FAILED, exchange.url)
    if exchange.received is None or exchange.sent is None:
        raise Ineligible(
            UnrenewableReason.FAILED if exchange.fault else UnrenewableReason.UNANSWERED,
            exchange.url,
        )
    if _depends_on_own_cookies(exchange.received.headers):
        raise Ineligible(UnrenewableReason.COOKIES, exchange.url)
    if repeats and exchange.sent_body is None:
        raise Ineligible(UnrenewableReason.BODY, exchange.url)
    return input_of(
        exchange.method, exchange.url, exchange.sent, exchange.sent_body or "", exchange.received
    )


def _from_the_site(asset: Input) -> Input:
    """The same for all pages: from the site, not from this page, unless the response varies by it."""
    if asset.varies_by_page:
        return asset
    headers = (
        (name, f"{split_url(value)[0]}/" if name.lower() == "referer" else value)
        for name, value in asset.headers
    )
    return replace(asset, headers=tuple(headers))


def _depends_on_own_cookies(headers: Headers) -> bool:
    vary = members(", ".join(headers.getall("Vary", ())))
    return "Set-Cookie" in headers and bool(vary & {"cookie", "*"})


def _check_times(inputs: Iterable[Input], target: Target, document: Document, now: float) -> None:
    """Raises Ineligible if a request has the time of the render: the next one would send another.
    Times that are in the document or in the page's own URL stay."""
    today = datetime.fromtimestamp(now, UTC)
    days = {(today + timedelta(days=n)).strftime("%Y%m%d") for n in (-1, 0, 1)}
    for one in inputs:
        sent = f"{one.url} {one.body}"
        times = [m[0] for m in _EPOCH.finditer(sent) if abs(int(m[0][:10]) - now) < _DAY_SECONDS]
        times += [m[0] for m in _DATE.finditer(sent) if m[1] + m[3] + m[4] in days]
        if any(time not in target.url and time.encode() not in document.body for time in times):
            raise Ineligible(UnrenewableReason.TIME, one.url)
