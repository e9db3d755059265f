"""Traces pass through the proxy, and its own spans are exported by OTLP over HTTP."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from aiohttp import ClientSession, web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from prerender import app
from prerender.errors import ConfigError
from tests.conftest import Site, StartOrigin, StartProxy, pages, settings_for
from tests.support import no_programs

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"
NO_BROWSER = {"path": "/nonexistent/chromium"}
PAGE = "<title>a</title><p id=a></p><script src=/a.js></script>"
SCRIPT = "fetch('/data.json').then(r => r.text()).then(t => document.getElementById('a').append(t))"
PAGES = {"/": PAGE, "/a.js": SCRIPT, "/data.json": "{}", "/text": "text"}


@dataclass
class Collector:
    """Receives the spans."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    resource: dict[str, str] = field(default_factory=dict)

    async def receive(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for group in sent.resource_spans:
            self.resource = {
                pair.key: pair.value.string_value for pair in group.resource.attributes
            }
            for scope in group.scope_spans:
                self.spans += scope.spans
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(),
            content_type="application/x-protobuf",
        )

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


async def collector(start_origin: StartOrigin) -> Collector:
    collector = Collector()
    application = web.Application()
    application.router.add_post("/v1/traces", collector.receive)
    collector.url = f"{(await start_origin(application)).url}/v1/traces"
    return collector


def words(span: Span) -> dict[str, str | int]:
    """A span's attributes that are strings or integers."""
    return {pair.key: pair.value.string_value or pair.value.int_value for pair in span.attributes}


def sent_to(origin: Site, path: str) -> Mapping[str, str]:
    """The header fields of the only request for a path."""
    (request,) = [request for request in origin.requests if request.path == path]
    return request.headers


async def test_without_a_collector_traces_pass_as_they_are(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, PAGES)
    proxy = await start_proxy(origin.url)
    future = f"cc-{TRACE_ID}-{PARENT_ID}-01-what-comes"
    await proxy.get("/text", headers={"traceparent": future, "tracestate": "a=1"})
    assert sent_to(origin, "/text")["traceparent"] == future
    assert sent_to(origin, "/text")["tracestate"] == "a=1"
    await proxy.crawl("/#!a", headers={"traceparent": TRACEPARENT, "tracestate": "a=1"})
    await proxy.crawl("/#!b")
    await proxy.get("/text")
    assert len(origin.requests) > 3
    del origin.requests[0]
    assert not any("traceparent" in request.headers for request in origin.requests)


async def test_spans(
    start_origin: StartOrigin, start_proxy: StartProxy, client: ClientSession
) -> None:
    """The last spans are exported when the proxy ends."""
    origin = await pages(start_origin, PAGES)
    receiver = await collector(start_origin)
    settings = settings_for(origin.url, {"tracing": {"endpoint": receiver.url}})
    no_programs.check()
    async with app.serving(settings) as running:
        url = f"http://127.0.0.1:{running.public_port}"
        given = {"traceparent": TRACEPARENT, "tracestate": "a=1", "User-Agent": "Googlebot"}
        await client.get(f"{url}/?_escaped_fragment_=a%3Ftoken%3Ds3cret", headers=given)
        await client.get(f"{url}/?_escaped_fragment_=a%3Ftoken%3Ds3cret", headers=given)
        await client.get(f"{url}/text?token=s3cret")
    assert receiver.resource["service.name"] == "prerender"
    first, hit, forwarded = sorted(
        receiver.named("GET"), key=lambda span: span.start_time_unix_nano
    )
    (render,) = receiver.named("render")
    assert first.trace_id.hex() == hit.trace_id.hex() == TRACE_ID
    assert first.parent_span_id.hex() == hit.parent_span_id.hex() == PARENT_ID
    (link,) = render.links
    assert (link.trace_id, link.span_id) == (first.trace_id, first.span_id)
    assert not render.parent_span_id
    assert first.trace_state == "a=1"
    assert first.kind == Span.SPAN_KIND_SERVER
    assert words(first)["http.response.status_code"] == 200
    assert words(first)["prerender.cache"] == "miss"
    assert words(first)["prerender.crawler"] == "search"
    assert words(hit)["prerender.cache"] == "hit"
    assert words(render)["prerender.outcome"] == "complete"
    for phase in ("document", "queue", "settle", "serialize"):
        (span,) = receiver.named(phase)
        assert span.parent_span_id == render.span_id
        assert render.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= render.end_time_unix_nano
    assert render.trace_id.hex() != TRACE_ID
    assert first.start_time_unix_nano <= render.start_time_unix_nano
    assert render.end_time_unix_nano <= first.end_time_unix_nano
    # The origin gets the span of the render or the request.
    told = f"00-{render.trace_id.hex()}-{render.span_id.hex()}-01"
    for path in ("/", "/a.js", "/data.json"):
        assert sent_to(origin, path)["traceparent"] == told
        assert "tracestate" not in sent_to(origin, path)
    assert forwarded.trace_id.hex() != TRACE_ID
    assert not forwarded.parent_span_id
    assert (
        sent_to(origin, "/text")["traceparent"]
        == f"00-{forwarded.trace_id.hex()}-{forwarded.span_id.hex()}-01"
    )
    assert words(forwarded)["prerender.proxy.decision"] == "forward"
    assert "s3cret" not in str(receiver.spans)


async def test_what_nobody_wants_sampled_is_not_sent(
    start_origin: StartOrigin, start_proxy: StartProxy, client: ClientSession
) -> None:
    origin = await pages(start_origin, PAGES)
    receiver = await collector(start_origin)
    settings = settings_for(
        origin.url, {"tracing": {"endpoint": receiver.url, "sample": 0}, "browser": NO_BROWSER}
    )
    async with app.serving(settings) as running:
        url = f"http://127.0.0.1:{running.public_port}/text"
        await client.get(url)
        await client.get(url, headers={"traceparent": f"{TRACEPARENT[:-2]}00"})
        await client.get(url, headers={"traceparent": TRACEPARENT})
    (span,) = receiver.spans
    assert span.trace_id.hex() == TRACE_ID
    told = [request.headers["traceparent"] for request in origin.requests]
    assert [value[-2:] for value in told] == ["00", "00", "01"]
    assert [value[3:35] == TRACE_ID for value in told] == [False, True, True]


async def test_a_collector_that_is_away_costs_nobody_anything(
    start_origin: StartOrigin, client: ClientSession
) -> None:
    origin = await pages(start_origin, PAGES)
    settings = settings_for(
        origin.url,
        {"tracing": {"endpoint": "http://127.0.0.1:9/v1/traces"}, "browser": NO_BROWSER},
    )
    async with asyncio.timeout(20), app.serving(settings) as running:
        response = await client.get(f"http://127.0.0.1:{running.public_port}/text")
        assert response.status == 200


async def test_without_the_libraries_the_start_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prerender.extensions.tracing.tracing", None)
    settings = settings_for("http://127.0.0.1:9", {"tracing": {"endpoint": "http://127.0.0.1:9"}})
    with pytest.raises(ConfigError, match=r"pip install 'prerender-proxy\[otel\]'"):
        async with app.serving(settings):
            pass
