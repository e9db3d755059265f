"""Behind a real nginx, as sites run it: plain and TLS, with keep-alive to the proxy.

The plain form leaves nginx at its defaults; the TLS form compresses, and streams request bodies.
"""

import asyncio
import gzip
import hashlib
import io
import json
import os
import random
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import ClientSession, DummyCookieJar, TCPConnector, WSMsgType, web
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tests.conftest import Proxy, Reply, Site, StartOrigin, StartProxy
from tests.support import certificates, nginx_server

HOST = "shop.example"
STOP_SECONDS = 10
LARGE = random.Random(1).randbytes(10_000_000)
LARGE_SHA256 = hashlib.sha256(LARGE).hexdigest()

PAGE = """<!DOCTYPE html><html><head><title>Shop</title><meta name="fragment" content="!"></head>
<body><h1>loading</h1><a href="/#!/next">next</a><script>
  document.querySelector("h1").textContent = "state " + location.hash + " of " + location.origin;
</script></body></html>"""

CONFIG = """
  client_max_body_size 20m;
  upstream prerender {{
    server 127.0.0.1:{proxy_port};
    keepalive 8;
  }}
  map $http_upgrade $connection_upgrade {{
    default upgrade;
    '' '';
  }}
  proxy_http_version 1.1;
  proxy_set_header Host $host;
  proxy_set_header X-Forwarded-Proto $scheme;
  proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
  proxy_set_header Upgrade $http_upgrade;
  proxy_set_header Connection $connection_upgrade;

  server {{
    listen 127.0.0.1:{plain_port};
    server_name shop.example;
    location / {{ proxy_pass http://prerender; }}
  }}
  server {{
    listen 127.0.0.1:{tls_port} ssl;
    server_name shop.example;
    ssl_certificate {folder}/certificate.pem;
    ssl_certificate_key {folder}/certificate.pem;
    gzip on;
    gzip_proxied any;
    gzip_min_length 0;
    proxy_buffering off;
    proxy_request_buffering off;
    location / {{ proxy_pass http://prerender; }}
  }}
"""


@dataclass
class Front:
    """nginx in one of its forms, the proxy behind it, the origin, and a client."""

    scheme: str
    port: int
    client: ClientSession
    proxy: Proxy
    origin: Site

    def url(self, path: str, scheme: str = "") -> URL:
        """The URL of a path, byte for byte."""
        return URL(f"{scheme or self.scheme}://{HOST}:{self.port}{path}", encoded=True)

    async def request(self, method: str, path: str, **options: Any) -> Reply:
        """Send any request, by default without Accept-Encoding."""
        options["headers"] = {"Accept-Encoding": "identity"} | options.get("headers", {})
        async with self.client.request(method, self.url(path), **options) as response:
            return Reply(response.status, response.headers, await response.read())

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        """GET a path."""
        return await self.request("GET", path, headers=headers or {})


class _Loopback(AbstractResolver):
    """Resolves the public host to this machine, so that its certificate is verified as usual."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        assert host == HOST
        return [
            ResolveResult(
                hostname=host, host="127.0.0.1", port=port, family=family, proto=0, flags=0
            )
        ]

    async def close(self) -> None:
        """Nothing is held."""


@asynccontextmanager
async def _nginx(folder: Path, proxy_port: int) -> AsyncIterator[tuple[int, int]]:
    """nginx in the foreground, with all its files in ``folder``: its plain port and its TLS port.

    It inherits listening sockets, as in an upgrade: no other program can take a port, and requests
    can be sent before nginx has started.
    """
    here = ("127.0.0.1", 0)
    with socket.create_server(here) as plain, socket.create_server(here) as tls:
        ports = plain.getsockname()[1], tls.getsockname()[1]
        http = CONFIG.format(
            folder=folder,
            proxy_port=proxy_port,
            plain_port=ports[0],
            tls_port=ports[1],
        )
        config = nginx_server.configuration(folder, http)
        (folder / "nginx.conf").write_text(config, encoding="utf-8")
        log = folder / "error.log"
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                nginx_server.program(), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr",
                stdin=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                env={"NGINX": f"{plain.fileno()};{tls.fileno()};"},
                pass_fds=(plain.fileno(), tls.fileno()),
                start_new_session=True,
            )  # fmt: skip
    try:
        yield ports
    finally:
        ended_by_itself = process.returncode is not None
        await _stop(process)
        lines = log.read_text("utf-8").splitlines()
        problems = [line for line in lines if "[notice]" not in line]
        assert not problems, "\n".join(problems)
        assert not ended_by_itself


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


class _Origin:
    """The site's own server, with something for each kind of traffic."""

    def __init__(self) -> None:
        self.client_has_read = asyncio.Event()
        self.application = web.Application(client_max_size=2 * len(LARGE))
        self.application.add_routes(
            [
                web.get("/", self._page),
                web.get("/headers", self._headers),
                web.get("/large", self._large),
                web.post("/upload", self._upload),
                web.get("/events", self._events),
                web.get("/echo", self._echo),
            ]
        )

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html", headers={"ETag": '"page-1"'})

    async def _headers(self, request: web.Request) -> web.Response:
        return web.json_response(dict(request.headers))

    async def _large(self, _: web.Request) -> web.Response:
        return web.Response(body=LARGE)

    async def _upload(self, request: web.Request) -> web.Response:
        return web.Response(text=hashlib.sha256(await request.read()).hexdigest())

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        )
        await response.prepare(request)
        await response.write(b"data: first\n\n")
        await self.client_has_read.wait()
        await response.write(b"data: second\n\n")
        return response

    async def _echo(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=["echo"])
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                if message.data == "goodbye":
                    await socket.close(code=4001, message=b"as you wish")
                else:
                    await socket.send_str(message.data)
            elif message.type is WSMsgType.BINARY:
                await socket.send_bytes(message.data)
        return socket


