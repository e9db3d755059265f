"""Composition root: builds all objects, and starts and stops them. START HERE.

client ─▶ Handler ─▶ decide ─┬─ Forward ─▶ Forwarder ─▶ origin
                             └─ Render ──▶ CachedSnapshots ─▶ Renderer ─▶ Pool ─▶ Page ─▶ Chromium
                                              │                  │                          │
                                            Store       document.fetch                   Gateway
"""

import asyncio
import math
import os
import resource
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import structlog
from aiohttp import web

from prerender.admin import health
from prerender.admin.auth import AdminAuth
from prerender.admin.explain import Explanations
from prerender.admin.page_urls import Site
from prerender.admin.purge import Purging
from prerender.admin.token_file import TokenFile
from prerender.browser.pool import Pool
from prerender.config import Settings
from prerender.config.settings import Admin as AdminSettings
from prerender.config.settings import Server as ServerSettings
from prerender.config.types import AUTO, CLASSES
from prerender.crawlers.from_settings import signed_agents, triggers_of, verification
from prerender.crawlers.robots import OptOut
from prerender.crawlers.triggers import Triggers
from prerender.crawlers.user_agents import UserAgents
from prerender.errors import ConfigError
from prerender.extensions.dashboard.extension import dashboard
from prerender.extensions.dashboard.histories import Histories
from prerender.extensions.indexnow.indexnow import IndexNow, KeyFile
from prerender.extensions.markdown.snapshots import MarkdownSnapshots
from prerender.extensions.refresh_ahead.popularity import Popularity
from prerender.extensions.refresh_ahead.refresher import Refresher
from prerender.extensions.refresh_ahead.spare_capacity import SpareCapacity
from prerender.http.client_address import Clients
from prerender.http.connection import Sweeper
from prerender.http.forwarding_headers import Forwarding, authority
from prerender.http.server_log import server_log
from prerender.proxy.client_connection import Limits
from prerender.proxy.decider import Clientele, Decider, Pages
from prerender.proxy.drop_in import DropIn
from prerender.proxy.forward import Forwarder
from prerender.proxy.handler import BeginSpan, Handler
from prerender.proxy.origin_connections import OriginConnections
from prerender.proxy.responses import vary_line
from prerender.proxy.server import Server
from prerender.proxy.site_hosts import SiteHosts
from prerender.rendering.from_settings import Rendering, page_count, rendering, viewer_of
from prerender.snapshots.freshness import Freshness, Rule
from prerender.snapshots.learned import Learned
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.from_settings import open_store
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target
from prerender.snapshots.variants import Vary
from prerender.telemetry import logs
from prerender.telemetry.access_log import AccessLog, Line
from prerender.telemetry.metrics import Metrics
from prerender.telemetry.recorded_snapshots import RecordedSnapshots
from prerender.telemetry.records import Telemetry
from prerender.telemetry.redaction import Redaction
from prerender.telemetry.remembered import Remembered
from prerender.telemetry.state_metrics import StateMetrics
from prerender.tools.export.imports import Importing
from prerender.urls.hosts import Hosts
from prerender.urls.tracking import Tracking
from prerender.visits.alerts import Alerts
from prerender.visits.api import ReportApi
from prerender.visits.from_settings import open_visits
from prerender.visits.recorder import CrawlerNames, VisitMetrics, Visits
from prerender.webhooks import WebhookMetrics, Webhooks, key_of

_BACKLOG = 1024
# Of a process with one client and a browser; far more are needed in production.
_FEWEST_FILES = 128

_TOKEN = "[admin] token"  # noqa: S105 (the name of the setting)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Running:
    """A running proxy: its ports and main parts."""

    public_port: int
    admin_port: int
    pool: Pool
    store: Store
    telemetry: Telemetry
    auth: AdminAuth
    draining: bool = False


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Running]:
    """Run a proxy while the context is open. Then finish running requests and close everything.

    Raises ConfigError if it cannot listen on a port.
    """
    async with (
        rendering(settings, serves=True) as parts,
        proxying(settings, parts) as running,
    ):
        yield running


