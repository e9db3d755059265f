"""Nothing that a client sends keeps the event loop from others, or fills the memory."""

import asyncio
import tracemalloc

import pytest
from aiohttp import web

from prerender.http import portions
from tests.conftest import StartForwarding, StartOrigin, StartProxy
from tests.support import raw

_TINY = b"1\r\nx\r\n"


@pytest.mark.ci_only
@pytest.mark.heavy
async def test_chunks_of_one_byte_arrive_while_others_are_served(
    start_origin: StartOrigin, start_forwarding: StartForwarding
) -> None:
    count = 100_000
    received = bytearray()

    async def take(request: web.Request) -> web.Response:
        async for part in request.content.iter_any():
            received.extend(part)
        return web.Response(text=str(len(received)))

    async def other(_: web.Request) -> web.Response:
        return web.Response(text="other")

    application = web.Application()
    application.add_routes([web.post("/take", take), web.get("/other", other)])
    port = await start_forwarding((await start_origin(application)).url)
    async with raw.client(port) as uploading, raw.client(port) as visitor:
        head = b"POST /take HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        sending = asyncio.create_task(uploading.send(head + _TINY * count + b"0\r\n\r\n"))
        served = 0
        answering = asyncio.create_task(uploading.answer())
        while not answering.done():
            await visitor.send(b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await visitor.answer()).endswith(b"other")
            served += 1
        await sending
        assert (await answering).endswith(str(count).encode())
    assert bytes(received) == b"x" * count
    # 600 kB come in a few reads: without turns, at most a handful of visitors get theirs in between.
    assert served > 20


async def test_a_response_of_tiny_chunks_reaches_a_page(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    count = 50_000

    async def serve(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        request = await raw.receive(reader)
        if b"/tiny" not in request.line:
            page = b"""<p id=out></p><script>fetch("/tiny").then((answer) => answer.text())
              .then((text) => { out.textContent = text.length; });</script>"""
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
            writer.write(head % len(page) + page)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(_TINY * count + b"0\r\n\r\n")

    async with raw.origin(serve) as origin:
        proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
        assert f'<p id="out">{count}</p>' in (await proxy.crawl("/")).text


def test_turns_are_shared() -> None:
    turns = portions.Turns()
    first, second = turns.after(0.01), turns.after(0.01)
    assert 0.03 < first < 0.05
    assert 0.07 < second < 0.09


@pytest.mark.long
async def test_long_urls_do_not_fill_the_memory(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """Each is 24 KiB when its characters are escaped, and there are 1,000 of them."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="no page")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    site = await start_origin(application)
    proxy = await start_proxy(site.url, {"cache": {"refresh": 0.5}, "indexnow": {}})

    async def ask(numbers: range) -> None:
        async with raw.client(proxy.running.public_port) as client:
            for number in numbers:
                state = b"%d" % number + b'"' * 8000
                head = b" HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: %b\r\nUser-Agent: %b\r\n\r\n"
                long = b"%d" % number + b"1" * 20_000
                await client.send(
                    b"GET /?_escaped_fragment_=" + state + head % (long, b"Googlebot" + long)
                )
                assert (await client.answer()).endswith(b"no page")

    await ask(range(200))
    tracemalloc.start()
    try:
        await ask(range(200, 1200))
        site.requests.clear()
        # What other libraries remember is bounded by number: urllib and yarl 128 each.
        assert tracemalloc.get_traced_memory()[0] < 24 * 1024**2
    finally:
        tracemalloc.stop()
