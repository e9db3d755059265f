"""The origin of the example: a small shop that serves JSON and leaves all HTML to its JavaScript.

Without JavaScript, its pages have no content: the kind of site that this proxy is for. Nothing here
depends on crawlers, snapshots, ugly URLs or the proxy.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from aiohttp import web
from aiohttp.typedefs import Handler

Item = dict[str, Any]

HERE = Path(__file__).parent
SITE = HERE / "site"
PAGES = {"/": "index.html", "/contact": "contact.html"}
ASSETS = ("app.js", "contact.js", "style.css", "art.svg", "icon.svg")
DATABASE_SECONDS = 0.02
RELATED_ITEMS = 4
SUMMARY = ("id", "name", "category", "price_cents", "rating", "summary")
HOURS = [
    {"days": "Monday to Friday", "hours": "09:00 to 18:00"},
    {"days": "Saturday", "hours": "10:00 to 16:00"},
    {"days": "Sunday", "hours": "closed"},
]
NOT_FOUND = (SITE / "404.html").read_text("utf-8")
ITEMS: list[Item] = json.loads((HERE / "items.json").read_text("utf-8"))
ORDERS: dict[str, Callable[[Item], Any]] = {
    "price": lambda item: item["price_cents"],
    "rating": lambda item: -item["rating"],
}


async def answer(data: Mapping[str, Any], status: int = 200) -> web.Response:
    """Send JSON with the delay of a database, so that the page has to wait for it."""
    await asyncio.sleep(DATABASE_SECONDS)
    return web.json_response(data, status=status, headers={"Cache-Control": "no-cache"})


def summaries(items: list[Item]) -> list[Item]:
    """The fields of items in lists, to keep responses small."""
    return [{name: value for name, value in item.items() if name in SUMMARY} for item in items]


def text_of(item: Item) -> str:
    return f"{item['name']} {item['category']} {item['description']}".casefold()


async def list_items(request: web.Request) -> web.Response:
    return await answer({"items": summaries(ITEMS)})


async def one_item(request: web.Request) -> web.Response:
    wanted = request.match_info["id"]
    item = next((item for item in ITEMS if str(item["id"]) == wanted), None)
    if item is None:
        return await answer({"error": f"There is no item {wanted}."}, status=404)
    others = [other for other in ITEMS if other is not item]
    others.sort(key=lambda other: (other["category"] != item["category"], -other["rating"]))
    return await answer({**item, "related": summaries(others[:RELATED_ITEMS])})


async def search(request: web.Request) -> web.Response:
    """Find the items that contain every word; no words find nothing rather than everything."""
    query = request.query.get("q", "")
    words = query.casefold().split()
    found = [item for item in ITEMS if words and all(word in text_of(item) for word in words)]
    if order := ORDERS.get(request.query.get("sort", "")):
        found.sort(key=order)
    return await answer({"query": query, "items": summaries(found)})


async def hours(request: web.Request) -> web.Response:
    return await answer({"hours": HOURS})


def public_origin(request: web.Request) -> str:
    """The scheme comes from the proxy in front, if any: a sitemap may list its own site only."""
    forwarded = request.headers.get("X-Forwarded-Proto")
    scheme = forwarded if forwarded in ("http", "https") else request.scheme
    return f"{scheme}://{request.host}"


async def robots(request: web.Request) -> web.Response:
    url = f"{public_origin(request)}/sitemap.xml"
    return web.Response(text=f"User-agent: *\nAllow: /\n\nSitemap: {url}\n")


async def sitemap(request: web.Request) -> web.Response:
    """List pretty URLs only: crawlers of the scheme derive the ugly ones."""
    items = (f"/#!/items/{item['id']}" for item in ITEMS)
    paths = ("/", "/#!/items", *items, "/#!/about", "/contact")
    urls = (escape(public_origin(request) + path) for path in paths)
    entries = "".join(f"  <url><loc>{url}</loc></url>\n" for url in urls)
    text = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{entries}</urlset>\n'
    return web.Response(text=text, content_type="application/xml")


def static(file: Path, cache_control: str) -> Handler:
    """Serve a file. aiohttp adds ETag and Last-Modified, and handles conditional requests."""

    async def serve(request: web.Request) -> web.FileResponse:
        return web.FileResponse(file, headers={"Cache-Control": cache_control})

    return serve


@web.middleware
async def human_not_found(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return web.Response(status=404, text=NOT_FOUND, content_type="text/html")


def make_app() -> web.Application:
    """Build the origin; tests start it on a free port."""
    app = web.Application(middlewares=[human_not_found])
    app.add_routes([web.get("/api/items", list_items), web.get("/api/items/{id}", one_item)])
    app.add_routes([web.get("/api/search", search), web.get("/api/hours", hours)])
    app.add_routes([web.get("/robots.txt", robots), web.get("/sitemap.xml", sitemap)])
    for path, name in PAGES.items():
        app.router.add_get(path, static(SITE / name, "no-cache"))
    for name in ASSETS:
        app.router.add_get(f"/{name}", static(SITE / name, "public, max-age=60"))
    return app


def announce(banner: str) -> None:
    """Print only the line with the URL, which has the actual port."""
    print(banner.splitlines()[0].strip("= "), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The origin of the hashbang example.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=3000)
    web.run_app(make_app(), **vars(parser.parse_args()), print=announce)
