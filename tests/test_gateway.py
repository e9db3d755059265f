"""The gateway: what it passes, what it refuses, and that nothing gets past it."""

import asyncio
import json
import re
import socket
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, DummyCookieJar, WSMsgType, WSServerHandshakeError, web
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from prerender.rendering import chromium
from prerender.rendering.chromium import Chromium
from prerender.rendering.gateway import Gateway, number_user_agent
from prerender.rendering.guard import PublicResolver
from prerender.rendering.visit import Document
from prerender.upstream import Upstream, open_session
from tests.conftest import Reply, Site, StartOrigin, StartProxy, pages

PUBLIC = URL("http://www.example.com")
USER_AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/156.0.0.{} Safari/537.36"
HTML = CIMultiDict({"Content-Type": "text/html"})


class Canary:
    """A listener of this machine that no page may touch, on TCP and UDP. ``touched`` says who did."""

    def __init__(self) -> None:
        self.touched: list[str] = []
        self.port = 0

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["Canary"]:
        canary = cls()
        loop = asyncio.get_running_loop()

        class Datagrams(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: object) -> None:
                canary.touched.append(f"UDP {data!r:.30}")

        server = await asyncio.start_server(canary._touch, "127.0.0.1", 0)
        canary.port = server.sockets[0].getsockname()[1]
        server6 = await asyncio.start_server(canary._touch, "::1", canary.port)
        udp, _ = await loop.create_datagram_endpoint(
            Datagrams, local_addr=("127.0.0.1", canary.port)
        )
        udp6, _ = await loop.create_datagram_endpoint(Datagrams, local_addr=("::1", canary.port))
        try:
            yield canary
        finally:
            server.close()
            server6.close()
            udp.close()
            udp6.close()

    async def _touch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(1):
                line = await reader.readline()
        except (TimeoutError, ValueError, OSError):
            line = b"TCP"
        self.touched.append(line.decode("latin-1").strip())
        writer.close()


