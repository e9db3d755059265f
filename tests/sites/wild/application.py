"""The origin of pages and servers as they are in the wild, and what their complete snapshots show.

A case's snapshot is opened in a browser without scripts. ``shows`` and ``hides`` are texts that are
visible there or not, ``announces`` what a screen reader says, and ``contains`` is part of the HTML.
"""

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from tests.sites.wild import held_by_scripts

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HTML = "text/html; charset=utf-8"
REQUEST, RESPONSE, MOVED, HELD, SPOKEN, PUSHED, HEADERS = KINDS = (
    "the request for the document",
    "how the document is encoded",
    "documents that move",
    "state that only scripts hold",
    "what screen readers announce",
    "applications over sockets and streams",
    "what must stay",
)


@dataclass(frozen=True)
class Case:
    """A page and its complete snapshot."""

    kind: str
    path: str
    shows: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()
    announces: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    status: int = 200

    def problem(self, html: str, shown: list[str], announced: list[str]) -> str:
        """What is wrong with a snapshot, or ''."""
        text = " ".join(shown)
        missing = [one for one in self.shows if one not in text]
        missing += [one for one in self.announces if one not in announced]
        missing += [one for one in self.contains if one not in html]
        extra = [one for one in self.hides if one in text]
        return f"lacks {missing}, has {extra}: {text[:300]}" if missing or extra else ""


_PAGE = b"""<!DOCTYPE html><title>Ferry</title><div id="app"></div>
<script>document.getElementById("app").textContent = `Ferry ${40 + 7} leaves at noon`;</script>"""
_SHELL = _PAGE.replace(b"<script>", b'<script src="/empty.js"></script><script>')
_SHOWS = ("Ferry 47 leaves at noon",)


def _held(name: str, *shows: str, hides: tuple[str, ...] = ()) -> Case:
    return Case(HELD, f"/held/{name}", ("Top", *shows), hides)


CASES = [
    *(
        Case(REQUEST, f"/request/{name}", _SHOWS)
        for name in ("known-browser", "navigation", "destination", "client-hints")
    ),
    *(
        Case(RESPONSE, f"/response/{name}", _SHOWS)
        for name in (
            "utf-8", "none", "aws-chunked", "empty", "gzip-twice", "deflate-bare", "gzip-cut",
            "gzip-padded", "type-twice", "type-upper", "byte-order-mark",
        )
    ),
    Case(MOVED, "/moved/cookie-bounce", _SHOWS),
    Case(MOVED, "/moved/missing-file", _SHOWS, status=404),
    Case(MOVED, "/moved/forbidden-file", _SHOWS, status=403),
    _held("animation-that-reveals", "revealed"),
    _held("animation-that-hides", hides=("goes away",)),
    _held("animation-of-visibility", "revealed"),
    _held("animation-in-a-shadow", "revealed"),
    _held("animation-by-scrolling", "revealed"),
    _held("smil", "revealed"),
    _held("rules-for-open-popovers", "news"),
    _held("rules-for-closed-popovers", "news"),
    _held("rules-for-modal-dialogs", "news"),
    _held("rules-for-mixed-checkboxes", "some"),
    _held("rules-for-defined-elements", "shown"),
    _held("linked-rules-for-defined-elements", "shown"),
    _held("rules-of-a-host-that-is-defined", "shown"),
    _held("rules-for-states-of-a-host", "shown"),
    _held("frame-written", "written"),
    _held("frame-with-adopted-styles", "rest", hides=("hidden",)),
    _held("frame-with-animations", "revealed"),
    _held("frame-with-defined-elements", "inner"),
    _held("frame-with-a-blob", "within"),
    _held("frame-of-a-script", "of a script"),
    _held("frame-that-a-script-navigates", "within a frame"),
    _held("frame-with-drawings-and-values", "[picture 30x20]", "typed"),
    _held("select-without-a-choice", "[select ]"),
    _held("select-with-choices", "[select B, C]"),
    _held("canvas", "[picture 30x20]", hides=("no canvas",)),
    _held("canvas-of-a-bitmap", "[picture 60x40]"),
    _held("canvas-in-a-shadow", "[picture 30x20]"),
    _held("canvas-under-a-policy", "[picture 60x40]"),
    *(
        _held(f"blob-{name}", "[picture 40x30]")
        for name in ("under-a-policy", "that-is-revoked", "in-srcset", "in-a-picture")
    ),
    _held("blob-in-a-style", "rest", hides=("hidden",)),
    _held("blob-of-styles", "rest", hides=("hidden",)),
    Case(SPOKEN, "/spoken/role", announces=("button “Save”, pressed",)),
    Case(SPOKEN, "/spoken/references", announces=("button “label”",)),
    Case(SPOKEN, "/spoken/slots", announces=("heading “second”, level 2",)),
    Case(SPOKEN, "/spoken/dialog", announces=("dialog, modal",)),
    Case(PUSHED, "/pushed/deltas", ("Rainfall", "83 mm", "Station 9")),
    Case(PUSHED, "/pushed/circuit", ("Harvest of 1987",), ("Loading",)),
    Case(PUSHED, "/pushed/parts", ("Part 1", "Part 2", "Part 3")),
    Case(PUSHED, "/pushed/tokens", ("The tide is out at nine",)),
    Case(HEADERS, "/headers/structured", contains=('"@type": "Ferry"',)),
    Case(HEADERS, "/headers/amp", ("Spring tide",), contains=("ampproject.org/v0.js", "<noscript>")),
]  # fmt: skip


