"""Texts are for people: with all of them replaced, records, metrics and figures are the same."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from aiohttp import web

import prerender
from prerender.crawlers.known import built_in
from prerender.crawlers.user_agents import UserAgents
from prerender.extensions.dashboard.crawlers import CrawlerStatistics
from prerender.words import Word
from tests.conftest import StartOrigin, StartProxy, pages
from tests.telemetry.test_metrics import samples
from tests.telemetry.test_records import GPTBOT, TWITTERBOT, Heard

GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
SETTINGS = {
    "triggers": {"ai_training": "refuse", "social": "render", "robots_opt_out": True},
    "cache": {"stale_if_error": 60},
}


def words() -> Iterator[Word]:
    for module in pkgutil.walk_packages(prerender.__path__, "prerender."):
        # The server of MCP has no words, and its imports take as long as all others.
        if not module.name.endswith(("__main__", "mcp.server")):
            importlib.import_module(module.name)
    for kind in Word.__subclasses__():
        yield from kind


async def behaviour(start_origin: StartOrigin, start_proxy: StartProxy) -> list[object]:
    """What happens to requests of each kind, with values only."""
    origin = await pages(
        start_origin,
        {
            "/": "<title>a</title><p>Content</p>",
            "/blank": "<script>document.documentElement.remove()</script>",
            "/gone": web.Response(status=500),
            "/ready": "<p>Content<script>prerenderReady = true</script>",
            "/broken": "<p>Content<script>fetch('/data').then((it) => it.json())</script>",
            "/stale": "<p>Content<script type=module src=/old.js></script>",
            "/data": web.Response(text='{"name":', content_type="application/json"),
            "/old.js": "<p>Not found",
            "/image": web.Response(body=b"x", content_type="image/png"),
            "/robots.txt": "User-agent: *\nDisallow: /*_escaped_fragment_=no\n",
        },
    )
    proxy = await start_proxy(origin.url, SETTINGS)
    telemetry = proxy.running.telemetry
    heard, renders = Heard(telemetry.requests), Heard(telemetry.renders)
    crawlers = CrawlerStatistics(telemetry.crawler_requests, UserAgents(built_in().crawlers))
    seen: list[object] = []
    for url, agent in (
        ("/?_escaped_fragment_=a", "curl/8"), ("/?_escaped_fragment_=a", "curl/8"),
        ("/?_escaped_fragment_=no", "curl/8"),
        ("/", "curl/8"), ("/", GOOGLEBOT), ("/", TWITTERBOT), ("/", GPTBOT), ("/a.png", TWITTERBOT),
        ("/blank", TWITTERBOT), ("/gone", TWITTERBOT), ("/image", TWITTERBOT),
        ("/ready", TWITTERBOT), ("/broken", TWITTERBOT), ("/stale", TWITTERBOT),
    ):  # fmt: skip
        await proxy.get(url, headers={"User-Agent": agent})
        one = await heard.next()
        seen.append(
            (one.kind, str(one.reason), one.source, one.cache, one.status, str(one.error or ""))
        )
        if one.timings is not None or one.reason == "ugly_url":
            while not renders.silent:
                render = await renders.next()
                facts = render.facts and (render.facts.settled, render.facts.lasting)
                seen.append((str(render.outcome), str(render.error or ""), facts))
    for name, tally in sorted(crawlers.since_start().items()):
        seen.append((name, dict(tally.got), tally.without_snapshot, tally.unverified))
    metrics = await samples(proxy)
    for name in ("prerender_requests", "prerender_snapshot_requests", "prerender_renders"):
        seen.extend(
            sorted(
                (tuple(sorted(one.labels.items())), one.value)
                for one in metrics.families[name].samples
                if one.value
            )
        )
    return seen


async def test_replaced_texts_change_no_behaviour(
    start_origin: StartOrigin, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await behaviour(start_origin, start_proxy)
    assert ("forward", "class_forwarded", "origin", None, 200, "") in expected
    assert ("render", "crawler", "proxy", "error", 503, "empty_page") in expected
    assert ("complete", "", ("prerender_ready", False)) in expected
    assert ("failed", "", ("nothing_pending", False)) in expected
    assert ("failed", "", ("nothing_pending", True)) in expected
    for number, word in enumerate(words()):
        assert word.text
        monkeypatch.setattr(word, "text", f"text {number}")
    assert await behaviour(start_origin, start_proxy) == expected
