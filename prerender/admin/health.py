"""Health checks and metrics on the admin listener.

``/healthz``: the event loop runs. ``/readyz``: a browser is running, and the proxy is not shutting
down. ``/readyz/queue``: and there is room in the queue. Forwarding works without a browser.
``degraded`` names optional parts that are unavailable.
"""

from collections.abc import Callable

from aiohttp import web

from prerender.browser.pool import Pool, PoolState
from prerender.snapshots.stores.store import Store
from prerender.telemetry.metrics import Metrics

# A load balancer asks every few seconds, and meanwhile the queue goes on filling. The gap between the
# two thresholds keeps a replica from leaving and returning with every answer.
_LEAVE_SHARE = 0.75
_RETURN_SHARE = 0.25

POOL: web.AppKey[Pool] = web.AppKey("pool", Pool)
STORE: web.AppKey[Store] = web.AppKey("store", Store)
METRICS: web.AppKey[Metrics] = web.AppKey("metrics", Metrics)
DRAINING: web.AppKey[Callable[[], bool]] = web.AppKey("draining", Callable)  # type: ignore[arg-type]


class Room:
    """Whether a queue has room: no longer when it is three quarters full, and again at one quarter."""

    def __init__(self) -> None:
        self._filling = False

    def left_in(self, queue: PoolState) -> bool:
        """Whether the queue has room now."""
        share = _RETURN_SHARE if self._filling else _LEAVE_SHARE
        self._filling = queue.queued >= queue.queue_limit * share
        return not self._filling


ROOM: web.AppKey[Room] = web.AppKey("room", Room)


def make_app(
    pool: Pool, store: Store, metrics: Metrics, draining: Callable[[], bool]
) -> web.Application:
    """The application of the admin listener."""
    app = web.Application()
    app[POOL] = pool
    app[STORE] = store
    app[METRICS] = metrics
    app[DRAINING] = draining
    app[ROOM] = Room()
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/readyz", _readyz)
    app.router.add_get("/readyz/queue", _readyz_queue)
    app.router.add_get("/metrics", _metrics)
    return app


async def _healthz(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _readyz(request: web.Request) -> web.Response:
    return _answer(request, _problem(request))


async def _readyz_queue(request: web.Request) -> web.Response:
    state = request.app[POOL].state
    problem = _problem(request)
    if not request.app[ROOM].left_in(state) and not problem:
        problem = {"status": "queue filling", "queued": state.queued, "limit": state.queue_limit}
    return _answer(request, problem)


def _problem(request: web.Request) -> dict[str, object]:
    """Why the proxy cannot render; empty if it can."""
    pool = request.app[POOL]
    if request.app[DRAINING]():
        return {"status": "draining"}
    return {} if pool.ready else {"status": "no page", "pool": repr(pool)}


def _answer(request: web.Request, problem: dict[str, object]) -> web.Response:
    degraded = [] if request.app[STORE].state().available else ["store"]
    answer = (problem or {"status": "ready"}) | {"degraded": degraded}
    return web.json_response(answer, status=503 if problem else 200)


async def _metrics(request: web.Request) -> web.Response:
    body, media_type = request.app[METRICS].exposition(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": media_type})
