"""Composition root: builds all objects, and starts and stops them. START HERE.

client ─▶ Handler ─▶ decide ─┬─ Forward ─▶ Forwarder ─▶ origin
                             └─ Render ──▶ CachedSnapshots ─▶ Renderer ─▶ Pool ─▶ Page ─▶ Chromium
                                              │                  │                          │
                                            Store       document.fetch                   Gateway
"""

import resource
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import structlog

from prerender import plugins
from prerender.admin import listener
from prerender.admin.auth import AdminAuth
from prerender.admin.explain import Explanations
from prerender.admin.health import Health
from prerender.admin.page_urls import Site
from prerender.admin.purge import Purging
from prerender.admin.token_file import TokenFile
from prerender.browser.defaults import page_count
from prerender.browser.pool import Pool
from prerender.config import Settings
from prerender.config.crawler_classes import CLASSES
from prerender.config.settings import AdminSettings, ServerSettings
from prerender.config.types import AUTO
from prerender.crawlers.from_settings import signed_agents, triggers_of, verification
from prerender.crawlers.robots import OptOut
from prerender.crawlers.triggers import Triggers
from prerender.errors import ConfigError
from prerender.extension import Proxy
from prerender.gateway.connection_errors import reason_of_listening
from prerender.http.client_address import Clients
from prerender.http.connection import Sweeper
from prerender.http.forwarding_headers import Forwarding, authority
from prerender.outbox import Outbox, webhook_metrics
from prerender.proxy.decider import Clientele, Decider, SitePages
from prerender.proxy.drop_in import DropIn
from prerender.proxy.forward import Forwarder
from prerender.proxy.handler import Handler
from prerender.proxy.origin_connections import OriginConnections
from prerender.proxy.server import Server
from prerender.proxy.site_hosts import SiteHosts
from prerender.rendering.from_settings import Rendering, rendering
from prerender.snapshots.freshness import Freshness
from prerender.snapshots.learned import Learned
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.from_settings import open_store
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target
from prerender.snapshots.variants import ORDINARY, Vary
from prerender.telemetry import logs
from prerender.telemetry.access_log import AccessLog, LineFormatter
from prerender.telemetry.metrics import Metrics
from prerender.telemetry.recorded_snapshots import RecordedSnapshots
from prerender.telemetry.redaction import Redaction
from prerender.telemetry.remembered import Remembered
from prerender.telemetry.state_metrics import state_metrics
from prerender.telemetry.telemetry import Telemetry
from prerender.urls.hosts import Hosts
from prerender.urls.tracking import Tracking

_BACKLOG = 1024
# Of a process with one client and a browser; far more are needed in production.
_FEWEST_FILES = 128

