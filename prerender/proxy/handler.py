"""Handles a request on the public listener: decide, then render, forward or refuse."""

import time
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from functools import lru_cache

import structlog

from prerender.config.types import CrawlerClass
from prerender.crawlers.key_directories import FETCH_SECONDS
from prerender.crawlers.robots import OptOut
from prerender.crawlers.triggers import Triggers
from prerender.crawlers.web_bot_auth import SignedAgents
from prerender.errors import (
    BadMessage,
    CutShort,
    DocumentRefused,
    NotRenderable,
    PrerenderError,
    Refused,
)
from prerender.extensions.markdown.snapshots import MarkdownSnapshots
from prerender.http import forwarding_headers
from prerender.http.client_address import Clients
from prerender.http.fields import Fields, value_of
from prerender.http.negotiation import prefers_markdown
from prerender.http.trace_context import CURRENT, TraceContext, trace_of
from prerender.proxy.decision import Decision, Forward, Reason, Refuse, Render, decide
from prerender.proxy.drop_in import DropIn
from prerender.proxy.forward import Forwarder
from prerender.proxy.request import Request
from prerender.proxy.responses import error_response, snapshot_response, vary_line
from prerender.proxy.site_hosts import SiteHosts
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.target import Target
from prerender.snapshots.variants import Vary
from prerender.telemetry.config_notices import Notices
from prerender.telemetry.records import LONGEST_USER_AGENT, Channel, RequestContext, RequestRecord
from prerender.urls.ajax_crawling import UGLY_TOKEN
from prerender.urls.tracking import NO_TRACKING, Tracking

_REMEMBERED_TARGETS = 1024
_REMEMBERED_CLIENTS = 1024
_REMEMBERED_HOSTS = 16
_LONGEST_REMEMBERED = 1024
# How long a response that depends on a signature waits for the keys of an unknown agent.
_KEY_SECONDS = 1.0
_SIGNATURE_AGENT = "signature-agent"

BeginSpan = Callable[[TraceContext | None], TraceContext]

log = structlog.get_logger(__name__)


