"""The outbox: messages arrive once and in order, over replicas, restarts and failures."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from prerender import outbox as module
from prerender.outbox import Outbox
from prerender.snapshots.stores.from_settings import open_store
from prerender.webhooks import body_of
from tests.conftest import settings_for
from tests.support.redis_server import redis_server
from tests.support.renders import until
from tests.visits.test_webhooks import SECONDS, Receiver, close, receiver, sending, status

__all__ = ["receiver"]


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas look for each other's messages soon."""
    monkeypatch.setattr(module, "EVERY_SECONDS", 0.1)


@asynccontextmanager
async def replica(
    store_url: str, url: str, most_bytes: int = module.MOST_BYTES, again: float = 0.2
) -> AsyncIterator[Outbox]:
    store = await open_store(settings_for("http://127.0.0.1:1", {"cache": {"url": store_url}}))
    async with sending(url, pauses=(0.01,)) as webhooks:
        outbox = Outbox(store, webhooks, most_bytes=most_bytes, again_seconds=again)
        async with outbox.sending():
            yield outbox
    await store.close()


def add(outbox: Outbox, page: str, numbers: Iterable[int]) -> None:
    for number in numbers:
        outbox.add(page, body_of("test.happened", time.time(), {"page": page, "number": number}))


async def received(receiver: Receiver, count: int) -> dict[str, list[int]]:
    """The numbers of the next messages by page."""
    found: dict[str, list[int]] = {}
    for _ in range(count):
        data = (await receiver.message())[1]["data"]
        found.setdefault(data["page"], []).append(data["number"])
    return found


async def emptied(outbox: Outbox) -> None:
    async with asyncio.timeout(SECONDS):
        while outbox.waiting_bytes:
            await asyncio.sleep(0.01)


async def test_what_is_refused_for_long_arrives_later_and_in_order(
    receiver: Receiver, tmp_path: Path
) -> None:
    receiver.responses += [status(500), close, status(302, Location="/hook"), status(410)] * 2
    async with replica(f"file://{tmp_path}", receiver.url) as outbox:
        add(outbox, "a", range(5))
        assert await received(receiver, 5) == {"a": [0, 1, 2, 3, 4]}
        await emptied(outbox)
        assert outbox.results["delivered"] == 5
        assert outbox.results["dropped"] == 0


async def test_a_receiver_that_hangs_holds_no_other_page_and_no_shutdown(
    receiver: Receiver, tmp_path: Path
) -> None:
    held = asyncio.Event()

    async def hang(_: object) -> web.StreamResponse:
        await held.wait()
        return web.Response(status=503)

    receiver.responses.append(hang)
    async with replica(f"file://{tmp_path}", receiver.url) as outbox:
        add(outbox, "a", range(3))
        async with asyncio.timeout(SECONDS):
            while not receiver.attempts:
                await asyncio.sleep(0.005)
        add(outbox, "b", [3])
        assert await received(receiver, 1) == {"b": [3]}
        held.set()
        assert await received(receiver, 3) == {"a": [0, 1, 2]}
        held.clear()
        before = len(receiver.attempts)
        receiver.responses += [hang] * 100
        for number in range(20):
            add(outbox, f"page {number}", [number])
        async with asyncio.timeout(SECONDS):
            while len(receiver.attempts) < before + 4:
                await asyncio.sleep(0.005)
    held.set()
    assert len(receiver.attempts) == before + 4


async def test_a_restart_continues_where_it_was(receiver: Receiver, tmp_path: Path) -> None:
    away = asyncio.Event()

    async def hang(_: object) -> None:
        away.set()
        await asyncio.Event().wait()

    receiver.responses.append(hang)  # type: ignore[arg-type]
    async with replica(f"file://{tmp_path}", receiver.url) as outbox:
        add(outbox, "a", range(3))
        async with asyncio.timeout(SECONDS):
            await away.wait()
    async with replica(f"file://{tmp_path}", receiver.url) as outbox:
        add(outbox, "a", [3])
        assert await received(receiver, 4) == {"a": [0, 1, 2, 3]}
        await emptied(outbox)
    assert len({*receiver.attempts}) == 4


