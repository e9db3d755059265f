"""Alerts: one message for each kind and hour, over replicas and restarts."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from prerender.crawlers.known import built_in
from prerender.crawlers.user_agents import UserAgents
from prerender.outbox import Outbox
from prerender.snapshots.stores.from_settings import open_store
from prerender.snapshots.strict_json import read
from prerender.telemetry.crawler_requests import CrawlerRequests
from prerender.telemetry.records import Channel
from prerender.visits.alert_causes import AlertCause
from prerender.visits.alerts import Alerts, AlertState, report
from prerender.visits.extension import open_visits
from prerender.visits.figures import HOUR_SECONDS, Cell, CellKey
from prerender.visits.recorder import CrawlerNames, Visits
from tests.conftest import settings_for
from tests.visits.test_webhooks import Receiver, receiver, sending

__all__ = ["receiver"]
SITE = "https://www.example.com"
HOUR = 500_000
THEN = HOUR * HOUR_SECONDS + 60.0
STOPPED = AlertCause("crawler_stopped", "Googlebot", "Googlebot has stopped.")
OTHER = AlertCause("crawler_stopped", "bingbot", "bingbot has stopped.")
THIN = AlertCause("thin_pages", "pages", "Pages are thin.")


def steps(*looks: tuple[float, Iterable[AlertCause]]) -> list[list[str]]:
    """The kinds and subjects of the messages after each look, at so many seconds."""
    state: AlertState | None = None
    found: list[list[str]] = []
    for at, current in looks:
        state, messages = report(state, list(current), {"Googlebot"}, THEN + at, SITE)
        state = read(AlertState, json.dumps(asdict(state)))
        new = list(map(json.loads, messages.values()))
        found.append(
            [f"{body['type']} {one['subject']}" for body in new for one in body["data"]["causes"]]
        )
    return found


STOP, STOP_OTHER = "alert.crawler_stopped Googlebot", "alert.crawler_stopped bingbot"


@pytest.mark.parametrize(
    ("looks", "messages"),
    [
        ([(0, [STOPPED]), (300, [STOPPED]), (200_000, [STOPPED])], [[STOP], [], [STOP]]),
        # While it lasts, it is not repeated.
        ([(hour * 3000, [STOPPED]) for hour in range(60)], [[STOP], *([[]] * 59)]),
        # One for each kind and hour.
        (
            [(0, [STOPPED]), (60, [STOPPED, OTHER]), (3600, [STOPPED, OTHER])],
            [[STOP], [], [STOP_OTHER]],
        ),
        ([(0, [STOPPED]), (60, [STOPPED, THIN])], [[STOP], ["alert.thin_pages pages"]]),
        ([(0, [STOPPED, OTHER])], [[STOP, STOP_OTHER]]),
        # It comes and goes.
        ([(0, [STOPPED]), (3600, []), (7200, [STOPPED])], [[STOP], [], []]),
        ([(0, [STOPPED]), (3600, []), (100_000, [STOPPED])], [[STOP], [], [STOP]]),
        # The clock is set back by a day, and by a minute.
        ([(86_400, [STOPPED]), (0, [STOPPED]), (60, [STOPPED])], [[STOP], [], []]),
        ([(60, [STOPPED]), (0, [STOPPED, OTHER])], [[STOP], [STOP_OTHER]]),
    ],
)
def test_messages(looks: list[tuple[float, list[AlertCause]]], messages: list[list[str]]) -> None:
    assert steps(*looks) == messages


def test_the_state_is_bounded() -> None:
    state: AlertState | None = None
    for number in range(60):
        some = [AlertCause("crawler_new", f"Bot{number}-{n}", "New.") for n in range(50)]
        state, messages = report(
            state, some, {f"Bot{number}-{n}" for n in range(50)}, THEN + number * 3600, SITE
        )
    assert state is not None
    assert len(messages) <= 1
    assert len(state.known) <= 1000
    assert len(state.active) <= 25 * 50


async def fill(visits: Visits) -> None:
    """Two weeks of Googlebot, until half a day ago."""
    for hour in range(HOUR - 14 * 24, HOUR - 12):
        cell = CellKey("Googlebot", "search", "", "fresh")
        await visits.store.add("hours", hour, {cell: Cell(20)})


class Clock:
    now = THEN

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def replica(folder: Path, url: str, clock: Clock) -> AsyncIterator[Alerts]:
    """One that has been counting for some time."""
    settings = settings_for(
        "http://127.0.0.1:1", {"cache": {"url": f"file://{folder}"}, "site": {"url": SITE}}
    )
    store = await open_store(settings)
    names = CrawlerNames(UserAgents(built_in().crawlers))
    requests = CrawlerRequests(Channel())
    visits = Visits(requests, open_visits(settings), names, str, 30, clock=clock)
    async with sending(url) as webhooks:
        outbox = Outbox(store, webhooks)
        async with outbox.sending():
            yield Alerts(visits, store, outbox, SITE, clock)
    await store.close()


@pytest.mark.ci_only
@pytest.mark.heavy
async def test_two_replicas_and_a_restart_send_one_message(
    receiver: Receiver, tmp_path: Path
) -> None:
    clock = Clock()
    async with (
        replica(tmp_path, receiver.url, clock) as one,
        replica(tmp_path, receiver.url, clock) as two,
    ):
        await fill(one._visits)
        # Nobody has counted before.
        await one.look()
        for minutes in range(0, 420, 50):
            clock.now = THEN + minutes * 60
            await one.look()
            await two.look()
        name, body = await receiver.message()
        await two.look()
        await one.look()
    assert body["type"] == "alert.crawler_stopped"
    assert body["text"].startswith(f"{SITE}:\nGooglebot has not come for ")
    assert body["data"]["rule"] == "PrerenderCrawlerStopped"
    async with replica(tmp_path, receiver.url, clock) as again:
        clock.now += 3000
        await again.look()
    assert receiver.attempts == [name]


async def test_a_store_that_lost_the_state_sends_nothing_twice(
    receiver: Receiver, tmp_path: Path
) -> None:
    async with replica(tmp_path, receiver.url, Clock()) as one:
        one._state = AlertState(THEN, THEN, ("Googlebot",))
        note = json.dumps(asdict(AlertState(THEN - 9, THEN - 9))).encode()
        await one._store.notes.set("alerts", note, 60)
        assert await one._recall() == one._state
        await one._store.notes.set("alerts", b"{nonsense", 60)
        assert await one._recall() == one._state
