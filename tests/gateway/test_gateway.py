"""The gateway: what it forwards and what it refuses. Nothing bypasses it."""

import asyncio
import logging
import os
import socket
import zlib
from contextlib import closing, suppress

import pytest
from aiohttp import ClientConnectionResetError, WSMsgType, WSServerHandshakeError, web
from multidict import CIMultiDict
from yarl import URL

from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.context_proxy import ContextProxy
from prerender.gateway.document import Document
from prerender.gateway.gateway import NetworkRules, number_user_agent
from prerender.gateway.listener import MAX_LINE_BYTES
from prerender.gateway.peer_user import Peers
from prerender.gateway.visit import Visit
from prerender.http import forwarding_headers
from prerender.urls.hosts import Hosts
from tests.conftest import Site, StartOrigin, StartProxy, pages
from tests.support import raw
from tests.support.canary import Canary
from tests.support.plain_client import HTML, USER_AGENT, Elsewhere, PlainClient


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
    rules = NetworkRules(addresses=AddressPolicy(Hosts(["cdn.example"])))
    async with PlainClient.open(
        "http://127.0.0.1:9", Elsewhere(URL(cdn.url).port or 0), rules=rules
    ) as browser:
        with browser.visit(42, Document(200, HTML, b"")) as visit:
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
    (exchange,) = visit.requests.exchanges
    assert exchange.url == "http://cdn.example/lib.js?v=1"
    assert (exchange.status, exchange.received_bytes, exchange.finished) == (200, 4, True)
    assert exchange.deadline is None, "it references the response"


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
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            answer = await browser.request(f"{host}:{canary.port}", "/secret")
            assert (answer.status, answer.body) == (403, b"")
            with pytest.raises(WSServerHandshakeError, match="403"):
                await browser.client.ws_connect(
                    browser.socket_url("/socket"),
                    headers={"Host": f"{host}:{canary.port}", "User-Agent": USER_AGENT.format(1)},
                )
        assert [exchange.blocked for exchange in visit.requests.exchanges] == [True, True]
        assert canary.touched == []


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "10.0.0.1",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "[::1",
        "[fe80::1%25lo]",
        "user@www.example.com",
        "www.example.com:0",
        "www.example.com:70000",
        "www.example.com/..",
    ],
)
async def test_internal_addresses_and_nonsense_are_refused(host: str) -> None:
    async with PlainClient.open("http://127.0.0.1:9") as browser:
        assert (await browser.request(host, "/latest/meta-data/")).status == 403


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_other_users_of_this_machine_are_refused(start_origin: StartOrigin) -> None:
    nobody = 65534
    origin = await pages(start_origin, {"/": "from the origin"})
    async with PlainClient.open(origin.url) as browser:
        for user, answer in ((0, b" 200 "), (nobody, b"")):
            os.seteuid(user)
            try:
                connection = socket.create_connection(("127.0.0.1", browser.proxy().port))
            finally:
                os.seteuid(0)
            reader, writer = await asyncio.open_connection(sock=connection)
            with browser.visit(1, None):
                writer.write(b"GET / HTTP/1.1\r\nHost: www.example.com\r\n")
                writer.write(b"User-Agent: %s\r\n\r\n" % USER_AGENT.format(1).encode())
                async with asyncio.timeout(raw.SECONDS):
                    with suppress(ConnectionError):
                        assert answer in await reader.readline()
            writer.close()
    assert len(origin.requests) == 1


def test_a_client_that_has_left_is_nobody() -> None:
    """The kernel lists its remaining socket as root's."""
    peers = Peers()
    with closing(peers), socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        connection, theirs = listener.accept()
        with connection:
            mine = connection.getsockname()
            assert peers.whose(theirs, mine) == "ours"
            client.close()
            assert peers.whose(theirs, mine) == "nobody"
            connection.close()
            assert peers.whose(theirs, mine) == "nobody"
            assert peers.whose(None, mine) == "nobody"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nCookie: %s\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: %s\r\n\r\n", b"400"),
    ],
)
async def test_what_cannot_be_read_gets_no_text(head: bytes, status: bytes) -> None:
    """A page would take the text for its document."""
    async with PlainClient.open("http://127.0.0.1:9") as browser:
        reader, writer = await asyncio.open_connection("127.0.0.1", browser.proxy().port)
        writer.write(head % (b"x" * (MAX_LINE_BYTES + 1)))
        async with asyncio.timeout(raw.SECONDS):
            answer = await reader.read()
        assert answer.split()[1] == status
        assert answer.endswith(b"\r\n\r\n")
        writer.close()