class Elsewhere(AbstractResolver):
    """Every name is an address of this machine: a third party to test with."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host="127.0.0.1", port=self._port, family=family, proto=0, flags=0
            )
        ]

    async def close(self) -> None: ...


class PlainClient:
    """A gateway and a client that speaks to it as the browser does."""

    def __init__(self, gateway: Gateway, client: ClientSession) -> None:
        self.gateway = gateway
        self.client = client

    @classmethod
    @asynccontextmanager
    async def open(
        cls, origin: str, resolver: AbstractResolver | None = None, public: URL = PUBLIC
    ) -> AsyncIterator["PlainClient"]:
        async with (
            open_session(1, 5) as own,
            open_session(1, 5, resolver or PublicResolver()) as third_parties,
            Gateway.open(public, Upstream(own, URL(origin)), third_parties) as gateway,
            ClientSession(cookie_jar=DummyCookieJar(), auto_decompress=False) as client,
        ):
            yield cls(gateway, client)

    async def request(
        self,
        host: str,
        path: str = "/",
        *,
        page: int = 1,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Reply:
        """A request of a page, by its number; redirects are not followed."""
        sent = {"Host": host, "User-Agent": USER_AGENT.format(page), **(headers or {})}
        url = URL(f"http://127.0.0.1:{self.gateway.plain_port}{path}", encoded=True)
        options = {**options, "headers": sent, "allow_redirects": False}
        async with self.client.request(method, url, **options) as response:
            return Reply(response.status, response.headers, await response.read())

    def socket_url(self, path: str) -> str:
        return f"ws://127.0.0.1:{self.gateway.plain_port}{path}"


def test_resolver_rules() -> None:
    def rules(public: str) -> str:
        gateway = Gateway(URL(public), None, None)  # type: ignore[arg-type]
        gateway.plain_port, gateway.tls_port = 1080, 1443
        return gateway.resolver_rules

    everything = "MAP *:443 127.0.0.1:1443, MAP *:80 127.0.0.1:1080, MAP * ~NOTFOUND"
    assert sorted(rules("https://www.example.com").split(", ")) == sorted(everything.split(", "))
    assert sorted(rules("http://www.example.com").split(", ")) == sorted(everything.split(", "))
    assert rules("https://a.example:8443") == f"MAP *:8443 127.0.0.1:1443, {everything}"
    assert rules("http://127.0.0.1:3000") == f"MAP *:3000 127.0.0.1:1080, {everything}"


def test_page_numbers() -> None:
    agent = USER_AGENT.format(0)
    assert number_user_agent(agent, 7) == USER_AGENT.format(7)
    assert number_user_agent(number_user_agent(agent, 12345), 0) == agent
    assert number_user_agent("curl/8", 7) == "curl/8"


async def test_the_origin_is_asked_for_the_public_host(start_origin: StartOrigin) -> None:
    application = web.Application()

    async def echo(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.raw_path} {await request.text()}")

    application.router.add_route("*", "/{path:.*}", echo)
    origin = await start_origin(application)
    async with PlainClient.open(origin.url) as browser:
        answer = await browser.request("www.example.com", "/a/b?x=%2F&y", page=42)
        assert (answer.status, answer.text) == (200, "/a/b?x=%2F&y ")
        posted = await browser.request(
            "www.example.com", "/post", page=42, method="POST", data=b"body"
        )
        assert (posted.status, posted.text) == (200, "/post body")
    for request in origin.requests:
        assert request.headers["Host"] == "www.example.com"
        assert request.headers["X-Prerender"] == "1"
        assert request.headers["User-Agent"].startswith(USER_AGENT.format(0))
        assert "42" not in request.headers["User-Agent"]


async def test_third_parties_get_what_the_browser_sent(start_origin: StartOrigin) -> None:
    cdn = await pages(start_origin, {"/lib.js": "code"})
    async with PlainClient.open("http://127.0.0.1:9", Elsewhere(URL(cdn.url).port or 0)) as browser:
        with browser.gateway.visit(42, Document(200, HTML, b"")) as visit:
            answer = await browser.request(
                "cdn.example", "/lib.js?v=1", page=42, headers={"Cookie": "a=b"}
            )
        assert (answer.status, answer.text) == (200, "code")
    (request,) = cdn.requests
    assert request.headers["Host"] == "cdn.example"
    assert request.headers["Cookie"] == "a=b"
    assert request.headers["User-Agent"] == USER_AGENT.format(0)
    assert "X-Prerender" not in request.headers
    assert "X-Forwarded-Host" not in request.headers
    (exchange,) = visit.exchanges
    assert exchange.url == "http://cdn.example/lib.js?v=1"
    assert (exchange.status, exchange.received_bytes, exchange.finished) == (200, 4, True)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "127.1",
        "127.0.0.1.",
        "0x7f.1",
        "0.0.0.0",
        "0",
    ],
)
async def test_this_machine_is_refused(host: str) -> None:
    async with Canary.open() as canary, PlainClient.open("http://127.0.0.1:9") as browser:
        with browser.gateway.visit(1, Document(200, HTML, b"")) as visit:
            answer = await browser.request(f"{host}:{canary.port}", "/secret")
            assert (answer.status, answer.body) == (403, b"")
            with pytest.raises(WSServerHandshakeError, match="403"):
                await browser.client.ws_connect(
                    browser.socket_url("/socket"),
                    headers={"Host": f"{host}:{canary.port}", "User-Agent": USER_AGENT.format(1)},
                )
        assert [exchange.blocked for exchange in visit.exchanges] == [True, True]
        assert canary.touched == []


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "10.0.0.1", "[fd00:ec2::254]", "100.100.100.200", "xn--a", "[::1"]
)
async def test_internal_addresses_and_nonsense_are_refused(host: str) -> None:
    async with PlainClient.open("http://127.0.0.1:9") as browser:
        assert (await browser.request(host, "/latest/meta-data/")).status == 403


async def test_the_document_is_handed_over_once(start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/": "from the origin"})
    document = Document(404, CIMultiDict({"Content-Type": "text/html", "X-Mine": "1"}), b"kept")
    navigation = {"Accept": "text/html,*/*"}
    async with PlainClient.open(origin.url) as browser:
        with browser.gateway.visit(1, document) as visit:
            script = await browser.request("www.example.com", "/")
            assert script.text == "from the origin"
            other = await browser.request("www.example.com", "/", page=2, headers=navigation)
            assert other.text == "from the origin"
            frame = {"Sec-Fetch-Dest": "iframe", **navigation}
            assert (await browser.request("www.example.com", "/", headers=frame)).status == 200
            first = await browser.request("www.example.com", "/", headers=navigation)
            assert (first.status, first.body, first.headers["X-Mine"]) == (404, b"kept", "1")
            assert first.headers["Cache-Control"] == "no-store"
            again = await browser.request("www.example.com", "/", headers=navigation)
            assert (again.status, again.text) == (200, "from the origin")
        late = await browser.request("www.example.com", "/", headers=navigation)
        assert late.text == "from the origin"
    assert [exchange.status for exchange in visit.exchanges] == [200, 200, 404, 200]
    assert origin.count("/") == 5


async def test_redirects_are_the_browsers_business(start_origin: StartOrigin) -> None:
    async with Canary.open() as canary:
        inside = f"http://127.0.0.1:{canary.port}/secret"
        content: dict[str, str | web.Response] = {
            "/inside": web.Response(status=302, headers={"Location": inside}),
            "/own": web.Response(status=301),
        }
        origin = await pages(start_origin, content)
        assert isinstance(content["/own"], web.Response)
        content["/own"].headers["Location"] = f"{origin.url}/new?a=1"
        async with PlainClient.open(origin.url) as browser:
            answer = await browser.request("www.example.com", "/inside")
            assert (answer.status, answer.headers["Location"]) == (302, inside)
            followed = await browser.request(f"127.0.0.1:{canary.port}", "/secret")
            assert followed.status == 403
            own = await browser.request("www.example.com", "/own")
            assert own.headers["Location"] == "http://www.example.com/new?a=1"
        assert canary.touched == []


async def test_answers_pass_as_they_are() -> None:
    compressed = zlib.compress(b"text", wbits=31)
    answers = {
        "/plain": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntext",
        "/until-closed": b"HTTP/1.1 200 OK\r\n\r\ntext",
        "/empty": b"HTTP/1.1 204 No Content\r\n\r\n",
        "/same": b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n',
        "/teapot": b"HTTP/1.1 418 Short and stout\r\nContent-Length: 0\r\n\r\n",
        "/cookies": b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
        b"Content-Length: 0\r\n\r\n",
        "/gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        % len(compressed)
        + compressed,
        "/chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nte\r\n2\r\nxt\r\n0\r\n\r\n",
    }

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(answers[head.split()[1].decode()])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, PlainClient.open(f"http://127.0.0.1:{port}") as browser:
        got = {path: await browser.request("www.example.com", path) for path in answers}
    for path in ("/plain", "/until-closed", "/chunks"):
        assert (got[path].status, got[path].body) == (200, b"text")
        assert "Content-Type" not in got[path].headers
    assert (got["/empty"].status, got["/empty"].body) == (204, b"")
    assert (got["/same"].status, got["/same"].headers["ETag"]) == (304, '"x"')
    assert got["/teapot"].status == 418
    assert got["/cookies"].headers.getall("Set-Cookie") == ["a=1", "b=2"]
    assert got["/gzip"].body == compressed
    assert got["/gzip"].headers["Content-Encoding"] == "gzip"


async def test_an_origin_that_fails() -> None:
    async with PlainClient.open("http://127.0.0.1:9") as browser:
        with browser.gateway.visit(1, Document(200, HTML, b"")) as visit:
            answer = await browser.request("www.example.com", "/")
            assert (answer.status, answer.body) == (502, b"")
    assert [(it.status, it.blocked, it.finished) for it in visit.exchanges] == [(502, False, True)]


async def test_sockets_and_streams_are_endless(start_origin: StartOrigin) -> None:
    application = web.Application()

    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=["chat"])
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{request.headers['Host']}: {message.data}")
        return socket

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: one\n\n")
        return response

    application.add_routes([web.get("/socket", echo), web.get("/stream", stream)])
    origin: Site = await start_origin(application)
    async with PlainClient.open(origin.url) as browser:
        headers = {"Host": "www.example.com", "User-Agent": USER_AGENT.format(1)}
        with browser.gateway.visit(1, Document(200, HTML, b"")) as visit:
            async with browser.client.ws_connect(
                browser.socket_url("/socket"), headers=headers, protocols=["chat"]
            ) as socket:
                assert socket.protocol == "chat"
                await socket.send_str("hello")
                message = await socket.receive(timeout=5)
                assert (message.type, message.data) == (
                    WSMsgType.TEXT,
                    "www.example.com: hello",
                )
                assert [exchange.endless for exchange in visit.exchanges] == [True]
                assert not visit.waiting_for(10)
            answer = await browser.request("www.example.com", "/stream")
            assert answer.body == b"data: one\n\n"
            assert visit.exchanges[-1].endless


ESCAPE = (Path(__file__).parent / "escape.html").read_text(encoding="utf-8")
# All ways of the page lead to the first, some to each of them.
HOSTS = [
    "127.0.0.1",
    "localhost",
    "[::1]",
    "2130706433",
    "0x7f.1",
    "0.0.0.0",
    "[::ffff:127.0.0.1]",
    "canary.localhost",
    "www.example.com",
    "other.example",
]


async def escaping(start_origin: StartOrigin, canary: Canary, hosts: list[str]) -> Site:
    """A site with a page that tries to reach the canary."""
    page = ESCAPE.replace("PORT", str(canary.port)).replace("HOSTS", json.dumps(hosts))
    application = web.Application()

    async def show(_: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    async def hold(_: web.Request) -> web.Response:
        await asyncio.sleep(1)
        return web.Response(text="held")

    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": request.query_string})

    async def policies(request: web.Request) -> web.Response:
        """A frame that breaks its policies, and whose failures are to be reported."""
        url = request.query_string
        headers = {
            "Content-Security-Policy": f"img-src 'none'; report-uri {url}",
            "Reporting-Endpoints": f'there="{url}", default="{url}"',
            "Report-To": json.dumps(
                {"group": "there", "max_age": 600, "endpoints": [{"url": url}]}
            ),
            "NEL": json.dumps({"report_to": "there", "max_age": 600, "success_fraction": 1.0}),
        }
        text = '<img src="/x.png"><script>document.write("<script src=x.js><\\/script>")</script>'
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def links(request: web.Request) -> web.Response:
        url = request.query_string
        kinds = ("preload; as=script", "preconnect", "dns-prefetch", "stylesheet", "prefetch")
        headers = {
            "Link": ", ".join(f"<{url}>; rel={kind}" for kind in kinds),
            "Refresh": f"0; url={url}",
            "SourceMap": url,
            "Speculation-Rules": f'"{url}"',
        }
        return web.Response(text="links", content_type="text/html", headers=headers)

    async def styled(request: web.Request) -> web.Response:
        url = request.query_string
        text = f"""<?xml-stylesheet type="text/xsl" href="{url}"?>
            <!DOCTYPE a [<!ENTITY b SYSTEM "{url}">]><a>&b;</a>"""
        return web.Response(text=text, content_type="text/xml")

    async def worker(request: web.Request) -> web.Response:
        url = json.dumps(request.query_string)
        text = f"""oninstall = () => {{ fetch({url}, {{mode: "no-cors"}}); skipWaiting(); }};
            importScripts({url});"""
        return web.Response(text=text, content_type="text/javascript")

    routes = {
        "/": show,
        "/hold": hold,
        "/redirect": redirect,
        "/policies": policies,
        "/links": links,
        "/styled": styled,
        "/worker.js": worker,
    }
    application.add_routes([web.get(path, handler) for path, handler in routes.items()])
    return await start_origin(application)


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_no_page_reaches_this_machine(
    start_origin: StartOrigin, start_proxy: StartProxy, scheme: str
) -> None:
    async with Canary.open() as canary:
        origin = await escaping(start_origin, canary, HOSTS)
        proxy = await start_proxy(
            origin.url, {"site": {"url": f"{scheme}://www.example.com"}, "browser": {"pages": 1}}
        )
        answer = await proxy.crawl("/")
        assert '<p id="out">tried</p>' in answer.text
        # What is still under way comes to an end with the page.
        async with asyncio.timeout(15):
            while "1 idle" not in repr(proxy.running.pool):
                await asyncio.sleep(0.01)
        assert canary.touched == []


class Ungated(Gateway):
    """Leads nothing to itself."""

    @property
    def resolver_rules(self) -> str:
        return ""


async def test_without_the_gateway_it_would(start_origin: StartOrigin) -> None:
    """The page above does try: in a browser that has a network it reaches the canary."""
    async with Canary.open() as canary, open_session(1, 5) as session:
        origin = await escaping(start_origin, canary, ["127.0.0.1"])
        async with Ungated.open(PUBLIC, Upstream(session, URL(origin.url)), session) as ungated:
            browser = await Chromium.launch(chromium.find(), ungated, sandbox=False)
            try:
                target = await browser.devtools.call("Target.createTarget", url=origin.url)
                page = await browser.devtools.attach(target["targetId"])
                async with asyncio.timeout(15):
                    while await page.evaluate("globalThis.out?.textContent") != "tried":
                        await asyncio.sleep(0.05)
            finally:
                await browser.close()
        touched = {match[1] for line in canary.touched if (match := re.search(r" /(\S+)", line))}
        assert len(touched) > 50, touched
        some = {"fetch", "img", "websocket", "worker-fetch", "beacon", "font", "service-worker"}
        assert some | {"policies", "early-links", "download", "sign-in"} <= touched
        assert not any(line.startswith("UDP") for line in canary.touched)