def _page(body: str, **more: str) -> web.Response:
    return web.Response(
        text=f"<!DOCTYPE html><title>t</title>{body}", headers={"Content-Type": HTML, **more}
    )


async def _request(request: web.Request) -> web.Response:
    headers = request.headers
    is_browser = {
        "known-browser": "Chrome/1" in headers.get("User-Agent", "")
        and "Headless" not in headers.get("User-Agent", ""),
        "navigation": headers.get("Sec-Fetch-Mode") == "navigate",
        "destination": headers.get("Sec-Fetch-Dest") == "document"
        or "Upgrade-Insecure-Requests" in headers,
        "client-hints": "Chromium" in headers.get("Sec-CH-UA", ""),
    }[request.match_info["name"]]
    if is_browser:
        return web.Response(body=_PAGE, headers={"Content-Type": HTML})
    return _page("<h1>Your browser is not supported</h1><script>1</script>")


_bare = zlib.compress(_PAGE)[2:-4]
_RESPONSES: dict[str, tuple[dict[str, str], bytes]] = {
    "utf-8": ({"Content-Encoding": "utf-8"}, _PAGE),
    "none": ({"Content-Encoding": "none"}, _PAGE),
    "aws-chunked": ({"Content-Encoding": "aws-chunked"}, _PAGE),
    "empty": ({"Content-Encoding": ""}, _PAGE),
    "gzip-twice": ({"Content-Encoding": "gzip, gzip"}, gzip.compress(gzip.compress(_PAGE))),
    "deflate-bare": ({"Content-Encoding": "deflate"}, _bare),
    "gzip-cut": ({"Content-Encoding": "gzip"}, gzip.compress(_PAGE)[:-8]),
    "gzip-padded": ({"Content-Encoding": "gzip"}, gzip.compress(_PAGE) + bytes(64)),
    "type-twice": ({"Content-Type": f"text/html, {HTML}"}, _PAGE),
    "type-upper": ({"Content-Type": "TEXT/HTML;CHARSET=UTF-8"}, _PAGE),
    "byte-order-mark": ({}, b"\xef\xbb\xbf" + _PAGE),
}


async def _response(request: web.Request) -> web.Response:
    headers, body = _RESPONSES[request.match_info["name"]]
    return web.Response(body=body, headers={"Content-Type": HTML} | headers)


async def _moved(request: web.Request) -> web.Response:
    match request.match_info["name"]:
        case "cookie-bounce" if "seen" not in request.cookies:
            headers = {"Location": request.path_qs, "Set-Cookie": "seen=1; Path=/"}
            return web.Response(status=302, headers=headers)
        case "missing-file":
            status = 404
        case "forbidden-file":
            status = 403
        case _:
            status = 200
    return web.Response(body=_SHELL, status=status, headers={"Content-Type": HTML})


async def _held_by_scripts(request: web.Request) -> web.Response:
    body = held_by_scripts.PAGES[request.match_info["name"]]
    return _page(f"<h1>Top</h1>{body}")


_SPOKEN = {
    "role": """<x-b>Save</x-b><script>customElements.define("x-b", class extends HTMLElement {
      constructor() { super(); const internals = this.attachInternals();
        internals.role = "button"; internals.ariaPressed = "true"; } });</script>""",
    "references": """<p>label</p><button>x</button><script>
      document.querySelector("button").ariaLabelledByElements = [document.querySelector("p")];
      </script>""",
    "slots": """<x-t><p>first</p><p>second</p></x-t><script>
      const root = document.querySelector("x-t")
        .attachShadow({ mode: "open", slotAssignment: "manual" });
      root.innerHTML = "<h2><slot></slot></h2>";
      root.querySelector("slot").assign(document.querySelectorAll("x-t p")[1]);</script>""",
    "dialog": "<dialog>text</dialog><script>document.querySelector('dialog').showModal()</script>",
}