@pytest.fixture
def origin() -> _Origin:
    return _Origin()


@asynccontextmanager
async def _front(folder: Path, scheme: str, proxy: Proxy, site: Site) -> AsyncIterator[Front]:
    certificates.write(folder / "certificate.pem", HOST)
    trusting = ssl.create_default_context(cafile=str(folder / "certificate.pem"))
    port = URL(proxy.url).port
    assert port is not None
    async with _nginx(folder, port) as ports:
        connector = TCPConnector(resolver=_Loopback(), ssl=trusting)
        async with ClientSession(
            connector=connector, cookie_jar=DummyCookieJar(), auto_decompress=False
        ) as client:
            yield Front(scheme, ports[scheme == "https"], client, proxy, site)


@pytest.fixture(params=["http", "https"])
async def front(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    origin: _Origin,
    start_origin: StartOrigin,
    start_proxy: StartProxy,
) -> AsyncIterator[Front]:
    site = await start_origin(origin.application)
    proxy = await start_proxy(site.url, {"site": {"url": f"https://{HOST}"}})
    async with _front(tmp_path, request.param, proxy, site) as front:
        yield front


async def test_people_and_crawlers(front: Front) -> None:
    normal = await front.get("/")
    assert normal.text == PAGE
    assert normal.headers["ETag"] == '"page-1"'

    snapshot = await front.get("/?_escaped_fragment_=items/1?a=b%26c=%2520")
    assert snapshot.status == 200
    assert f"<h1>state #!items/1?a=b&amp;c=%20 of https://{HOST}</h1>" in snapshot.text
    assert "<script" not in snapshot.text
    assert "127.0.0.1" not in snapshot.text + str(snapshot.headers)
    assert str(front.port) not in snapshot.text
    assert snapshot.headers["Cache-Status"].startswith("prerender; fwd=miss; stored")

    again = await front.get("/?_escaped_fragment_=items/1?a=b%26c=%2520")
    assert again.body == snapshot.body
    assert again.headers["Cache-Status"].startswith("prerender; hit")


async def test_conditions(front: Front) -> None:
    ugly = "/?_escaped_fragment_=x"
    snapshot = await front.get(ugly)
    for condition in (
        {"If-None-Match": snapshot.headers["ETag"]},
        {"If-Modified-Since": snapshot.headers["Last-Modified"]},
    ):
        reply = await front.get(ugly, condition)
        assert (reply.status, reply.body) == (304, b"")
        assert reply.headers["ETag"] == snapshot.headers["ETag"]
    changed = await front.get(ugly, {"If-None-Match": '"another"'})
    assert (changed.status, changed.body) == (200, snapshot.body)


