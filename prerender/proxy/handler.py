"""Handles a request on the public listener: decide, then render, forward or refuse."""

import time
from asyncio import CancelledError
from collections.abc import Callable
from typing import Protocol

import structlog

from prerender.errors import (
    BadMessage,
    CutShort,
    DocumentRefused,
    NotRenderable,
    PrerenderError,
    Refused,
)
from prerender.http.message_head import Request
from prerender.http.trace_context import CURRENT, TraceContext, trace_of
from prerender.proxy.client_stream import ClientStream
from prerender.proxy.decider import Considered, Decider
from prerender.proxy.decision import Refuse, Render
from prerender.proxy.discovery import Discovery
from prerender.proxy.forward import Forwarder
from prerender.proxy.outcome import Outcome, record_of
from prerender.proxy.responses import error_response, snapshot_response
from prerender.proxy.site_hosts import SiteHosts
from prerender.snapshots.snapshot import Snapshot, SnapshotResult
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.target import Target
from prerender.telemetry.telemetry import Telemetry

BeginSpan = Callable[[TraceContext | None], TraceContext]
LinesOf = Callable[[Target, Snapshot], bytes]

log = structlog.get_logger(__name__)


class AlsoSnapshots(Protocol):
    """Snapshots in another form."""

    def fresh(self, target: Target) -> SnapshotResult | None:
        """A fresh one in memory."""

    async def snapshot(self, target: Target) -> SnapshotResult:
        """A stored or new one. Raises RenderError, OriginError or NotRenderable."""


class Handler:
    """Responds to requests with a snapshot, the origin's response, or an error.

    ``telemetry``: gets a record of each request, and notices about the configuration. Extensions may
    set ``markdown``, the snapshots as Markdown, ``begin_span``, which starts a span in the client's
    trace or a new one (without it, trace headers pass unchanged), ``lines_of``, header lines of a
    snapshot, and ``discover``.
    """

    def __init__(
        self,
        decider: Decider,
        snapshots: CachedSnapshots,
        forwarder: Forwarder,
        *,
        telemetry: Telemetry,
    ) -> None:
        self._decider = decider
        self._snapshots = snapshots
        self.markdown: CachedSnapshots | AlsoSnapshots = snapshots
        self._forwarder = forwarder
        self._records = telemetry.requests
        self._notices = telemetry.notices
        self.begin_span: BeginSpan | None = None
        self.lines_of: LinesOf | None = None
        self._discovery: Discovery | None = None

    @property
    def hosts(self) -> SiteHosts:
        """The host names that get snapshots."""
        return self._decider.hosts

    def discover(self, discovery: Discovery) -> None:
        """Serve Markdown URLs, and name them in headers of pages."""
        self._discovery = discovery
        self._decider.discover(discovery)
        self._forwarder.more_of_pages = discovery.of_forwarded

    async def __call__(self, request: Request, client: ClientStream) -> None:
        """Handle a request.

        Raises BadMessage and CutShort, after which the connection must be closed.
        """
        began = time.perf_counter()
        considered = self._decider.consider(request)
        trace = trace_of(request.headers)
        if self.begin_span is not None:
            trace = self.begin_span(trace)
        if trace is not None:
            CURRENT.set(trace)
        outcome = await self._respond(considered, client, trace)
        if outcome.error is None:
            self._records(record_of(outcome, client, trace, began))
            return
        try:
            await _fail(outcome.error, outcome.considered, client)
        finally:
            self._records(record_of(outcome, client, trace, began))
            # The traceback of the error references this frame, and so large buffers.
            del outcome

    async def _respond(
        self, considered: Considered, client: ClientStream, trace: TraceContext | None
    ) -> Outcome:
        """Execute the decision. Whatever is raised is in the outcome, with what was done before."""
        target = result = origin_seconds = None
        detail = ""
        try:
            if self._decider.has_checks and self._decider.needs_checks(considered):
                considered = await self._decider.check(considered)
            request, decision = considered.request, considered.decision
            if isinstance(decision, Refuse):
                raise decision.error
            refused_with = 0
            if isinstance(decision, Render):
                target = self._decider.target_of(request, decision)
                self._compare(request.host)
                snapshots = self.markdown if decision.markdown else self._snapshots
                try:
                    result = snapshots.fresh(target) or await snapshots.snapshot(target)
                except NotRenderable as reason:
                    # For example an image or an error: forward the pretty URL.
                    detail, refused_with = reason.reason, reason.refused_with
                    log.debug("not_renderable", url=target.url, reason=detail)
                    if not decision.markdown_url:
                        request = request.with_target(target.request_target)
                else:
                    lines = self._decider.vary.of_snapshot(decision)
                    if self._discovery is not None:
                        shown = self._discovery.shown(target, result, decision.markdown_url)
                        result, lines = shown[0], lines + shown[1]
                    if self.lines_of is not None:
                        lines += self.lines_of(target, result.snapshot)
                    client.send(snapshot_response(request, result, lines))
                    if client.congested:
                        await client.drain()
            if result is None:
                response = await self._forwarder.send(request, client, trace)
                if target is not None and refused_with and response.is_page:
                    await response.close()
                    error = self._refused(target, refused_with, request.host)
                    detail = str(error)
                    raise error
                origin_seconds = response.seconds
                await response.relay(client, self._decider.vary_of_forwarded(considered))
        except BaseException as error:
            return Outcome(considered, target, result, detail, origin_seconds, error)
        return Outcome(considered, target, result, detail, origin_seconds)

    def _compare(self, host: str) -> None:
        """Warn the owner if the site's URL is only guessed, and clients use another one."""
        hosts = self._decider.hosts
        if hosts.are_guessed and host != hosts.guess:
            self._notices.warn(
                "host_differs",
                client_host=host,
                consequence=f"clients request {host}, but snapshots have URLs of "
                f"{hosts.guess}, the origin",
                remedy="set [site] url (PRERENDER_SITE_URL) to the public URL of the site",
            )

    def _refused(self, target: Target, status: int, host: str) -> DocumentRefused:
        """The error if a client gets a page where the renderer got an error."""
        self._notices.warn(
            "origin_refuses_renderer",
            url=target.url,
            status=status,
            client_host=host,
            consequence="no snapshots: crawlers get 503",
            remedy="let the origin accept the host of [site] url and the renderer's User-Agent "
            "(prerender doctor names the settings of frameworks)",
        )
        return DocumentRefused(
            f"the origin responds to the renderer with {status}, to clients with a page",
            about=target.url,
        )


async def _fail(error: BaseException, considered: Considered, client: ClientStream) -> None:
    """Respond with an error, or raise it if the connection must be closed."""
    target = considered.request.target
    if isinstance(error, BadMessage | CutShort | CancelledError):
        raise error
    if isinstance(error, Refused):
        log.debug("request_refused", target=target, user_agent=considered.user_agent)
    elif isinstance(error, PrerenderError):
        log.warning(error.event, target=target, error=error.code.value, reason=str(error))
    elif isinstance(error, Exception):
        log.error("internal_error", target=target, exc_info=error)
        if client.started:
            raise CutShort("internal error") from None
        error = PrerenderError()
    else:
        raise error
    await client.respond(error_response(error))
