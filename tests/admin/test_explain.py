"""Explain says what would happen to a request, decided by the proxy's own code."""

import asyncio
import json
import re
from typing import Any

import jsonschema
import pytest
from aiohttp import web
from yarl import URL

from prerender.admin.page_urls import Site as PageURLs
from prerender.urls.tracking import Tracking
from tests.conftest import Proxy, Site, StartOrigin, StartProxy, pages
from tests.support.api_description import description
from tests.support.programs import run

GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
GPTBOT = "Mozilla/5.0 (compatible; GPTBot/1.3; +https://openai.com/gptbot)"
TOKEN = "a-token-of-some-length"
PUBLIC = "https://www.example.com"
SETTINGS: dict[str, dict[str, object]] = {
    "site": {"url": PUBLIC},
    "triggers": {
        "search": "render",
        "ai_training": "refuse",
        "exclude": ["/account*"],
        "robots_opt_out": True,
    },
    "cache": {"rules": [{"path": "/#!/my*", "ttl": "never"}]},
}
ROBOTS = "User-agent: *\nDisallow: /no*_escaped_fragment_"


async def site(start_origin: StartOrigin) -> Site:
    return await pages(
        start_origin,
        {"/": "<title>a</title><p>Content", "/robots.txt": web.Response(text=ROBOTS)},
    )


def as_described(told: object, schema: str) -> None:
    """Check a response against the API's description."""
    described = {
        "$ref": f"#/components/schemas/{schema}",
        "components": description()["components"],
    }
    jsonschema.validate(told, described, jsonschema.Draft202012Validator)


async def explain(proxy: Proxy, asked: dict[str, str], expected: int = 200) -> dict[str, Any]:
    url = URL(f"{proxy.admin_url}/api/v1/explain").with_query(asked)
    async with proxy.client.get(url, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        assert response.status == expected
        told: dict[str, Any] = await response.json()
        as_described(told, "Explanation" if expected == 200 else "Problem")
        return told


def test_a_site_with_an_internationalized_name() -> None:
    site = PageURLs(URL("https://münchen.de:8443"), Tracking(()))
    for host in ("münchen.de", "MÜNCHEN.de", "xn--mnchen-3ya.de"):
        for named in (f"{host}:8443", f"https://{host}:8443"):
            assert site.target(f"{named}/a").url == "https://xn--mnchen-3ya.de:8443/a"
    with pytest.raises(ValueError, match="give a URL of"):
        site.target("https://munchen.de:8443/a")


NEITHER = ("forward", "ordinary", None, "the origin", None)
BY_SETTING = (
    "forward",
    "class_forwarded",
    "social",
    "the origin",
    None,
)
METHOD = ("forward", "method", None, "the origin", None)
EXCLUDED = ("forward", "excluded_path", None, "the origin", None)
OPTED_OUT = ("forward", "robots_txt", None, "the origin", None)
REFUSED = ("refuse", "class_refused", "ai_training", "the proxy: 403", None)
CRAWLER = ("render", "crawler", "search", "a new render", "/")


def ugly(page: str) -> tuple[str | None, ...]:
    return ("render", "ugly_url", None, "a new render", page)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"url": "/"}, NEITHER),
        ({"url": "/#!a"}, ugly("/#!a")),
        ({"url": f"{PUBLIC}/#!a b"}, ugly("/#!a%20b")),
        ({"url": "/?_escaped_fragment_=a"}, ugly("/#!a")),
        ({"url": "/?utm_source=x#!a"}, ugly("/#!a")),
        ({"url": "/", "user_agent": GOOGLEBOT}, CRAWLER),
        ({"url": "/", "header": f"user-agent: {GPTBOT}"}, REFUSED),
        ({"url": "/", "user_agent": "facebookexternalhit/1.1"}, BY_SETTING),
        ({"url": "/#!a", "method": "POST"}, METHOD),
        ({"url": "/account#!a"}, EXCLUDED),
        ({"url": "/no#!a"}, OPTED_OUT),
    ],
)
async def test_what_would_be_decided(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    asked: dict[str, str],
    expected: tuple[str | None, ...],
) -> None:
    origin = await site(start_origin)
    proxy = await start_proxy(origin.url, {**SETTINGS, "browser": {"path": "/nonexistent"}})
    told = await explain(proxy, asked)
    decision, reason, crawler, by, page = expected
    assert (told["decision"], told["reason"], told["crawler"]) == (decision, reason, crawler)
    assert told["answered_by"].startswith(by)
    assert told.get("page", {}).get("url") == (page and f"{PUBLIC}{page}")
    assert origin.count("/") == 0


