"""Builds the renderer, its browser and its network from the settings."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import psutil
import structlog

from prerender.browser import chromium, container
from prerender.browser.chromium import Chromium
from prerender.browser.page_results import SerializeOptions
from prerender.browser.pool import Pool
from prerender.browser.supervisor import Limits as BrowserLimits
from prerender.browser.warm_up import trial
from prerender.config import Settings
from prerender.config.page_changes import tags_of
from prerender.errors import ConfigError
from prerender.gateway.address_policy import AddressPolicy, VisitorPolicy
from prerender.gateway.blocklist import Blocklist
from prerender.gateway.gateway import Gateway, NetworkRules
from prerender.gateway.upstream import Upstream, open_session
from prerender.gateway.visit import VisitLimits
from prerender.http.forwarding_headers import authority
from prerender.rendering.renderer import Renderer, RenderSettings
from prerender.snapshots.page_changes import Changes
from prerender.urls.hosts import Hosts

# Pages also wait for responses: three leave a tenth of the CPU time unused.
_PAGES_PER_CPU = 4
# Of a page as a visitor sees it.
_VISITOR_REQUESTS = 10_000
_VISITOR_BYTES = 1024**3
# A browser is restarted at this age, which bounds slow leaks.
_OLDEST_SECONDS = 6 * 3600.0
# Memory limits of a browser and of each of its pages: about twice the measured usage.
_BROWSER_BYTES = 512 * 1024**2
_PAGE_BYTES = 256 * 1024**2
# Of the proxy itself: its code, and what it remembers of clients. Without its caches.
_PROXY_BYTES = 164 * 1024**2

log = structlog.get_logger(__name__)


class Rendering(NamedTuple):
    """Everything that is needed to make snapshots."""

    upstream: Upstream
    gateway: Gateway
    pool: Pool
    renderer: Renderer


class Browsing(NamedTuple):
    """The pages of a browser and their network."""

    upstream: Upstream
    gateway: Gateway
    pool: Pool


@asynccontextmanager
async def rendering(settings: Settings, *, serves: bool = False) -> AsyncIterator[Rendering]:
    """Open a renderer. ``prerender render`` needs nothing else. ``serves``: as for ``browsing``."""
    async with browsing(settings, serves=serves) as parts:
        yield rendering_with(parts, settings)


@asynccontextmanager
async def visiting(settings: Settings) -> AsyncIterator[tuple[Pool, VisitorPolicy]]:
    """Open a browser for what visitors see: without the rules for pages, and without identifying itself
    as a prerenderer's to the site."""
    addresses = VisitorPolicy(rules_of(settings).addresses)
    rules = NetworkRules(
        addresses=addresses,
        blocklist=Blocklist(block_trackers=False),
        limits=VisitLimits(_VISITOR_REQUESTS, _VISITOR_BYTES, _VISITOR_BYTES),
        marked=False,
        language=settings.browser.language,
    )
    async with browsing(settings, rules) as parts:
        yield parts.pool, addresses


def rendering_with(parts: Browsing, settings: Settings) -> Rendering:
    """A renderer that uses an open browser. Reads [render] and [snapshot] of the settings."""
    snapshot = settings.snapshot
    render = RenderSettings(
        timeout=settings.render.timeout,
        budget=settings.render.budget,
        patience=settings.render.patience,
        max_bytes=settings.render.max_bytes,
        options=SerializeOptions(
            flatten_shadow_dom=snapshot.flatten_shadow_dom,
            add_canonical=snapshot.add_canonical,
            remove=snapshot.remove,
            add=tuple(tag for fragment in snapshot.add for tag in tags_of(fragment)),
            internal_host=authority(parts.upstream.base),
            max_bytes=settings.render.max_bytes,
        ),
        volatile=snapshot.volatile,
        when_moved=snapshot.moved,
        soft_404=snapshot.soft_404,
        changes=Changes(snapshot.remove, snapshot.add),
    )
    return Rendering(
        *parts,
        Renderer(settings.public_url, parts.upstream, parts.gateway.navigation, parts.pool, render),
    )


