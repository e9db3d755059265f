"""Snapshots by device and language: which one a client gets, and that they never mix."""

import asyncio
import re
from collections.abc import Mapping

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from prerender.browser.settling import patience
from prerender.http.fields import Fields
from prerender.http.message_head import parse_request
from prerender.snapshots.target import Target
from prerender.snapshots.variants import Variant, Vary
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import Proxy, Site, StartOrigin, StartProxy

PUBLIC = URL("https://www.example.com")
LANGUAGES = ("en", "de", "fr-CH", "zh-Hant")
PHONE = (
    "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/137.0.0.0 Mobile Safari/537.36 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
)
TABLET = (
    "Mozilla/5.0 (Linux; Android 13; SM-X906C) AppleWebKit/537.36 Chrome/137.0.0.0 Safari/537.36"
)
DESK = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"


def _headers(fields: Mapping[str, str]) -> Fields:
    lines = "".join(f"\r\n{name}: {value}" for name, value in fields.items())
    return parse_request(f"GET / HTTP/1.1\r\nHost: a{lines}".encode("latin-1")).headers


@pytest.mark.parametrize(
    ("said", "language"),
    [
        ("", "en"),
        ("de", "de"),
        ("DE-de", "de"),
        ("de-CH,de;q=0.9,en;q=0.8", "de"),
        ("fr", "fr-CH"),
        ("fr-FR", "en"),
        ("fr-ch", "fr-CH"),
        ("zh-Hant-TW", "zh-Hant"),
        ("zh", "zh-Hant"),
        ("it, de;q=0.3, en;q=0.4", "en"),
        ("it, de;q=0.3, en;q=0", "de"),
        ("de;q=0", "en"),
        ("*", "en"),
        ("it, *;q=0.5, de;q=0.6", "de"),
        ("d", "en"),
        ("de;q=x, fr-CH;q=0.1", "fr-CH"),
        (",;,;;q", "en"),
        ("ü", "en"),
    ],
)
def test_languages(said: str, language: str) -> None:
    vary = Vary(languages=LANGUAGES)
    assert vary.variant_of(_headers({"Accept-Language": said})) == Variant("desktop", language)


@pytest.mark.parametrize(
    ("user_agent", "device"),
    [(PHONE, "mobile"), (TABLET, "desktop"), (DESK, "desktop"), ("", "desktop")],
)
def test_devices(user_agent: str, device: str) -> None:
    vary = Vary(device=True)
    assert vary.variant_of(_headers({"User-Agent": user_agent})).device == device
    assert Vary().variant_of(_headers({"User-Agent": user_agent})) == Variant()


_TEXT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"))


@given(_TEXT, _TEXT)
def test_nothing_but_what_is_declared_comes_out(user_agent: str, language: str) -> None:
    vary = Vary(device=True, languages=LANGUAGES)
    variant = vary.variant_of(_headers({"User-Agent": user_agent, "Accept-Language": language}))
    assert variant.device in ("desktop", "mobile")
    assert variant.language in LANGUAGES
    assert variant in vary.variants


def test_all_variants() -> None:
    assert Vary().variants == (Variant(),)
    assert Vary(device=True).variants == (Variant(), Variant("mobile"))
    variants = Vary(device=True, languages=LANGUAGES).variants
    assert len(set(variants)) == 2 * len(LANGUAGES)


def test_each_variant_has_a_key_of_its_own() -> None:
    variants = [
        Variant(device, language)
        for device in ("desktop", "mobile")
        for language in ("", *LANGUAGES)
    ]
    pages = [PrettyURL("/", ""), PrettyURL("/", "mobile"), PrettyURL("/", " mobile en")]
    targets = [Target.of(PUBLIC, page, variant=variant) for page in pages for variant in variants]
    assert len({target.key for target in targets}) == len(targets)
    # Those of before there were any variants stay.
    assert Target.of(PUBLIC, pages[0]).key == targets[0].key
    # Purges mean all variants of a page.
    assert len({target.path for target in targets}) == len(pages)


PAGE = """<!DOCTYPE html><meta name=viewport content="width=device-width">
<title>%s</title><ul id=out></ul><script>
  const say = (name, value) => { out.innerHTML += `<li>${name}=${value}</li>`; };
  say("agent", navigator.userAgent);
  say("hint", navigator.userAgentData?.mobile);
  say("languages", navigator.languages);
  say("language", navigator.language);
  say("number", (1234.5).toLocaleString());
  say("width", innerWidth);
  say("narrow", matchMedia("(max-width: 600px)").matches);
  say("finger", matchMedia("(pointer: coarse)").matches);
  say("mouse", ["hover: hover", "any-hover: hover", "pointer: fine", "any-pointer: fine"]
    .map((query) => matchMedia(`(${query})`).matches));
  say("touch", navigator.maxTouchPoints);
  fetch("/data").then((answer) => answer.text()).then((text) => say("asked", text));
  new Worker("/worker.js").onmessage = (event) => say("worker", event.data);
</script>"""
WORKER = """fetch("/data").then((answer) => answer.text()).then((text) =>
  postMessage(text))"""


def _says(request: web.Request) -> str:
    agent = "phone" if "Mobile" in request.headers["User-Agent"] else "desk"
    return f"{agent} {request.headers.get('Accept-Language')}"


