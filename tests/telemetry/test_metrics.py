"""The metrics of a running proxy, after real events."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from tests.conftest import Proxy, StartOrigin, StartProxy, pages
from tests.support.redis_server import redis_server

PAGE = "<title>a</title><p>Content</p><script src=/a.js></script>"
GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
UNITS = ("_total", "_seconds", "_bytes", "_info")


@dataclass
class Samples:
    """The metrics of a proxy at one moment."""

    families: Mapping[str, Metric]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of that name with these labels."""
        return sum(
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


async def samples(proxy: Proxy) -> Samples:
    """Fetch the metrics as Prometheus does."""
    async with proxy.client.get(f"{proxy.admin_url}/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        return Samples({it.name: it for it in plain_text(await response.text())})


async def until(proxy: Proxy, name: str, value: float, **labels: str) -> Samples:
    """Wait until a metric has a value: it may be counted after the response was sent."""
    async with asyncio.timeout(10):
        while (found := await samples(proxy)).value(name, **labels) != value:
            await asyncio.sleep(0.02)
    return found


async def test_requests_and_renders(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(
        start_origin,
        {"/": PAGE, "/a.js": "", "/gone": web.Response(status=500), "/text": "x" * 5000},
    )
    proxy = await start_proxy(origin.url, {"triggers": {"search": "render"}})
    await until(proxy, "prerender_ready", 1)
    for _ in range(3):
        await proxy.crawl("/#!a", headers={"User-Agent": GOOGLEBOT})
    await asyncio.gather(*(proxy.crawl("/#!b") for _ in range(4)))
    await proxy.crawl("/gone")
    await proxy.get("/text")
    await proxy.request("POST", "/text")
    found = await until(proxy, "prerender_requests_total", 10)

    requests = "prerender_requests_total"
    assert found.value(requests, decision="render", reason="ugly_url") == 8
    assert found.value(requests, crawler="search", code="200", source="snapshot") == 3
    assert found.value(requests, decision="render", source="origin", code="500") == 1
    assert found.value(requests, decision="forward") == 2
    results = "prerender_snapshot_requests_total"
    assert found.value(results, result="miss") == 2
    assert found.value(results, result="hit", crawler="search") == 2
    assert found.value(results, result="coalesced", crawler="none") == 3
    assert found.value("prerender_request_duration_seconds_count", source="snapshot") == 7
    assert found.value("prerender_request_duration_seconds_count", source="origin") == 3
    slow = found.value("prerender_request_duration_seconds_sum", source="snapshot", result="miss")
    quick = found.value("prerender_request_duration_seconds_sum", source="snapshot", result="hit")
    assert 0 < quick < slow < 20
    assert found.value("prerender_response_bytes_total", source="origin") > 10_000
    assert found.value("prerender_origin_response_seconds_count") == 3

    assert found.value("prerender_renders_total", outcome="complete", error="none") == 2
    assert found.value("prerender_renders_total", outcome="not_a_page") == 1
    assert found.value("prerender_render_duration_seconds_count", outcome="complete") == 2
    for phase in ("queue", "document", "settle", "serialize"):
        assert found.value("prerender_render_phase_seconds_count", phase=phase) == 2
    assert found.value("prerender_settled_pages_total", reason="nothing_pending") == 2
    assert found.value("prerender_snapshot_bytes_count") == 2
    assert found.value("prerender_store_lookups_total", layer="memory", result="hit") >= 2
    assert found.value("prerender_store_memory_entries") == 2
    assert found.value("prerender_store_memory_bytes") > 1000


@pytest.mark.ci_only
async def test_what_pages_ask_for(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    kept = web.Response(text="", headers={"Cache-Control": "max-age=60"})
    kept.content_type = "text/javascript"
    page = (
        "<title>a</title><p>Content</p><script src=/a.js></script><img src=/missing>"
        "<script src=http://www.google-analytics.com/analytics.js></script>"
    )
    origin = await pages(start_origin, {"/": page, "/b": page, "/a.js": kept})
    proxy = await start_proxy(origin.url, {"browser": {"pages": 2}})
    await until(proxy, "prerender_pool_pages", 2, state="idle")
    # At once, in two pages: each has a cache of its own before the one that they share.
    await asyncio.gather(proxy.crawl("/"), proxy.crawl("/b"))
    found = await samples(proxy)
    name = "prerender_gateway_requests_total"
    # The two documents, and the script once.
    assert found.value(name, verdict="allowed") >= 3
    assert found.value(name, verdict="cached") >= 1
    assert found.value(name, verdict="blocked") == 2
    assert found.value(name, verdict="failed") >= 1
    assert found.value("prerender_gateway_received_bytes_total") > 0


async def test_the_state_of_the_parts(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(start_origin, {"/": PAGE, "/a.js": ""})
    proxy = await start_proxy(origin.url, {"browser": {"pages": 1, "queue": 7, "max_renders": 2}})
    found = await until(proxy, "prerender_pool_pages", 1, state="idle")
    assert found.value("prerender_pool_size") == 1
    assert found.value("prerender_queue_limit") == 7
    assert found.value("prerender_queue_length") == 0
    assert found.value("prerender_browsers_started_total") == 1
    assert found.value("prerender_store_available") == 1
    assert found.value("prerender_build_info") == 1
    assert found.value("prerender_browser_info") == 1
    assert found.value("process_resident_memory_bytes") > 1e6
    for number in range(3):
        await proxy.crawl(f"/#!{number}")
    await until(proxy, "prerender_browsers_started_total", 2)
    await until(proxy, "prerender_browser_replacements_total", 1, cause="renders")
    found = await until(proxy, "prerender_pool_pages", 1, state="idle")
    assert found.value("prerender_browser_memory_bytes") > 1e7
    async with asyncio.timeout(10):
        while not (await samples(proxy)).value("prerender_event_loop_lag_seconds_count"):
            await asyncio.sleep(0.05)


async def test_what_goes_wrong(start_proxy: StartProxy) -> None:
    proxy = await start_proxy("http://127.0.0.1:9", {"browser": {"path": "/nonexistent/chromium"}})
    await proxy.get("/a")
    await proxy.crawl("/a")
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.running.public_port)
    writer.write(b"nonsense\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    found = await until(proxy, "prerender_requests_total", 2)
    assert found.value("prerender_origin_errors_total", error="origin_error") == 1
    assert found.value("prerender_snapshot_requests_total", result="error") == 1
    assert found.value("prerender_renders_total", outcome="failed", error="browser_gone") == 1
    assert found.value("prerender_bad_requests_total", code="400") == 1
    assert found.value("prerender_ready") == 0
    assert found.value("prerender_browser_replacements_total", cause="not_started") >= 1


async def test_a_store_that_is_away_is_told_and_lived_with(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    origin = await pages(start_origin, {"/": PAGE, "/a.js": ""})
    async with redis_server(tmp_path) as redis:
        proxy = await start_proxy(origin.url, {"cache": {"url": redis.url}})
        await until(proxy, "prerender_ready", 1)
        await proxy.crawl("/#!a")
        found = await samples(proxy)
        assert found.value("prerender_store_lookups_total", layer="slow", result="miss") >= 1
        assert await readiness(proxy) == (200, {"status": "ready", "degraded": []})
    assert (await proxy.crawl("/#!b")).status == 200
    assert await readiness(proxy) == (200, {"status": "ready", "degraded": ["store"]})
    found = await samples(proxy)
    assert found.value("prerender_store_available") == 0
    assert found.value("prerender_store_faults_total") >= 1


async def readiness(proxy: Proxy) -> tuple[int, object]:
    async with proxy.client.get(f"{proxy.admin_url}/readyz") as response:
        return response.status, await response.json()


async def test_nothing_of_it_is_on_the_public_listener(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {})
    proxy = await start_proxy(origin.url, {"browser": {"path": "/nonexistent/chromium"}})
    for path in ("/metrics", "/healthz", "/readyz", "/api/v1/explain?url=/"):
        assert (await proxy.get(path)).text == "no such page"
        assert origin.requests[-1].raw_path == path


async def test_names_and_formats(start_proxy: StartProxy) -> None:
    """Names by Prometheus's rules, in both of its formats."""
    proxy = await start_proxy("http://127.0.0.1:9", {"browser": {"path": "/nonexistent/chromium"}})
    found = await samples(proxy)
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with proxy.client.get(f"{proxy.admin_url}/metrics", headers=accept) as response:
        assert response.headers["Content-Type"].startswith("application/openmetrics-text")
        families = [it.name for it in open_metrics(await response.text())]  # type: ignore[no-untyped-call]
    assert len(families) == len(set(families))
    assert families
    for family in found.families.values():
        assert family.documentation
        if family.name.startswith("prerender_"):
            assert re.fullmatch(r"[a-z_]+", family.name)
            assert family.type == "gauge" or f"{family.name}_total".endswith(UNITS)
            if family.type == "histogram":
                assert family.name.endswith(("_seconds", "_bytes"))
