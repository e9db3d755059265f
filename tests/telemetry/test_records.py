"""The records of requests and renders, for every way in which a request can end."""

import asyncio
from dataclasses import replace
from typing import Generic, TypeVar

import pytest
from aiohttp import ClientError, web

from prerender.http.message_head import parse_fields
from prerender.http.trace_context import new_trace, trace_of
from prerender.telemetry.records import Channel
from tests.conftest import StartOrigin, StartProxy, pages
from tests.support import raw

GPTBOT = "Mozilla/5.0 (compatible; GPTBot/1.3; +https://openai.com/gptbot)"
TWITTERBOT = "Twitterbot/1.0"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
NO_BROWSER = {"browser": {"path": "/nonexistent/chromium"}}

R = TypeVar("R")


class Heard(Generic[R]):
    """Listens to a channel; ``next`` returns the records one by one."""

    def __init__(self, channel: Channel[R]) -> None:
        self._queue: asyncio.Queue[R] = asyncio.Queue()
        channel.subscribe(self._queue.put_nowait)

    async def next(self) -> R:
        async with asyncio.timeout(10):
            return await self._queue.get()

    @property
    def silent(self) -> bool:
        """Whether there are no further records."""
        return self._queue.empty()


async def test_a_render_and_a_hit(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(start_origin, {"/": "<title>a</title><p>Content</p>"})
    proxy = await start_proxy(origin.url, {"triggers": {"social": "render"}})
    requests = Heard(proxy.running.telemetry.requests)
    renders = Heard(proxy.running.telemetry.renders)

    await proxy.crawl("/#!a", headers={"traceparent": TRACEPARENT})
    first, render = await requests.next(), await renders.next()
    assert (first.kind, first.reason, first.source) == ("render", "ugly_url", "snapshot")
    assert (first.method, first.target) == ("GET", "/?_escaped_fragment_=a")
    assert (first.cache, first.status, first.error) == ("miss", 200, None)
    assert first.snapshot_target == render.target
    assert render.target.url == f"{origin.url}/#!a"
    assert render.trace is not None
    assert first.trace_id == render.trace.trace_id == TRACE_ID
    assert first.timings == render.timings
    assert first.timings is not None
    assert 0 < first.timings.settle < first.seconds < 10
    assert first.facts == render.facts
    assert first.facts is not None
    assert first.facts.text_length == len("Content")
    assert (render.outcome, render.status, render.error) == ("complete", 200, None)
    assert first.sent_bytes > render.bytes > 0
    assert abs(first.time + first.seconds - render.time - render.seconds) < 5

    await proxy.get("/#!b".replace("#!", "?_escaped_fragment_="), headers={"User-Agent": GPTBOT})
    assert (await requests.next()).crawler == "ai_training"
    await proxy.crawl("/#!a", headers={"User-Agent": TWITTERBOT})
    hit = await requests.next()
    assert (hit.cache, hit.source, hit.crawler) == ("hit", "snapshot", "social")
    assert hit.user_agent == TWITTERBOT
    assert hit.timings is None
    assert hit.trace_id == ""
    assert hit.seconds < first.seconds

    await proxy.get("/", headers={"User-Agent": TWITTERBOT})
    by_name = await requests.next()
    assert (by_name.kind, by_name.reason) == ("render", "crawler")
    assert {(await renders.next()).target.url for _ in range(2)} == {
        f"{origin.url}/#!b",
        f"{origin.url}/",
    }
    assert requests.silent
    assert renders.silent


async def test_what_is_forwarded(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(start_origin, {"/a": web.Response(body=b"x" * 1000)})
    proxy = await start_proxy(origin.url, {**NO_BROWSER, "triggers": {"ai_training": "refuse"}})
    requests = Heard(proxy.running.telemetry.requests)

    await proxy.request("POST", "/a?b=1", data=b"hello")
    forwarded = await requests.next()
    assert (forwarded.kind, forwarded.reason) == ("forward", "ordinary")
    assert (forwarded.source, forwarded.cache, forwarded.snapshot_target) == ("origin", None, None)
    assert forwarded.status == 200
    assert 1000 < forwarded.sent_bytes < 2000
    assert forwarded.origin_seconds is not None
    assert 0 < forwarded.origin_seconds <= forwarded.seconds

    await proxy.get("/a", headers={"User-Agent": GPTBOT})
    refused = await requests.next()
    assert (refused.kind, refused.source, refused.status) == ("refuse", "proxy", 403)
    assert (refused.crawler, refused.error) == ("ai_training", "crawler_refused")

    await proxy.get("/missing")
    assert (await requests.next()).status == 404


@pytest.mark.parametrize(
    ("fields", "remote"),
    [
        ({}, "127.0.0.1"),
        ({"X-Forwarded-For": "203.0.113.7"}, "203.0.113.7"),
        ({"X-Forwarded-For": "198.51.100.1, 203.0.113.7, 10.0.0.1"}, "203.0.113.7"),
        ({"X-Forwarded-For": "nobody"}, "127.0.0.1"),
        ({"X-Forwarded-For": "x" * 5000}, "127.0.0.1"),
        ({"Forwarded": 'for="[2001:db8::1]:4711"'}, "2001:db8::1"),
    ],
)
async def test_who_asks_by_way_of_a_proxy(
    start_proxy: StartProxy, fields: dict[str, str], remote: str
) -> None:
    proxy = await start_proxy("http://127.0.0.1:9", NO_BROWSER)
    requests = Heard(proxy.running.telemetry.requests)
    for _ in range(2):
        await proxy.get("/", headers=fields)
        assert (await requests.next()).remote == remote


async def test_nobody_is_believed_who_is_not_trusted(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(
        "http://127.0.0.1:9", {**NO_BROWSER, "server": {"trusted_proxies": []}}
    )
    requests = Heard(proxy.running.telemetry.requests)
    await proxy.get("/", headers={"X-Forwarded-For": "203.0.113.7"})
    assert (await requests.next()).remote == "127.0.0.1"


async def test_what_fails(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    application = web.Application()
    arrived = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        arrived.set()
        await asyncio.Event().wait()
        return web.Response()

    async def broken(_: web.Request) -> web.Response:
        return web.Response(status=500, text="broken")

    application.router.add_get("/hang", hang)
    application.router.add_get("/broken", broken)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url)
    requests = Heard(proxy.running.telemetry.requests)
    renders = Heard(proxy.running.telemetry.renders)

    await proxy.crawl("/broken")
    bypassed, render = await requests.next(), await renders.next()
    assert (bypassed.kind, bypassed.source, bypassed.cache) == ("render", "origin", None)
    assert (bypassed.status, bypassed.detail) == (500, "status 500")
    assert (render.outcome, render.error, render.reason) == (
        "not_a_page",
        "not_renderable",
        "status 500",
    )

    hanging = asyncio.create_task(proxy.get("/hang"))
    await asyncio.wait_for(arrived.wait(), 5)
    hanging.cancel()
    left = await requests.next()
    assert (left.status, left.sent_bytes, left.error) == (499, 0, "cancelled")


async def test_an_origin_that_is_away(start_proxy: StartProxy) -> None:
    proxy = await start_proxy("http://127.0.0.1:9", NO_BROWSER)
    requests = Heard(proxy.running.telemetry.requests)
    await proxy.get("/a")
    failed = await requests.next()
    assert (failed.source, failed.status, failed.error) == ("proxy", 502, "origin_error")
    await proxy.crawl("/a")
    failed = await requests.next()
    assert (failed.kind, failed.cache) == ("render", "error")
    assert failed.status in (502, 503)


async def test_a_body_that_is_wrong_and_an_origin_that_dies(start_proxy: StartProxy) -> None:
    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await raw.receive(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()

    async with raw.origin(script) as origin:
        proxy = await start_proxy(origin.url, NO_BROWSER)
        requests = Heard(proxy.running.telemetry.requests)
        with pytest.raises(ClientError):
            await proxy.get("/a")
        dead = await requests.next()
        assert (dead.status, dead.source, dead.error) == (200, "origin", "cut_short")


async def test_a_listener_that_fails_disturbs_nobody(start_proxy: StartProxy) -> None:
    proxy = await start_proxy("http://127.0.0.1:9", NO_BROWSER)

    def fail(_: object) -> None:
        raise RuntimeError("a listener's own mistake")

    leave = proxy.running.telemetry.requests.subscribe(fail)
    requests = Heard(proxy.running.telemetry.requests)
    assert (await proxy.get("/a")).status == 502
    assert (await requests.next()).status == 502
    leave()
    assert (await proxy.get("/a")).status == 502


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        f"00-{TRACE_ID}-00f067aa0ba902b7",
        f"00-{TRACE_ID}-00f067aa0ba902b7-01-more",
        f"ff-{TRACE_ID}-00f067aa0ba902b7-01",
        f"00-{TRACE_ID.upper()}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID}-00f067aa0ba902b7-0g",
        f"{TRACEPARENT}, {TRACEPARENT}",
    ],
)
def test_what_is_no_traceparent_is_none(value: str) -> None:
    assert trace_of(parse_fields(f"traceparent: {value}".encode())) is None


@pytest.mark.parametrize("value", [TRACEPARENT, f"01-{TRACEPARENT[3:]}-more", f" {TRACEPARENT}"])
def test_a_traceparent_is_read(value: str) -> None:
    lines = f"Traceparent: {value}\r\ntracestate: a=1\r\nTracestate: b=2"
    trace = trace_of(parse_fields(lines.encode()))
    assert trace is not None
    assert str(trace) == TRACEPARENT
    assert trace.state == "a=1, b=2"
    child = trace.child()
    assert (child.trace_id, child.sampled, child.state) == (TRACE_ID, True, "a=1, b=2")
    assert child.span_id != trace.span_id


def test_a_new_trace_is_well_formed() -> None:
    for sampled in (True, False):
        trace = new_trace(sampled=sampled)
        read = trace_of(parse_fields(f"traceparent: {trace}".encode()))
        assert read == replace(trace, own=False)
