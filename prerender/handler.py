"""The life of one request on the public listener, top to bottom."""

from collections.abc import Callable
from functools import lru_cache

import structlog

from prerender import headers as fields
from prerender.crawling.robots import OptOut
from prerender.crawling.triggers import Triggers
from prerender.decision import Refuse, Render, decide
from prerender.errors import CrawlerRefused, NotRenderable, PrerenderError
from prerender.forward import Forwarder
from prerender.http1.body import CutShort
from prerender.http1.head import BadMessage
from prerender.http1.request import Request
from prerender.responses import error_response, snapshot_response, vary_line
from prerender.snapshots.cached import CachedSnapshots
from prerender.snapshots.snapshot import Target
from prerender.snapshots.variants import Vary

_REMEMBERED_TARGETS = 1024

log = structlog.get_logger(__name__)


class Handler:
    """Answers a request with a snapshot, with what the origin says, or with an error of ours.

    ``target_of(pretty, variant=...)``: the target of a page; the variant if there are any (``vary``).
    """

    def __init__(
        self,
        target_of: Callable[..., Target],
        triggers: Triggers,
        opt_out: OptOut | None,
        snapshots: CachedSnapshots,
        forwarder: Forwarder,
        *,
        vary: Vary | None = None,
    ) -> None:
        # Crawlers ask again for the same pages: a target is worked out once.
        self._target = lru_cache(maxsize=_REMEMBERED_TARGETS)(target_of)
        self._triggers = triggers
        self._opt_out = opt_out
        self._snapshots = snapshots
        self._forwarder = forwarder
        self._vary = vary
        fields = vary.fields if vary else ()
        self._vary_line = vary_line(fields)
        self._vary_line_by_user_agent = vary_line(("User-Agent", *fields))

    async def __call__(self, request: Request) -> None:
        """Answer it. Raises BadMessage and CutShort, after which its connection cannot be used."""
        # Not read where it makes no difference: every request comes through here.
        by_user_agent = self._triggers.by_user_agent
        decision = decide(
            request.method,
            request.target,
            triggers=self._triggers,
            user_agent=request.headers.get("user-agent") if by_user_agent else "",
            marked=fields.is_marked(request.headers),
            upgrade="upgrade" in request.headers,
        )
        try:
            match decision:
                case Render() if await self._is_allowed(request, decision):
                    await self._snapshot(request, decision)
                case Refuse():
                    raise CrawlerRefused(request.headers.get("user-agent"))
                case _:
                    await self._forwarder.forward(request)
        except (BadMessage, CutShort):
            raise
        except CrawlerRefused as error:
            log.debug("crawler refused", target=request.target, user_agent=str(error))
            await request.answer(error_response(error))
        except PrerenderError as error:
            log.warning("request failed", target=request.target, error=str(error))
            await request.answer(error_response(error))
        except Exception:
            log.exception("request failed by a mistake of ours", target=request.target)
            if request.started:
                raise CutShort("a mistake of ours") from None
            await request.answer(error_response(PrerenderError()))

    async def _is_allowed(self, request: Request, decision: Render) -> bool:
        """Whether robots.txt lets us answer an ugly URL."""
        if self._opt_out is None or decision.by_user_agent:
            return True
        user_agent = request.headers.get("user-agent")
        return not await self._opt_out.forbids(request.target, user_agent)

    async def _snapshot(self, request: Request, decision: Render) -> None:
        if self._vary is None:
            target = self._target(decision.pretty)
        else:
            variant = self._vary.variant_of(request.headers)
            target = self._target(decision.pretty, variant=variant)
        try:
            answer = await self._snapshots.snapshot(target)
        except NotRenderable as reason:
            # An image, an error of the origin: its own answer, for the pretty URL.
            log.debug("not rendered", url=target.url, reason=str(reason))
            await self._forwarder.forward(request, target.path)
        else:
            vary = self._vary_line_by_user_agent if decision.by_user_agent else self._vary_line
            await request.answer(snapshot_response(request, answer, vary))
