"""When a snapshot that could be renewed is rendered all the same, to check that it may be. Pure.

Pages depend on time, chance and what no request shows. So the first renewals of each page are checked,
then one in 4, 8, 16, 32 and 64, and each page at least every ``max_age`` seconds.
"""

from dataclasses import replace

from prerender.snapshots.renewals import Renewals

_FIRST = 2
_RAREST = 64
# For so long a page is not renewed without rendering after a check that failed.
_WRONG_SECONDS = 86400.0
# After this many renders for nothing, responses are not asked for beforehand; then ever more rarely.
_FUTILE = 3
_FUTILE_SECONDS = 3600.0


def is_check_due(state: Renewals, now: float, max_age: float) -> bool:
    """Whether the next renewal is checked. ``now``: Unix seconds."""
    share = 1 if state.confirmed < _FIRST else min(_RAREST, 4 << (state.confirmed - _FIRST))
    return state.count + 1 >= share or now - state.rendered >= max_age


def confirmed(state: Renewals, now: float) -> Renewals:
    """After a check that confirmed the snapshot."""
    return Renewals(now, confirmed=state.confirmed + 1)


def changed(state: Renewals, now: float) -> Renewals:
    """After a render because an input differed, with another snapshot."""
    return Renewals(now, confirmed=state.confirmed)


def futile(state: Renewals, now: float, why: str) -> Renewals:
    """After a render because an input differed, with the same snapshot."""
    after = Renewals(now, confirmed=state.confirmed, futile=state.futile + 1)
    if after.futile < _FUTILE:
        return after
    seconds = min(_WRONG_SECONDS, _FUTILE_SECONDS * 2 ** min(after.futile - _FUTILE, 10))
    return replace(after, suspended=now + seconds, why=why)


def wrong(now: float, why: str) -> Renewals:
    """After a check that found another snapshot, or other requests."""
    return Renewals(now, suspended=now + _WRONG_SECONDS, why=why)


def unchecked(state: Renewals | None, now: float) -> Renewals:
    """After a render that says nothing about renewals."""
    if state is None:
        return Renewals(now)
    return replace(state, rendered=now, count=0)
