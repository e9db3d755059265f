"""Alerts: one message for each kind and hour, over replicas and restarts."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from prerender.crawlers.known import built_in
from prerender.crawlers.user_agents import UserAgents
from prerender.snapshots.stores.from_settings import open_store
from prerender.snapshots.strict_json import read
from prerender.visits import alerts
from prerender.visits.alerts import Alerts, Pending, State, report
from prerender.visits.causes import Cause
from prerender.visits.figures import HOUR_SECONDS, Cell, Key
from prerender.visits.from_settings import open_visits
from prerender.visits.recorder import CrawlerNames, Visits
from prerender.webhooks import Webhooks
from tests.conftest import settings_for
from tests.visits.test_webhooks import Receiver, receiver, sending, settled, status

__all__ = ["receiver"]
SITE = "https://www.example.com"
HOUR = 500_000
THEN = HOUR * HOUR_SECONDS + 60.0
STOPPED = Cause("crawler_stopped", "Googlebot", "Googlebot has stopped.")
OTHER = Cause("crawler_stopped", "bingbot", "bingbot has stopped.")
THIN = Cause("thin_pages", "pages", "Pages are thin.")


def steps(*looks: tuple[float, Iterable[Cause]]) -> list[list[str]]:
    """The kinds and subjects of the messages after each look, at so many seconds."""
    state: State | None = None
    found: list[list[str]] = []
    before: set[str] = set()
    for at, current in looks:
        state = report(state, list(current), {"Googlebot"}, THEN + at, SITE)
        state = read(State, json.dumps(asdict(state)))
        new = [json.loads(one.body) for one in state.pending if one.id not in before]
        before = {one.id for one in state.pending}
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
def test_messages(looks: list[tuple[float, list[Cause]]], messages: list[list[str]]) -> None:
    assert steps(*looks) == messages


def test_the_state_is_bounded() -> None:
    state: State | None = None
    for number in range(60):
        some = [Cause("crawler_new", f"Bot{number}-{n}", "New.") for n in range(50)]
        state = report(
            state, some, {f"Bot{number}-{n}" for n in range(50)}, THEN + number * 3600, SITE
        )
    assert state is not None
    assert len(state.pending) <= 50
    assert len(state.known) <= 1000
    assert len(state.active) <= 25 * 50


async def fill(visits: Visits) -> None:
    """Two weeks of Googlebot, until half a day ago."""
    for hour in range(HOUR - 14 * 24, HOUR - 12):
        cell = Key("Googlebot", "search", "", "fresh")
        await visits.store.add("hours", hour, {cell: Cell(20)})


class Clock:
    now = THEN

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def replica(folder: Path, webhooks: Webhooks, clock: Clock) -> AsyncIterator[Alerts]:
    """One that has been counting for some time."""
    settings = settings_for(
        "http://127.0.0.1:1", {"cache": {"url": f"file://{folder}"}, "site": {"url": SITE}}
    )
    store = await open_store(settings)
    visits = Visits(
        open_visits(settings), CrawlerNames(UserAgents(built_in().crawlers)), str, 30, clock
    )
    try:
        yield Alerts(visits, store, webhooks, SITE, clock)
    finally:
        await store.close()


async def test_two_replicas_and_a_restart_send_one_message(
    receiver: Receiver, tmp_path: Path
) -> None:
    clock = Clock()
    async with (
        sending(receiver.url) as webhooks,
        replica(tmp_path, webhooks, clock) as one,
        replica(tmp_path, webhooks, clock) as two,
    ):
        await fill(one._visits)
        # Nobody has counted before.
        await one.look()
        for minutes in range(0, 420, 50):
            clock.now = THEN + minutes * 60
            await one.look()
            await two.look()
        name, body = await receiver.message()
        await settled(webhooks)
        await two.look()
        await one.look()
    assert body["type"] == "alert.crawler_stopped"
    assert body["text"].startswith(f"{SITE}:\nGooglebot has not come for ")
    assert body["data"]["rule"] == "PrerenderCrawlerStopped"
    async with sending(receiver.url) as webhooks, replica(tmp_path, webhooks, clock) as again:
        clock.now += 3000
        await again.look()
        await settled(webhooks)
    assert receiver.attempts == [name]


async def test_a_message_that_did_not_arrive_is_sent_after_a_restart(
    receiver: Receiver, tmp_path: Path
) -> None:
    clock = Clock()
    receiver.responses.append(status(500))
    async with (
        sending(receiver.url, pauses=(600.0,)) as webhooks,
        replica(tmp_path, webhooks, clock) as one,
    ):
        await fill(one._visits)
        await one.look()
        for minutes in range(0, 420, 50):
            clock.now = THEN + minutes * 60
            await one.look()
        while not receiver.attempts:
            await asyncio.sleep(0.005)
    async with sending(receiver.url) as webhooks, replica(tmp_path, webhooks, clock) as again:
        await again.look()
        assert webhooks.waiting_bytes == 0
        clock.now += alerts.RESEND_SECONDS
        await again.look()
        await receiver.message()
        await settled(webhooks)
        await again.look()
    assert len(receiver.attempts) == 2
    assert len({*receiver.attempts}) == 1


async def test_a_store_that_is_away_sends_nothing_twice(receiver: Receiver, tmp_path: Path) -> None:
    clock = Clock()
    async with sending(receiver.url) as webhooks, replica(tmp_path, webhooks, clock) as one:
        pending = Pending("msg_1", "{}", THEN, THEN)
        one._state = State(THEN, THEN, pending=(pending,))
        note = json.dumps(asdict(State(THEN - 9, THEN - 9))).encode()
        await one._store.notes.set("alerts", note, 60)
        recalled = await one._recall()
        assert recalled is not None
        assert recalled.pending == (pending,)
        await one._store.notes.set("alerts", b"{nonsense", 60)
        assert await one._recall() == one._state