async def test_variants_and_markdown(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await site(start_origin)
    proxy = await start_proxy(
        origin.url,
        {
            "browser": {"path": "/nonexistent"},
            "triggers": {"ai_user": "markdown"},
            "cache": {"vary": ["device"]},
        },
    )
    phone = await explain(proxy, {"url": "/#!a", "user_agent": "Mobile"})
    other = await explain(proxy, {"url": "/#!a"})
    assert (phone["page"]["variant"], other["page"]["variant"]) == ("mobile", "desktop")
    assert phone["page"]["key"] != other["page"]["key"]
    assert phone["page"]["markdown"] is False
    told = await explain(proxy, {"url": "/", "user_agent": "ChatGPT-User/1.0"})
    assert told["reason_text"] == "a client that prefers Markdown"
    assert told["page"]["markdown"] is True


async def test_what_is_stored(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await site(start_origin)
    proxy = await start_proxy(origin.url, SETTINGS)
    told = await explain(proxy, {"url": "/#!a"})
    assert told["snapshot"] is None
    assert told["freshness"] == {"ttl_seconds": 3600, "shown": None, "renewed": False}
    assert origin.count("/") == 0

    answer = await proxy.crawl("/#!a")
    told = await explain(proxy, {"url": "/#!a"})
    assert told["answered_by"] == "the fresh snapshot"
    assert told["snapshot"]["etag"] == answer.headers["ETag"]
    assert told["snapshot"]["bytes"] == len(answer.body)
    assert told["snapshot"]["status"] == 200
    assert 0 <= told["snapshot"]["age_seconds"] < 10
    assert 3590 < told["snapshot"]["fresh_for_seconds"] <= 3600

    told = await explain(proxy, {"url": "/#!/my/cart"})
    assert told["freshness"]["ttl_seconds"] == 0
    assert told["snapshot"] is None
    assert origin.count("/") == 1


CAUSES = {
    "/slow": ("fetch('/never')", "incomplete", "requests", "/never: no response"),
    "/tracker": (
        "new Image().src = 'https://www.google-analytics.com/x'",
        "complete",
        "requests",
        "https://www.google-analytics.com/x: blocked (a tracker)",
    ),
    "/port": (
        "fetch('//127.0.0.2:8123/x').catch(() => 0)",
        "complete",
        "requests",
        "//127.0.0.2:8123/x: blocked (",
    ),
    "/unsafe": ("fetch('//127.0.0.1:1/x').catch(() => 0)", "complete", "errors", "127.0.0.1:1/x"),
    "/host": ("fetch('//api.invalid/x').catch(() => 0)", "complete", "requests", "//api.invalid/x"),
    "/throw": ("\n  missing()", "complete", "errors", "/throw:2:3"),
}


@pytest.mark.parametrize("path", CAUSES)
async def test_the_cause_of_missing_content(
    start_origin: StartOrigin, start_proxy: StartProxy, path: str
) -> None:
    script, verdict, kind, expected = CAUSES[path]

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/never":
            await asyncio.Event().wait()
        text = f"<p>{'Content ' * 200}</p><script>{script}</script>"
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path}", answer)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, {"render": {"timeout": "6s"}})
    await proxy.crawl(f"{path}#!a")
    async with asyncio.timeout(30):
        while not (last := (await explain(proxy, {"url": f"{path}#!a"})).get("last_render")):
            await asyncio.sleep(0.02)
    assert last["verdict"] == verdict
    assert expected in "\n".join(last[kind])


async def test_what_is_stale(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await site(start_origin)
    proxy = await start_proxy(origin.url, {"cache": {"stale": "1h"}})
    page = origin.url + "/#!a"
    await proxy.crawl("/#!a")
    await proxy.client.post(f"{proxy.admin_url}/api/v1/purge", json={"url": page, "soft": True})
    for _ in range(2):
        told = await explain(proxy, {"url": page})
        assert told["answered_by"] == "the stale snapshot"
        assert told["freshness"]["renewed"] is True
        assert told["rendering"]["this_page_now"] is False
    assert origin.count("/") == 1


async def test_only_who_knows_the_token_is_told(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(
        "http://127.0.0.1:9", {"browser": {"path": "/nonexistent"}, "admin": {"token": TOKEN}}
    )
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    url = f"{proxy.admin_url}/api/v1/explain?url=/"
    async with proxy.client.get(url) as response:
        assert response.status == 401
    async with proxy.client.get(url, headers=bearer) as response:
        assert (await response.json())["decision"] == "forward"
    for path in ("/healthz", "/metrics"):
        async with proxy.client.get(f"{proxy.admin_url}{path}") as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("asked", "status", "error"),
    [
        ({}, 400, "url: is required"),
        ({"url": "https://other.example/"}, 400, "url: "),
        ({"url": f"{PUBLIC}.evil.example/"}, 400, "url: "),
        ({"url": "/", "method": "TRACE"}, 400, "invalid request"),
        ({"url": "/", "method": "GET / HTTP/1.1\r\nA:"}, 400, "invalid request"),
        ({"url": "/", "header": "no name"}, 400, "invalid request"),
        ({"url": "/", "remote": "example.com"}, 400, "remote: 'example.com': give an IP address"),
    ],
)
async def test_what_is_no_question(
    start_proxy: StartProxy, asked: dict[str, str], status: int, error: str
) -> None:
    proxy = await start_proxy(
        "http://127.0.0.1:9", {**SETTINGS, "browser": {"path": "/nonexistent"}}
    )
    told = await explain(proxy, asked, status)
    assert told["detail"].startswith(error)


async def test_the_command(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(
        start_origin,
        {"/": "<title>a</title><p>Content", "/bad": "<script>throw Error('x')</script>"},
    )
    proxy = await start_proxy(origin.url, SETTINGS | {"admin": {"token": TOKEN}})

    async def told(*arguments: str) -> str:
        given = ("explain", *arguments, "--admin", proxy.admin_url)
        ended = await run(*given, environ={"PRERENDER_ADMIN_TOKEN": TOKEN})
        assert (ended.status, ended.err) == (0, "")
        return ended.out.decode()

    await proxy.crawl("/#!a")
    text = await told("#!a")
    assert "decision      render: an ugly URL\nresponse      the fresh snapshot\n" in text
    assert re.search(
        r"^snapshot      status 200, \d+ bytes, rendered \d+ s ago, fresh for (1 h 0|59 min \d+)",
        text,
        re.MULTILINE,
    )
    assert re.search(r"^last render   \S+, complete$", text, re.MULTILINE)
    assert (await proxy.crawl("/bad")).status == 503
    async with asyncio.timeout(20):
        while "Error: x" not in (
            text := await told("www.example.com/bad", "--user-agent", GOOGLEBOT)
        ):
            pass
    assert "snapshot      none is stored\n" in text
    assert f'client        a crawler of the class "search" ({GOOGLEBOT})\n' in text
    found = json.loads(await told("/", "--json", "--header", "User-Agent: GPTBot/1.3"))
    as_described(found, "Explanation")
    assert (found["decision"], found["crawler"]) == ("refuse", "ai_training")
    ended = await run("explain", "/", "--header", "a", "--admin", proxy.admin_url)
    assert (ended.status, ended.out) == (1, b"")
    assert ended.err.endswith(": the token is missing or wrong\n")
    own_token = {"PRERENDER_ADMIN_TOKEN": TOKEN}
    for wrong in (("explain", ""), ("explain", "/", "--header", "a"), ("purge", "--url", "")):
        ended = await run(*wrong, "--admin", proxy.admin_url, environ=own_token)
        assert (ended.status, ended.out) == (2, b"")
    ended = await run("purge", "--all", "--url", "/", "--admin", proxy.admin_url)
    assert (ended.status, ended.err) == (
        2,
        "prerender purge: --all stands alone: it purges every page\n",
    )
