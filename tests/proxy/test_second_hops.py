"""Other servers parse forwarded requests as the proxy did.

Requests that two parsers end at different places are used for smuggling (RFC 9112 section 11.2).
The servers behind the proxy use other parsers: nginx, Node, h11 and CPython. Each reports what it
understood, and every request is followed by another one, which must arrive unchanged.
"""

import asyncio
import http.server
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prerender import app
from tests.conftest import StartForwarding, settings_for
from tests.support import nginx_server, raw


@dataclass(frozen=True)
class Request:
    """A request as sent, and its meaning: method, target and body."""

    data: bytes
    method: str
    target: str
    body: bytes = b""
    # A server may refuse it, but not take it for something else.
    refusable: bool = False


HEAD = b"%b %b HTTP/1.1\r\nHost: a\r\n"
INNER = b"GET /inner HTTP/1.1\r\nHost: a\r\n\r\n"


def sized(body: bytes, *lines: bytes) -> bytes:
    """A request with Content-Length, and additional lines."""
    fields = b"".join(line + b"\r\n" for line in lines)
    return HEAD % (b"POST", b"/sized") + fields + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(chunks: bytes, *lines: bytes) -> bytes:
    """A request with a chunked body as it is, and additional lines."""
    fields = b"".join(line + b"\r\n" for line in (*lines, b"Transfer-Encoding: chunked"))
    return HEAD % (b"POST", b"/chunked") + fields + b"\r\n" + chunks


REQUESTS = {
    "without a body": Request(HEAD % (b"GET", b"/none") + b"\r\n", "GET", "/none"),
    "length": Request(sized(b"abc"), "POST", "/sized", b"abc"),
    "length of 0": Request(sized(b""), "POST", "/sized"),
    "length with zeros before it": Request(
        HEAD % (b"POST", b"/zeros") + b"Content-Length: 0003\r\n\r\nabc", "POST", "/zeros", b"abc"
    ),
    "length with space around it": Request(
        HEAD % (b"POST", b"/space") + b"Content-Length: \t 3 \t\r\n\r\nabc",
        "POST", "/space", b"abc",
    ),
    "body like a request": Request(sized(INNER), "POST", "/sized", INNER),
    "body like the end of chunks": Request(
        sized(b"0\r\n\r\n" + INNER), "POST", "/sized", b"0\r\n\r\n" + INNER
    ),
    "GET with a body": Request(
        HEAD % (b"GET", b"/get") + b"Content-Length: %d\r\n\r\n" % len(INNER) + INNER,
        "GET", "/get", INNER,
    ),
    "DELETE with a body": Request(
        HEAD % (b"DELETE", b"/delete") + b"Content-Length: 3\r\n\r\nabc",
        "DELETE", "/delete", b"abc",
    ),
    "chunks": Request(chunked(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), "POST", "/chunked", b"abcde"),
    "no chunk": Request(chunked(b"0\r\n\r\n"), "POST", "/chunked"),
    "chunk like a request": Request(
        chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(INNER), INNER)), "POST", "/chunked", INNER
    ),
    "chunk sizes with zeros and capitals": Request(
        chunked(b"000A\r\n0123456789\r\n000\r\n\r\n"), "POST", "/chunked", b"0123456789"
    ),
    "chunk extensions": Request(
        chunked(b'3;a=b;c="d\\"e";f\r\nabc\r\n0;g\r\n\r\n'), "POST", "/chunked", b"abc"
    ),
    "trailers": Request(
        chunked(b"3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n", b"Trailer: X-Sum"),
        "POST", "/chunked", b"abc",
    ),
    "trailer like a request": Request(
        chunked(b"3\r\nabc\r\n0\r\nX: GET /inner HTTP/1.1\r\n\r\n"), "POST", "/chunked", b"abc"
    ),
    "coding in capitals": Request(
        HEAD % (b"POST", b"/capitals") + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "POST", "/capitals", b"abc",
    ),
    # Fields that Connection names are not passed on: but then the body must not be, either.
    "length named by Connection": Request(
        sized(INNER, b"Connection: keep-alive, Content-Length"), "POST", "/sized", INNER
    ),
    "coding named by Connection": Request(
        chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(INNER), INNER), b"Connection: Transfer-Encoding"),
        "POST", "/chunked", INNER,
    ),
    "host named by Connection": Request(
        HEAD % (b"GET", b"/host") + b"Connection: Host\r\n\r\n", "GET", "/host"
    ),
    "framing with underscores": Request(
        sized(b"abc", b"Transfer_Encoding: chunked", b"Content_Length: 5"),
        "POST", "/sized", b"abc",
    ),
    "framing in a value": Request(
        sized(b"abc", b"X: a\tTransfer-Encoding: chunked", b"Y:Content-Length:99"),
        "POST", "/sized", b"abc",
    ),
    "value of latin-1": Request(sized(b"abc", b"X: \xe9\xff"), "POST", "/sized", b"abc"),
    "empty value": Request(sized(b"abc", b"X:"), "POST", "/sized", b"abc"),
    "expectation": Request(sized(b"abc", b"Expect: 100-continue"), "POST", "/sized", b"abc"),
    "target with a scheme": Request(
        b"GET http://a/absolute?x HTTP/1.1\r\nHost: b\r\n\r\n", "GET", "/absolute?x"
    ),
    "escaped target": Request(HEAD % (b"GET", b"/a%2f..%2fb%00%0d%0a?%20") + b"\r\n",
                              "GET", "/a%2f..%2fb%00%0d%0a?%20", refusable=True),
    "odd target": Request(HEAD % (b"GET", b"//a/./b;c?d??e=/") + b"\r\n", "GET", "//a/./b;c?d??e=/"),
    "path out of the site": Request(
        HEAD % (b"GET", b"/../../a") + b"\r\n", "GET", "/../../a", refusable=True
    ),
    "empty lines before it": Request(
        b"\r\n\r\n" + HEAD % (b"GET", b"/lines") + b"\r\n", "GET", "/lines"
    ),
    "a method of its own": Request(
        HEAD % (b"PATCH", b"/patch") + b"Content-Length: 3\r\n\r\nabc", "PATCH", "/patch", b"abc"
    ),
}  # fmt: skip
AFTER = Request(HEAD % (b"GET", b"/after") + b"\r\n", "GET", "/after")

