"""The life of one request on the public listener, top to bottom."""

from functools import lru_cache, partial

import structlog
from aiohttp.web import BaseRequest, StreamResponse
from yarl import URL

from prerender import headers as fields
from prerender.decision import Forward, Render, decide
from prerender.errors import NotRenderable, PrerenderError
from prerender.responses import error_response, snapshot_response
from prerender.snapshots.cached import CachedSnapshots
from prerender.snapshots.snapshot import Target
from prerender.snapshots.tracking import Tracking
from prerender.upstream import Upstream

_REMEMBERED_TARGETS = 1024

log = structlog.get_logger(__name__)


class Handler:
    """Answers a request with a snapshot, with what the origin says, or with an error of ours."""

    def __init__(
        self, public: URL, tracking: Tracking, snapshots: CachedSnapshots, upstream: Upstream
    ) -> None:
        # Crawlers ask again for the same pages: a target is worked out once.
        target_of = partial(Target.of, public, tracking=tracking)
        self._target = lru_cache(maxsize=_REMEMBERED_TARGETS)(target_of)
        self._snapshots = snapshots
        self._upstream = upstream

    async def __call__(self, request: BaseRequest) -> StreamResponse:
        decision = decide(
            request.method,
            fields.origin_form(request.raw_path),
            marked=fields.is_marked(request.headers),
            upgrade="Upgrade" in request.headers,
        )
        try:
            match decision:
                case Render(pretty):
                    return await self._snapshot(request, self._target(pretty))
                case Forward():
                    return await self._upstream.forward(request)
        except PrerenderError as error:
            log.warning("request failed", target=request.raw_path, error=str(error))
            return error_response(error)
        except Exception:
            log.exception("request failed by a mistake of ours", target=request.raw_path)
            return error_response(PrerenderError())

    async def _snapshot(self, request: BaseRequest, target: Target) -> StreamResponse:
        try:
            answer = await self._snapshots.snapshot(target)
        except NotRenderable as reason:
            # An image, an error of the origin: its own answer, for the pretty URL.
            log.debug("not rendered", url=target.url, reason=str(reason))
            return await self._upstream.forward(request, target.path)
        return snapshot_response(request, answer)
