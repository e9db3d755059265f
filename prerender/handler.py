"""The life of one request on the public listener, top to bottom."""

import time
from asyncio import CancelledError
from collections.abc import Callable
from functools import lru_cache, partial

import structlog

from prerender import headers as fields
from prerender.ajax_crawling import PrettyURL
from prerender.crawling.robots import OptOut
from prerender.crawling.triggers import Triggers
from prerender.crawling.user_agents import CrawlerClass
from prerender.decision import OPTED_OUT, Decision, Refuse, Render, decide
from prerender.errors import CrawlerRefused, NotRenderable, PrerenderError
from prerender.forward import Forwarder
from prerender.http1.body import CutShort
from prerender.http1.head import BadMessage, Fields, value_of
from prerender.http1.request import Request
from prerender.http1.server import Rest
from prerender.responses import error_response, snapshot_response
from prerender.snapshots.cached import CachedSnapshots
from prerender.snapshots.snapshot import Target
from prerender.telemetry.records import Channel, Course, RequestRecord
from prerender.telemetry.trace import CURRENT, trace_of

_REMEMBERED_TARGETS = 1024
_REMEMBERED_CLIENTS = 1024
_LONGEST_REMEMBERED = 1024

log = structlog.get_logger(__name__)


class Handler:
    """Answers a request with a snapshot, with what the origin says, or with an error of ours.

    What came of it is told to ``records``.
    """

    def __init__(
        self,
        target_of: Callable[[PrettyURL], Target],
        triggers: Triggers,
        opt_out: OptOut | None,
        snapshots: CachedSnapshots,
        forwarder: Forwarder,
        *,
        records: Channel[RequestRecord],
    ) -> None:
        # Crawlers ask again for the same pages: a target is worked out once.
        self._target = lru_cache(maxsize=_REMEMBERED_TARGETS)(target_of)
        self._triggers = triggers
        self._opt_out = opt_out
        self._snapshots = snapshots
        self._forwarder = forwarder
        self._records = records
        # Nor is it read anew who asks.
        self._known_client = lru_cache(maxsize=_REMEMBERED_CLIENTS)(self._read_client)

    def __call__(self, request: Request) -> Rest:
        """Answer it if a fresh snapshot is at hand; otherwise what has to be awaited for its answer.

        That raises BadMessage and CutShort, after which the connection cannot be used.
        """
        began = time.perf_counter()
        user_agent, crawler = self._client(request.headers)
        decision = self._decide(request, user_agent)
        course = Course(began, user_agent, crawler, trace_of(request.headers), decision)
        try:
            if isinstance(decision, Render) and self._answer_at_once(request, course, decision):
                return None
        except Exception:
            if request.started:
                raise
            # It will happen again, where such things are seen to.
        return partial(self._see_to, request, course)

    def _answer_at_once(self, request: Request, course: Course, decision: Render) -> bool:
        if self._opt_out is not None:
            return False
        course.target = self._target(decision.pretty)
        answer = course.answer = self._snapshots.fresh(course.target)
        if answer is None:
            return False
        request.answer_at_once(
            snapshot_response(request, answer, by_user_agent=decision.by_user_agent)
        )
        self._records(course.record(request))
        return True

    async def _see_to(self, request: Request, course: Course) -> None:
        """Answer a request that takes some waiting."""
        CURRENT.set(course.trace)
        try:
            await self._answer(request, course)
        except (BadMessage, CutShort, CancelledError) as error:
            course.error = error
            raise
        except CrawlerRefused as error:
            course.error = error
            log.debug("crawler refused", target=request.target, user_agent=course.user_agent)
            await request.answer(error_response(error))
        except PrerenderError as error:
            course.error = error
            log.warning("request failed", target=request.target, error=str(error))
            await request.answer(error_response(error))
        except Exception as error:
            course.error = error
            log.exception("request failed by a mistake of ours", target=request.target)
            if request.started:
                raise CutShort("a mistake of ours") from None
            await request.answer(error_response(PrerenderError()))
        finally:
            self._records(course.record(request))

    def _client(self, headers: Fields) -> tuple[str, CrawlerClass | None]:
        """The User-Agent, and the class of crawlers it belongs to."""
        line = headers.names.get("user-agent", b"")
        return (self._known_client if len(line) <= _LONGEST_REMEMBERED else self._read_client)(line)

    def _read_client(self, line: bytes) -> tuple[str, CrawlerClass | None]:
        user_agent = value_of(line).decode("latin-1")
        return user_agent, self._triggers.class_of(user_agent)

    def _decide(self, request: Request, user_agent: str) -> Decision:
        return decide(
            request.method,
            request.target,
            triggers=self._triggers,
            user_agent=user_agent,
            marked=fields.is_marked(request.headers),
            upgrade="upgrade" in request.headers,
        )

    async def _answer(self, request: Request, course: Course) -> None:
        match course.decision:
            case Render() as decision if await self._is_allowed(request, decision):
                await self._snapshot(request, decision, course)
            case Refuse():
                raise CrawlerRefused
            case Render():
                course.decision = OPTED_OUT
                await self._forwarder.forward(request)
            case _:
                await self._forwarder.forward(request)

    async def _is_allowed(self, request: Request, decision: Render) -> bool:
        """Whether robots.txt lets us answer an ugly URL."""
        if self._opt_out is None or decision.by_user_agent:
            return True
        user_agent = request.headers.get("user-agent")
        return not await self._opt_out.forbids(request.target, user_agent)

    async def _snapshot(self, request: Request, decision: Render, course: Course) -> None:
        target = course.target = self._target(decision.pretty)
        try:
            course.answer = answer = await self._snapshots.snapshot(target)
        except NotRenderable as reason:
            # An image, an error of the origin: its own answer, for the pretty URL.
            course.detail = str(reason)
            log.debug("not rendered", url=target.url, reason=course.detail)
            await self._forwarder.forward(request, target.path)
        else:
            await request.answer(
                snapshot_response(request, answer, by_user_agent=decision.by_user_agent)
            )
