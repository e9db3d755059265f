"""The verdict about a render. Pure.

| verdict    | when                                                         | response and storage     |
|------------|--------------------------------------------------------------|--------------------------|
| complete   | none of the below                                            | stored for its TTL       |
| moved      | the page changed its own path or ``#!`` state                | ``[snapshot] moved``     |
| cut-off    | it hit the time limit, with all of the site's own data       | the page, not stored     |
| incomplete | no response for the site's own data or scripts; limit reached| ``[render] incomplete``  |
| failed     | an error response for them; an exception left the page blank | ``[render] incomplete``  |
| blank      | the page shows nothing, but its document has scripts         | 503 with ``Retry-After`` |

The last three are not stored and never replace a good snapshot. Exception: a page that failed only
because the site lacks files (``Judgement.lasting``) is served, and stored for a short time.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from prerender.browser.page_results import Rendered
from prerender.gateway.needed_requests import DATA
from prerender.gateway.resource_kind import PROGRAMS
from prerender.gateway.visit import Document, Exchange, Visit
from prerender.snapshots.snapshot import RenderVerdict

# Statuses that an API normally returns to an anonymous visitor, or for data that does not exist. They
# do not make a page faulty.
_ORDINARY_REFUSALS = (400, 401, 402, 403, 404, 405, 406, 409, 410, 422, 451)
_MALFORMED = "Malformed JSON: "
_SCRIPT = re.compile(rb"<script[\s>/]", re.IGNORECASE)


class Fault(NamedTuple):
    """A needed request that failed. ``lasting``: a retry would not help, as the site does not have the
    file, or it is one that the page may not need."""

    url: str
    text: str
    lasting: bool


class Judgement(NamedTuple):
    """A verdict, its first reason (for the owner of the site), and the requests that failed."""

    verdict: RenderVerdict
    reason: str
    faults: tuple[Fault, ...]

    @property
    def lasting(self) -> bool:
        """Whether every failure is a lasting one."""
        faults = self.faults
        return self.verdict == "failed" and bool(faults) and all(one.lasting for one in faults)


def judge(document: Document, visit: Visit, rendered: Rendered, *, moved: bool) -> Judgement:
    """The verdict about a rendered page. ``moved``: its URL is not the requested one."""
    faults = tuple(_faults(visit.exchanges))
    verdict, reason = _verdict(document, visit, rendered, faults, moved=moved)
    return Judgement(verdict, reason, faults)


def _verdict(
    document: Document, visit: Visit, rendered: Rendered, faults: Sequence[Fault], *, moved: bool
) -> tuple[RenderVerdict, str]:
    said_ready = rendered.settled.reason == "prerenderReady"
    if not said_ready and (reason := _lacking(visit.exchanges, rendered)):
        return "incomplete", reason
    if reason := _failure(faults, rendered.errors):
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
        return "moved", f"now at {rendered.url}"
    return "complete", ""


def _lacking(exchanges: Iterable[Exchange], rendered: Rendered) -> str:
    """The first response that is missing, or ''."""
    if rendered.partial and rendered.parsing:
        return "the document was still loading at the time limit"
    for exchange in exchanges:
        if exchange.limited and exchange.needed:
            return f"{exchange.url}: {exchange.reason}"
        # The time limit also ends the requests of a page.
        cut_off = rendered.partial and exchange.needed and not exchange.status
        if exchange.awaited or cut_off:
            return f"{exchange.url}: no response"
    return ""


def _faults(exchanges: Iterable[Exchange]) -> Iterable[Fault]:
    """The needed requests that failed and did not succeed later."""
    failed: dict[tuple[str, str], Fault] = {}
    for exchange in exchanges:
        key = exchange.method, exchange.url
        if exchange.needed and exchange.finished and (text := _fault_of(exchange)):
            lasting = exchange.destination == "style" or exchange.status in (404, 410)
            failed.setdefault(key, Fault(exchange.url, text, lasting))
        elif exchange.status:
            failed.pop(key, None)
    return failed.values()


def _failure(faults: Sequence[Fault], errors: Iterable[str]) -> str:
    """The first failure, or ''."""
    if faults:
        return f"{faults[0].url}: {faults[0].text}"
    return next((error for error in errors if error.startswith(_MALFORMED)), "")


def lacks_its_subject(exchanges: Iterable[Exchange]) -> bool:
    """Whether data of the page was not found, as for a page that does not exist (a soft 404)."""
    return any(e.needed and e.destination in DATA and e.status in (404, 410) for e in exchanges)


def has_moved(asked: str, now: str) -> bool:
    """Whether a page changed its own path or the requested ``#!`` state.

    Queries are not compared: applications add and remove their own parameters.
    """
    if _path(asked) != _path(now):
        return True
    state, new_state = asked.partition("#!")[2], now.partition("#!")[2]
    return bool(state) and _plain(state) != _plain(new_state)


def _path(url: str) -> str:
    return _plain(url.partition("#")[0].partition("?")[0])


def _plain(text: str) -> str:
    return unquote(text).rstrip("/")


def _fault_of(exchange: Exchange) -> str:
    """The fault of the response to a needed request, or ''.

    A missing script is a fault: an outdated page requests the files of a previous release. Missing data
    is not, and neither is a response that requires a login. A stylesheet is a fault only if the origin
    fails with a 5xx: some applications show nothing without it.
    """
    status = exchange.status
    if exchange.fault:
        return exchange.fault
    if exchange.destination in PROGRAMS:
        return f"status {status}" if status >= 400 else ""
    refused = status in _ORDINARY_REFUSALS
    data_failed = exchange.destination in DATA and status >= 400 and not refused
    style_failed = exchange.destination == "style" and status >= 500
    return f"status {status}" if data_failed or style_failed else ""


def _is_blank(document: Document, rendered: Rendered) -> bool:
    """Whether a page shows nothing although its document has scripts."""
    return not rendered.shows_anything and bool(_SCRIPT.search(document.body))