Hop = Callable[[Path], AbstractAsyncContextManager[str]]


def echo(method: str, target: str, body: bytes) -> bytes:
    """The response of every server: what it understood."""
    return json.dumps({"method": method, "target": target, "body": body.hex()}).encode()


@asynccontextmanager
async def _nginx(folder: Path) -> AsyncIterator[str]:
    """nginx forwards the requests to a server that echoes them."""
    async with _h11(folder) as behind:
        port = raw.free_port()
        server = (
            f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_http_version 1.1; "
            f'proxy_set_header Connection ""; proxy_pass {behind}; }} }}'
        )
        async with nginx_server.running(folder, server, port):
            yield f"http://127.0.0.1:{port}"


_NODE = """
require("http").createServer((request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    const body = Buffer.concat(pieces).toString("hex");
    const text = JSON.stringify({ method: request.method, target: request.url, body });
    response.setHeader("Content-Length", text.length);
    response.end(text);
  });
}).listen(0, "127.0.0.1", function () { console.log(this.address().port); });
"""


@asynccontextmanager
async def _node(folder: Path) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        "node", "-e", _NODE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout
        async with asyncio.timeout(30):
            port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def _h11(folder: Path) -> AsyncIterator[str]:
    async def serve(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        connection = h11.Connection(h11.SERVER)
        head: h11.Request | None = None
        body = b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    writer.write(connection.send(go_on) or b"")
                connection.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                text = echo(head.method.decode(), head.target.decode("latin-1"), body)
                answer = h11.Response(status_code=200, headers=[("Content-Length", str(len(text)))])
                for part in (answer, h11.Data(data=text), h11.EndOfMessage()):
                    writer.write(connection.send(part) or b"")
                if connection.our_state is h11.MUST_CLOSE:
                    return
                connection.start_next_cycle()
            else:
                return

    async with raw.origin(serve) as origin:
        yield origin.url


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = raw.SECONDS

    def parse_request(self) -> bool:
        # Any method.
        known = super().parse_request()
        if known:
            setattr(self, f"do_{self.command}", self._answer)
        return known

    def _answer(self) -> None:
        if self.headers["Transfer-Encoding"]:
            body = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        # It replaces two slashes at the beginning by one.
        text = echo(self.command, self.requestline.split()[1], body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        pass


@asynccontextmanager
async def _cpython(folder: Path) -> AsyncIterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join(raw.SECONDS)


HOPS: dict[str, Hop] = {"nginx": _nginx, "node": _node, "h11": _h11, "cpython": _cpython}


def understood(answer: bytes) -> tuple[str, str, bytes] | None:
    """What a server understood, or None if it refused."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        assert head.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), answer
        return None
    said = json.loads(body)
    return said["method"], said["target"], bytes.fromhex(said["body"])


async def answer_of(client: raw.Client) -> bytes:
    """The next response, without interim ones."""
    while (answer := await client.answer()).startswith(b"HTTP/1.1 1"):
        pass
    return answer


async def misunderstood(port: int, request: Request) -> str:
    """The result of a request with another one behind it, if it is wrong."""
    async with raw.client(port) as client:
        await client.send(request.data + AFTER.data)
        first = understood(await answer_of(client))
        if first is None:
            return "" if request.refusable else "refused"
        if first != (request.method, request.target, request.body):
            return f"taken for {first}"
        second = understood(await answer_of(client))
        if second != (AFTER.method, AFTER.target, AFTER.body):
            return f"what is behind it taken for {second}"
    return ""


@pytest.mark.parametrize("hop", HOPS)
async def test_other_servers_understand_the_same(
    start_forwarding: StartForwarding, tmp_path: Path, hop: str
) -> None:
    async with HOPS[hop](tmp_path) as url:
        port = await start_forwarding(url)
        wrong = {name: await misunderstood(port, request) for name, request in REQUESTS.items()}
        assert {name: what for name, what in wrong.items() if what} == {}


bodies = st.lists(st.sampled_from([b"\r\n", b"0\r\n\r\n", INNER, b"a", b"\x00", b"5;x\r\n"])).map(
    b"".join
)


@pytest.mark.ci_only
@pytest.mark.heavy
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(bodies, st.lists(st.integers(1, 40))), min_size=1, max_size=6))
def test_bodies_in_chunks_of_any_size(requests: list[tuple[bytes, list[int]]]) -> None:
    """Many requests on one connection, cut into chunks anywhere: each ends where it should."""

    async def ask(port: int) -> None:
        async with raw.client(port) as client:
            for body, cuts in requests:
                await client.send(chunked(_chunks(body, cuts)))
            for body, _ in requests:
                assert understood(await answer_of(client)) == ("POST", "/chunked", body)

    async def run() -> None:
        overrides = {"browser": {"path": "/nonexistent/chromium"}}
        async with _h11(Path()) as url, app.serving(settings_for(url, overrides)) as running:
            await ask(running.public_port)

    asyncio.run(run())


def _chunks(body: bytes, cuts: list[int]) -> bytes:
    pieces = []
    for size in cuts:
        piece, body = body[:size], body[size:]
        pieces.append(piece)
    pieces.append(body)
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces if p) + b"0\r\n\r\n"