@asynccontextmanager
async def browsing(
    settings: Settings, rules: NetworkRules | None = None, *, serves: bool = False
) -> AsyncIterator[Browsing]:
    """Open a browser. Reads [origin], [site] and [browser], and [network] without ``rules``.

    ``serves``: it serves clients; a missing sandbox is logged. Each command would repeat that.
    """
    rules = rules or rules_of(settings)
    async with AsyncExitStack() as stack:
        origin = settings.origin
        session = await stack.enter_async_context(
            open_session(
                AddressPolicy.only(settings.origin_url), origin.connect_timeout, origin.timeout
            )
        )
        upstream = Upstream(session, settings.origin_url, origin.header_pairs)
        third_parties = await stack.enter_async_context(
            open_session(rules.addresses, origin.connect_timeout, origin.timeout)
        )
        gateway = await stack.enter_async_context(
            Gateway.open(settings.public_url, upstream, third_parties, rules)
        )
        sandbox = _sandbox(settings, serves=serves)
        await asyncio.to_thread(chromium.remove_leftovers)

        async def launch() -> Chromium:
            program = chromium.find(settings.browser.path)
            return await Chromium.launch(
                program,
                gateway,
                sandbox=sandbox,
                max_memory=memory_needed(settings),
                timezone=settings.browser.timezone,
            )

        pool = await stack.enter_async_context(
            Pool(
                launch,
                size=page_count(settings),
                queue=settings.browser.queue,
                limits=_browser_limits(settings),
                try_out=trial(settings.public_url),
            )
        )
        yield Browsing(upstream, gateway, pool)


def rules_of(settings: Settings) -> NetworkRules:
    """The rules for the requests of pages. Reads [network] and [render] optional."""
    network = settings.network
    allow, deny = Hosts(network.allow), Hosts(network.deny)
    return NetworkRules(
        addresses=AddressPolicy.of(settings),
        blocklist=Blocklist(
            allow=allow,
            deny=deny,
            block_trackers=network.block_trackers,
            block_types=network.block_types,
        ),
        limits=VisitLimits(
            network.max_requests,
            network.max_bytes,
            network.max_response_bytes,
            network.request_timeout,
        ),
        cache_bytes=network.cache_bytes,
        optional=settings.render.optional,
        language=settings.browser.language,
    )


def _sandbox(settings: Settings, *, serves: bool) -> bool:
    wanted = settings.browser.sandbox
    problem = chromium.sandbox_problem()
    if wanted == "on" and problem:
        raise ConfigError([f'[browser] sandbox: "on", but {problem}; give "auto" or "off"'])
    if wanted == "auto" and problem and serves:
        log.warning("sandbox_unavailable", reason=problem)
    return wanted != "off" and not problem


def page_count(settings: Settings) -> int:
    """The number of pages that are rendered concurrently."""
    pages = settings.browser.pages
    if pages != "auto":
        return pages
    fitting = (_memory_left(settings) - _BROWSER_BYTES) // _PAGE_BYTES
    return max(1, min(round(_PAGES_PER_CPU * _cpus()), fitting))


def _browser_limits(settings: Settings) -> BrowserLimits:
    browser = settings.browser
    memory = browser.max_memory
    if memory == "auto":
        memory = _usual_memory(settings)
    return BrowserLimits(browser.max_renders, _OLDEST_SECONDS, memory)


def _usual_memory(settings: Settings) -> int:
    usual = _BROWSER_BYTES + _PAGE_BYTES * page_count(settings)
    return max(_BROWSER_BYTES, min(usual, _memory_left(settings)))


def _memory_left(settings: Settings) -> int:
    """The bytes that the container has for browsers beside the proxy; without a limit, half of the
    machine is for other programs."""
    machine, limit = psutil.virtual_memory().total, container.memory_limit()
    # Version 1 has a huge number for no limit.
    limit = limit if 0 < limit < machine else machine // 2
    cache = settings.cache.max_bytes
    return limit - _PROXY_BYTES - cache - cache // 8 - settings.network.cache_bytes


def memory_needed(settings: Settings) -> int:
    """The memory limit of the browser in bytes; 0: no limit."""
    return _browser_limits(settings).memory


def _cpus() -> float:
    """The CPUs that this process may use: its affinity, or its cgroup's quota if that is lower."""
    cpus = float(len(os.sched_getaffinity(0)))
    return min(cpus, container.cpu_quota() or cpus)