async def test_two_replicas_send_each_message_once_and_one_continues_for_the_other(
    receiver: Receiver, tmp_path: Path
) -> None:
    async with redis_server(tmp_path) as redis:
        async with replica(redis.url, receiver.url) as one:
            async with replica(redis.url, receiver.url) as other:
                add(one, "a", range(20))
                add(other, "b", range(20))
                found = await received(receiver, 40)
                assert found == {"a": [*range(20)], "b": [*range(20)]}
                receiver.responses += [status(503)] * 3
                add(other, "b", [20])
            # The other one is gone.
            assert await received(receiver, 1) == {"b": [20]}
            await emptied(one)
        assert len({*receiver.attempts}) == 41
        assert receiver.messages.empty()


async def test_without_a_store_that_responds_messages_arrive_too(
    receiver: Receiver, tmp_path: Path
) -> None:
    async with redis_server(tmp_path) as redis, replica(redis.url, receiver.url) as outbox:
        await redis.kill()
        add(outbox, "a", range(3))
        assert await received(receiver, 3) == {"a": [0, 1, 2]}
        await emptied(outbox)
        await redis.start()
        add(outbox, "a", [3])
        assert await received(receiver, 1) == {"a": [3]}


@pytest.mark.heavy
async def test_a_receiver_that_is_away_leaves_a_bounded_backlog(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    async with replica(
        f"file://{tmp_path}", f"http://127.0.0.1:{unused_tcp_port}/", most_bytes=10_000
    ) as outbox:
        for number in range(10_000):
            add(outbox, f"page {number}", [number])
        assert outbox.waiting_bytes <= 10_000
        dropped = outbox.results["dropped"]
        assert 9_800 < dropped < 10_000
        async with asyncio.timeout(SECONDS):
            while not outbox.results["failed"]:
                await asyncio.sleep(0.01)
        store = outbox._store
        kept = json.loads(await store.notes.get("webhooks") or b"")
        assert [json.loads(one[2])["data"]["number"] for one in kept] == [*range(10_000 - dropped)]


async def test_what_is_too_old_is_dropped(receiver: Receiver, tmp_path: Path) -> None:
    old = ["msg_old", "a", "{}", time.time() - module.GIVE_UP_SECONDS - 1]
    store = await open_store(
        settings_for("http://127.0.0.1:1", {"cache": {"url": f"file://{tmp_path}"}})
    )
    assert await store.notes.set("webhooks", json.dumps([old]).encode(), 60)
    await store.close()
    async with replica(f"file://{tmp_path}", receiver.url) as outbox:
        add(outbox, "a", [1])
        assert await received(receiver, 1) == {"a": [1]}
        # A slow store may be read only later.
        await until(lambda: outbox.results["dropped"] == 1)
        await emptied(outbox)
        await outbox._store.notes.set("webhooks", b"nonsense", 60)
        add(outbox, "a", [2])
        assert await received(receiver, 1) == {"a": [2]}


@pytest.mark.heavy
async def test_a_receiver_that_refuses_some_gets_the_others(
    receiver: Receiver, tmp_path: Path
) -> None:
    """Those that are refused are not given up for two days."""
    async with replica(f"file://{tmp_path}", receiver.url, again=600.0) as outbox:
        receiver.responses += [status(400)] * 600
        for number in range(300):
            add(outbox, f"refused {number}", [number])
        async with asyncio.timeout(SECONDS):
            while receiver.responses:
                await asyncio.sleep(0.01)
        add(outbox, "a", range(3))
        assert await received(receiver, 3) == {"a": [0, 1, 2]}


async def test_what_cannot_be_read_now_is_not_overwritten(
    receiver: Receiver, tmp_path: Path
) -> None:
    async with redis_server(tmp_path) as redis, replica(redis.url, receiver.url) as outbox:
        receiver.responses += [status(503)] * 2
        add(outbox, "a", range(3))
        async with asyncio.timeout(SECONDS):
            while outbox._new or not outbox.results["failed"]:
                await asyncio.sleep(0.01)
        await redis.client.execute_command("ACL", "SETUSER", "default", "-mget")
        add(outbox, "b", [3])
        assert await received(receiver, 1) == {"b": [3]}
        await redis.client.execute_command("ACL", "SETUSER", "default", "+mget")
        assert await received(receiver, 3) == {"a": [0, 1, 2]}
        await emptied(outbox)