@pytest.fixture(autouse=True)
def _one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of these pages say nothing more."""
    monkeypatch.setattr(patience, "DELIVERING_SECONDS", 0.3)


async def _site(start_origin: StartOrigin) -> Site:
    application = web.Application()

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=PAGE % _says(request), content_type="text/html")

    async def data(request: web.Request) -> web.Response:
        return web.Response(text=_says(request))

    async def worker(_: web.Request) -> web.Response:
        return web.Response(text=WORKER, content_type="text/javascript")

    application.add_routes(
        [web.get("/", page), web.get("/data", data), web.get("/worker.js", worker)]
    )
    return await start_origin(application)


def _facts(text: str) -> dict[str, str]:
    items = text.split("<li>")[1:]
    facts = dict(item.partition("</li>")[0].split("=", 1) for item in items)
    return facts | {"title": text.partition("<title>")[2].partition("</title>")[0]}


def _check(text: str, *, mobile: bool, language: str, weighed: str, number: str) -> None:
    facts = _facts(text)
    who = "phone" if mobile else "desk"
    assert facts["title"] == f"{who} {weighed}"
    assert facts["asked"] == f"{who} {weighed}"
    assert facts["worker"] == f"{who} {weighed}"
    assert ("Mobile Safari" in facts["agent"]) is mobile
    assert facts["hint"] == str(mobile).lower()
    assert facts["language"] == language
    assert facts["languages"].split(",")[0] == language
    assert facts["number"].replace("\u2019", "'") == number  # which of them is up to Chromium
    assert facts["narrow"] == facts["finger"] == str(mobile).lower()
    assert int(facts["width"]) == (412 if mobile else 1280)
    assert (int(facts["touch"]) > 0) is mobile
    assert facts["mouse"] == ",".join([str(not mobile).lower()] * 4)


SETTINGS: dict[str, dict[str, object]] = {
    "site": {"url": "https://www.example.com"},
    "browser": {"pages": 1},
    "triggers": {"search": "render"},
    "cache": {"vary": ["device", "language"], "languages": ["en", "de-CH"]},
}


async def _ask(proxy: Proxy, user_agent: str, language: str, how: str) -> str:
    headers = {"User-Agent": user_agent, "Accept-Language": language}
    reply = await proxy.get("/?_escaped_fragment_=", headers=headers)
    assert reply.status == 200
    assert reply.headers["Cache-Status"].startswith(f"prerender; {how}")
    assert reply.headers.getall("Vary") == ["Accept-Encoding, User-Agent, Accept-Language"]
    return reply.text


@pytest.mark.ci_only
async def test_variants_on_one_page_of_the_browser(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await _site(start_origin)
    proxy = await start_proxy(origin.url, SETTINGS)
    german = {"language": "de-CH", "weighed": "de-CH,de;q=0.9", "number": "1'234.5"}
    english = {"language": "en", "weighed": "en", "number": "1,234.5"}
    for how in ("fwd=miss", "hit"):
        _check(await _ask(proxy, PHONE, "de", how), mobile=True, **german)
        _check(await _ask(proxy, DESK, "fr", how), mobile=False, **english)
        _check(await _ask(proxy, DESK, "de-CH", how), mobile=False, **german)
        _check(await _ask(proxy, PHONE, "", how), mobile=True, **english)
        assert origin.count("/") == 4
    # The same snapshots for those who ask for the ordinary URL.
    reply = await proxy.get("/", headers={"User-Agent": PHONE})
    assert "hit" in reply.headers["Cache-Status"]
    assert reply.headers.getall("Vary") == ["Accept-Encoding, User-Agent, Accept-Language"]


async def test_variants_leave_nothing_for_the_next_render(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await _site(start_origin)
    cache = {"vary": ["device"], "ttl": 0}
    proxy = await start_proxy(origin.url, SETTINGS | {"cache": cache})

    async def facts(user_agent: str) -> dict[str, str]:
        reply = await proxy.get("/?_escaped_fragment_=", headers={"User-Agent": user_agent})
        # The number of the tab, which is another one for each render, goes no further than the gateway.
        return _facts(re.sub(r"(Chrome/\d+\.0\.0\.)\d+", r"\g<1>0", reply.text))

    ordinary = await facts(DESK)
    assert "Mobile" not in ordinary["agent"]
    assert ordinary["languages"].startswith("en-US")
    phone = await facts(PHONE)
    assert phone["title"].startswith("phone")
    # Twice on a phone, then on none.
    assert await facts(PHONE) == phone
    assert await facts(DESK) == ordinary
    both = await asyncio.gather(facts(PHONE), facts(DESK))
    assert list(both) == [phone, ordinary]


async def test_a_long_page_is_as_narrow_as_the_phone(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    application = web.Application()
    page = """<!DOCTYPE html><meta name=viewport content="width=device-width">
      <div style="height: 5000px"></div><p id=out>not seen</p>
      <script>new IntersectionObserver((entries) => {
        if (entries[0].isIntersecting) out.textContent = `seen at ${innerWidth}`;
      }).observe(out)</script>"""

    async def index(_: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    application.add_routes([web.get("/", index)])
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, SETTINGS)
    for user_agent, width in ((PHONE, 412), (DESK, 1280)):
        reply = await proxy.get("/?_escaped_fragment_=", headers={"User-Agent": user_agent})
        assert f"seen at {width}" in reply.text