async def test_what_is_no_http_makes_no_stack_trace(caplog: pytest.LogCaptureFixture) -> None:
    """For example, from a page that names the gateway as its WebRTC server."""
    garbage = b"\x00\x03\x00\x08\x21\x12\xa4\x42\r\n\r\n"
    twice = b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
    tunnel = b"CONNECT a.example:3478 HTTP/1.1\r\nHost: a.example:3478\r\n\r\n"
    async with PlainClient.open("http://127.0.0.1:9") as browser:
        for start, data, answer in [
            (b"", garbage, b" 400 "),
            (b"", twice, b" 400 "),
            (tunnel, garbage, b" 400 "),
            (tunnel, b"\x16" + twice, b""),
            (b"", b"CONNECT a.example:1\r\n" + b"x" * 70_000, b""),
        ]:
            reader, writer = await asyncio.open_connection("127.0.0.1", browser.proxy().port)
            async with asyncio.timeout(raw.SECONDS):
                writer.write(start)
                if start:
                    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 OK\r\n\r\n"
                writer.write(data)
                with suppress(ConnectionError):
                    assert answer in await reader.readline()
            writer.close()
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert caplog.records[0].getMessage() == "malformed_request: Duplicate 'Host' header found."
    assert not caplog.records[0].exc_info


async def test_every_request_belongs_to_one_visit_or_is_refused(start_origin: StartOrigin) -> None:
    """By the context's port, and within the context by the page's number."""
    origin = await pages(start_origin, {"/": "from the origin"})
    of_nobody = {"User-Agent": "Mozilla/5.0 HeadlessChrome/156.0.8078.79 Safari/537.36"}

    async def ask(proxy: ContextProxy, headers: dict[str, str]) -> int:
        headers = {"Host": "www.example.com", **headers}
        async with browser.client.get(proxy.url, headers=headers) as response:
            return response.status

    def of(number: int) -> dict[str, str]:
        return {"User-Agent": USER_AGENT.format(number)}

    async with PlainClient.open(origin.url) as browser:
        mine, other = browser.gateway.open_proxy(), browser.gateway.open_proxy()
        # No page renders.
        assert [await ask(mine, sent) for sent in (of(1), of_nobody, {})] == [403, 403, 403]
        with mine.visit(1, None) as first, other.visit(2, None) as neighbour:
            assert await ask(mine, of(1)) == 200
            # Nobody else has used this context: what has no number is the page's.
            assert await ask(mine, of_nobody) == 200
            assert await ask(mine, of(2)) == await ask(other, of(1)) == 403
            assert (len(first.requests.exchanges), len(neighbour.requests.exchanges)) == (2, 0)
            assert first.remembered
            assert not first.needs_own_context
        assert await ask(mine, of(1)) == 403
        with mine.visit(3, None) as second:
            doubts: list[None] = []
            second.when_in_doubt = lambda: doubts.append(None)
            # A beacon of the last page.
            assert await ask(mine, of(1)) == 403
            assert not doubts
            # The last page's, or this one's?
            assert await ask(mine, of_nobody) == 403
            assert not second.requests.exchanges
            assert (second.needs_own_context, len(doubts)) == (True, 1)
    agents = [request.headers["User-Agent"] for request in origin.requests]
    assert len(agents) == 2
    assert all("Chrome/156.0.0.0" in agent for agent in agents)


def test_pages_that_leave_are_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("prerender.gateway.listener")
    for error in (ClientConnectionResetError("closing"), ValueError("an internal error")):
        log.error("Error handling request from %s", "127.0.0.1", exc_info=error)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert caplog.records[0].exc_info


