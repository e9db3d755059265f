"""Purges reach the CDN: once, in batches, retried, and over replicas and restarts.

The CDN is a double of the documented APIs on a real socket; it answers only documented requests.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from prerender.config.settings import CdnSettings
from prerender.errors import ConfigError
from prerender.extensions.cdn import doctor, providers, purge_forwarding
from prerender.extensions.cdn.providers import CdnClient
from prerender.extensions.cdn.purge_forwarding import PurgeForwarding
from prerender.extensions.cdn.tags import Tags
from prerender.outbox import Outbox
from prerender.snapshots.purges import Purge
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.stores.from_settings import open_store
from tests.conftest import StartOrigin, StartProxy, settings_for
from tests.extensions.indexnow.test_indexnow import target
from tests.support.redis_server import redis_server
from tests.visits.test_webhooks import SECONDS, SECRET, Receiver, receiver, sending

__all__ = ["receiver"]
TOKEN = "a-token-of-the-cdn-0123456789"
ADMIN = "a-token-of-some-length"
HOST = "shop.example"
SITE = f"https://{HOST}"
CHANGED = Snapshot(200, (), b"", '"2"', 0)
ZONE = "SU1Z0isxPaozGVKXdv0eY"
Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CdnDouble:
    """Fastly and Cloudflare. ``purges``: the tags of each request, and whether the purge was soft.

    Responds as the next of ``responses`` says, or as they do on success.
    """

    def __init__(self) -> None:
        self.purges: asyncio.Queue[tuple[list[str], bool]] = asyncio.Queue()
        self.times: list[float] = []
        self.responses: list[Respond] = []
        self.url = ""

    async def fastly(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Fastly-Key") != TOKEN:
            return web.json_response(
                {"msg": "Provided credentials are missing or invalid"}, status=401
            )
        assert request.match_info["zone"] == ZONE
        keys = (await request.json())["surrogate_keys"]
        assert 0 < len(keys) <= 256
        assert all(0 < len(key) <= 1024 for key in keys)
        soft = request.headers.get("Fastly-Soft-Purge") == "1"
        return await self._respond(
            request, keys, soft, dict.fromkeys(keys, "108-1391560174-974124")
        )

    async def cloudflare(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            errors = [{"code": 10000, "message": "Authentication error"}]
            return web.json_response({"success": False, "errors": errors}, status=401)
        body = await request.json()
        assert request.match_info["zone"] == ZONE
        assert body.keys() == {"tags"}
        assert 0 < len(body["tags"]) <= 100
        result = {"success": True, "errors": [], "messages": [], "result": {"id": ZONE}}
        return await self._respond(request, body["tags"], False, result)

    async def _respond(
        self, request: web.Request, tags: list[str], soft: bool, result: dict[str, Any]
    ) -> web.StreamResponse:
        self.times.append(time.monotonic())
        if "bad" in tags:
            return await status(400)(request)
        if self.responses:
            return await self.responses.pop(0)(request)
        self.purges.put_nowait((tags, soft))
        return web.json_response(result)

    async def purge(self) -> tuple[list[str], bool]:
        async with asyncio.timeout(SECONDS):
            return await self.purges.get()


@pytest.fixture
async def double(start_origin: StartOrigin) -> CdnDouble:
    double = CdnDouble()
    application = web.Application()
    application.router.add_post("/service/{zone}/purge", double.fastly)
    application.router.add_post("/zones/{zone}/purge_cache", double.cloudflare)
    double.url = (await start_origin(application)).url
    return double


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {
        "EVERY_SECONDS": 0.05,
        "KNOWN_SECONDS": 0.1,
        "TAKE_OVER_SECONDS": 0.3,
        "_SHORTEST_PAUSE_SECONDS": 0.03,
        "_LAST_SECONDS": 0.5,
    }.items():
        monkeypatch.setattr(purge_forwarding, name, seconds)
    monkeypatch.setattr(providers, "_LOOK_SECONDS", 0.05)


def cdn(double: CdnDouble, provider: str = "fastly", **more: Any) -> CdnSettings:
    values = {"provider": provider, "zone": ZONE, "token": TOKEN, "endpoint": double.url, **more}
    return CdnSettings.model_validate(values)


@asynccontextmanager
async def replica(
    settings: CdnSettings | None, store_url: str, outbox_url: str = ""
) -> AsyncIterator[PurgeForwarding]:
    store = await open_store(settings_for("http://127.0.0.1:1", {"cache": {"url": store_url}}))
    async with sending(outbox_url or "http://127.0.0.1:1/") as webhooks:
        outbox = Outbox(store, webhooks) if outbox_url else None
        if settings is None:
            forwarding = PurgeForwarding(store, Tags(HOST), None, outbox=outbox, site=SITE)
            assert outbox is not None
            async with outbox.sending(), forwarding.forwarding():
                yield forwarding
        else:
            async with CdnClient.open(settings) as client:
                forwarding = PurgeForwarding(store, Tags(HOST), client, outbox=outbox, site=SITE)
                async with forwarding.forwarding():
                    await until(lambda: forwarding._state)
                    yield forwarding
    await store.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


def status(code: int, **headers: str) -> Respond:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.json_response(
            {"errors": [{"message": "as tested"}]}, status=code, headers=headers
        )

    return respond


async def close(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@pytest.mark.parametrize("provider", ["fastly", "cloudflare"])
async def test_purges_and_changed_pages_of_a_proxy_reach_the_cdn(
    start_origin: StartOrigin, start_proxy: StartProxy, double: CdnDouble, provider: str
) -> None:
    text = "first"

    async def page(_: web.Request) -> web.Response:
        meta = '<meta name="prerender-cache-tags" content="meta, bad\ttag\n<x>,ü">'
        headers = {"Cache-Tag": "lamps,desk", "Surrogate-Key": "chairs lamps"}
        return web.Response(text=f"{meta}<p>{text}", content_type="text/html", headers=headers)

    application = web.Application()
    application.router.add_get("/{path:.*}", page)
    proxy = await start_proxy(
        (await start_origin(application)).url,
        {
            "site": {"url": SITE},
            "admin": {"token": ADMIN},
            "cdn": cdn(double, provider).model_dump(),
        },
    )

    async def purge(**what: object) -> None:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        url = f"{proxy.admin_url}/api/v1/purge"
        async with proxy.client.post(url, json=what, headers=headers) as response:
            assert response.status == 200

    name, separator = ("Surrogate-Key", " ") if provider == "fastly" else ("Cache-Tag", ",")
    own = ["lamps", "desk", "chairs", "meta", "bad", "tag", "<x>"]
    tags = [f"page:{HOST}/#!/a/b", f"folder:{HOST}/", f"folder:{HOST}/#!/", f"folder:{HOST}/#!/a/"]
    for cache in ("; fwd=miss", "; hit"):
        response = await proxy.crawl("/#!/a/b")
        assert cache in response.headers["Cache-Status"]
        assert response.headers.getall(name) == [separator.join((*tags, *own))]
        assert ("Cache-Tag" in response.headers) == (name == "Cache-Tag")
    etag = {"If-None-Match": response.headers["ETag"]}
    assert name in (await proxy.crawl("/#!/a/b", headers=etag)).headers

    await purge(url=["/#!/a/b", "/x"], prefix="/#!/a", tag="lamps")
    purged, soft = await double.purge()
    assert sorted(purged) == sorted([tags[0], f"page:{HOST}/x", tags[2], "lamps"])
    assert not soft
    await proxy.crawl("/#!/a/b")
    text = "second"
    await purge(url="/#!/a/b", soft=True)
    assert await double.purge() == ([tags[0]], provider == "fastly")
    await proxy.crawl("/#!/a/b")
    # A page that has changed, without a purge. The old one was served, and is replaced.
    assert await double.purge() == ([tags[0]], provider == "fastly")
    await purge(all=True)
    assert await double.purge() == ([f"folder:{HOST}/"], False)
    async with proxy.client.get(f"{proxy.admin_url}/metrics") as metrics:
        lines = (await metrics.text()).splitlines()
    assert 'prerender_cdn_purges_total{result="purged"} 7.0' in lines
    assert "prerender_cdn_waiting_purges 0.0" in lines


@pytest.mark.parametrize("header", ["auto", "Surrogate-Key"])
async def test_without_a_provider_there_are_tags_only_if_wanted(
    start_origin: StartOrigin, start_proxy: StartProxy, header: str
) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<p>x", content_type="text/html", headers={"Cache-Tag": "a"})

    application = web.Application()
    application.router.add_get("/{path:.*}", page)
    settings = {"site": {"url": SITE}, "cdn": {"header": header}}
    proxy = await start_proxy((await start_origin(application)).url, settings)
    response = await proxy.crawl("/x")
    tags = [f"page:{HOST}/x folder:{HOST}/ a"] if header != "auto" else []
    assert response.headers.getall("Surrogate-Key", []) == tags
    assert "Cache-Tag" not in response.headers
    assert "cdn purges" not in {task.get_name() for task in asyncio.all_tasks()}


@pytest.mark.heavy
@pytest.mark.parametrize(
    "failures",
    [
        [status(429, **{"Retry-After": "1"})],
        [status(500), close, status(401), status(301, Location="/elsewhere")],
    ],
)
async def test_what_fails_is_repeated(double: CdnDouble, failures: list[Respond]) -> None:
    double.responses += failures
    async with replica(cdn(double), "memory://") as forwarding:
        await forwarding._store.purges.purge(Purge("tag", "a"))
        assert await double.purge() == (["a"], False)
        await until(lambda: not forwarding.waiting)
        assert forwarding.results == {"purged": 1, "failed": len(failures), "refused": 0}
    if len(failures) == 1:
        assert double.times[1] - double.times[0] >= 1


def failure(status: int, *errors: dict[str, object], pause: bool = False) -> Respond:
    """As Cloudflare reports failures, if ``pause`` in two parts."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for part in ("{", json.dumps({"errors": errors, "success": False})[1:]):
            await response.write(part.encode())
            if pause:
                await asyncio.sleep(0.05)
        return response

    return respond


async def page(_: web.Request) -> web.StreamResponse:
    return web.Response(text="<h1>Log in", content_type="text/html")


@pytest.mark.parametrize(
    "response",
    [
        failure(200, {"code": 1, "message": "no"}),
        failure(200, {"code": 1, "message": "no"}, pause=True),
        page,
        failure(400, {"code": 6003, "message": f"Invalid request headers: Bearer {TOKEN}"}),
        failure(400, {"code": 7003, "message": "Could not route to /zones/x"}, pause=True),
    ],
)
async def test_what_only_seems_to_be_done_or_refused_is_repeated(
    double: CdnDouble, response: Respond, capsys: pytest.CaptureFixture[str]
) -> None:
    double.responses.append(response)
    async with replica(cdn(double, "cloudflare"), "memory://") as forwarding:
        await forwarding._store.purges.purge(Purge("tag", "a"))
        assert await double.purge() == (["a"], False)
        await until(lambda: not forwarding.waiting)
        assert forwarding.results == {"purged": 1, "failed": 1, "refused": 0}
    assert TOKEN not in capsys.readouterr().out


async def test_an_api_that_hangs_costs_no_purge_and_no_shutdown(
    double: CdnDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "_TIMEOUT_SECONDS", 10 * SECONDS)

    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    double.responses += [hang] * 9
    async with replica(cdn(double), "memory://") as forwarding:
        await forwarding._store.purges.purge(Purge("tag", "a"))
        await until(lambda: double.times)
        assert await forwarding._store.purges.purge(Purge("tag", "b"))
        assert forwarding.waiting == 1
        assert forwarding.oldest_seconds > 0
        began = time.monotonic()
    assert time.monotonic() - began < SECONDS


async def test_what_would_always_be_refused_hinders_nothing(double: CdnDouble) -> None:
    async with replica(cdn(double, "cloudflare"), "memory://") as forwarding:
        for tag in ("a", "b", "bad", "c"):
            await forwarding._store.purges.purge(Purge("tag", tag))
        assert [(await double.purge())[0] for _ in range(2)] == [["a", "b"], ["c"]]
        await until(lambda: not forwarding.waiting)
        assert forwarding.results == {"purged": 3, "failed": 0, "refused": 1}


async def test_two_replicas_send_a_purge_once_and_a_restart_loses_none(
    double: CdnDouble, tmp_path: Path
) -> None:
    async with redis_server(tmp_path) as redis:
        async with replica(cdn(double), redis.url) as one, replica(cdn(double), redis.url) as two:
            for number in range(20):
                store = (one if number % 2 else two)._store
                await store.purges.purge(Purge("tag", f"{number}"))
            two.stored(target("/a"), '"1"', CHANGED)
            tags: list[str] = []
            while len(tags) < 21:
                tags += (await double.purge())[0]
            await until(lambda: not one.waiting)
            await until(lambda: not two.waiting)
            assert sorted(tags) == sorted([*map(str, range(20)), f"page:{HOST}/#!/a"])
            double.responses += [status(503)] * 1000
            await one._store.purges.purge(Purge("tag", "late"))
            await until(lambda: one.waiting and two.waiting)
        double.responses.clear()
        # While nobody was there.
        store = await open_store(settings_for("http://127.0.0.1:1", {"cache": {"url": redis.url}}))
        await store.purges.purge(Purge("tag", "alone"))
        await store.close()
        async with replica(cdn(double), redis.url):
            tags = (await double.purge())[0]
            while len(tags) < 2:
                tags += (await double.purge())[0]
            assert sorted(tags) == ["alone", "late"]
        assert double.purges.empty()


async def test_all_replicas_wait_as_the_api_says(double: CdnDouble, tmp_path: Path) -> None:
    double.responses += [status(429, **{"Retry-After": "1"})]
    async with (
        redis_server(tmp_path) as redis,
        replica(cdn(double), redis.url) as one,
        replica(cdn(double), redis.url),
    ):
        await one._store.purges.purge(Purge("tag", "a"))
        assert await double.purge() == (["a"], False)
        assert double.times[1] - double.times[0] >= 1


async def test_a_purge_that_is_repeated_while_it_waits_is_sent_again_soon(
    double: CdnDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge_forwarding, "TAKE_OVER_SECONDS", 1e9)
    monkeypatch.setattr(purge_forwarding, "KNOWN_SECONDS", 1e9)
    async with replica(cdn(double), "memory://") as forwarding:
        await forwarding._store.purges.purge(Purge("tag", "a"))
        await until(lambda: forwarding.waiting == 1)
        await forwarding._store.purges.purge(Purge("tag", "a"))
        await until(lambda: forwarding.waiting == 2)
        monkeypatch.setattr(purge_forwarding, "KNOWN_SECONDS", 0.1)
        assert [await double.purge() for _ in range(2)] == [(["a"], False)] * 2
        await until(lambda: not forwarding.waiting)


async def test_a_page_that_changes_all_the_time_is_purged_all_the_same(double: CdnDouble) -> None:
    async with replica(cdn(double), "memory://") as forwarding:
        for _ in range(3):
            while double.purges.empty():
                forwarding.stored(target("/a"), '"1"', CHANGED)
                await asyncio.sleep(0.02)
            assert await double.purge() == ([f"page:{HOST}/#!/a"], True)
        assert forwarding.results["failed"] == 0


@pytest.mark.heavy
@pytest.mark.parametrize("count", [2100, 10_000])
async def test_more_purges_than_are_kept_become_one_of_everything(
    double: CdnDouble, count: int
) -> None:
    double.responses += [status(503)]
    async with replica(cdn(double), "memory://") as forwarding:
        await forwarding._store.purges.purge(Purge("tag", "first"))
        await until(lambda: double.times)
        many = (Purge("url", f"/{number}") for number in range(count))
        await forwarding._store.purges.purge(*many)
        # The first one may have been sent before, or goes with it.
        while f"folder:{HOST}/" not in (await double.purge())[0]:
            pass
        await until(lambda: not forwarding.waiting)
        assert len(double.times) < 60


@pytest.mark.heavy
async def test_more_changed_pages_than_are_kept_are_everything(double: CdnDouble) -> None:
    double.responses += [status(503)] * 1000
    async with replica(cdn(double), "memory://") as forwarding:
        for number in range(2100):
            forwarding.stored(target(f"{number}"), '"1"', CHANGED)
        assert forwarding.waiting <= 2000
        double.responses.clear()
        assert await double.purge() == ([f"folder:{HOST}/"], True)


async def test_redis_is_away(double: CdnDouble, tmp_path: Path) -> None:
    async with redis_server(tmp_path) as redis, replica(cdn(double), redis.url) as forwarding:
        await redis.kill()
        assert not await forwarding._store.purges.purge(Purge("tag", "away"))
        assert await double.purge() == (["away"], False)
        await redis.start()
        async with asyncio.timeout(SECONDS):
            while not await forwarding._store.purges.purge(Purge("tag", "back")):
                await asyncio.sleep(0.05)
        tags = (await double.purge())[0]
        assert "back" in (tags if tags != ["away"] else (await double.purge())[0])


async def test_redis_comes_back_with_an_old_note(double: CdnDouble, tmp_path: Path) -> None:
    async with redis_server(tmp_path) as redis, replica(cdn(double), redis.url) as forwarding:
        double.responses += [status(503)] * 1000
        await forwarding._store.purges.purge(Purge("tag", "before"))
        await until(lambda: forwarding.results["failed"])
        [name] = await redis.client.keys("*note:cdn")
        note = await redis.client.get(name)
        await redis.kill()
        forwarding.stored(target("/a"), '"1"', CHANGED)
        await until(lambda: not forwarding._saved)
        forwarding.stored(target("/a"), '"1"', CHANGED)
        await until(lambda: forwarding._state and forwarding._state.later)
        await redis.start()
        await redis.client.set(name, note)
        await until(lambda: forwarding._saved)
        double.responses.clear()
        tags = (await double.purge())[0] + (await double.purge())[0]
        assert sorted(tags) == ["before", f"page:{HOST}/#!/a"]
        assert await double.purge() == ([f"page:{HOST}/#!/a"], True)


async def test_a_replica_that_cannot_read_what_is_waiting_changes_nothing(
    double: CdnDouble, tmp_path: Path
) -> None:
    async with redis_server(tmp_path) as redis:
        async with replica(cdn(double), redis.url) as forwarding:
            double.responses += [status(503)] * 1000
            await forwarding._store.purges.purge(Purge("tag", "before"))
            await until(lambda: forwarding.results["failed"])
        await redis.client.execute_command("ACL", "SETUSER", "default", "-mget")
        store = await open_store(settings_for("http://127.0.0.1:1", {"cache": {"url": redis.url}}))
        async with CdnClient.open(cdn(double)) as client:
            forwarding = PurgeForwarding(store, Tags(HOST), client, outbox=None, site=SITE)
            await forwarding.look()
            assert forwarding.waiting == 0
            await redis.client.execute_command("ACL", "SETUSER", "default", "+mget")
            await forwarding.look()
            assert forwarding.waiting == 1
        await store.close()


async def test_everything_does_not_stand_for_tags_of_other_files(double: CdnDouble) -> None:
    async with replica(cdn(double), "memory://") as forwarding:
        purges = forwarding._store.purges
        for purge in (Purge("url", "/a"), Purge("tag", "lamps"), Purge("all")):
            await purges.purge(purge)
        assert sorted((await double.purge())[0]) == [f"folder:{HOST}/", "lamps"]


async def test_purges_reach_a_webhook(receiver: Receiver) -> None:
    async with replica(None, "memory://", receiver.url) as forwarding:
        await until(lambda: forwarding._state)
        await forwarding._store.purges.purge(Purge("prefix", "/shop/", True))
        body = (await receiver.message())[1]
        assert body["type"] == "snapshots.purged"
        assert body["data"] == {
            "site": SITE,
            "count": 1,
            "purges": [{"kind": "prefix", "value": "/shop/", "soft": True}],
            "tags": [f"folder:{HOST}/shop/"],
        }
        assert forwarding.waiting == 0


async def test_the_token_comes_from_a_file_and_is_in_no_log(
    double: CdnDouble, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}x\n")
    settings = cdn(double, token="", token_file=str(file))
    async with replica(settings, "memory://") as forwarding:
        await forwarding._store.purges.purge(Purge("tag", "a"))
        await until(lambda: forwarding.results["failed"])
        file.write_text(TOKEN)
        assert await double.purge() == (["a"], False)
    out = capsys.readouterr()
    assert TOKEN not in out.out + out.err
    assert TOKEN not in repr(cdn(double))
    file.write_text("short")
    with pytest.raises(ConfigError, match=r"\[cdn\] token_file: .*at least 16"):
        async with CdnClient.open(settings):
            pass


@pytest.mark.parametrize("provider", ["fastly", "cloudflare"])
async def test_doctor_tries_whether_the_token_may_purge(double: CdnDouble, provider: str) -> None:
    for token, state in ((TOKEN, "ok"), (f"{TOKEN}x", "problem")):
        values = cdn(double, provider, token=token).model_dump()
        settings = settings_for("http://127.0.0.1:1", {"cdn": values})
        [line] = await doctor.examine(settings)
        assert line.state == state, line
        assert TOKEN not in line.text + line.remedy
    assert "credentials are" in line.text or "Authentication error" in line.text
    assert (await double.purge())[0] == [doctor.UNUSED_TAG]
    assert double.purges.empty()
    assert await doctor.examine(settings_for("http://127.0.0.1:1")) == []


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"provider": "akamai"}, r"\[cdn\] provider"),
        (
            {"provider": "fastly", "token": TOKEN},
            r"\[cdn\] zone: required because provider is set$",
        ),
        (
            {"provider": "fastly", "zone": ZONE},
            r"\[cdn\] token: required because provider is set:",
        ),
        ({"provider": "fastly", "zone": "../x", "token": TOKEN}, r"\[cdn\] zone"),
        (
            {"provider": "fastly", "zone": ZONE, "token": "short"},
            r"\[cdn\] token .*: \*\*\*: give at",
        ),
    ],
)
def test_bad_settings(values: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        settings_for("http://127.0.0.1:1", {"cdn": values})


async def test_webhooks_name_the_event(start_proxy: StartProxy, receiver: Receiver) -> None:
    proxy = await start_proxy(
        "http://127.0.0.1:1",
        {
            "browser": {"path": "/nonexistent/chromium"},
            "webhooks": {"url": receiver.url, "secret": SECRET, "events": ["snapshots.purged"]},
        },
    )
    async with proxy.client.post(f"{proxy.admin_url}/api/v1/purge", json={"all": True}) as response:
        assert response.status == 200
    data = (await receiver.message())[1]["data"]
    assert data["purges"] == [{"kind": "all", "value": "", "soft": False}]