class Handler:
    """Responds to requests with a snapshot, the origin's response, or an error.

    ``target_of(pretty, variant=...)``: makes the target of a page; ``variant`` only with ``vary``.
    ``verify``: whether a request comes from the crawler that it names. ``agents``: verifies the
    signatures of agents. ``clients``: finds the
    client's address. ``hosts``: the host names that get snapshots. ``notices``: for configuration
    problems. ``records``: gets a record of each request. ``begin_span``: starts a span in the
    client's trace or a new one; without it, trace headers pass unchanged.
    """

    def __init__(
        self,
        target_of: Callable[..., Target],
        triggers: Triggers,
        opt_out: OptOut | None,
        snapshots: CachedSnapshots,
        forwarder: Forwarder,
        *,
        records: Channel[RequestRecord],
        clients: Clients,
        markdown: MarkdownSnapshots,
        hosts: SiteHosts,
        notices: Notices,
        tracking: Tracking = NO_TRACKING,
        vary: Vary | None = None,
        drop_in: DropIn | None = None,
        verify: Callable[[Request], Awaitable[bool]] | None = None,
        agents: SignedAgents | None = None,
        begin_span: BeginSpan | None = None,
    ) -> None:
        # Crawlers request the same pages repeatedly, so targets are cached.
        self._target_of_pretty = target_of
        self._target = lru_cache(maxsize=_REMEMBERED_TARGETS)(target_of)
        self._triggers = triggers
        self._opt_out = opt_out
        self._snapshots = snapshots
        self._forwarder = forwarder
        self._records = records
        self._clients = clients
        self._vary = vary
        self._markdown = markdown
        variants = vary.fields if vary else ()
        self._vary_line = vary_line((*triggers.vary(ugly=True), *variants))
        # A middleware passes the response to crawlers at a URL where visitors get the original page.
        by_middleware = ("User-Agent",) if drop_in else ()
        self._vary_line_by_user_agent = vary_line((*by_middleware, *triggers.vary(), *variants))
        self._drop_in = drop_in
        self._hosts = hosts
        self._notices = notices
        self._tracking = tracking
        self._verify = verify
        self.agents = agents
        self._key_patience = _KEY_SECONDS if triggers.need_signatures else 0.0
        self._looks_twice = verify is not None or opt_out is not None
        self._begin_span = begin_span
        self._compare = lru_cache(maxsize=_REMEMBERED_HOSTS)(self._compare_host)
        # The same applies to User-Agents.
        self._known_client = lru_cache(maxsize=_REMEMBERED_CLIENTS)(self._read_client)

    async def __call__(self, request: Request) -> None:
        """Handle a request.

        Raises BadMessage and CutShort, after which the connection must be closed.
        """
        began = time.perf_counter()
        user_agent, crawler = self._client(request.headers)
        decision = self._decide(request, crawler)
        remote = self._clients.address_of(request)
        trace = self._trace(request)
        context = RequestContext(
            began,
            remote,
            user_agent,
            crawler,
            trace=trace,
            decision=decision,
            accept_language="accept-language" in request.headers.names,
        )
        if trace is not None:
            CURRENT.set(trace)
        try:
            if _SIGNATURE_AGENT in request.headers.names and self.agents is not None:
                patience = self._key_patience if crawler is None else 0.0
                decision = await self._look_at_signature(request, context, decision, patience)
            if self._looks_twice and isinstance(decision, Render):
                decision = context.decision = await self._second_look(request, decision)
            if isinstance(decision, Render):
                await self._snapshot(request, decision, context)
            elif isinstance(decision, Forward):
                await self._forwarder.forward(request)
            else:
                raise decision.error
        except (BadMessage, CutShort, CancelledError) as error:
            context.error = error
            raise
        except Refused as error:
            context.error = error
            log.debug("request_refused", target=request.target, user_agent=context.user_agent)
            await request.answer(error_response(error))
        except PrerenderError as error:
            context.error = error
            log.warning(
                error.event,
                target=request.target,
                error=error.code.value,
                reason=str(error),
            )
            await request.answer(error_response(error))
        except Exception as error:
            context.error = error
            log.exception("internal_error", target=request.target)
            if request.started:
                raise CutShort("internal error") from None
            await request.answer(error_response(PrerenderError()))
        finally:
            self._records(context.record(request))
            # Its traceback references this frame, and so large buffers.
            context.error = None

    async def considered(self, request: Request) -> RequestContext:
        """The decision about a request, without executing it. For /explain."""
        user_agent, crawler = self._client(request.headers)
        decision = self._decide(request, crawler)
        remote = self._clients.address_of(request)
        context = RequestContext(
            time.perf_counter(), remote, user_agent, crawler, trace=None, decision=decision
        )
        if _SIGNATURE_AGENT in request.headers.names and self.agents is not None:
            decision = await self._look_at_signature(
                request, context, decision, FETCH_SECONDS, remember=False
            )
        if isinstance(decision, Render):
            context.decision = decision = await self._second_look(request, decision)
        if isinstance(decision, Render):
            context.target = self._target_of(request, decision)
        return context

    def _trace(self, request: Request) -> TraceContext | None:
        """The trace of the request, with a new span if spans are exported."""
        trace = trace_of(request.headers)
        if self._begin_span is not None:
            trace = self._begin_span(trace)
            request.traceparent = str(trace).encode()
        return trace

    def _client(self, headers: Fields) -> tuple[str, CrawlerClass | None]:
        """The User-Agent and its class of crawlers."""
        line = headers.names.get("user-agent", b"")
        if len(line) <= _LONGEST_REMEMBERED:
            return self._known_client(line)
        return self._read_client(line)

    def _read_client(self, line: bytes) -> tuple[str, CrawlerClass | None]:
        user_agent = value_of(line).decode("latin-1")
        return user_agent[:LONGEST_USER_AGENT], self._triggers.class_of(user_agent)

    def _decide(self, request: Request, crawler: CrawlerClass | None) -> Decision:
        marked = forwarding_headers.is_marked(request.headers)
        drop_in = False
        if self._drop_in is not None:
            try:
                drop_in = self._drop_in.take(request)
            except Refused as error:
                return Refuse(type(error), Reason.MIDDLEWARE_REFUSED)
        target = request.target
        token_at = target.rfind(UGLY_TOKEN)
        if token_at >= 0 and target.find("&", token_at + len(UGLY_TOKEN)) >= 0:
            # Others append their parameters to shared URLs, behind the token, which must be the last.
            target = self._tracking.without(target)
        decision = decide(
            request.method,
            target,
            triggers=self._triggers,
            crawler=crawler,
            marked=marked,
            upgrade="upgrade" in request.headers.names,
            wants_markdown=self._triggers.accept_markdown
            and prefers_markdown(request.headers.get("accept")),
            drop_in=drop_in,
        )
        if isinstance(decision, Render) and not drop_in and request.host not in self._hosts:
            return Forward(Reason.FOREIGN_HOST)
        return decision

    async def _look_at_signature(
        self,
        request: Request,
        context: RequestContext,
        decision: Decision,
        patience: float,
        *,
        remember: bool = True,
    ) -> Decision:
        """Verify the signature of an agent, which counts if its User-Agent names no crawler."""
        if self.agents is not None and not forwarding_headers.is_marked(request.headers):
            signed = await self.agents.check(request, patience, remember=remember)
            context.agent, context.agent_unverified = signed.agent, signed.reason
            if signed.agent and context.crawler is None:
                context.crawler = "signed"
                context.decision = decision = self._decide(request, "signed")
        return decision

    async def _second_look(self, request: Request, decision: Render) -> Decision:
        """Apply the slow checks: robots.txt for ugly URLs, DNS for crawlers by User-Agent."""
        if decision.by_user_agent:
            if (
                self._verify is not None
                and not decision.drop_in
                and not await self._verify(request)
            ):
                return Forward(Reason.UNVERIFIED)
        elif self._opt_out is not None:
            user_agent = request.headers.get("user-agent")
            if await self._opt_out.forbids(request.target, user_agent):
                return Forward(Reason.ROBOTS_TXT)
        return decision

    async def _snapshot(self, request: Request, decision: Render, context: RequestContext) -> None:
        target = context.target = self._target_of(request, decision)
        self._compare(request.host)
        try:
            snapshots = self._markdown if decision.markdown else self._snapshots
            result = snapshots.fresh(target) or await snapshots.snapshot(target)
            context.result = result
        except NotRenderable as reason:
            # For example an image or an error: forward the pretty URL.
            context.detail = str(reason)
            log.debug("not_renderable", url=target.url, reason=context.detail)
            await self._forward_instead(request, target, reason, context)
        else:
            vary = self._vary_line_by_user_agent if decision.by_user_agent else self._vary_line
            request.send(snapshot_response(request, result, vary))
            if request.congested:
                await request.drain()

    def _compare_host(self, host: str) -> None:
        """Warn the owner if the site's URL is only guessed, and clients use another one."""
        if self._hosts.are_guessed and host != self._hosts.guess:
            self._notices.warn(
                "host_differs",
                client_host=host,
                consequence=f"clients request {host}, but snapshots have URLs of "
                f"{self._hosts.guess}, the origin",
                remedy="set [site] url (PRERENDER_SITE_URL) to the public URL of the site",
            )

    async def _forward_instead(
        self, request: Request, target: Target, reason: NotRenderable, context: RequestContext
    ) -> None:
        """Forward a request whose target is not a page.

        Raises DocumentRefused if the client gets a page where the renderer got an error.
        """
        status = reason.refused_with
        error = DocumentRefused(
            f"the origin responds to the renderer with {status}, to clients with a page",
            about=target.url,
        )
        try:
            await self._forwarder.forward(
                request, target.request_target, page_error=error if status else None
            )
        except DocumentRefused:
            context.detail = str(error)
            self._notices.warn(
                "origin_refuses_renderer",
                url=target.url,
                status=status,
                client_host=request.host,
                consequence="no snapshots: crawlers get 503",
                remedy="let the origin accept the host of [site] url and the renderer's User-Agent "
                "(prerender doctor names the settings of frameworks)",
            )
            raise

    def _target_of(self, request: Request, decision: Render) -> Target:
        pretty = decision.pretty
        is_long = len(pretty.path) + len(pretty.fragment) > _LONGEST_REMEMBERED
        target = self._target_of_pretty if is_long else self._target
        if self._vary is None:
            return target(pretty)
        return target(pretty, variant=self._vary.variant_of(request.headers))