async def test_the_document_is_handed_over_once(start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/": "from the origin"})
    document = Document(404, CIMultiDict({"Content-Type": "text/html", "X-Mine": "1"}), b"kept")
    navigation = {"Accept": "text/html,*/*"}
    async with PlainClient.open(origin.url) as browser:
        with browser.visit(1, document) as visit:
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
    assert [exchange.status for exchange in visit.requests.exchanges] == [200, 200, 404, 200]
    assert origin.count("/") == 5


# To sites without encryption, browsers do not tell what a request is for.
NAVIGATION = {"Accept": "text/html,*/*"}


async def test_only_the_page_to_which_one_navigates_is_left_out(start_origin: StartOrigin) -> None:
    moved = web.Response(status=302, headers={"Location": "/other page?ä#part"})
    content: dict[str, str | web.Response] = {"/left": moved, "/part": "a part of the page"}
    origin = await pages(start_origin, content)
    document = Document(200, CIMultiDict({"Content-Type": "text/html"}), b"here")
    async with PlainClient.open(origin.url) as browser:
        with browser.visit(1, document) as visit:
            host = "www.example.com"
            await browser.request(host, "/", headers=NAVIGATION)
            visit.requests.navigate(f"http://{host}/left#top")
            part = await browser.request(host, "/part", headers=NAVIGATION)
            assert part.text == "a part of the page"
            left = await browser.request(host, "/left", headers=NAVIGATION)
            assert (left.status, left.text) == (302, "")
            part = await browser.request(host, "/part", headers=NAVIGATION)
            assert part.text == "a part of the page"
            other = await browser.request(host, "/other%20page?%C3%A4", headers=NAVIGATION)
            assert (other.status, other.text) == (200, "")
            visit.requests.navigate("")
            part = await browser.request(host, "/left", headers=NAVIGATION)
            assert part.headers["Location"].startswith("/other page")


@pytest.mark.parametrize("location", ["https://a[::1]@/", "http://[/", "http://a:x/"])
async def test_a_navigation_to_a_malformed_redirect(
    location: str, start_origin: StartOrigin
) -> None:
    """The browser decides what it is."""
    moved = web.Response(status=302, headers={"Location": location})
    origin = await pages(start_origin, {"/moved": moved})
    document = Document(200, CIMultiDict({"Content-Type": "text/html"}), b"here")
    host = "www.example.com"
    async with PlainClient.open(origin.url) as browser:
        with browser.visit(1, document) as visit:
            await browser.request(host, "/", headers=NAVIGATION)
            visit.requests.navigate(f"http://{host}/moved")
            answer = await browser.request(host, "/moved", headers=NAVIGATION)
            assert (answer.status, answer.headers["Location"]) == (302, location)


async def test_a_navigation_may_be_reported_after_its_request(start_origin: StartOrigin) -> None:
    saved = web.Response(body=b"a", headers={"Content-Type": "application/zip"})
    origin = await pages(start_origin, {"/saved": saved, "/other": "another page"})
    document = Document(200, CIMultiDict({"Content-Type": "text/html"}), b"here")
    host = "www.example.com"
    for headers in (NAVIGATION, {**NAVIGATION, "Sec-Fetch-Dest": "document"}):
        async with PlainClient.open(origin.url) as browser:
            with browser.visit(1, document) as visit:
                await browser.request(host, "/", headers=headers)
                for path, leaving in (("/saved", ""), ("/other", f"http://{host}/other#top")):

                    async def report(visit: Visit = visit, path: str = path) -> None:
                        visit.requests.navigate(f"http://{host}{path}#top")

                    visit.catch_up = report
                    left = await browser.request(host, path, headers=headers)
                    assert left.text == ""
                    assert visit.requests.navigation.url == leaving


async def test_all_redirects_of_a_navigation_have_one_limit(start_origin: StartOrigin) -> None:
    moved = {"Location": "/loop", "Content-Type": "application/zip"}
    content: dict[str, str | web.Response] = {"/loop": web.Response(status=302, headers=moved)}
    origin = await pages(start_origin, content)
    document = Document(200, CIMultiDict({"Content-Type": "text/html"}), b"here")
    host = "www.example.com"
    async with PlainClient.open(origin.url) as browser:
        with browser.visit(1, document) as visit:
            await browser.request(host, "/", headers=NAVIGATION)
            for _ in range(2):
                visit.requests.navigate(f"http://{host}/loop")
                origin.requests.clear()
                ends = set()
                while (
                    answer := await browser.request(host, "/loop", headers=NAVIGATION)
                ).status == 302:
                    ends.add(visit.requests.navigation.deadline)
                    assert origin.count("/loop") < 10
                assert (answer.status, answer.text) == (200, "")
                assert len(ends) == 1


def _request(path: str, page: int) -> bytes:
    agent = USER_AGENT.format(page)
    return f"GET {path} HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: {agent}\r\n\r\n".encode()


async def _ask(client: raw.Client, page: int) -> bytes:
    await client.send(_request("/plain", page))
    return await client.answer()


@pytest.mark.parametrize(
    ("paths", "kept"),
    [
        (["/plain"], True),
        (["/plain", "/plain"], True),
        (["/cookie"], False),
        (["/cookie", "/plain"], True),
        (["/hang"], False),
        (["/plain", "/hang"], False),
    ],
)
async def test_a_connection_is_used_again_if_nothing_can_come_by_it(
    start_origin: StartOrigin, paths: list[str], kept: bool
) -> None:
    """After an unfinished response and after a cookie, the browser needs another connection."""
    hanging = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/hang":
            hanging.set()
            await asyncio.Event().wait()
        headers = {"Set-Cookie": "a=1"} if request.path == "/cookie" else {}
        return web.Response(text="x", headers=headers)

    application = web.Application()
    application.router.add_get("/{path}", answer)
    site = await start_origin(application)
    async with (
        PlainClient.open(site.url) as browser,
        raw.client(browser.proxy().port) as client,
    ):
        proxy = browser.proxy()
        with proxy.visit(1, None):
            for path in paths:
                await client.send(_request(path, 1))
                if path == "/hang":
                    await asyncio.wait_for(hanging.wait(), raw.SECONDS)
                else:
                    assert (await client.answer()).endswith(b"\r\n\r\nx")
        with proxy.visit(2, None):
            if not kept:
                with pytest.raises((ConnectionError, EOFError)):
                    await _ask(client, 2)
                return
            assert (await _ask(client, 2)).endswith(b"\r\n\r\nx")
            # The first page is over.
            await client.send(_request("/plain", 1))
            assert (await client.rest()).startswith(b"HTTP/1.1 403 ")
    assert site.count("/plain") == paths.count("/plain") + 1


async def test_an_internationalized_site(start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/a.js": "own"})
    async with PlainClient.open(origin.url, public=URL("http://bücher.example")) as browser:
        assert (await browser.request("xn--bcher-kva.example", "/a.js")).text == "own"


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


def test_no_field_leads_to_the_internal_host() -> None:
    origin, public = URL("http://app:3000"), URL("https://www.example.com")
    for name, value, expected in [
        ("Location", "http://app:3000/a?b#c", "https://www.example.com/a?b#c"),
        ("Location", "/a", "/a"),
        ("Location", "https://other.example/http://app:3000/", None),
        ("Location", "http://app:30001/", None),
        ("Content-Location", "http://app:3000/a", "https://www.example.com/a"),
        (
            "Link",
            '<http://app:3000/a>; rel="next", <http://APP:3000>; rel=x, </b>',
            '<https://www.example.com/a>; rel="next", <https://www.example.com>; rel=x, </b>',
        ),
        ("Refresh", "5; url=http://app:3000/a", "5; url=https://www.example.com/a"),
        ("Refresh", "5;URL='http://app:3000/a'", "5;URL='https://www.example.com/a'"),
        ("Refresh", "5", "5"),
    ]:
        headers = CIMultiDict([("A", "http://app:3000/"), (name, value)])
        forwarding_headers.publish_all(headers, origin, public)
        assert headers[name] == (expected or value)
        assert headers["A"] == "http://app:3000/"
    twice = CIMultiDict([("Link", "<http://app:3000/a>"), ("Link", "<http://app:3000/b>")])
    forwarding_headers.publish_all(twice, origin, public)
    links = ["<https://www.example.com/a>", "<https://www.example.com/b>"]
    assert twice.getall("Link") == links


async def test_a_snapshot_keeps_links_of_the_document_in_public_form(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = web.Response(body=b"<p>page", content_type="text/html")
    origin = await pages(start_origin, {"/": page})
    page.headers["Link"] = f'<{origin.url}/next>; rel="next"'
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    answer = await proxy.crawl("/")
    assert answer.headers["Link"] == '<https://www.example.com/next>; rel="next"'


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

    async def serve(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        writer.write(answers[(await raw.receive(reader)).line.split()[1].decode()])

    async with raw.origin(serve) as origin, PlainClient.open(origin.url) as browser:
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


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (
            b"101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nHTTP/1.1 200 OK",
            502,
        ),
        (b"099 Less\r\nContent-Length: 0", 502),
        (b"200 OK\r\nX: %s\r\nContent-Length: 0" % (b"x" * 300_000), 502),
        (b"200 OK\r\n%sContent-Length: 0" % (b"X: y\r\n" * 900), 200),
        (b"103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0", 200),
    ],
    ids=["101", "99", "long", "many", "103"],
)
async def test_odd_answers(answer: bytes, status: int) -> None:
    script = raw.ending_with(b"HTTP/1.1 " + answer + b"\r\n\r\n")
    async with raw.origin(script) as origin, PlainClient.open(origin.url) as browser:
        assert (await browser.request("www.example.com", "/")).status == status


async def test_an_origin_that_fails() -> None:
    async with PlainClient.open("http://127.0.0.1:9") as browser:
        with browser.visit(1, Document(200, HTML, b"")) as visit:
            answer = await browser.request("www.example.com", "/")
            assert (answer.status, answer.body) == (502, b"")
    assert [(it.status, it.blocked, it.finished) for it in visit.requests.exchanges] == [
        (502, False, True)
    ]


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
        with browser.visit(1, Document(200, HTML, b"")) as visit:
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
                assert [exchange.endless for exchange in visit.requests.exchanges] == [True]
                assert not visit.requests.waiting_for(10)
            answer = await browser.request("www.example.com", "/stream")
            assert answer.body == b"data: one\n\n"
            assert visit.requests.exchanges[-1].endless
