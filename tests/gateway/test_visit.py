"""Blocked requests and limits of a page: what the page gets instead, and what is reported."""

import asyncio
from functools import partial

import pytest
from aiohttp import ClientError, WSServerHandshakeError, web
from yarl import URL

from prerender.config.settings import NetworkSettings
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.document import Document
from prerender.gateway.gateway import NetworkRules
from prerender.rendering.verdict import faults_of
from prerender.urls.hosts import Hosts
from tests.conftest import Reply, Site, StartOrigin, StartProxy, pages
from tests.support import raw
from tests.support.canary import Canary
from tests.support.plain_client import HTML, USER_AGENT, Elsewhere, PlainClient
from tests.support.sampling import sampled

SITE: dict[str, dict[str, object]] = {"site": {"url": "https://www.example.com"}}
NOTHING = "http://127.0.0.1:9"
TRACKER = "www.google-analytics.com"


@pytest.mark.parametrize(
    ("destination", "status", "content_type", "starts_with"),
    [
        ("script", 200, "text/javascript", b""),
        ("style", 200, "text/css", b""),
        ("image", 200, "image/gif", b"GIF89a"),
        ("audio", 200, "audio/wav", b"RIFF"),
        ("iframe", 200, "text/html", b""),
        ("empty", 204, None, b""),
        ("font", 204, None, b""),
    ],
)
async def test_stubs(
    destination: str, status: int, content_type: str | None, starts_with: bytes
) -> None:
    async with PlainClient.open(NOTHING) as browser:
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            headers = {"Sec-Fetch-Dest": destination, "Origin": "https://www.example.com"}
            answer = await browser.request(TRACKER, "/x", headers=headers)
        assert (answer.status, answer.headers.get("Content-Type")) == (status, content_type)
        assert answer.body.startswith(starts_with)
        assert bool(answer.body) == bool(starts_with)
        assert answer.headers["Access-Control-Allow-Origin"] == "https://www.example.com"
        assert "Server" not in answer.headers
        (exchange,) = visit.requests.exchanges
        assert (exchange.blocked, exchange.status, exchange.finished) == (True, status, True)


async def test_preflights_and_sockets_of_what_is_left_out() -> None:
    async with PlainClient.open(NOTHING) as browser:
        headers = {
            "Origin": "https://www.example.com",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type, x-own",
        }
        answer = await browser.request(TRACKER, "/x", method="OPTIONS", headers=headers)
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Methods"] == "POST"
        assert answer.headers["Access-Control-Allow-Headers"] == "content-type, x-own"
        with pytest.raises(WSServerHandshakeError, match="403"):
            await browser.client.ws_connect(browser.socket_url("/"), headers={"Host": TRACKER})


