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


class Room:
    """Whether a queue has room: no longer when it is three quarters full, and again at one quarter."""

    def __init__(self) -> None:
        self._filling = False

    def left_in(self, queue: PoolState) -> bool:
        """Whether the queue has room now."""
        share = _RETURN_SHARE if self._filling else _LEAVE_SHARE
        self._filling = queue.queued >= queue.queue_limit * share
        return not self._filling


class Health:
    """The routes of health checks and metrics. ``draining``: whether the proxy is shutting down."""

    def __init__(
        self, pool: Pool, store: Store, metrics: Metrics, draining: Callable[[], bool]
    ) -> None:
        self._pool = pool
        self._store = store
        self._metrics = metrics
        self._draining = draining
        self._room = Room()

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/readyz/queue", self._readyz_queue)
        app.router.add_get("/metrics", self._exposition)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _readyz(self, _: web.Request) -> web.Response:
        return self._response(self._problem())

    async def _readyz_queue(self, _: web.Request) -> web.Response:
        state, problem = self._pool.state, self._problem()
        if not self._room.left_in(state) and not problem:
            problem = {
                "status": "queue filling",
                "queued": state.queued,
                "limit": state.queue_limit,
            }
        return self._response(problem)

    def _problem(self) -> dict[str, object]:
        """Why the proxy cannot render; empty if it can."""
        if self._draining():
            return {"status": "draining"}
        return {} if self._pool.ready else {"status": "no page", "pool": repr(self._pool)}

    def _response(self, problem: dict[str, object]) -> web.Response:
        degraded = [] if self._store.state().available else ["store"]
        fields = (problem or {"status": "ready"}) | {"degraded": degraded}
        return web.json_response(fields, status=503 if problem else 200)

    async def _exposition(self, request: web.Request) -> web.Response:
        body, media_type = self._metrics.exposition(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": media_type})
