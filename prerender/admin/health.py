"""Health checks, metrics and purges (purge.py) on the admin listener.

``/healthz``: the event loop runs. ``/readyz``: a browser is running, and the proxy is not shutting
down. Forwarding works without a browser. ``degraded`` names optional parts that are unavailable.
"""

from collections.abc import Callable

from aiohttp import web

from prerender.admin.purge import Purging
from prerender.browser.pool import Pool
from prerender.snapshots.stores.store import Store
from prerender.telemetry.metrics import Metrics

POOL: web.AppKey[Pool] = web.AppKey("pool", Pool)
STORE: web.AppKey[Store] = web.AppKey("store", Store)
METRICS: web.AppKey[Metrics] = web.AppKey("metrics", Metrics)
DRAINING: web.AppKey[Callable[[], bool]] = web.AppKey("draining", Callable)  # type: ignore[arg-type]


def make_app(
    pool: Pool, store: Store, metrics: Metrics, draining: Callable[[], bool], purging: Purging
) -> web.Application:
    """The application of the admin listener."""
    app = web.Application()
    app[POOL] = pool
    app[STORE] = store
    app[METRICS] = metrics
    app[DRAINING] = draining
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)
    app.router.add_get("/metrics", _metrics)
    app.router.add_post("/purge", purging.__call__)
    return app


async def _healthz(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _readyz(request: web.Request) -> web.Response:
    answer: dict[str, object] = {"status": "ready"}
    pool = request.app[POOL]
    if request.app[DRAINING]():
        answer = {"status": "draining"}
    elif not pool.ready:
        answer = {"status": "no page", "pool": repr(pool)}
    status = 200 if answer["status"] == "ready" else 503
    answer["degraded"] = [] if request.app[STORE].state().available else ["store"]
    return web.json_response(answer, status=status)


async def _metrics(request: web.Request) -> web.Response:
    body, media_type = request.app[METRICS].exposition(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": media_type})
