"""Alerts by webhook, once for all replicas: what was reported is kept in the notes of the store."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import structlog

from prerender.background import running
from prerender.errors import StoreError
from prerender.outbox import Outbox
from prerender.snapshots.stores.store import Store
from prerender.snapshots.strict_json import read
from prerender.visits.alert_causes import (
    DAY_HOURS,
    WEEK_HOURS,
    AlertCause,
    CauseKind,
    causes,
    is_known,
)
from prerender.visits.figures import DAY_SECONDS, HOUR_SECONDS
from prerender.visits.recorder import RETENTION_HOURS, Visits
from prerender.visits.storage import Days
from prerender.webhooks import body_of

EVERY_SECONDS = 300.0
_FIRST_SECONDS = 15.0
# The heading in docs/operating.md, and the rule of Prometheus with the same meaning.
RULES: dict[CauseKind, str] = {
    "crawler_stopped": "PrerenderCrawlerStopped",
    "crawler_new": "PrerenderCrawlerNew",
    "not_found": "PrerenderNotFoundRises",
    "server_errors": "PrerenderServerErrorsRise",
    "unverified": "PrerenderVerifiedShareFalls",
    "thin_pages": "PrerenderPagesThin",
}
# Between two messages of a kind.
SAME_KIND_SECONDS = 3600.0
# A cause that has been away for so long is a new one.
OVER_SECONDS = 86400.0
# Without a look at the figures for so long, nobody may have counted requests.
LONGEST_PAUSE_SECONDS = 3600.0
MOST_SUBJECTS = 20
_MOST_NAMES = 1000
_KEY = "alerts"
_LEASE_SECONDS = 5.0
_NOTE_SECONDS = 90 * 86400.0

log = structlog.get_logger(__name__)


class Active(NamedTuple):
    """A cause that was reported. ``at``: when it was seen last."""

    kind: str
    subject: str
    at: float


@dataclass(frozen=True, slots=True)
class AlertState:
    """What all replicas know of alerts. ``since``: the begin of the time without a pause until ``at``,
    the last look. ``known``: the crawlers that have come; ``sent``: kinds with their last message."""

    at: float
    since: float
    known: tuple[str, ...] = ()
    active: tuple[Active, ...] = ()
    sent: tuple[tuple[str, float], ...] = ()


def report(
    before: AlertState | None,
    current: Iterable[AlertCause],
    came: Collection[str],
    now: float,
    site: str,
) -> tuple[AlertState, dict[CauseKind, str]]:
    """The state at ``now``, and a message for each kind of new causes: at most one an hour.

    ``came``: crawlers that are not new.
    """
    state = watched(before, now)
    # After a clock was set back, times may lie ahead.
    active = {
        (one.kind, one.subject): min(one.at, now)
        for one in state.active
        if now - one.at < OVER_SECONDS
    }
    sent = {kind: at for kind, at in state.sent if at <= now}
    new: dict[CauseKind, list[AlertCause]] = {}
    for cause in current:
        if (cause.kind, cause.subject) in active:
            active[cause.kind, cause.subject] = now
        elif now - sent.get(cause.kind, -SAME_KIND_SECONDS) >= SAME_KIND_SECONDS:
            new.setdefault(cause.kind, []).append(cause)
    for kind, some in new.items():
        sent[kind] = now
        active |= {(kind, cause.subject): now for cause in some}
    after = replace(
        state,
        known=tuple(dict.fromkeys((*state.known, *sorted(came))))[:_MOST_NAMES],
        active=tuple(Active(*place, at) for place, at in active.items()),
        sent=tuple(sent.items()),
    )
    return after, {kind: _body(kind, some[:MOST_SUBJECTS], now, site) for kind, some in new.items()}


def watched(before: AlertState | None, now: float) -> AlertState:
    """The state at ``now``, before the figures are looked at."""
    if before is None:
        return AlertState(now, now)
    pause = now - before.at
    return replace(
        before, at=now, since=min(now, before.since) if pause < LONGEST_PAUSE_SECONDS else now
    )


def _body(kind: CauseKind, some: Iterable[AlertCause], now: float, site: str) -> str:
    data = {
        "site": site,
        "rule": RULES[kind],
        "causes": [{"subject": cause.subject, "text": cause.text} for cause in some],
    }
    text = "\n".join((f"{site}:", *(cause.text for cause in some)))
    return body_of(f"alert.{kind}", now, data, text=text)


class Alerts:
    """Looks for causes in ``visits``, and sends them. ``site``: its URL."""

    def __init__(
        self,
        visits: Visits,
        store: Store,
        outbox: Outbox,
        site: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._visits = visits
        self._store = store
        self._outbox = outbox
        self._site = site
        self._clock = clock
        self._state: AlertState | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Look every few minutes while the context is open."""
        async with running(self._watch(), "alerts"):
            yield

    async def _watch(self) -> None:
        pause = _FIRST_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = EVERY_SECONDS
            try:
                await self.look()
            except StoreError as error:
                log.debug("alerts_not_checked", reason=str(error))
            except Exception:
                log.exception("alerts_not_checked")

    async def look(self) -> None:
        """Look for causes, and send what is new, unless another replica is doing so."""
        await self._visits.write()
        async with self._store.alone(_KEY, _LEASE_SECONDS) as alone:
            if not alone:
                return
            now = self._clock()
            before = await self._recall()
            self._state, messages = await self._next(before, now)
            # Before they are sent: a message must not go out twice under two names.
            data = json.dumps(asdict(self._state)).encode()
            await self._store.notes.set(_KEY, data, _NOTE_SECONDS)
        for kind, body in messages.items():
            # One that the receiver refuses holds up only those of its kind.
            log.warning("alert", message=self._outbox.add(f"alert.{kind}", body), body=body)

    async def _next(
        self, before: AlertState | None, now: float
    ) -> tuple[AlertState, dict[CauseKind, str]]:
        hour = int(now) // HOUR_SECONDS
        store = self._visits.store
        hours = await store.read("hours", hour - RETENTION_HOURS, hour)
        if before is None:
            # Crawlers of the days before there were hours.
            days = await store.read("days", 0, int(now) // DAY_SECONDS)
            before = replace(
                watched(None, now), known=tuple(sorted(await asyncio.to_thread(_crawlers, days)))
            )
        return await asyncio.to_thread(self._decide, before, hours, now)

    def _decide(
        self, before: AlertState, hours: Days, now: float
    ) -> tuple[AlertState, dict[CauseKind, str]]:
        hour = int(now) // HOUR_SECONDS
        is_old = min(hours, default=hour) <= hour - WEEK_HOURS
        old = _crawlers(
            {at: cells for at, cells in hours.items() if at <= hour - DAY_HOURS or not is_old}
        )
        current = causes(
            hours,
            now,
            watched_since=watched(before, now).since,
            known={*before.known, *old} if is_old else None,
        )
        return report(before, current, old, now, self._site)

    async def _recall(self) -> AlertState | None:
        """The last known state: the store may have lost it. Raises StoreError if it is away."""
        note = await self._store.notes.read(_KEY)
        states = [self._state] if self._state else []
        if note is not None:
            try:
                states.append(read(AlertState, note))
            except ValueError as error:
                log.warning("bad_note_of_alerts", reason=str(error))
        return max(states, key=lambda state: state.at, default=None)


def _crawlers(hours: Days) -> set[str]:
    return {key.crawler for cells in hours.values() for key in cells if is_known(key)}
