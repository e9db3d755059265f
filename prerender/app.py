"""Builds the objects and wires start-up and clean-up. START HERE.

client ─▶ Handler ─▶ decide ─┬─ Forward ─▶ Upstream ─▶ origin
                             └─ Render ──▶ CachedSnapshots ─▶ Renderer ─▶ Pool ─▶ Page ─▶ Chromium
                                                                 │                          │
                                                        document.fetch                   Gateway
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from aiohttp import web

from prerender.admin import health
from prerender.config import Settings
from prerender.errors import ConfigError
from prerender.handler import Handler
from prerender.hosts import Hosts
from prerender.listener import http_server
from prerender.rendering import chromium
from prerender.rendering.chromium import Chromium
from prerender.rendering.gateway import Gateway, Rules
from prerender.rendering.guard import Guard, GuardedResolver
from prerender.rendering.page import SerializeOptions
from prerender.rendering.policy import Policy
from prerender.rendering.pool import Pool
from prerender.rendering.renderer import Renderer, RenderSettings
from prerender.rendering.trial import trial
from prerender.rendering.visit import Limits
from prerender.snapshots.cached import CachedSnapshots
from prerender.snapshots.memory import BoundedMemoryCache
from prerender.upstream import Upstream, open_session

_PAGES_PER_CPU = 2
# Longer than nginx keeps a connection to us (60 s), so that it never sends into a closed one.
_KEEPALIVE_SECONDS = 75
_BACKLOG = 1024

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Running:
    """A proxy that serves: where it listens, and what it holds."""

    public_port: int
    admin_port: int
    pool: Pool
    cache: BoundedMemoryCache
    draining: bool = False


@asynccontextmanager
async def rendering(settings: Settings) -> AsyncIterator[tuple[Upstream, Pool, Renderer]]:
    """The part that makes snapshots: also all that ``prerender render`` needs."""
    async with AsyncExitStack() as stack:
        origin = settings.origin
        session = await stack.enter_async_context(
            open_session(origin.connect_timeout, origin.timeout)
        )
        upstream = Upstream(session, settings.origin_url)
        rules = _rules(settings)
        third_parties = await stack.enter_async_context(
            open_session(origin.connect_timeout, origin.timeout, GuardedResolver(rules.guard))
        )
        gateway = await stack.enter_async_context(
            Gateway.open(settings.public_url, upstream, third_parties, rules)
        )
        sandbox = _sandbox(settings)

        async def launch() -> Chromium:
            program = chromium.find(settings.browser.path)
            return await Chromium.launch(program, gateway, sandbox=sandbox)

        pool = await stack.enter_async_context(
            Pool(
                launch,
                size=_pages(settings),
                queue=settings.browser.queue,
                try_out=trial(gateway, settings.public_url),
            )
        )
        render = RenderSettings(
            timeout=settings.render.timeout,
            budget=settings.render.budget,
            patience=settings.render.patience,
            max_bytes=settings.render.max_bytes,
            options=SerializeOptions(**settings.snapshot.model_dump(exclude={"volatile"})),
            volatile=settings.snapshot.volatile,
        )
        yield upstream, pool, Renderer(settings.public_url, upstream, gateway, pool, render)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Running]:
    """A proxy that listens. At the end running requests may finish, then everything is closed.

    Raises ConfigError when a port cannot be had.
    """
    async with AsyncExitStack() as stack:
        upstream, pool, renderer = await stack.enter_async_context(rendering(settings))
        cache = BoundedMemoryCache(settings.cache.max_bytes)
        snapshots = CachedSnapshots(renderer, cache, settings.cache.ttl)
        stack.push_async_callback(snapshots.close)
        handler = Handler(settings.public_url, snapshots, upstream)
        running = Running(0, 0, pool, cache)

        admin = web.AppRunner(health.make_app(pool, lambda: running.draining), access_log=None)
        running.admin_port = await _listen(stack, admin, "admin", settings.admin)
        public = web.ServerRunner(
            http_server(handler, _KEEPALIVE_SECONDS), shutdown_timeout=settings.server.grace
        )
        running.public_port = await _listen(stack, public, "server", settings.server)
        log.info(
            "serving",
            url=f"http://{settings.server.host}:{running.public_port}",
            site=str(settings.public_url),
            origin=settings.origin.url,
            admin=f"http://{settings.admin.host}:{running.admin_port}",
        )
        try:
            yield running
        finally:
            running.draining = True
            log.info("shutting down", grace_seconds=settings.server.grace)


async def _listen(
    stack: AsyncExitStack, runner: web.BaseRunner, section: str, settings: object
) -> int:
    host, port = settings.host, settings.port  # type: ignore[attr-defined]
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ConfigError(
            [f"[{section}] host, port: cannot listen on {host}:{port}: {reason}"]
        ) from error
    listening: int = runner.addresses[0][1]
    return listening


def _rules(settings: Settings) -> Rules:
    network = settings.network
    allow, deny = Hosts(network.allow), Hosts(network.deny)
    return Rules(
        guard=Guard(allow, deny, only_listed=network.third_parties == "listed"),
        policy=Policy(
            allow=allow,
            deny=deny,
            block_trackers=network.block_trackers,
            block_types=network.block_types,
        ),
        limits=Limits(
            network.max_requests,
            network.max_bytes,
            network.max_response_bytes,
            network.request_timeout,
        ),
        cache_bytes=network.cache_bytes,
    )


def _sandbox(settings: Settings) -> bool:
    wanted = settings.browser.sandbox
    problem = chromium.sandbox_problem()
    if wanted == "on" and problem:
        raise ConfigError([f'[browser] sandbox: "on", but {problem}; give "auto" or "off"'])
    if wanted == "auto" and problem:
        log.warning("Chromium runs without its sandbox", reason=problem)
    return wanted != "off" and not problem


def _pages(settings: Settings) -> int:
    pages = settings.browser.pages
    return max(1, round(_PAGES_PER_CPU * _cpus())) if pages == "auto" else pages


def _cpus() -> float:
    """The CPUs this process may use: those of its affinity, or its cgroup's quota if that is less."""
    cpus = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cpus = min(cpus, int(quota) / int(period))
    return cpus


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set."""
    async with serving(settings):
        await stop.wait()
