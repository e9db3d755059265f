"""The verdict about a render. Pure.

| verdict    | when                                                         | response and storage     |
|------------|--------------------------------------------------------------|--------------------------|
| complete   | none of the below                                            | stored for its TTL       |
| moved      | the page changed its own path or ``#!`` state                | ``[snapshot] moved``     |
| cut-off    | it hit the time limit, with all of the site's own data       | the page, not stored     |
| incomplete | no response for the site's own data or scripts; limit reached| ``[render] incomplete``  |
| failed     | an error response for them; an exception before scripts have | ``[render] incomplete``  |
|            | shown anything                                               |                          |
| blank      | the page shows nothing, but its document has scripts         | 503 with ``Retry-After`` |

The last three are not stored and never replace a good snapshot. Exceptions are served, and stored for a
short time: a page that failed only because the site lacks files or its scripts have an error
(``Judgement.lasting``), and one that every visitor sees like this (snapshots/repeated_faults.py).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import NamedTuple

from lxml import etree

from prerender.browser.page_results import Rendered
from prerender.browser.settling.reasons import SettleReason
from prerender.gateway.document import Document
from prerender.gateway.exchange import Exchange
from prerender.gateway.needed_requests import DATA, without_query
from prerender.gateway.resource_kind import ResponseFault
from prerender.gateway.visit import Visit
from prerender.snapshots.parsed_html import parse, texts_of
from prerender.snapshots.snapshot import RenderVerdict
from prerender.urls.cache_busters import has_current_time

# Statuses of an API that mean: ask again later (RFC 9110 section 15.5, RFC 8470, RFC 6585). Any other
# 4xx is what an anonymous visitor gets, too.
_LATER = (408, 421, 425, 429)
_SOCKET = "socket"  # in place of a method
# How Engine.IO and SignalR poll without a WebSocket.
_POLLING = re.compile(r"[?&](?:transport=[a-z]*polling|id=[^&]*&_=[0-9]+)(?:&|$)", re.IGNORECASE)
# How loaders number their attempts. An import that has failed can be repeated only with another URL.
_ATTEMPT = re.compile(
    r"(?:_|t|[a-z_-]*(?:retry|attempt|bust)[a-z_-]*)=(?:[0-9]{1,3}|true)", re.IGNORECASE
)
# A page with more text shows its content, even if its scripts have added nothing to it.
_THIN_TEXT = 1000
_LONGEST_THIN_PAGE = 1_000_000
_UNSEEN = etree.XPath("//head | //script | //style | //noscript | //template")
_SCRIPT = re.compile(rb"<script[\s>/]", re.IGNORECASE)


class FailedRequest(NamedTuple):
    """A request that failed. ``lasting``: a retry would not help, as the site does not have the
    file, or it is one that the page may not need. ``ours``: the proxy refused it."""

    url: str
    text: str
    lasting: bool
    ours: bool = False


class Judgement(NamedTuple):
    """A verdict, its first reason (for the owner of the site), and the requests that failed.

    ``lasting``: every failure is a lasting one.
    """

    verdict: RenderVerdict
    reason: str
    faults: tuple[FailedRequest, ...]
    lasting: bool = False


def judge(
    document: Document, visit: Visit, rendered: Rendered, now: float, *, moved: bool
) -> Judgement:
    """The verdict about a rendered page. ``moved``: its URL is not the requested one. ``now``: Unix
    seconds."""
    faults = tuple(faults_of(visit.requests.exchanges, now))
    verdict, reason = _verdict(document, visit, rendered, faults, moved=moved)
    lasting = verdict == "failed" and bool(faults) and all(one.lasting for one in faults)
    if verdict == "complete" and (reason := _script_failure(document, rendered)):
        verdict, lasting = "failed", True
    return Judgement(verdict, reason, faults, lasting)


def _verdict(
    document: Document,
    visit: Visit,
    rendered: Rendered,
    faults: Sequence[FailedRequest],
    *,
    moved: bool,
) -> tuple[RenderVerdict, str]:
    is_ready = rendered.settled.reason is SettleReason.PRERENDER_READY
    if not is_ready and (reason := _lacking(visit.requests.exchanges, rendered)):
        return "incomplete", reason
    if reason := _failure(faults, rendered):
        return "failed", reason
    if _is_blank(document, rendered):
        if rendered.partial:
            return "incomplete", "nothing shown before the time limit"
        if rendered.errors:
            return "failed", f"nothing shown: {rendered.errors[0]}"
        return "blank", "nothing shown"
    if rendered.partial:
        return "cut-off", "not settled at the time limit"
    if moved:
        return "moved", f"now at {rendered.own_url}"
    return "complete", ""


def _lacking(exchanges: Iterable[Exchange], rendered: Rendered) -> str:
    """The first response that is missing, or ''."""
    if rendered.partial and rendered.parsing:
        return "the document was still loading at the time limit"
    return next(missing_responses(exchanges, partial=rendered.partial), "")


def ended_by_limit(exchange: Exchange, *, partial: bool) -> bool:
    """Whether the time limit, which also ends the requests of a page, kept it from a response."""
    return partial and exchange.needed and not (exchange.status or exchange.unused)


def missing_responses(exchanges: Iterable[Exchange], *, partial: bool) -> Iterator[str]:
    """The needed requests without a whole response, each with what is missing.

    ``partial``: the time limit was reached.
    """
    for exchange in exchanges:
        if exchange.limited and exchange.needed:
            yield f"{exchange.url}: {exchange.reason}"
        elif exchange.lacks_response or ended_by_limit(exchange, partial=partial):
            what = "an incomplete response" if exchange.status else "no response"
            yield f"{exchange.url}: {what}"


def faults_of(exchanges: Iterable[Exchange], now: float) -> Iterable[FailedRequest]:
    """The requests that the content may depend on, and that failed and did not succeed later."""
    failed: dict[tuple[str, str], FailedRequest] = {}
    for exchange in exchanges:
        if not exchange.matters:
            continue
        if text := _fault_of(exchange):
            lasting = (
                exchange.destination == "style"
                or exchange.fault is ResponseFault.HTML_MODULE
                or exchange.status in (404, 410)
                or (exchange.status in _LATER and not exchange.is_program)
            )
            failed.setdefault(
                _key(exchange, now), FailedRequest(exchange.url, text, lasting, exchange.refused)
            )
        # An open WebSocket has no status yet.
        elif not exchange.blocked and (exchange.status or exchange.received_bytes):
            for key in _made_up_for(exchange, now):
                failed.pop(key, None)
    return failed.values()


def _key(exchange: Exchange, now: float) -> tuple[str, str]:
    """The same for a failed request and for one that repeats it with a cache-buster."""
    if exchange.endless:
        return _SOCKET, without_query(exchange.url)
    return exchange.method, _without_cache_buster(exchange, now)


def _made_up_for(exchange: Exchange, now: float) -> Iterator[tuple[str, str]]:
    """The keys of failed requests that a later response makes up for."""
    yield exchange.method, _without_cache_buster(exchange, now)
    is_data = exchange.method == "GET" and exchange.destination in DATA and exchange.status < 400
    if exchange.endless or (is_data and _POLLING.search(exchange.url)):
        yield _SOCKET, without_query(exchange.url)


def _without_cache_buster(exchange: Exchange, now: float) -> str:
    """The URL without the parameter that is the time, if one is, and that of a script without the
    number of the attempt."""
    path, _, query = exchange.url.partition("?")
    parameters = query.split("&")
    if exchange.is_program:
        parameters = [one for one in parameters if not _ATTEMPT.fullmatch(one)]
    others = [one for one in parameters if not has_current_time(one, now)]
    if len(others) == len(parameters) - 1:
        parameters = others
    return "?".join((path, "&".join(parameters)))


def _failure(faults: Sequence[FailedRequest], rendered: Rendered) -> str:
    """The first failure, or ''."""
    if faults:
        return f"{faults[0].url}: {faults[0].text}"
    return f"Malformed JSON: {rendered.malformed[0]}" if rendered.malformed else ""


def _script_failure(document: Document, rendered: Rendered) -> str:
    """The first error of scripts that have added nothing to the little text of a page, or ''."""
    if (
        not rendered.script_failure
        or rendered.text_length >= _THIN_TEXT
        or len(rendered.html) > _LONGEST_THIN_PAGE
        or not _SCRIPT.search(document.body)
    ):
        return ""
    given_texts, given = _content_of(document.body)
    texts, elements = _content_of(rendered.html.encode("utf-8", "replace"))
    has_more = elements > given or not texts <= given_texts
    return "" if has_more else f"the scripts have shown nothing: {rendered.script_failure}"


def _content_of(html: bytes) -> tuple[set[str], int]:
    """The texts of a page, and the number of its elements without scripts and styles."""
    root = parse(html)
    if root is None:
        return set(), 0
    texts = set(texts_of(root))
    return texts, sum(1 for _ in root.iter()) - len(_UNSEEN(root))


def may_be_the_page(visit: Visit, rendered: Rendered, judgement: Judgement) -> bool:
    """Whether the faults of a page may be what every visitor sees: it shows something other than a
    loading state, and nothing was refused or cut off by the proxy."""
    return (
        judgement.verdict in ("incomplete", "failed")
        and rendered.shows_anything
        and not (rendered.loading or (rendered.partial and rendered.parsing))
        and not any(fault.ours for fault in judgement.faults)
        and not any(exchange.limited for exchange in visit.requests.exchanges)
    )


def third_party_failures(exchanges: Iterable[Exchange]) -> Iterable[str]:
    """The URLs of data of third parties that failed. Nobody knows whether the content depends on it."""
    for exchange in exchanges:
        may_matter = exchange.foreign and not (exchange.judged or exchange.unused)
        if may_matter and exchange.destination in DATA and _fault_of(exchange):
            yield exchange.url


def awaits_data(exchanges: Iterable[Exchange], now: float) -> bool:
    """Whether the server is still preparing data of the page: its last response to a GET is 202."""
    last = {
        _without_cache_buster(exchange, now): exchange.status
        for exchange in exchanges
        if exchange.matters and exchange.method == "GET" and exchange.destination in DATA
    }
    return HTTPStatus.ACCEPTED in last.values()


def lacks_its_subject(exchanges: Iterable[Exchange]) -> bool:
    """Whether data of the page was not found, as for a page that does not exist (a soft 404)."""
    return any(
        e.needed and e.destination in DATA and e.status in (404, 410)
        for e in exchanges
        if not (e.is_preflight or e.unused)
    )


def _fault_of(exchange: Exchange) -> str:
    """The fault of the response to a needed request, or ''.

    A missing script is a fault: an outdated page requests the files of a previous release. For
    everything else, a 4xx is a response like any other: the page shows what it makes of it.
    """
    status = exchange.status
    if exchange.refused:
        return exchange.reason
    if exchange.blocked or not (exchange.completed or exchange.endless):
        return ""
    if exchange.fault:
        return exchange.detail or exchange.fault.text
    failed = status >= 500 or status in _LATER or (exchange.is_program and status >= 400)
    return f"status {status}" if failed else ""


def _is_blank(document: Document, rendered: Rendered) -> bool:
    """Whether a page shows nothing although its document has scripts."""
    return not rendered.shows_anything and bool(_SCRIPT.search(document.body))
