"""A site whose page sends requests by every technique, and a third party that redirects."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiohttp import web

PAGE = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
# Techniques that leave the page: each needs its own page.
LEAVING = ("location", "meta-refresh", "refresh-header", "form", "window-top", "redirect-307")
# Of real time, for what a page does in the background.
_HOLD_SECONDS = 1.0
# WebRTC techniques, each with its own port: a packet shows only its destination.
PORTS = {
    "stun": 3478,
    "turn over UDP": 3479,
    "turn over TCP": 3480,
    "candidate over UDP": 3481,
    "candidate over TCP": 3482,
    "turn over TLS": 5349,
}
_SERVERS = (
    "stun:{}:3478",
    "turn:{}:3479?transport=udp",
    "turn:{}:3480?transport=tcp",
    "turns:{}:5349?transport=tcp",
    # Where the gateway listens for others.
    "turn:{}:80?transport=tcp",
    "turns:{}:443?transport=tcp",
)
_CANDIDATES = (
    "candidate:1 1 udp 2122260223 {} 3481 typ host",
    "candidate:2 1 tcp 2122260222 {} 3482 typ host tcptype passive",
    "candidate:3 1 tcp 2122260221 {} 80 typ host tcptype passive",
)
_OPEN = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Headers": "*",
    "Timing-Allow-Origin": "*",
}
_HEADERS = {
    "report-uri": {"Content-Security-Policy": "img-src 'none'; report-uri URL"},
    "reporting-endpoints": {
        "Content-Security-Policy": "img-src 'none'; report-to there",
        "Reporting-Endpoints": 'there="URL", default="URL"',
        "Permissions-Policy": "sync-xhr=();report-to=there",
        "Cross-Origin-Opener-Policy": 'same-origin; report-to="there"',
        "Cross-Origin-Embedder-Policy": 'require-corp; report-to="there"',
    },
    "report-to": {
        "Content-Security-Policy": "img-src 'none'; report-to there",
        "Report-To": '{"group":"there","max_age":600,"endpoints":[{"url":"URL"}]}',
    },
    "network-errors": {
        "Report-To": '{"group":"there","max_age":600,"endpoints":[{"url":"URL"}]}',
        "NEL": '{"report_to":"there","max_age":600,"success_fraction":1.0,"include_subdomains":true}',
    },
    "alt-svc": {"Alt-Svc": 'h3="HOST:443"; ma=600, h2="HOST:443"; ma=600'},
    "header-preload": {"Link": "<URL>; rel=preload; as=script"},
    "header-preconnect": {"Link": "<URL>; rel=preconnect"},
    "header-stylesheet": {"Link": "<URL>; rel=stylesheet"},
    "header-prefetch": {"Link": "<URL>; rel=prefetch"},
    "header-dns-prefetch": {"Link": "<URL>; rel=dns-prefetch"},
    "header-refresh": {"Refresh": "0; url=URL"},
    "header-speculation": {"Speculation-Rules": '"URL"'},
    "header-source-map": {"SourceMap": "URL"},
}
_XML = {
    "xml-stylesheet": '<?xml-stylesheet type="text/xsl" href="URL"?><a/>',
    "xml-entity": '<!DOCTYPE a [<!ENTITY b SYSTEM "URL">]><a>&b;</a>',
    "xslt-document": '<?xml-stylesheet type="text/xsl" href="/frame/xslt?URL"?><a/>',
    "xslt": """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
        <xsl:template match="/"><p><xsl:copy-of select="document('URL')"/></p></xsl:template>
        </xsl:stylesheet>""",
}
# Breaks its policies, and goes on when it is looked at again. The synchronous request has a URL of its
# own: it would wait for another one with the same URL, which waits for a connection, while all
# connections wait for this script to follow redirects. Browsers end that after 20 s.
_FRAME = """<img src="/x.png"><script>
const xhr = new XMLHttpRequest(); xhr.open("GET", `/sync?${Math.random()}`, false);
try { xhr.send(); } catch {}
fetch("/x");</script>"""
_SERVICE_WORKER = """const [kind, url] = [KIND, URL];
const ask = (event) => { if (kind === "fetch") event.waitUntil(fetch(url, {mode: "no-cors"})); };
oninstall = ask; onactivate = ask;
if (kind === "import") importScripts(url);"""
_LEAVING = {
    "location": "<script>location = 'URL'</script>",
    "meta-refresh": '<meta http-equiv="refresh" content="0;url=URL">',
    "form": '<form action="URL" method="post"></form><script>document.forms[0].submit()</script>',
    "window-top": "<iframe srcdoc=\"<script>top.location = 'URL'</script>\"></iframe>",
}


def page(targets: Sequence[str], hosts: Sequence[str], each: int = 1, shift: int = 0) -> str:
    """The page: its techniques use the targets in turn (``each``), WebRTC uses all ``hosts``."""
    config = {
        "targets": targets,
        "each": each,
        "shift": shift,
        "servers": [server.format(host) for host in hosts for server in _SERVERS],
        "candidates": [one.format(host.strip("[]")) for host in hosts for one in _CANDIDATES],
    }
    return PAGE.replace("= CONFIG", f"= {json.dumps(config)}")


def site(pages: Mapping[str, str]) -> web.Application:
    """The site with these pages by path, which may change while it runs."""
    application = web.Application()

    async def show(request: web.Request) -> web.Response:
        text = pages.get(request.path)
        return _html(text) if text is not None else web.Response(status=404)

    application.add_routes(
        [
            web.get("/hold", _hold),
            web.get("/service-worker.js", _service_worker),
            web.get("/playlist.m3u8", _playlist),
            web.get("/frame/{name}", _frame),
            web.get("/leave/{name}", _leave),
            web.get("/{path:.*}", show),
        ]
    )
    return application


def redirector() -> web.Application:
    """A server that redirects to the query string, with the status in the path."""
    application = web.Application()

    async def answer(request: web.Request) -> web.Response:
        code = request.path.strip("/")
        if request.method == "OPTIONS" or not code.isdigit():
            return web.Response(text="public", headers=_OPEN)
        return web.Response(status=int(code), headers={**_OPEN, "Location": request.query_string})

    application.router.add_route("*", "/{path:.*}", answer)
    return application


def _html(text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(text=text, content_type="text/html", headers=headers)


async def _hold(_: web.Request) -> web.Response:
    await asyncio.sleep(_HOLD_SECONDS)
    return web.Response(text="held")


async def _frame(request: web.Request) -> web.Response:
    name, url = request.match_info["name"], request.query_string
    if name in _XML:
        return web.Response(text=_XML[name].replace("URL", url), content_type="text/xml")
    if name.startswith("redirect-"):
        return web.Response(status=int(name[-3:]), headers={"Location": url})
    if name == "early-hints":
        assert request.transport is not None
        hints = f"HTTP/1.1 103 Early Hints\r\nLink: <{url}>; rel=preload; as=script\r\n\r\n"
        request.transport.write(hints.encode())
        return _html("hinted")
    host = url.split("/")[2]
    headers = {
        field: value.replace("URL", url).replace("HOST", host)
        for field, value in _HEADERS[name].items()
    }
    return _html(_FRAME, headers)


async def _service_worker(request: web.Request) -> web.Response:
    kind, _, url = request.query_string.partition("&")
    text = _SERVICE_WORKER.replace("KIND", json.dumps(kind)).replace("URL", json.dumps(url))
    return web.Response(text=text, content_type="text/javascript")


async def _playlist(request: web.Request) -> web.Response:
    text = f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{request.query_string}\n#EXT-X-ENDLIST\n"
    return web.Response(text=text, content_type="application/vnd.apple.mpegurl")


async def _leave(request: web.Request) -> web.Response:
    name, url = request.match_info["name"], request.query_string
    if name.startswith("redirect-"):
        return web.Response(status=int(name[-3:]), headers={"Location": url})
    headers = {"Refresh": f"0; url={url}"} if name == "refresh-header" else None
    return _html("<p>leaving</p>" + _LEAVING.get(name, "").replace("URL", url), headers)
