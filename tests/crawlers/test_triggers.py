"""Crawlers at ordinary URLs: by class, they get a snapshot, the page itself, or a 403."""

import itertools

import pytest
from aiohttp import web

from prerender.config import load
from prerender.config.crawler_classes import CLASSES, PRESETS
from prerender.config.presets import PRESET_WORDS
from prerender.crawlers.from_settings import triggers_of
from prerender.errors import ConfigError
from tests.conftest import Proxy, Site, StartOrigin, StartProxy, pages

GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
GPTBOT = "Mozilla/5.0 (compatible; GPTBot/1.3; +https://openai.com/gptbot)"
PREVIEW = "ExamplePreview/1.0"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/156.0.0.0 Safari/537.36"
PAGE = "<title>t</title><p id=out>shell</p><script>out.textContent = 'rendered'</script>"
SETTINGS: dict[str, dict[str, object]] = {
    "site": {"url": "https://www.example.com"},
    "triggers": {
        "search": "render",
        "ai_training": "refuse",
        "social": "render",
        "more": [{"class": "social", "name": "ExamplePreview"}],
        "exclude": ["/account*"],
    },
}


async def _both(start_origin: StartOrigin, start_proxy: StartProxy) -> tuple[Site, Proxy]:
    data = web.Response(text='{"a": 1}', content_type="application/json")
    origin = await pages(
        start_origin, {"/": PAGE, "/account": PAGE, "/data": data, "/style.css": data}
    )
    return origin, await start_proxy(origin.url, SETTINGS)


async def test_crawlers_get_what_people_see(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    _, proxy = await _both(start_origin, start_proxy)
    for user_agent in (GOOGLEBOT, PREVIEW):
        answer = await proxy.get("/?q=1", headers={"User-Agent": user_agent})
        assert ">rendered<" in answer.text
        assert answer.headers.getall("Vary") == ["Accept-Encoding, User-Agent"]
    # One snapshot for all of them, and for those who ask by the ugly URL.
    answer = await proxy.get("/?q=1&_escaped_fragment_=")
    assert "hit" in answer.headers["Cache-Status"]
    # There, only because a class of crawlers is refused.
    assert answer.headers.getall("Vary") == ["Accept-Encoding, User-Agent"]
    fresh = await proxy.get(
        "/?q=1", headers={"User-Agent": GOOGLEBOT, "If-None-Match": answer.headers["ETag"]}
    )
    assert fresh.status == 304
    assert fresh.headers.getall("Vary") == ["Accept-Encoding, User-Agent"]


async def test_people_get_the_page_itself(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin, proxy = await _both(start_origin, start_proxy)
    answer = await proxy.get("/", headers={"User-Agent": BROWSER})
    assert ">shell<" in answer.text
    # A cache in front of us must not give a crawler the one and a person the other.
    assert "User-Agent" in answer.headers.getall("Vary")
    data = await proxy.get("/data", headers={"User-Agent": BROWSER})
    assert "Vary" not in data.headers
    assert origin.count("/") == 1


async def test_only_pages_are_rendered(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin, proxy = await _both(start_origin, start_proxy)
    for path, requests in (("/style.css", 1), ("/data", 2), ("/account", 1)):
        answer = await proxy.get(path, headers={"User-Agent": GOOGLEBOT})
        assert "Cache-Status" not in answer.headers
        # The origin's Content-Type tells what the extension does not.
        assert origin.count(path) == requests
    assert ">shell<" in (await proxy.get("/account?_escaped_fragment_=")).text


async def test_refused_crawlers_cost_nothing(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin, proxy = await _both(start_origin, start_proxy)
    for path in ("/", "/?_escaped_fragment_=", "/style.css"):
        answer = await proxy.get(path, headers={"User-Agent": GPTBOT})
        assert answer.status == 403
        assert "not open to crawlers" in answer.text
    assert origin.count("/") == 0


def _crawlers(preset: str, **classes: str) -> dict[str, dict[str, object]]:
    return {"triggers": {"preset": preset, **classes}}


async def test_one_line_switches_the_usual_crawlers_on(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    proxy = await start_proxy(origin.url, _crawlers("crawlers"))
    for user_agent in (GOOGLEBOT, "OAI-SearchBot/1.0", "ChatGPT-User/1.0", "Slackbot 1.0"):
        answer = await proxy.get("/", headers={"User-Agent": user_agent})
        assert ">rendered<" in answer.text, user_agent
    for user_agent in (GPTBOT, "Mozilla/5.0 (compatible; AhrefsBot/7.0)", BROWSER):
        answer = await proxy.get("/", headers={"User-Agent": user_agent})
        assert ">shell<" in answer.text, user_agent


async def test_all_crawlers_but_no_visitors(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    proxy = await start_proxy(origin.url, _crawlers("all"))
    for user_agent in (
        GOOGLEBOT,
        GPTBOT,
        "ClaudeBot/1.0",
        "Mozilla/5.0 (compatible; AhrefsBot/7.0)",
    ):
        answer = await proxy.get("/", headers={"User-Agent": user_agent})
        assert ">rendered<" in answer.text, user_agent
    assert ">shell<" in (await proxy.get("/", headers={"User-Agent": BROWSER})).text


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (_crawlers("none"), "forward"),
        (_crawlers("crawlers"), "render"),
        (_crawlers("all"), "render"),
        (_crawlers("crawlers", search="forward"), "forward"),
        (_crawlers("crawlers", search="markdown"), "markdown"),
        (_crawlers("none", search="render"), "render"),
    ],
)
def test_a_class_of_its_own_overrides_the_preset(
    settings: dict[str, dict[str, object]], expected: str
) -> None:
    loaded = load(None, {"PRERENDER_ORIGIN": "http://app:3000"}, settings)
    triggers = triggers_of(loaded)
    assert triggers.action(triggers.class_of(GOOGLEBOT)) == expected


def test_each_preset_contains_the_one_before() -> None:
    classes = list(PRESETS.values())
    assert all(before < after for before, after in itertools.pairwise(classes))
    assert PRESETS["crawlers"] == {"search", "ai_search", "ai_user", "social"}
    assert PRESETS["ai"] - PRESETS["crawlers"] == {"ai_training"}
    assert set(CLASSES) - PRESETS["all"] == {"monitoring", "signed"}
    assert PRESET_WORDS.keys() == PRESETS.keys()


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"preset.*'most'.*give \"none\", \"search\", \"crawlers\", \"ai\" or \"all\"",
    ):
        load(None, {"PRERENDER_ORIGIN": "http://app:3000"}, _crawlers("most"))
