"""The life of one request on the public listener, top to bottom."""

from functools import lru_cache, partial

import structlog
from yarl import URL

from prerender import headers as fields
from prerender.decision import Forward, Render, decide
from prerender.errors import NotRenderable, PrerenderError
from prerender.forward import Forwarder
from prerender.http1.body import CutShort
from prerender.http1.head import BadMessage
from prerender.http1.server import Request
from prerender.responses import error_response, snapshot_response
from prerender.snapshots.cached import CachedSnapshots
from prerender.snapshots.snapshot import Target
from prerender.snapshots.tracking import Tracking

_REMEMBERED_TARGETS = 1024

log = structlog.get_logger(__name__)


class Handler:
    """Answers a request with a snapshot, with what the origin says, or with an error of ours."""

    def __init__(
        self, public: URL, tracking: Tracking, snapshots: CachedSnapshots, forwarder: Forwarder
    ) -> None:
        # Crawlers ask again for the same pages: a target is worked out once.
        target_of = partial(Target.of, public, tracking=tracking)
        self._target = lru_cache(maxsize=_REMEMBERED_TARGETS)(target_of)
        self._snapshots = snapshots
        self._forwarder = forwarder

    async def __call__(self, request: Request) -> None:
        """Answer it. Raises BadMessage and CutShort, after which its connection cannot be used."""
        decision = decide(
            request.method,
            request.target,
            marked=fields.is_marked(request.headers),
            upgrade="upgrade" in request.headers,
        )
        try:
            match decision:
                case Render(pretty):
                    await self._snapshot(request, self._target(pretty))
                case Forward():
                    await self._forwarder.forward(request)
        except (BadMessage, CutShort):
            raise
        except PrerenderError as error:
            log.warning("request failed", target=request.target, error=str(error))
            await request.answer(error_response(error))
        except Exception:
            log.exception("request failed by a mistake of ours", target=request.target)
            if request.started:
                raise CutShort("a mistake of ours") from None
            await request.answer(error_response(PrerenderError()))

    async def _snapshot(self, request: Request, target: Target) -> None:
        try:
            answer = await self._snapshots.snapshot(target)
        except NotRenderable as reason:
            # An image, an error of the origin: its own answer, for the pretty URL.
            log.debug("not rendered", url=target.url, reason=str(reason))
            await self._forwarder.forward(request, target.path)
        else:
            await request.answer(snapshot_response(request, answer))
