"""The origin of the applications: their built files, an index for every route, and a slow JSON API."""

import asyncio
from pathlib import Path
from typing import Any

from aiohttp import web

BUILT = Path(__file__).parent / "built"

BIRDS: list[dict[str, Any]] = [
    {"id": 1, "name": "Wren", "latin": "Troglodytes troglodytes", "span": 15},
    {"id": 2, "name": "Siskin", "latin": "Spinus spinus", "span": 22},
    {"id": 3, "name": "Curlew", "latin": "Numenius arquata", "span": 95},
    {"id": 4, "name": "Gannet", "latin": "Morus bassanus", "span": 176},
    {"id": 5, "name": "Osprey", "latin": "Pandion haliaetus", "span": 160},
]
PLACES = ("moor", "harbour", "oak wood", "salt marsh")
WORDS = {"heading": "Vögel der Küste", "hello": "Guten Tag, {{name}}", "count": "{n} Arten"}
_PAGES, _PAGE_ROWS = 3, 10


def application() -> web.Application:
    """``/<name>/...`` is the application of that name; ``/api`` and ``/parts`` are shared."""
    application = web.Application()
    application.add_routes(
        [
            web.get("/api/birds", _birds),
            web.get("/api/birds/{id}", _bird),
            web.get("/api/birds/{id}/places", _places),
            web.get("/api/notes", _notes),
            web.get("/api/words/{language}", _words),
            web.get("/api/broken", _broken),
            web.get("/parts/{part}", _part),
            web.get("/{name}/{path:.*}", _file),
        ]
    )
    return application


async def _birds(_: web.Request) -> web.Response:
    await asyncio.sleep(0.04)
    return web.json_response(BIRDS)


async def _bird(request: web.Request) -> web.Response:
    await asyncio.sleep(0.06)
    wanted = request.match_info["id"]
    for bird in BIRDS:
        if str(bird["id"]) == wanted:
            return web.json_response(bird)
    return web.json_response({"error": f"no bird {wanted}"}, status=404)


async def _places(request: web.Request) -> web.Response:
    await asyncio.sleep(0.2)
    number = int(request.match_info["id"])
    return web.json_response([f"{place} {number}" for place in PLACES[:number]])


async def _notes(request: web.Request) -> web.Response:
    """A long list in pages; ``next`` is the number of the next page, or null."""
    await asyncio.sleep(0.05)
    page = int(request.query.get("page", "1"))
    first = (page - 1) * _PAGE_ROWS + 1
    notes = [f"Note {number}" for number in range(first, first + _PAGE_ROWS)]
    return web.json_response({"notes": notes, "next": page + 1 if page < _PAGES else None})


async def _words(_: web.Request) -> web.Response:
    await asyncio.sleep(0.1)
    return web.json_response(WORDS)


async def _broken(_: web.Request) -> web.Response:
    await asyncio.sleep(0.03)
    return web.json_response({"error": "out of order"}, status=500)


async def _part(request: web.Request) -> web.Response:
    """HTML for applications that insert it as it is."""
    await asyncio.sleep(0.08)
    part = request.match_info["part"]
    parts = {
        "list": "".join(f"<li>{bird['name']}</li>" for bird in BIRDS),
        "nested": '<b>nested</b> <i hx-get="/parts/inner" hx-trigger="load">Loading</i>',
        "inner": "<i>and its inner part</i>",
        "frame": '<turbo-frame id="frame">The frame has come</turbo-frame>',
        "far": '<turbo-frame id="far">The far frame has come</turbo-frame>',
        "stream": '<turbo-stream action="append" target="log"><template><li>streamed</li></template>'
        "</turbo-stream>",
    }
    if part not in parts:
        return web.Response(text=f"<p>The part {part} has come</p>", content_type="text/html")
    kind = "text/vnd.turbo-stream.html" if part == "stream" else "text/html"
    return web.Response(text=parts[part], content_type=kind)


async def _file(request: web.Request) -> web.FileResponse:
    """A built file, or the index for every route of the application."""
    folder = BUILT / request.match_info["name"]
    if not folder.is_dir():
        raise web.HTTPNotFound
    path = folder / request.match_info["path"]
    return web.FileResponse(path if path.is_file() else folder / "index.html")
