"""Serves the files of the dashboard: HTML, CSS and JavaScript modules without external resources."""

import json
from importlib.resources import files
from typing import Any

from aiohttp import web

from prerender.config.crawler_classes import LABELS

_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class DashboardFiles:
    """Serves the files of the folder ``static``; its page, at ``/``, has the classes of crawlers."""

    def __init__(self) -> None:
        folder = files("prerender.extensions.dashboard") / "static"
        self._files = {
            file.name: file.read_bytes()
            for file in folder.iterdir()
            if file.name.rpartition(".")[2] in _TYPES
        }
        page = self._files["index.html"]
        self._files["index.html"] = page.replace(b"CLASSES", json.dumps(LABELS).encode())

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        app.router.add_get("/", self.page)
        app.router.add_get("/dashboard/{name}", self.file)

    async def page(self, _: web.Request) -> web.Response:
        """The page. Its route is in the fragment."""
        return self._response("index.html")

    async def file(self, request: web.Request) -> web.Response:
        """A file."""
        name = request.match_info["name"]
        if name not in self._files:
            raise web.HTTPNotFound(text="file not found")
        return self._response(name)

    def _response(self, name: str) -> web.Response:
        options: dict[str, Any] = {"content_type": _TYPES[name.rpartition(".")[2]]}
        return web.Response(body=self._files[name], charset="utf-8", headers=_HEADERS, **options)