async def _spoken(request: web.Request) -> web.Response:
    return _page(_SPOKEN[request.match_info["name"]])


_PUSHED = {
    "deltas": """<ul id="out"></ul><script>
      const socket = new WebSocket(`${location.origin.replace("http", "ws")}/socket/deltas`);
      socket.onopen = () => socket.send("run");
      socket.onmessage = ({ data }) => out.append(`${data} `);</script>""",
    "circuit": """<div id="out"></div><script>
      const socket = new WebSocket(`${location.origin.replace("http", "ws")}/socket/circuit`);
      socket.onopen = () => socket.send("start");
      socket.onmessage = ({ data }) => { out.innerHTML = data; socket.send("seen"); };</script>""",
    "parts": """<div id="out"></div><script>
      fetch("/stream/parts").then(async ({ body }) => {
        let text = "";
        for await (const piece of body.pipeThrough(new TextDecoderStream())) {
          text += piece;
          const parts = text.split("--part").filter((part) => part.includes("}"));
          out.textContent = parts.map((part) => JSON.parse(part).text).join(" ");
        } });</script>""",
    "tokens": """<p id="out"></p><script>
      fetch("/stream/tokens").then(async ({ body }) => {
        for await (const piece of body.pipeThrough(new TextDecoderStream())) out.append(piece);
      });</script>""",
}


async def _pushed(request: web.Request) -> web.Response:
    return _page(_PUSHED[request.match_info["name"]])


async def _socket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    await socket.receive()
    if request.match_info["name"] == "deltas":
        for part in ("Rainfall", "Mean: 83 mm", "Wettest: Station 9"):
            await asyncio.sleep(1.2)
            await socket.send_str(part)
    else:
        await socket.send_str("<p>Loading ...</p>")
        await socket.receive()
        await asyncio.sleep(2)
        await socket.send_str("<h2>Harvest of 1987</h2>")
    while (await socket.receive()).type != web.WSMsgType.CLOSE and not socket.closed:
        pass
    return socket


async def _stream(request: web.Request) -> web.StreamResponse:
    is_parts = request.match_info["name"] == "parts"
    pieces = (
        [f"--part{json.dumps({'text': f'Part {n}'})}" for n in (1, 2, 3)]
        if is_parts
        else ["The ", "tide ", "is ", "out ", "at ", "nine"]
    )
    stream = web.StreamResponse()
    stream.content_type = "multipart/mixed" if is_parts else "text/plain"
    await stream.prepare(request)
    for piece in pieces:
        await stream.write(piece.encode())
        await asyncio.sleep(1.2 if is_parts else 0.3)
    return stream


_HEADERS = {
    "structured": """<script type=" Application/LD+JSON; charset=utf-8">{"@type": "Ferry"}</script>
      <p>Text""",
}
_AMP = """<!DOCTYPE html><html amp><head><title>t</title>
<script async src="https://cdn.ampproject.org/v0.js"></script>
<noscript><style amp-boilerplate>body { animation: none }</style></noscript></head>
<body><h1>Spring tide</h1></body></html>"""


async def _headers(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name == "amp":
        return web.Response(text=_AMP, headers={"Content-Type": HTML})
    return _page(_HEADERS[name])


async def _file(request: web.Request) -> web.Response:
    if request.path == "/defined.css":
        return web.Response(text=held_by_scripts.UNDEFINED, content_type="text/css")
    if request.path == "/inner":
        return _page("<p>within a frame")
    return web.Response(text="", content_type="text/javascript")


def application() -> web.Application:
    """The origin of all cases."""
    routes: dict[str, Handler] = {
        "/request/{name}": _request,
        "/response/{name}": _response,
        "/moved/{name}": _moved,
        "/held/{name}": _held_by_scripts,
        "/spoken/{name}": _spoken,
        "/pushed/{name}": _pushed,
        "/headers/{name}": _headers,
        "/socket/{name}": _socket,
        "/stream/{name}": _stream,
        "/{name}": _file,
    }
    made = web.Application()
    for path, handler in routes.items():
        made.router.add_get(path, handler)
    return made
