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
from collections.abc import Iterable
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


class Judgement(NamedTuple):
    """A verdict, and the first thing that speaks for it, for the owner of the site."""

    verdict: RenderVerdict
    reason: str = ""


def judge(document: Document, visit: Visit, rendered: Rendered, *, moved: bool) -> Judgement:
    """The verdict about a rendered page. ``moved``: its URL is not the one that was asked for."""
    said_ready = rendered.settled.reason == "prerenderReady"
    if not said_ready and (reason := _lacking(visit.exchanges, rendered)):
        return Judgement("incomplete", reason)
    if reason := _failure(visit.exchanges, rendered.errors):
        return Judgement("failed", reason)
    if _is_blank(document, rendered):
        if rendered.partial:
            return Judgement("incomplete", "nothing shown before the time limit")
        if rendered.errors:
            return Judgement("failed", f"nothing shown: {rendered.errors[0]}")
        return Judgement("blank", "nothing shown")
    if rendered.partial:
        return Judgement("cut-off", "still at work at the time limit")
    if moved:
        return Judgement("moved", f"now at {rendered.url}")
    return Judgement("complete")


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


def _failure(exchanges: Iterable[Exchange], errors: Iterable[str]) -> str:
    """What came as an error and was not asked for again with success, or ''."""
    failed: dict[tuple[str, str], str] = {}
    for exchange in exchanges:
        key = exchange.method, exchange.url
        if exchange.needed and exchange.finished and (fault := fault_of(exchange)):
            failed.setdefault(key, f"{exchange.url}: {fault}")
        elif exchange.status:
            failed.pop(key, None)
    malformed = [error for error in errors if error.startswith(_MALFORMED)]
    return next(iter([*failed.values(), *malformed]), "")


def is_lasting(exchanges: Iterable[Exchange]) -> bool:
    """Whether nothing failed but programs that the site does not have: that is there to stay."""
    faults = [e for e in exchanges if e.needed and e.finished and fault_of(e)]
    return bool(faults) and all(e.status in (404, 410) for e in faults)


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


def fault_of(exchange: Exchange) -> str:
    """What is wrong with the response to a needed request, or ''.

    A program that is missing is a fault: an old page asks for the files of the last release. Data that
    is missing is none, and neither is what asks a visitor to sign in.
    """
    status = exchange.status
    if exchange.fault:
        return exchange.fault
    if exchange.destination in PROGRAMS:
        return f"status {status}" if status >= 400 else ""
    refused = status in _ORDINARY_REFUSALS
    # Text is there without its style, and whoever reads the snapshot asks for that himself.
    return (
        f"status {status}" if status >= 400 and exchange.destination in DATA and not refused else ""
    )


def _is_blank(document: Document, rendered: Rendered) -> bool:
    """Whether a page shows nothing that its document alone would not explain."""
    return not rendered.shows_anything and bool(_SCRIPT.search(document.body))