async def test_the_sites_own_files_are_never_taken_for_trackers(start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/x": "own"})
    rules = NetworkRules(
        network=NetworkSettings(deny=(f"*.{TRACKER}",), block_types=("image",), cache_bytes=0)
    )
    public = URL(f"http://{TRACKER}")
    async with PlainClient.open(origin.url, public=public, rules=rules) as browser:
        assert (await browser.request(TRACKER, "/x")).text == "own"
        image = await browser.request(TRACKER, "/x", headers={"Sec-Fetch-Dest": "image"})
        assert image.headers["Content-Type"] == "image/gif"


async def test_only_listed_third_parties(start_origin: StartOrigin) -> None:
    """The names of others are not even looked up."""
    cdn = await pages(start_origin, {"/lib.js": "code"})
    port = URL(cdn.url).port or 0
    policy = AddressPolicy(Hosts(["*.cdn.example", "192.0.2.0/24"]), only_listed=True)
    resolver = Elsewhere(port)
    async with PlainClient.open(NOTHING, resolver, rules=NetworkRules(addresses=policy)) as browser:
        assert (await browser.request("a.cdn.example", "/lib.js")).text == "code"
        for host in ("other.example", "cdn.example.evil.example", "8.8.8.8", "127.0.0.1"):
            assert (await browser.request(host, "/lib.js")).status == 403
    assert set(resolver.asked) == {"a.cdn.example"}


@pytest.mark.parametrize("only_listed", [False, True])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_a_refused_host_of_the_site_is_a_fault_that_names_the_setting(
    only_listed: bool, method: str
) -> None:
    """Also of a preflight: the request that follows is not sent."""
    rules = NetworkRules(addresses=AddressPolicy(only_listed=only_listed))
    async with PlainClient.open(NOTHING, Elsewhere(9), rules=rules) as browser:
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            for host in ("api.example.com", "api.example.net"):
                headers = {"Sec-Fetch-Dest": "empty", "Sec-Fetch-Mode": "cors"}
                if method == "OPTIONS":
                    headers["Access-Control-Request-Method"] = "GET"
                # Pages do without what is polled.
                for path in ("/data", "/socket.io/?transport=polling"):
                    answer = await browser.request(host, path, method=method, headers=headers)
                    assert answer.status == 403
    (fault,) = faults_of(visit.requests.exchanges, 0)
    assert (fault.url, fault.ours) == ("http://api.example.com/data", True)
    assert "[network] allow" in fault.text


async def test_the_content_does_not_depend_on_a_prefetch(start_origin: StartOrigin) -> None:
    """As Chromium 156 sends it for ``<link rel=prefetch crossorigin>``."""
    origin = await pages(start_origin, {})
    cors = {"Sec-Fetch-Dest": "empty", "Sec-Fetch-Mode": "cors"}
    async with PlainClient.open(origin.url) as browser:
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            for more in ({}, {"Sec-Purpose": "prefetch"}, {"Sec-Purpose": "prefetch;prerender"}):
                await browser.request("www.example.com", "/next", headers=cors | more)
    asked = [(one.status, one.needed, one.judged) for one in visit.requests.exchanges]
    assert asked == [(404, True, True), (404, False, False), (404, False, False)]


async def test_the_content_does_not_depend_on_a_long_poll(start_origin: StartOrigin) -> None:
    """Surveys, and lists that are loaded in parts, are content."""
    polls = ("/poll?seq=3", "/api/poll", "/chat/long-poll/7", "/socket.io/?transport=polling")
    data = ("/polls?seq=3", "/api/poll/7", "/poll.json", "/items?from=20", "/items?from=40")
    origin = await pages(start_origin, {})
    cors = {"Sec-Fetch-Dest": "empty", "Sec-Fetch-Mode": "cors"}
    async with PlainClient.open(origin.url) as browser:
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            for path in (*polls, *data):
                await browser.request("www.example.com", path, headers=cors)
    asked = [one.needed for one in visit.requests.exchanges]
    assert asked == [False] * len(polls) + [True] * len(data)


async def test_what_is_listed_may_be_private() -> None:
    async with Canary.open() as canary:
        here = f"127.0.0.1:{canary.port}"
        for entry, host, reached in [
            (f"http://{here}", here, True),
            (f"http://localhost:{canary.port}", f"localhost:{canary.port}", True),
            # Without an origin, at web ports only.
            ("127.0.0.1", here, False),
            ("127.0.0.0/8", f"localhost:{canary.port}", False),
            ("localhost", f"localhost:{canary.port}", False),
            ("http://127.0.0.1:1", here, False),
            ("127.0.0.2", here, False),
            ("127.0.0.1", f"0x7f.2:{canary.port}", False),
        ]:
            rules = NetworkRules(addresses=AddressPolicy(Hosts([entry])))
            async with PlainClient.open(NOTHING, rules=rules) as browser:
                answer = await browser.request(host, "/")
            assert (answer.status != 403) is reached, entry
            assert bool(canary.touched) is reached, entry
            canary.touched.clear()


async def test_what_is_denied_is_not_reached_by_another_name() -> None:
    policy = AddressPolicy(
        Hosts(["localhost", "127.0.0.0/8", "::1"]), Hosts(["127.0.0.0/8", "::1"])
    )
    async with Canary.open() as canary:
        async with PlainClient.open(NOTHING, rules=NetworkRules(addresses=policy)) as browser:
            for host in ("localhost", "127.0.0.1", "[::ffff:127.0.0.1]"):
                assert (await browser.request(f"{host}:{canary.port}", "/")).status == 403
        assert canary.touched == []


@pytest.mark.parametrize("host", ["www.example.com", "www.example.com.", "WWW.EXAMPLE.COM"])
async def test_the_site_itself_by_all_its_names(start_origin: StartOrigin, host: str) -> None:
    """Also with the other scheme: from outside, these URLs lead to the proxy."""
    origin = await pages(start_origin, {"/x": "own"})
    public = URL("https://www.example.com")
    async with PlainClient.open(origin.url, public=public) as browser:
        assert (await browser.request(host, "/x")).text == "own"
        assert (await browser.request(f"{host}:8080", "/x")).status != 200
    assert {request.headers["Host"] for request in origin.requests} == {"www.example.com"}


LIMITS = NetworkSettings(
    max_requests=3, max_bytes=1000, max_response_bytes=600, request_timeout=0.3, cache_bytes=0
)


async def answers(start_origin: StartOrigin) -> Site:
    """An origin of responses of a given size, with Content-Length or chunked, or very slow."""
    application = web.Application()

    async def known(request: web.Request) -> web.Response:
        return web.Response(body=bytes(int(request.match_info["size"])))

    async def chunked(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": request.query.get("type", "x/y")})
        await response.prepare(request)
        for _ in range(int(request.match_info["size"]) // 100):
            await response.write(bytes(100))
        return response

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": request.query["type"]})
        if request.query.get("begin"):
            await response.prepare(request)
            await response.write(b"data: 1\n\n")
        await asyncio.sleep(float(request.query["seconds"]))
        return response

    application.add_routes(
        [
            web.get("/known/{size}", known),
            web.get("/chunked/{size}", chunked),
            web.get("/slow", slow),
        ]
    )
    return await start_origin(application)


async def asked(browser: PlainClient, path: str) -> Reply | None:
    """The response, or None if it was cut off."""
    try:
        return await browser.request("www.example.com", path)
    except ClientError:
        return None


async def test_too_many_requests(start_origin: StartOrigin) -> None:
    origin = await answers(start_origin)
    async with PlainClient.open(origin.url, rules=NetworkRules(network=LIMITS)) as browser:
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            for number in range(8):
                answer = await asked(browser, "/known/1")
                assert answer
                assert answer.status == (200 if number < 3 else 403)
            # The page that asks in vain without end does not fill our memory.
            assert [exchange.blocked for exchange in visit.requests.exchanges] == [False] * 3 + [
                True
            ]
            refused = visit.requests.exchanges[-1]
            assert refused.reason == "limit reached: [network] max_requests = 3"
        with browser.visit(1, Document(200, HTML, b"")):
            assert await asked(browser, "/known/1")
    assert len(origin.requests) == 4


@pytest.mark.parametrize("cacheable", ["", "?type=text/css"])
@pytest.mark.parametrize("cache_bytes", [0, 10**6])
async def test_too_many_bytes(start_origin: StartOrigin, cacheable: str, cache_bytes: int) -> None:
    origin = await answers(start_origin)
    rules = NetworkRules(
        network=LIMITS.model_copy(update={"max_requests": 99, "cache_bytes": cache_bytes})
    )
    async with PlainClient.open(origin.url, rules=rules) as browser:
        ask = partial(asked, browser)
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            assert (await ask("/known/601")).status == 403  # type: ignore[union-attr]
            assert await ask(f"/chunked/700{cacheable}") is None
            assert visit.usage.received_bytes <= 700
            assert [exchange.blocked for exchange in visit.requests.exchanges] == [True, True]
            limit = "limit reached: [network] max_response_bytes = 600"
            assert {exchange.reason for exchange in visit.requests.exchanges} == {limit}
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            assert (await ask("/known/600")).status == 200  # type: ignore[union-attr]
            assert (await ask("/known/401")).status == 403  # type: ignore[union-attr]
            assert await ask(f"/chunked/500{cacheable}") is None
            assert (await ask("/known/1")).status == 403  # type: ignore[union-attr]
            assert [it.blocked for it in visit.requests.exchanges] == [False, True, True, True]


async def test_requests_that_take_too_long(start_origin: StartOrigin) -> None:
    origin = await answers(start_origin)
    # What the content depends on may take as long as its render.
    rules = NetworkRules(network=LIMITS, optional=("/slow*",))
    async with PlainClient.open(origin.url, rules=rules) as browser:
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            silent = await asked(browser, "/slow?type=x/y&seconds=9")
            assert silent
            assert silent.status == 504
            assert await asked(browser, "/slow?type=x/y&seconds=9&begin=1") is None
            stream = await asked(browser, "/slow?type=text/event-stream&seconds=0.6&begin=1")
            assert stream
            assert stream.body == b"data: 1\n\n"
            # They are failures of the server, and make the snapshot a doubtful one.
            assert [it.status for it in visit.requests.exchanges] == [504, 504, 200]
            assert not any(it.blocked for it in visit.requests.exchanges)
            assert all(it.finished for it in visit.requests.exchanges)


@pytest.mark.parametrize("begun", [False, True])
async def test_what_the_end_of_the_visit_ends_has_no_response(
    start_origin: StartOrigin, begun: bool
) -> None:
    """Nor later, when the requests have been cancelled: pages are judged in a thread meanwhile."""
    asked = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if begun:
            await response.prepare(request)
            await response.write(b"[1, ")
        asked.set()
        await asyncio.Event().wait()
        return response

    application = web.Application()
    application.router.add_get("/data", hang)
    origin = await start_origin(application)
    async with PlainClient.open(origin.url) as browser, asyncio.timeout(raw.SECONDS):
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            request = browser.request(
                "www.example.com", "/data", headers={"Sec-Fetch-Dest": "empty"}
            )
            task = asyncio.create_task(request)
            task.add_done_callback(lambda done: done.exception())
            await asked.wait()
            (exchange,) = visit.requests.exchanges
            while begun and not exchange.status:
                await asyncio.sleep(0.01)
        for _ in range(2):
            assert (exchange.lacks_response, exchange.verdict) == (True, "unanswered")
            await asyncio.wait({task})
            while not exchange.finished:
                await asyncio.sleep(0.01)


async def test_sockets_that_say_too_much(start_origin: StartOrigin) -> None:
    application = web.Application()

    async def talk(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for _ in range(20):
            await socket.send_bytes(bytes(100))
        await socket.receive()
        return socket

    application.router.add_get("/", talk)
    origin = await start_origin(application)
    async with PlainClient.open(origin.url, rules=NetworkRules(network=LIMITS)) as browser:
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            headers = {"Host": "www.example.com", "User-Agent": USER_AGENT.format(1)}
            async with browser.client.ws_connect(
                browser.socket_url("/"), headers=headers
            ) as socket:
                async with asyncio.timeout(raw.SECONDS):
                    heard = [message.data async for message in socket]
            assert heard == [bytes(100)] * 6
            assert [exchange.blocked for exchange in visit.requests.exchanges] == [True]


async def test_requests_of_no_page_are_limited_too(start_origin: StartOrigin) -> None:
    origin = await answers(start_origin)
    async with PlainClient.open(origin.url, rules=NetworkRules(network=LIMITS)) as browser:
        assert (await browser.request("www.example.com", "/known/601", page=0)).status == 403


async def test_the_browsers_full_name_does_not_go_out(start_origin: StartOrigin) -> None:
    """Requests of shared workers carry it, without the number of a page."""
    origin = await pages(start_origin, {"/": "x"})
    full = "Mozilla/5.0 (X11; Linux x86_64) HeadlessChrome/156.0.8078.79 Safari/537.36"
    async with PlainClient.open(origin.url) as browser:
        await browser.request("www.example.com", "/", headers={"User-Agent": full})
        await browser.request("www.example.com", "/", page=7)
    for request in origin.requests:
        assert "Chrome/156.0.0.0 Safari" in request.headers["User-Agent"]
        assert "Headless" not in request.headers["User-Agent"]
    assert USER_AGENT.format(0).endswith("Chrome/156.0.0.0 Safari/537.36")


PAGE_WITH_TRACKERS = """<!DOCTYPE html><title>Trackers</title><p id="out">waiting</p>
<script>
  window.dataLayer = [];
  const gtag = function () { dataLayer.push(arguments); };
  window.ga = window.ga || function () { (ga.q = ga.q || []).push(arguments); };
  const seen = [];
  const said = (what) => (event) => { seen.push(`${what} ${event.type}`); };
  const add = (name, attributes) => {
    const element = Object.assign(document.createElement(name), attributes);
    element.onload = said(name);
    element.onerror = said(name);
    document.body.append(element);
  };
  add("script", {src: "https://www.googletagmanager.com/gtag/js?id=G-1"});
  add("script", {src: "https://www.google-analytics.com/analytics.js", crossOrigin: "anonymous"});
  add("img", {src: "https://bat.bing.com/action/0"});
  add("iframe", {src: "https://www.googletagmanager.com/ns.html"});
  gtag("event", "x");
  ga("send", "pageview");
  const posted = fetch("https://region1.google-analytics.com/g/collect", {
    method: "POST", headers: {"Content-Type": "application/json"}, body: "{}", credentials: "include",
  });
  navigator.sendBeacon("https://www.google-analytics.com/collect", "x");
  addEventListener("load", async () => {
    seen.push(`fetch ${(await posted).status}`);
    out.textContent = `done: ${seen.sort().join(", ")}; ${dataLayer.length} ${ga.q.length}`;
  });
</script>"""


async def test_pages_do_not_notice_that_trackers_are_missing(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": PAGE_WITH_TRACKERS})
    proxy = await start_proxy(origin.url, SITE)
    answer = await proxy.crawl("/")
    loaded = "fetch 204, iframe load, img load, script load, script load"
    assert f"done: {loaded}; 1 1" in answer.text
    # Nor is the snapshot a doubtful one because of them.
    assert "stored; ttl=3600" in answer.headers["Cache-Status"]


async def test_types_that_are_left_out_do_not_look_broken(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = """<p id="out">waiting</p><script>
      const loaded = (name, event) => new Promise((resolve) => {
        const element = document.createElement(name);
        element.addEventListener(event, () => resolve(`${name} ${event}`));
        element.addEventListener("error", () => resolve(`${name} error`));
        element.src = `/${name}`;
        document.body.append(element);
      });
      Promise.all([loaded("img", "load"), loaded("video", "loadedmetadata"),
        loaded("audio", "loadedmetadata")]).then((all) => { out.textContent = all.join(", "); });
    </script>"""
    origin = await pages(start_origin, {"/": page})
    proxy = await start_proxy(origin.url, SITE | {"network": {"block_types": ["image", "media"]}})
    answer = await proxy.crawl("/")
    assert "img load, video loadedmetadata, audio loadedmetadata" in answer.text
    assert {request.path for request in origin.requests} == {"/"}


@pytest.mark.parametrize("host", sampled(["localhost", "127.0.0.1"], 2))
async def test_a_listed_service_on_another_port(
    start_origin: StartOrigin, start_proxy: StartProxy, host: str
) -> None:
    """A listed API of the site on this machine is reached directly, and nothing else there."""
    application = web.Application()

    async def interface(request: web.Request) -> web.Response:
        headers = {"Access-Control-Allow-Origin": request.headers["Origin"]}
        return web.Response(text="from the interface", headers=headers)

    application.router.add_get("/", interface)
    service = (await start_origin(application)).url.replace("127.0.0.1", host)
    async with Canary.open() as canary:
        page = f"""<p id="out">waiting</p><script>
          fetch("http://{host}:{canary.port}/").catch(() => "unreached").then(async (other) => {{
            const answer = await fetch("{service}/");
            out.textContent = `${{await answer.text()}}, ${{other}}`;
          }});
        </script>"""
        origin = await pages(start_origin, {"/": page})
        proxy = await start_proxy(origin.url, SITE | {"network": {"allow": [service]}})
        answer = await proxy.crawl("/")
        assert "from the interface, unreached" in answer.text
        assert canary.touched == []


async def test_a_render_goes_on_with_what_it_has(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = """<p id="out">waiting</p><script>
      Promise.all(Array.from({length: 25}, (_, i) => fetch(`/part?${i}`))).then((all) => {
        out.textContent = `${all.filter((answer) => answer.ok).length} answered`;
      });
    </script>"""
    origin = await pages(start_origin, {"/": page, "/part": "x"})
    settings = {"network": {"max_requests": 10}, "render": {"incomplete": "serve"}}
    proxy = await start_proxy(origin.url, SITE | settings)
    answer = await proxy.crawl("/")
    # The document is one of the ten.
    assert "9 answered" in answer.text
    assert (answer.status, origin.count("/part")) == (200, 9)
