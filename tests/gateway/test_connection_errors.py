"""Connection errors in plain words, without class names or other details of Python."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import ClientError, ClientPayloadError, ClientSession
from yarl import URL

from prerender.errors import OriginError
from prerender.gateway.connection_errors import reason_of
from prerender.http.connection import Sweeper
from prerender.proxy.origin_connections import OriginConnections
from tests.support import raw


@pytest.mark.parametrize(
    ("answer", "url", "expected"),
    [
        (b"", lambda _: "http://127.0.0.1:1/", "no connection to 127.0.0.1:1: Connection refused"),
        (b"", lambda _: "http://[::1]:1/", "no connection to ::1:1: "),
        (b"", lambda _: "https://127.0.0.1:1/", "no connection to 127.0.0.1:1: Connection refused"),
        (b"", lambda _: "http://x.invalid/", "no connection to x.invalid:80: "),
        (b"", lambda port: f"http://127.0.0.1:{port}/", ""),
        (b"no HTTP\r\n\r\n", lambda port: f"http://127.0.0.1:{port}/", "the response is not HTTP"),
        (b"no TLS", lambda port: f"https://127.0.0.1:{port}/", "no connection to 127.0.0.1:"),
    ],
)
async def test_reasons(
    answer: bytes, url: Callable[[int], str], expected: str, client: ClientSession
) -> None:
    async def serve(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await reader.read(1)
        writer.write(answer)

    async with raw.origin(serve) as origin, asyncio.timeout(raw.SECONDS):
        with pytest.raises((ClientError, OSError)) as caught:
            await client.get(url(origin.port))
    reason = reason_of(caught.value)
    assert reason.startswith(expected)
    for word in ("Error(", "ConnectionKey", "ssl:", "None", "\n", "Errno"):
        assert word not in reason


def test_what_has_no_text_has_a_name() -> None:
    assert reason_of(TimeoutError()) == "timeout"
    assert reason_of(ValueError()) == "ValueError"
    assert reason_of(ClientPayloadError("<X: 400>")) == "the response is incomplete"
    assert reason_of(OSError(111, "Connect call failed ('127.0.0.1', 1)")) == "Connection refused"


async def test_an_origin_that_is_not_there_is_named_in_plain_words() -> None:
    port = raw.free_port()
    with Sweeper() as sweeper:
        origin = OriginConnections(URL(f"http://127.0.0.1:{port}"), raw.SECONDS, sweeper)
        with pytest.raises(OriginError) as failed:
            await origin.connect()
    assert str(failed.value) == f"no connection to 127.0.0.1:{port}: Connection refused"