@asynccontextmanager
async def proxying(settings: Settings, parts: Rendering) -> AsyncIterator[Running]:
    """Run everything except the browser and its network, which are ``parts``. Raises ConfigError."""
    settings, made = _with_token(settings)
    async with AsyncExitStack() as stack:
        upstream, gateway, pool, renderer = parts
        store = await _store(settings, gateway.assets.store.clear, stack)
        telemetry = Telemetry()
        metrics = Metrics(telemetry)
        histories = await stack.enter_async_context(_histories(settings, store, telemetry))
        triggers = triggers_of(settings)
        visits = await stack.enter_async_context(
            _visits(settings, store, triggers.user_agents, telemetry, metrics)
        )
        _log_requests(settings, telemetry, stack)
        freshness = _freshness(settings)
        popularity = _popularity(settings, telemetry)
        snapshots = CachedSnapshots(
            RecordedSnapshots(renderer, telemetry.renders),
            store,
            freshness,
            patience=settings.render.timeout,
            # The other half of the pages is for waiting clients.
            refreshes=max(1, page_count(settings) // 2),
            popular=popularity.most_first,
            kept=await _when_stored(settings, histories, visits, stack),
            serve_incomplete=settings.render.incomplete == "serve",
        )
        stack.push_async_callback(snapshots.close)
        await stack.enter_async_context(
            Learned(
                store.notes, (gateway.hanging, gateway.data_hosts, snapshots.repeated_faults)
            ).shared()
        )
        markdown = MarkdownSnapshots(snapshots, store)
        stack.push_async_callback(markdown.close)
        tracking = Tracking(settings.cache.tracking_parameters)
        verified = await stack.enter_async_context(
            verification(settings, triggers.crawlers, store.notes)
        )
        sweeper = stack.enter_context(Sweeper())
        target_of = partial(Target.of, settings.public_url, tracking=tracking)
        agents = await stack.enter_async_context(signed_agents(settings))
        decider = Decider(
            triggers,
            Pages(target_of, _site_hosts(settings), tracking, _vary(settings)),
            Clientele(
                Clients(settings.server.trusted_proxies),
                verified.verify,
                agents,
                OptOut(upstream, settings.public_url) if settings.triggers.robots_opt_out else None,
            ),
            _drop_in(settings),
        )
        handler = Handler(
            decider,
            snapshots,
            markdown,
            _forwarder(settings, sweeper, triggers),
            telemetry=telemetry,
            begin_span=_tracing(settings, telemetry, stack),
        )
        public = Server(_with_key_file(settings, handler), _limits(settings), sweeper)
        refresher = _refresher(settings, snapshots, store, popularity, pool)
        metrics.watch(
            StateMetrics(
                pool,
                gateway,
                snapshots,
                store,
                public,
                refresher=refresher,
                published=verified.published,
            )
        )
        auth = _auth(settings.admin)
        running = Running(0, 0, pool, store, telemetry, auth)

        admin_app = health.make_app(pool, store, metrics, lambda: running.draining)
        site = Site(settings.public_url, tracking)
        for part in (
            Purging(store.purges, store.lists, site),
            Importing(store, freshness, settings.public_url, target_of),
            Explanations(site, decider, snapshots, pool, histories),
            ReportApi(visits, site, store, upstream),
        ):
            part.add_to(admin_app)
        remembered_by = await stack.enter_async_context(
            dashboard(
                admin_app,
                settings,
                triggers=triggers,
                published=verified.published,
                telemetry=telemetry,
                metrics=metrics,
                pool=pool,
                store=store,
                snapshots=snapshots,
                site=site,
                histories=histories,
                viewer=viewer_of(settings, parts),
                auth=auth,
            )
        )
        remembered_by |= {
            "hanging_requests": gateway.hanging,
            "data_hosts": gateway.data_hosts,
            "repeated_faults": snapshots.repeated_faults,
            "popularity": popularity,
            "signed_agents": agents,
            "keys_of_agents": agents and agents.directories,
            "histories_to_write": histories,
            "notices": telemetry.notices,
            "visits_to_write": visits,
            "log": logs.waiting_lines(),
        }
        remembered = Remembered(remembered_by, (handler, telemetry))
        await stack.enter_async_context(metrics.measuring(remembered))
        running.admin_port = await stack.enter_async_context(_admin_listener(settings, admin_app))
        with _listening("server", settings.server):
            await public.listen(settings.server.host, settings.server.port, _BACKLOG)
        # Renders that are not finished by then get a 503: another replica can take them over.
        stack.push_async_callback(public.close, settings.server.grace, snapshots.close)
        running.public_port = public.port
        await stack.enter_async_context(refresher.refreshing())
        _announce(settings, running, triggers, made)
        try:
            yield running
        finally:
            running.draining = True
            log.info("shutting_down", grace_seconds=settings.server.grace)


async def _store(
    settings: Settings, forget_assets: Callable[[], object], stack: AsyncExitStack
) -> Store:
    store = await open_store(settings)
    stack.push_async_callback(store.close)
    # After a deploy, a page must not be rendered with a script of the last one.
    store.purges.when_all(forget_assets)
    return store


@asynccontextmanager
async def _histories(
    settings: Settings, store: Store, telemetry: Telemetry
) -> AsyncIterator[Histories]:
    """The histories of pages, written while the context is open."""
    histories = Histories(store.notes, settings.admin.versions)
    async with histories.kept():
        telemetry.renders.subscribe(histories)
        yield histories


@asynccontextmanager
async def _visits(
    settings: Settings,
    store: Store,
    user_agents: UserAgents,
    telemetry: Telemetry,
    metrics: Metrics,
) -> AsyncIterator[Visits | None]:
    """What crawlers got, kept while the context is open, with alerts; None if it is not to be kept."""
    if not settings.visits.days:
        if settings.webhooks.url:
            raise ConfigError(["[webhooks] url: alerts need figures: set [visits] days"])
        yield None
        return
    names = CrawlerNames(user_agents)
    clean = Redaction(settings.log.secrets)
    visits = Visits(open_visits(settings), names, clean, settings.visits.days)
    metrics.watch(VisitMetrics(visits))
    telemetry.requests.subscribe(visits)
    async with visits.kept(), _alerts(settings, visits, store, metrics):
        yield visits


@asynccontextmanager
async def _alerts(
    settings: Settings, visits: Visits, store: Store, metrics: Metrics
) -> AsyncIterator[None]:
    """Send alerts while the context is open, if [webhooks] url is set."""
    url = settings.webhooks.url
    if not url:
        metrics.watch(WebhookMetrics(None))
        yield
        return
    async with Webhooks.open(url, [*map(key_of, settings.webhooks.secret)]) as webhooks:
        metrics.watch(WebhookMetrics(webhooks))
        alerts = Alerts(visits, store, webhooks, str(settings.public_url.origin()))
        async with alerts.watching():
            yield


def _with_key_file(settings: Settings, handler: Handler) -> Handler | KeyFile:
    """The handler, which also serves the key of IndexNow if there is one."""
    key = settings.indexnow.key
    return KeyFile(key, handler) if key else handler


def _popularity(settings: Settings, telemetry: Telemetry) -> Popularity:
    """The requested targets; none unless they are needed."""
    popularity = Popularity()
    if settings.cache.deploys or settings.cache.refresh:
        telemetry.requests.subscribe(popularity)
    return popularity


def _refresher(
    settings: Settings,
    snapshots: CachedSnapshots,
    store: Store,
    popularity: Popularity,
    pool: Pool,
) -> Refresher:
    spare = SpareCapacity(pool)
    return Refresher(
        snapshots,
        store,
        popularity,
        before=settings.cache.refresh_before,
        most=math.ceil(page_count(settings) * settings.cache.refresh),
        has_room=spare.has_room,
        is_crowded=spare.is_crowded,
    )


@asynccontextmanager
async def _admin_listener(settings: Settings, app: web.Application) -> AsyncIterator[int]:
    """Start the admin listener. Yields its port."""
    runner = web.AppRunner(app, access_log=None, logger=server_log("prerender.admin"))
    await runner.setup()
    try:
        with _listening("admin", settings.admin):
            await web.TCPSite(runner, settings.admin.host, settings.admin.port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextmanager
def _listening(section: str, settings: ServerSettings | AdminSettings) -> Iterator[None]:
    """Turn an OSError into a ConfigError that names the setting."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        where = f"{settings.host}:{settings.port}"
        raise ConfigError(
            [f"[{section}] host, port: cannot listen on {where}: {reason}"]
        ) from error


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit: each connection needs one.

    Raises ConfigError if that is too low to start at all.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < _FEWEST_FILES:
        raise ConfigError(
            [f"the limit of open files is {most}, at least {_FEWEST_FILES} are needed: ulimit -n"]
        )
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _drop_in(settings: Settings) -> DropIn | None:
    drop_in = settings.drop_in
    if not drop_in.enabled:
        return None
    return DropIn(settings.public_url, Hosts(drop_in.hosts), drop_in.token)


def _announce(
    settings: Settings, running: Running, triggers: Triggers, made: Mapping[str, str]
) -> None:
    """Log the URLs of the proxy, and ``made``: generated values of settings."""
    if not settings.site.url:
        running.telemetry.notices.warn(
            "site_url_unset",
            consequence=f"snapshots carry the origin's URL, {settings.public_url}",
            remedy="set [site] url (PRERENDER_SITE_URL) to the public URL of the site",
        )
    log.info(
        "serving",
        url=_reachable(settings.server.host, running.public_port),
        site=str(settings.public_url),
        origin=settings.origin.url,
        dashboard=f"{_reachable(settings.admin.host, running.admin_port)}/",
        preset=settings.triggers.preset,
        **_crawlers(triggers),
        **made,
    )


def _crawlers(triggers: Triggers) -> dict[str, str]:
    """Who gets snapshots, and which classes of crawlers do not."""
    rendered = [one for one in CLASSES if triggers.action(one) in ("render", "markdown")]
    others = [one for one in CLASSES if one not in rendered]
    return {
        "snapshots_for": ", ".join(["ugly URLs", *rendered]),
        "no_snapshots_for": ", ".join(others) or "visitors only",
    }


def _site_hosts(settings: Settings) -> SiteHosts:
    public = settings.public_url
    guess = "" if settings.site.url else authority(public)
    return SiteHosts(public.raw_host or "", Hosts(settings.site.hosts), guess)


def _vary(settings: Settings) -> Vary | None:
    cache = settings.cache
    if not cache.vary:
        return None
    return Vary(device="device" in cache.vary, languages=cache.languages)


def _tracing(settings: Settings, telemetry: Telemetry, stack: AsyncExitStack) -> BeginSpan | None:
    """Set up the export of spans, if [tracing] endpoint is set."""
    if not settings.tracing.endpoint:
        return None
    try:
        from prerender.extensions.tracing.tracing import Tracing  # noqa: PLC0415 (optional)
    except ImportError as error:
        raise ConfigError(
            [f"[tracing] endpoint: {error}: install it with pip install 'prerender-proxy[otel]'"]
        ) from error
    tracing = Tracing(
        settings.tracing.endpoint, settings.tracing.sample, Redaction(settings.log.secrets)
    )
    telemetry.requests.subscribe(tracing.request)
    telemetry.renders.subscribe(tracing.render)
    # Blocking: it waits for the collector.
    stack.push_async_callback(asyncio.to_thread, tracing.close)
    return tracing.begin


def _auth(admin: AdminSettings) -> AdminAuth:
    file = TokenFile(admin.token_file) if admin.token_file else None
    return AdminAuth(admin.token, admin.hosts, file)


def _with_token(settings: Settings) -> tuple[Settings, dict[str, str]]:
    """Replace the token "auto" by a generated one. Also returns what to log."""
    if settings.admin.token != (AUTO,):
        return settings, {}
    token = secrets.token_urlsafe(24)
    admin = settings.admin.model_copy(update={"token": (token,)})
    return settings.model_copy(update={"admin": admin}), {"admin_token": token}


def _reachable(host: str, port: int) -> str:
    """A URL of a listener for use on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _log_requests(settings: Settings, telemetry: Telemetry, stack: AsyncExitStack) -> None:
    """Open the access log, if there is one."""
    if settings.log.access == "none":
        return
    coloured = logs.is_coloured(sys.stderr)
    line = Line(settings.log.format, Redaction(settings.log.secrets), coloured=coloured)
    access_log = AccessLog(logs.write, line, only_snapshots=settings.log.access == "snapshots")
    telemetry.requests.subscribe(access_log)
    stack.enter_context(logs.preceded_by(access_log.flush))


def _forwarder(settings: Settings, sweeper: Sweeper, triggers: Triggers) -> Forwarder:
    origin = settings.origin
    connections = OriginConnections(settings.origin_url, origin.connect_timeout, sweeper)
    return Forwarder(
        connections,
        Forwarding(settings.origin_url),
        origin.timeout,
        pages_vary=vary_line(triggers.vary()),
    )


def _limits(settings: Settings) -> Limits:
    server = settings.server
    return Limits(
        head=server.header_timeout,
        body=server.body_timeout,
        write=server.write_timeout,
        idle=server.idle_timeout,
        trusted=server.trusted_proxies,
    )


async def _when_stored(
    settings: Settings, histories: Histories, visits: Visits | None, stack: AsyncExitStack
) -> Callable[[Target, str, Snapshot], None]:
    """What is called for each stored snapshot: histories, visits and, if configured, IndexNow."""
    told = settings.indexnow
    indexnow = None
    if told.key:
        indexnow = await stack.enter_async_context(
            IndexNow.open(settings.public_url, told.key, told.endpoint, told.interval)
        )

    def stored(target: Target, before: str, snapshot: Snapshot) -> None:
        histories.stored(target, snapshot)
        if visits is not None:
            visits.stored(target, snapshot)
        if indexnow is not None:
            indexnow.kept(target, before, snapshot.etag)

    return stored


def _freshness(settings: Settings) -> Freshness:
    cache = settings.cache
    return Freshness(
        ttl=cache.ttl,
        error_ttl=cache.error_ttl,
        rules=tuple(Rule(path, ttl) for path, ttl in cache.rules),
        page_ttl=cache.page_ttl,
        obey_origin=cache.obey_origin,
        stale=cache.stale,
        stale_if_error=cache.stale_if_error,
        deploys=cache.deploys,
    )


def reload(running: Running, old: Settings, new: Settings) -> None:
    """Apply what can be changed while running: the admin tokens. Says what needs a restart.

    Files of address ranges and of tokens are read again by themselves when they change.
    """
    changed = [
        f"[{section}] {key}"
        for section in Settings.model_fields
        for key, value in getattr(new, section)
        if value != getattr(getattr(old, section), key)
    ]
    applied = [name for name in changed if name == _TOKEN and new.admin.token != (AUTO,)]
    if applied:
        running.auth.renew_tokens(new.admin.token)
    log.info(
        "reloaded",
        applied=", ".join(applied) or "nothing",
        needs_restart=", ".join(name for name in changed if name not in applied) or "nothing",
    )
