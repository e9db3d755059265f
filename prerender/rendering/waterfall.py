"""The requests of a page during its render, for the dashboard. Pure, except for the clock."""

import time
from collections.abc import Iterable, Sequence

from prerender.browser.page_results import Resource
from prerender.gateway.exchange import Exchange
from prerender.gateway.visit import Visit
from prerender.snapshots.snapshot import Fetch

# Nobody reads more lines, and each takes space in the store.
MOST_FETCHES = 200
_LONGEST_URL = 500
# The initiator types of the browser's resource timing, as values of Sec-Fetch-Dest; "fetch" instead of
# "empty", which says nothing to people.
_KINDS = {
    "css": "image",
    "fetch": "fetch",
    "iframe": "iframe",
    "img": "image",
    "link": "style",
    "script": "script",
    "xmlhttprequest": "fetch",
}


def waterfall(
    visit: Visit, resources: Iterable[Resource] = (), errors: Sequence[str] = ()
) -> tuple[Fetch, ...]:
    """The first requests of a visit in order, with the ``resources`` that were not requested from the
    gateway: from the browser's own cache, or refused by the browser, as the ``errors`` say."""
    exchanges = visit.requests.exchanges[:MOST_FETCHES]
    now = time.monotonic()
    fetches = [_fetch(exchange, exchanges[0].started, now) for exchange in exchanges]
    started = {fetch.url: fetch.start for fetch in reversed(fetches)}
    unseen = {exchange.url for exchange in visit.requests.exchanges[MOST_FETCHES:]}
    # The page's clock differs from ours, but the order of its requests is known: a file from the
    # browser's own cache is placed after the last of our requests before it.
    begun = 0.0
    for resource in sorted(resources, key=lambda resource: resource.start):
        url = resource.url.partition("#")[0]
        if (start := started.get(url[:_LONGEST_URL])) is not None:
            begun = max(begun, start)
        elif url.startswith("http") and url not in unseen:
            fetches.append(_unrequested(resource, begun, errors))
    return tuple(sorted(fetches, key=lambda fetch: fetch.start))[:MOST_FETCHES]


def _unrequested(resource: Resource, start: float, errors: Sequence[str]) -> Fetch:
    named = (error for error in errors if resource.is_hidden and resource.url in error)
    refusal = next(named, "")
    return Fetch(
        "GET",
        resource.url,
        _KINDS.get(resource.initiator, ""),
        "aborted" if refusal else "cached",
        resource.status,
        resource.size,
        start,
        0.0,
        refusal,
    )


def _fetch(exchange: Exchange, first: float, now: float) -> Fetch:
    ended = exchange.ended if exchange.finished else now
    return Fetch(
        exchange.method[:16],
        exchange.url[:_LONGEST_URL],
        "fetch" if exchange.destination == "empty" else exchange.destination[:32],
        exchange.verdict,
        int(exchange.status),
        exchange.received_bytes,
        round(exchange.started - first, 4),
        round(ended - exchange.started, 4),
        exchange.reason,
    )