async def test_a_compressed_snapshot_is_known_by_its_weak_tag(front: Front) -> None:
    """nginx weakens the entity-tag of what it compresses, and crawlers send that one back."""
    ugly = "/?_escaped_fragment_=x"
    plain = await front.get(ugly)
    compressed = await front.get(ugly, {"Accept-Encoding": "gzip"})
    if front.scheme == "https":
        assert compressed.headers["ETag"] == f"W/{plain.headers['ETag']}"
        assert gzip.decompress(compressed.body) == plain.body
    else:
        assert compressed.body == plain.body
    etag = compressed.headers["ETag"]
    reply = await front.get(ugly, {"Accept-Encoding": "gzip", "If-None-Match": etag})
    assert (reply.status, reply.body) == (304, b"")


async def test_head(front: Front) -> None:
    for path in ("/", "/?_escaped_fragment_=x"):
        get = await front.get(path)
        head = await front.request("HEAD", path)
        assert (head.status, head.body) == (200, b"")
        for name in ("ETag", "Content-Type", "Content-Length"):
            assert head.headers[name] == get.headers[name]


async def test_the_origin_knows_for_whom_it_works(front: Front) -> None:
    received = json.loads((await front.get("/headers")).body)
    assert received["Host"] == HOST
    assert received["X-Forwarded-Host"] == HOST
    assert received["X-Forwarded-Proto"] == front.scheme
    assert received["X-Forwarded-For"] == "127.0.0.1, 127.0.0.1"
    assert "Connection" not in received

    await front.get("/?_escaped_fragment_=x")
    rendered = front.origin.requests[-1].headers
    assert rendered["Host"] == HOST
    # The page lives at the site's public URL, however the crawler came.
    assert rendered["X-Forwarded-Proto"] == "https"


async def test_large_bodies(front: Front) -> None:
    downloaded = await front.get("/large")
    assert hashlib.sha256(downloaded.body).hexdigest() == LARGE_SHA256
    sized = await front.request("POST", "/upload", data=io.BytesIO(LARGE))
    assert sized.text == LARGE_SHA256

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(LARGE), 100_000):
            yield LARGE[start : start + 100_000]

    chunked = await front.request("POST", "/upload", data=parts())
    assert chunked.text == LARGE_SHA256


async def test_connections_to_the_proxy_are_kept(front: Front) -> None:
    """Whatever the responses are, nginx can reuse its one connection."""
    ugly = "/?_escaped_fragment_=x"
    etag = (await front.get(ugly)).headers["ETag"]
    for _ in range(3):
        assert (await front.get("/")).status == 200
        assert (await front.get(ugly, {"If-None-Match": etag})).status == 304
        assert (await front.request("HEAD", ugly)).status == 200
        assert (await front.get("/no/such/page")).status == 404
        assert (await front.request("HEAD", "/large")).status == 200
        assert (await front.request("POST", "/upload", data=b"few bytes")).status == 200
    port = URL(front.proxy.url).port
    kept = [
        connection
        for connection in psutil.net_connections("tcp4")
        if connection.raddr
        and connection.raddr.port == port
        and connection.status == psutil.CONN_ESTABLISHED
    ]
    assert len(kept) == 1


async def test_events_are_not_held_back(front: Front, origin: _Origin) -> None:
    async with front.client.get(front.url("/events")) as response:
        assert await response.content.readuntil(b"\n\n") == b"data: first\n\n"
        origin.client_has_read.set()
        assert await response.content.read() == b"data: second\n\n"


async def test_websocket(front: Front) -> None:
    url = front.url("/echo", "wss" if front.scheme == "https" else "ws")
    async with front.client.ws_connect(url, protocols=["other", "echo"]) as socket:
        assert socket.protocol == "echo"
        await socket.send_str("héllo")
        assert await socket.receive_str(timeout=10) == "héllo"
        await socket.send_bytes(LARGE[:1_000_000])
        assert await socket.receive_bytes(timeout=10) == LARGE[:1_000_000]
        await socket.send_str("goodbye")
        closing = await socket.receive(timeout=10)
        assert (closing.type, closing.data, closing.extra) == (WSMsgType.CLOSE, 4001, "as you wish")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_origin_that_is_down(tmp_path: Path, start_proxy: StartProxy, scheme: str) -> None:
    proxy = await start_proxy("http://127.0.0.1:9", {"site": {"url": f"https://{HOST}"}})
    async with _front(tmp_path, scheme, proxy, Site("", [])) as front:
        for path in ("/", "/?_escaped_fragment_=x"):
            reply = await front.get(path)
            assert reply.status == 502
            assert reply.text == "Bad gateway: the site's origin server cannot be reached.\n"
            assert reply.headers["Cache-Control"] == "no-store"
