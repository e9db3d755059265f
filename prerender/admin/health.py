"""The admin listener: liveness and readiness, and purges (purge.py).

``/healthz``: the loop runs. ``/readyz``: a page can be had, and no shutdown is under way. Plain
proxying works without either.
"""

from collections.abc import Callable

from aiohttp import web

from prerender.admin.purge import Purging
from prerender.rendering.pool import Pool

POOL: web.AppKey[Pool] = web.AppKey("pool", Pool)
DRAINING: web.AppKey[Callable[[], bool]] = web.AppKey("draining", Callable)  # type: ignore[arg-type]


def make_app(pool: Pool, draining: Callable[[], bool], purging: Purging) -> web.Application:
    """The application of the admin listener."""
    app = web.Application()
    app[POOL] = pool
    app[DRAINING] = draining
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)
    app.router.add_post("/purge", purging.__call__)
    return app


async def _healthz(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _readyz(request: web.Request) -> web.Response:
    if request.app[DRAINING]():
        return web.json_response({"status": "draining"}, status=503)
    if not request.app[POOL].ready:
        return web.json_response({"status": "no page", "pool": repr(request.app[POOL])}, status=503)
    return web.json_response({"status": "ready"})
