"""The corpus's origin: files, and responses that are slow, endless or in pieces."""

import asyncio
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from aiohttp import web

FOLDER = Path(__file__).parent
_HANGING_SECONDS = 30
_SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"/>'


def page_names() -> Iterator[str]:
    """The pages, by the names of their files."""
    return (path.stem for path in sorted(FOLDER.glob("*.html")))


def application() -> web.Application:
    """Serves the folder, and the resources that the pages request."""
    routes = {
        "/after": _after,
        "/pieces": _pieces,
        "/endless-body": _endless_body,
        "/long-polling": _hanging,
        "/beacon": _beacon,
        "/events": _events,
        "/ticking-events": _ticking_events,
        "/silent-events": _silent_events,
        "/socket": _socket,
        "/late-socket": _late_socket,
        "/pushing-socket": _pushing_socket,
        "/pausing-socket": _pausing_socket,
        "/silent-socket": _silent_socket,
        "/image": _image,
        "/slow-script": _slow_script,
        "/audio": _audio,
        "/download": _download,
    }
    application = web.Application()
    for path, handler in routes.items():
        application.router.add_route("*", path, handler)
    application.router.add_static("/", FOLDER)
    return application


async def _after(request: web.Request) -> web.Response:
    await asyncio.sleep(int(request.query["ms"]) / 1000)
    return web.Response(text=request.query.get("text", ""))


async def _start_stream(request: web.Request, media_type: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": media_type})
    await response.prepare(request)
    return response


async def _pieces(request: web.Request) -> web.StreamResponse:
    response = await _start_stream(request, "text/plain")
    for piece in (b"one ", b"two ", b"three "):
        await response.write(piece)
        await asyncio.sleep(0.1)
    return response


async def _endless_body(request: web.Request) -> web.StreamResponse:
    response = await _start_stream(request, "text/plain")
    await response.write(b"the first chunk")
    await asyncio.sleep(_HANGING_SECONDS)
    return response


async def _hanging(_: web.Request) -> web.Response:
    await asyncio.sleep(_HANGING_SECONDS)
    return web.Response()


async def _beacon(_: web.Request) -> web.Response:
    return web.Response(status=204)


async def _events(request: web.Request) -> web.StreamResponse:
    response = await _start_stream(request, "text/event-stream")
    await asyncio.sleep(0.1)
    await response.write(b"data: event 1\n\n")
    await asyncio.sleep(_HANGING_SECONDS)
    return response


async def _ticking_events(request: web.Request) -> web.StreamResponse:
    response = await _start_stream(request, "text/event-stream")
    with suppress(ConnectionError):  # until the page is gone
        for number in range(1, _HANGING_SECONDS * 10):
            await response.write(f"data: event {number}\n\n".encode())
            await asyncio.sleep(0.1)
    return response


async def _silent_events(request: web.Request) -> web.StreamResponse:
    response = await _start_stream(request, "text/event-stream")
    await response.write(b": nothing to say\n\n")
    await asyncio.sleep(_HANGING_SECONDS)
    return response


async def _socket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    await asyncio.sleep(0.1)
    # A page whose dialogue never ends leaves in the middle of it.
    with suppress(ConnectionResetError):
        await socket.send_str("hello from the origin")
        async for message in socket:
            await asyncio.sleep(0.1)
            await socket.send_str(f"you asked: {message.data}")
    return socket


async def _late_socket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    await asyncio.sleep(1)
    await socket.send_str("after a second")
    return socket


async def _pushing_socket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    for number in range(3):
        await asyncio.sleep(0.1)
        await socket.send_str(f"push {number}")
    async for _ in socket:
        pass
    return socket


async def _pausing_socket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for _ in socket:
        for word in ("one", "two", "three", "ready"):
            await socket.send_str(word)
            await asyncio.sleep(0.6)
    return socket


async def _silent_socket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for _ in socket:
        pass
    return socket


async def _image(request: web.Request) -> web.Response:
    await asyncio.sleep(int(request.query.get("ms", "0")) / 1000)
    return web.Response(text=_SVG, content_type="image/svg+xml")


async def _slow_script(_: web.Request) -> web.Response:
    """As slow as an application that has just started."""
    await asyncio.sleep(4.5)
    script = 'document.getElementById("out").textContent = "done: by a slow script";'
    return web.Response(text=script, content_type="text/javascript")


async def _audio(request: web.Request) -> web.Response:
    """Ten minutes of silence, of which a browser reads only what it plays soon."""
    rate, seconds = 22050, 600
    size = rate * seconds
    parts = (b"RIFF", size + 36, b"WAVEfmt ", 16, 1, 1, rate, rate, 1, 8, b"data", size)
    body = struct.pack("<4sI8sIHHIIHH4sI", *parts) + b"\x80" * size
    span = request.http_range
    return web.Response(
        status=206 if "Range" in request.headers else 200,
        body=body[span],
        content_type="audio/wav",
        headers={
            "Accept-Ranges": "bytes",
            "Content-Range": f"bytes {span.start or 0}-{(span.stop or len(body)) - 1}/{len(body)}",
        },
    )


async def _download(_: web.Request) -> web.Response:
    return web.Response(
        body=b"a file",
        content_type="application/octet-stream",
        headers={"Content-Disposition": 'attachment; filename="file"'},
    )
