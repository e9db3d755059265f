"""What a page asked for while it was rendered, as its owner reads it. Pure, but for the clock."""

import time

from prerender.rendering.visit import Exchange, Visit
from prerender.snapshots.snapshot import Fetch

# More lines are looked at by nobody, and each takes room where it is kept.
MOST_FETCHES = 200
_LONGEST_URL = 500


def waterfall(visit: Visit) -> tuple[Fetch, ...]:
    """The first requests of a visit in their order."""
    exchanges = visit.exchanges[:MOST_FETCHES]
    now = time.monotonic()
    return tuple(_fetch(exchange, exchanges[0].started, now) for exchange in exchanges)


def _fetch(exchange: Exchange, first: float, now: float) -> Fetch:
    ended = exchange.ended if exchange.finished else now
    return Fetch(
        exchange.method[:16],
        exchange.url[:_LONGEST_URL],
        exchange.destination[:32],
        exchange.verdict,
        int(exchange.status),
        exchange.received_bytes,
        round(exchange.started - first, 4),
        round(ended - exchange.started, 4),
        exchange.reason,
    )
