"""What a render amounts to, in one word. Pure.

| verdict    | when                                                         | response and storage     |
|------------|--------------------------------------------------------------|--------------------------|
| complete   | nothing below                                                | stored for its TTL       |
| moved      | the page changed its own path or ``#!`` state                | ``[snapshot] moved``     |
| cut-off    | the time limit ended it, with all of the site's own data     | the page, not stored     |
| incomplete | the site's own data or programs did not come; a limit was met| ``[render] incomplete``  |
| failed     | they came as an error; an exception left the page blank      | ``[render] incomplete``  |
| blank      | the page shows nothing, but its document has scripts         | 503 with ``Retry-After`` |

The last three are never stored as good, and never replace a good snapshot.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from prerender.browser.rendered import Rendered
from prerender.gateway.destination import PROGRAMS
from prerender.gateway.needed import DATA
from prerender.gateway.visit import Document, Exchange, Visit
from prerender.snapshots.snapshot import RenderVerdict

# To somebody who has not signed in, and of something that is not there: the usual answers of interfaces
# to a visitor, which say nothing about the content.
_ORDINARY_REFUSALS = (400, 401, 402, 403, 404, 405, 406, 409, 410, 422, 451)
_MALFORMED = "Malformed JSON: "
_SCRIPT = re.compile(rb"<script[\s>/]", re.IGNORECASE)


class Fault(NamedTuple):
    """A needed request of the page that failed. ``lasting``: the page may do without it, or the site
    does not have it: that will not pass by itself."""

    url: str
    text: str
    lasting: bool


class Judgement(NamedTuple):
    """A verdict, the first reason for it, for the owner of the site, and the requests that failed."""

    verdict: RenderVerdict
    reason: str
    faults: tuple[Fault, ...]

    @property
    def lasting(self) -> bool:
        """Whether nothing failed but what will not pass by itself."""
        faults = self.faults
        return self.verdict == "failed" and bool(faults) and all(one.lasting for one in faults)


def judge(document: Document, visit: Visit, rendered: Rendered, *, moved: bool) -> Judgement:
    """The verdict about a rendered page. ``moved``: its URL is not the one that was asked for."""
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
        return "cut-off", "still at work at the time limit"
    if moved:
        return "moved", f"now at {rendered.url}"
    return "complete", ""


def _lacking(exchanges: Iterable[Exchange], rendered: Rendered) -> str:
    """What has not come, or ''."""
    if rendered.partial and rendered.parsing:
        return "the document was still loading at the time limit"
    for exchange in exchanges:
        if exchange.limited and exchange.needed:
            return f"{exchange.url}: {exchange.reason}"
        # A page that is ended at the time limit takes its requests with it.
        cut_off = rendered.partial and exchange.needed and not exchange.status
        if exchange.awaited or cut_off:
            return f"{exchange.url}: no response"
    return ""


def _faults(exchanges: Iterable[Exchange]) -> Iterable[Fault]:
    """What came as an error and was not asked for again with success."""
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
    """The first thing that failed, or ''."""
    if faults:
        return f"{faults[0].url}: {faults[0].text}"
    return next((error for error in errors if error.startswith(_MALFORMED)), "")


def lacks_its_subject(exchanges: Iterable[Exchange]) -> bool:
    """Whether data of the page was not found, as of a page that does not exist (a soft 404)."""
    return any(e.needed and e.destination in DATA and e.status in (404, 410) for e in exchanges)


def has_moved(asked: str, now: str) -> bool:
    """Whether a page has changed its own path, or the ``#!`` state that was asked for.

    Queries are not compared: applications add and remove parameters of their own.
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
    """What is wrong with the response to a needed request, or ''.

    A program that is missing is a fault: an old page asks for the files of the last release. Data that
    is missing is none, and neither is what asks a visitor to sign in. Styles are at fault only if the
    origin fails: some applications show nothing without them.
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
    """Whether a page shows nothing that its document alone would not explain."""
    return not rendered.shows_anything and bool(_SCRIPT.search(document.body))
