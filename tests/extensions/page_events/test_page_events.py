"""Events of pages reach a receiver: of a whole proxy, and over replicas and restarts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from prerender.extensions.page_events.page_events import PageEvents
from prerender.extensions.page_events.page_state import KINDS, RenderResult
from prerender.outbox import Outbox
from prerender.snapshots.snapshot import Snapshot, etag_of
from prerender.snapshots.stores.from_settings import open_store
from tests.conftest import StartOrigin, StartProxy, settings_for
from tests.extensions.indexnow.test_indexnow import TOKEN, purge, target
from tests.support.redis_server import redis_server
from tests.visits.test_webhooks import SECONDS, SECRET, Receiver, receiver, sending

__all__ = ["receiver"]
SITE = "https://www.example.com"


class Site:
    """A page whose response can be changed."""

    status, text = 200, "first"

    async def respond(self, _: web.Request) -> web.Response:
        html = f"<title>Shop</title><p id={id(self.text)}>All of the {self.text} text</p>"
        return web.Response(status=self.status, text=html, content_type="text/html")


async def test_a_proxy_reports_what_happens_to_a_page(
    start_origin: StartOrigin, start_proxy: StartProxy, receiver: Receiver
) -> None:
    site, application = Site(), web.Application()
    application.router.add_get("/{path:.*}", site.respond)
    proxy = await start_proxy(
        (await start_origin(application)).url,
        {
            "site": {"url": SITE},
            "admin": {"token": TOKEN},
            "webhooks": {"url": receiver.url, "secret": SECRET, "events": list(KINDS)},
        },
    )

    async def crawl(status: int, text: str, expected: int) -> None:
        site.status, site.text = status, text
        # Nothing is left to compare with, as after a CMS has purged it.
        await purge(proxy, all=True)
        assert (await proxy.crawl("/#!/a ü")).status == expected

    await crawl(200, "first", 200)
    await crawl(200, "".join(["fir", "st"]), 200)  # other bytes
    await crawl(200, "second", 200)
    kind, data = await event(receiver)
    assert kind == "snapshot.changed"
    assert data == {
        "site": SITE,
        "url": f"{SITE}/#!/a%20%C3%BC",
        "changes": {
            "text": {
                "words_added": 1,
                "words_removed": 1,
                "added": ["second"],
                "removed": ["first"],
            }
        },
    }
    await crawl(503, "second", 503)
    await crawl(503, "second", 503)
    kind, data = await event(receiver)
    assert (kind, data["status"], data["error"]) == ("page.failed", 503, "origin_error")
    await crawl(404, "no", 404)
    assert (await event(receiver))[0] == "page.recovered"
    kind, data = await event(receiver)
    assert (kind, data["was_found_before"]) == ("page.not_found", True)
    kind, data = await event(receiver)
    assert kind == "snapshot.changed"
    assert data["changes"]["status"] == {"before": 200, "after": 404}
    assert receiver.messages.empty()


async def event(receiver: Receiver) -> tuple[str, dict[str, Any]]:
    body = (await receiver.message())[1]
    return body["type"], body["data"]


@asynccontextmanager
async def replica(store_url: str, url: str) -> AsyncIterator[PageEvents]:
    store = await open_store(settings_for("http://127.0.0.1:1", {"cache": {"url": store_url}}))
    async with sending(url) as webhooks:
        outbox = Outbox(store, webhooks)
        events = PageEvents(store, outbox, KINDS, SITE)
        async with outbox.sending(), events.sending():
            yield events
    await store.close()


def snapshot(text: str) -> Snapshot:
    body = f"<p>{text}</p>".encode()
    return Snapshot(200, (), body, etag_of(200, (), body), 0)


async def finished(events: PageEvents) -> None:
    async with asyncio.timeout(SECONDS):
        while events._waiting:
            await asyncio.sleep(0.005)


async def test_two_replicas_and_a_restart_report_once_and_in_order(
    receiver: Receiver, tmp_path: Path
) -> None:
    page = target("/a")
    async with redis_server(tmp_path) as redis:
        async with replica(redis.url, receiver.url) as one, replica(redis.url, receiver.url) as two:
            for at in (1.0, 2.0):
                for events in (one, two):
                    events._add(page, RenderResult(at, 0, "render_timeout"))
                    await finished(events)
            for number in range(5):
                one.stored(page, snapshot(f"version {number}"))
            await finished(one)
            two.stored(page, snapshot("version 4"))
            await finished(two)
        async with replica(redis.url, receiver.url) as again:
            again.stored(page, snapshot("version 5"))
            again._add(page, RenderResult(3.0, 0, "render_timeout"))
            found = [await event(receiver) for _ in range(6)]
    assert [kind for kind, _ in found] == ["page.failed", *["snapshot.changed"] * 5]
    added = [data["changes"]["text"]["added"] for kind, data in found[1:]]
    assert added == [["1"], ["2"], ["3"], ["4"], ["5"]]
    assert receiver.messages.empty()


async def test_more_than_can_be_read_is_counted(receiver: Receiver, tmp_path: Path) -> None:
    async with replica(f"file://{tmp_path}", receiver.url) as events:
        for number in range(1000):
            events._add(target(str(number)), RenderResult(1.0, 200))
        assert events._outbox.results["dropped"] == 1000 - 256
        await finished(events)


async def test_what_has_no_room_is_sent_when_it_happens_again(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replica(f"file://{tmp_path}", receiver.url) as events:
        room = events._outbox._most_bytes - 1000
        monkeypatch.setattr("prerender.extensions.page_events.page_events._ROOM_BYTES", room)
        gate = asyncio.Event()

        async def wait(_: web.Request) -> web.StreamResponse:
            await gate.wait()
            return web.Response(status=204)

        receiver.responses += [wait] * 4
        for number in range(10):
            events._add(target(str(number)), RenderResult(1.0, 0, "render_timeout"))
        await finished(events)
        dropped = events._outbox.results["dropped"]
        assert 0 < dropped < 10
        gate.set()
        for _ in range(10 - dropped):
            await event(receiver)
        async with asyncio.timeout(SECONDS):
            while events._outbox.waiting_bytes:
                await asyncio.sleep(0.01)
        events._add(target("0"), RenderResult(2.0, 0, "render_timeout"))
        events._add(target("9"), RenderResult(2.0, 0, "render_timeout"))
        assert (await event(receiver))[1]["url"].endswith("#!9")
    assert receiver.messages.empty()


async def test_nothing_is_sent_about_pages_of_which_nothing_can_be_known(
    receiver: Receiver, tmp_path: Path
) -> None:
    async with redis_server(tmp_path) as redis, replica(redis.url, receiver.url) as events:
        page = target("/a")
        events._add(page, RenderResult(1.0, 0, "render_timeout"))
        assert (await event(receiver))[0] == "page.failed"
        await finished(events)
        await redis.client.execute_command("ACL", "SETUSER", "default", "-mget")
        events._add(page, RenderResult(2.0, 0, "render_timeout"))
        events._add(page, RenderResult(3.0, 200))
        async with asyncio.timeout(SECONDS):
            while not events._store.state().faults["note"]:
                await asyncio.sleep(0.01)
        await redis.client.execute_command("ACL", "SETUSER", "default", "+mget")
        assert (await event(receiver))[0] == "page.recovered"
    assert receiver.messages.empty()


@pytest.mark.parametrize("events", [["alert"], ["alert", "page.failed"]])
async def test_without_its_events_nothing_follows_renders(
    start_forwarding: Any, start_proxy: StartProxy, events: list[str], receiver: Receiver
) -> None:
    proxy = await start_proxy(
        "http://127.0.0.1:1",
        {
            "browser": {"path": "/nonexistent/chromium"},
            "webhooks": {"url": receiver.url, "secret": SECRET, "events": events},
        },
    )
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert ("page events" in names) == (len(events) > 1)
    assert proxy.running.public_port