# The settings that a reload applies.
_TOKENS = ("[admin] token", "[admin] token_file")

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
        triggers = triggers_of(settings)
        _log_requests(settings, telemetry, stack)
        freshness = Freshness(settings.cache)
        snapshots = CachedSnapshots(
            RecordedSnapshots(renderer, telemetry.renders),
            store,
            freshness,
            wait_seconds=settings.render.timeout,
            # The other half of the pages is for waiting clients.
            refreshes=max(1, page_count(settings) // 2),
            serve_incomplete=settings.render.incomplete == "serve",
        )
        renderer.on_page = snapshots.begin
        stack.push_async_callback(snapshots.close)
        await stack.enter_async_context(
            Learned(
                store.notes, (gateway.hanging, gateway.data_hosts, snapshots.repeated_faults)
            ).shared()
        )
        tracking = Tracking(settings.cache.tracking_parameters)
        verified = await stack.enter_async_context(
            verification(settings, triggers.crawlers, store.notes)
        )
        sweeper = stack.enter_context(Sweeper())
        target_of = partial(Target.of, settings.public_url, tracking=tracking)
        vary = _vary(settings)
        variants = vary.variants if vary else (ORDINARY,)
        agents = await stack.enter_async_context(signed_agents(settings))
        decider = Decider(
            triggers,
            SitePages(target_of, _site_hosts(settings), tracking, vary),
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
            _forwarder(settings, sweeper),
            telemetry=telemetry,
        )
        auth = _auth(settings.admin)
        site = Site(settings.public_url, tracking, variants[0])
        proxy = Proxy(
            settings=settings,
            rendering=parts,
            store=store,
            telemetry=telemetry,
            metrics=metrics,
            freshness=freshness,
            snapshots=snapshots,
            triggers=triggers,
            published=verified.published,
            target_of=target_of,
            variants=variants,
            handler=handler,
            respond=handler,
            auth=auth,
            site=site,
            admin=listener.routes(auth),
            explanations=Explanations(site, decider, snapshots, pool),
            purging=Purging(store.purges, site),
            outbox=await _outbox(settings, store, metrics, stack),
        )
        running = Running(0, 0, pool, store, telemetry, auth)
        Health(pool, store, metrics, lambda: running.draining).add_to(proxy.admin.app)
        proxy.admin.add(proxy.purging, proxy.explanations)
        for extension in plugins.modules("extension"):
            await stack.enter_async_context(extension.extend(proxy))
        public = Server(proxy.respond, settings.server, sweeper)
        metrics.watch(
            state_metrics, pool, gateway, snapshots, store, public, published=verified.published
        )
        remembered = Remembered(
            proxy.remembered
            | {
                "hanging_requests": gateway.hanging,
                "data_hosts": gateway.data_hosts,
                "repeated_faults": snapshots.repeated_faults,
                "signed_agents": agents,
                "keys_of_agents": agents and agents.directories,
                "notices": telemetry.notices,
                "log": logs.waiting_lines(),
            },
            (handler, telemetry),
        )
        await stack.enter_async_context(metrics.measuring(remembered))
        with _listening("admin", settings.admin):
            running.admin_port = await stack.enter_async_context(
                listener.listening(proxy.admin.app, settings.admin)
            )
        with _listening("server", settings.server):
            await public.listen(settings.server.host, settings.server.port, _BACKLOG)
        # Renders that are not finished by then get a 503: another replica can take them over.
        stack.push_async_callback(public.close, settings.server.grace, snapshots.close)
        running.public_port = public.port
        for context in proxy.while_serving:
            await stack.enter_async_context(context)
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


async def _outbox(
    settings: Settings, store: Store, metrics: Metrics, stack: AsyncExitStack
) -> Outbox | None:
    outbox = await stack.enter_async_context(Outbox.open(settings.webhooks, store))
    metrics.watch(webhook_metrics, outbox)
    return outbox


@contextmanager
def _listening(section: str, settings: ServerSettings | AdminSettings) -> Iterator[None]:
    """Turn an OSError into a ConfigError that names the setting."""
    try:
        yield
    except OSError as error:
        where, reason = f"{settings.host}:{settings.port}", reason_of_listening(error)
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


def _auth(admin: AdminSettings) -> AdminAuth:
    return AdminAuth(admin.token, admin.hosts, _token_file(admin))


def _token_file(admin: AdminSettings) -> TokenFile | None:
    return TokenFile(admin.token_file) if admin.token_file else None


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
    line = LineFormatter(settings.log.format, Redaction(settings.log.secrets), coloured=coloured)
    access_log = AccessLog(logs.write, line, only_snapshots=settings.log.access == "snapshots")
    telemetry.requests.subscribe(access_log)
    stack.enter_context(logs.preceded_by(access_log.flush))


def _forwarder(settings: Settings, sweeper: Sweeper) -> Forwarder:
    origin = settings.origin
    connections = OriginConnections(settings.origin_url, origin.connect_timeout, sweeper)
    return Forwarder(connections, Forwarding(settings.origin_url), origin.timeout)


def reload(running: Running, old: Settings, new: Settings) -> Settings:
    """Apply what can be changed while running: the admin tokens. Says what needs a restart.

    ``old``: the settings in effect. Returns those that are afterwards. Raises ConfigError.
    Files of address ranges and of tokens are read again by themselves when they change.
    """
    changed = [
        f"[{section}] {key}"
        for section in Settings.model_fields
        for key, value in getattr(new, section)
        if value != getattr(getattr(old, section), key)
    ]
    applied = [name for name in changed if name in _TOKENS]
    token, token_file = new.admin.token, new.admin.token_file
    # Without a token, anybody could use the listener: it stays bound to its old address.
    if token == (AUTO,) or not (token or token_file):
        applied = []
    if applied:
        running.auth.renew_tokens(token, _token_file(new.admin))
        admin = old.admin.model_copy(update={"token": token, "token_file": token_file})
        old = old.model_copy(update={"admin": admin})
    log.info(
        "reloaded",
        applied=", ".join(applied) or "nothing",
        needs_restart=", ".join(name for name in changed if name not in applied) or "nothing",
    )
    return old
