"""The admin listener: who may use its routes, and how errors look. Others add the routes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.http import RawRequestMessage

from prerender.admin import openapi
from prerender.admin.auth import AdminAuth
from prerender.admin.problem_details import as_problems
from prerender.admin.routes import Routes, route
from prerender.config.settings import AdminSettings
from prerender.http.raw_request import without_host
from prerender.http.server_log import server_log

# On shutdown: to finish running requests, and again to respond to those that are then given up. The
# store is closed afterwards, all of it before whatever stops the proxy kills it.
_LAST_SECONDS = 1.0


class Description:
    """Describes the routes."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    @route("GET", "/openapi.json")
    async def openapi(self) -> dict[str, Any]:
        """This document.

        OpenAPI 3.1.
        """
        return await asyncio.to_thread(openapi.document, self._routes.operations)


def routes(auth: AdminAuth) -> Routes:
    """The routes of the listener: only its description as yet. ``auth`` applies to all of them."""
    app = web.Application(middlewares=[auth.middleware, as_problems])
    app.on_response_prepare.append(_without_versions)
    admin_routes = Routes(app)
    admin_routes.add(Description(admin_routes))
    return admin_routes


@asynccontextmanager
async def listening(app: web.Application, settings: AdminSettings) -> AsyncIterator[int]:
    """Serve ``app`` while the context is open. Yields the port. Raises OSError."""
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=server_log("prerender.admin"),
        shutdown_timeout=_LAST_SECONDS,
    )
    await runner.setup()
    assert runner.server is not None
    runner.server.request_factory = partial(_request, runner.server.request_factory)
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _request(
    request_factory: Callable[..., web.BaseRequest], message: RawRequestMessage, *context: Any
) -> web.BaseRequest:
    return request_factory(without_host(message), *context)


async def _without_versions(_: web.Request, response: web.StreamResponse) -> None:
    """Do not disclose the versions of Python and aiohttp."""
    response.headers.pop("Server", None)
