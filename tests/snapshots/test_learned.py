"""What a process learns about the site reaches the other replicas."""

import json

import pytest

from prerender.gateway import needed_requests
from prerender.gateway.needed_requests import DataHosts, Hanging
from prerender.snapshots import learned, repeated_faults, steady_clock
from prerender.snapshots.learned import Learned
from prerender.snapshots.repeated_faults import RepeatedFaults
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.notes import Notes
from tests.snapshots.test_repeated_faults import TEXT, page

DEAD = "https://www.example.com/dead"
SECONDS = needed_requests._HANGS_AFTER_SECONDS + 1


class Replica:
    """A process that learns."""

    def __init__(self, notes: Notes) -> None:
        self.hanging = Hanging()
        self.hosts = DataHosts()
        self.faults = RepeatedFaults()
        self.learned = Learned(notes, [self.hanging, self.hosts, self.faults])

    def hang(self) -> None:
        """Have a request hang on several pages."""
        for number in range(needed_requests._HANGING_PAGES):
            self.hanging.ended(f"{DEAD}?t={number}", f"/{number}", SECONDS, answered=False)


@pytest.fixture
def notes() -> Notes:
    return Notes(None, BoundedMemoryCache(1_000_000))


async def exchange(*replicas: Replica) -> None:
    for replica in replicas:
        await replica.learned.exchange()


async def test_what_one_replica_learns_reaches_others(notes: Notes) -> None:
    one, other = Replica(notes), Replica(notes)
    one.hang()
    one.hosts.gave("api.example:443")
    now = steady_clock.now()
    for number in range(repeated_faults.USUAL_PAGES):
        for ago in (90, 45, 0):
            await one.faults.confirm(f"{number}", page(), now - ago, None)
    await exchange(one, other)
    assert f"{DEAD}?t=9" in other.hanging
    assert "api.example:443" in other.hosts
    assert await other.faults.confirm("new", page("another " * 99), now, None)


async def test_a_recovery_is_not_unlearned(notes: Notes) -> None:
    one, other = Replica(notes), Replica(notes)
    one.hang()
    await exchange(one, other)
    other.hanging.ended(DEAD, "/", 0.1, answered=True)
    await exchange(other, one, other)
    assert DEAD not in other.hanging
    one.hang()
    await exchange(one, other)
    assert DEAD in other.hanging


async def test_faults_that_have_gone_are_not_unlearned(notes: Notes) -> None:
    one, other = Replica(notes), Replica(notes)
    now = steady_clock.now()
    for number in range(repeated_faults.USUAL_PAGES):
        for ago in (90, 45, 0):
            await one.faults.confirm(f"{number}", page(), now - ago, None)
    await exchange(one, other)
    assert await other.faults.confirm("a", page(TEXT), now, None)
    other.faults.forget("a")
    await exchange(other)
    assert not await other.faults.confirm("b", page(TEXT), now, None)


@pytest.mark.parametrize(
    "note",
    [b"", b"{", b"[1]", b'[["hanging requests", [["x"]]]]', b"\xff", b"[" * 100_000],
    ids=["empty", "torn", "other", "short", "octets", "nested"],
)
async def test_a_note_that_cannot_be_read_is_replaced(note: bytes, notes: Notes) -> None:
    await notes.set(learned._KEY, note, 60)
    one, other = Replica(notes), Replica(notes)
    one.hang()
    await exchange(one, other)
    assert DEAD in other.hanging


async def test_the_note_is_small_and_what_is_old_is_forgotten(notes: Notes) -> None:
    one = Replica(notes)
    for number in range(2 * learned._MOST_SUBJECTS):
        one.hosts.gave(f"{number}.example:443")
    await exchange(one)
    stored = await notes.get(learned._KEY)
    assert stored is not None
    assert len(dict(json.loads(stored))["data of third parties"]) == learned._MOST_SUBJECTS
    old = steady_clock.now() - learned.FORGOTTEN_AFTER_SECONDS - 1
    await notes.set(
        learned._KEY,
        json.dumps([["data of third parties", [["old.example:443", old]]]]).encode(),
        60,
    )
    await exchange(one)
    assert "old.example:443" not in one.hosts
