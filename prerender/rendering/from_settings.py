"""Builds the renderer, its browser and its network from the settings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from prerender.browser import chromium, defaults
from prerender.browser.chromium import Chromium
from prerender.browser.pool import Pool
from prerender.browser.warm_up import trial
from prerender.config import Settings
from prerender.config.settings import NetworkSettings
from prerender.gateway.address_policy import AddressPolicy, VisitorPolicy
from prerender.gateway.gateway import Gateway, NetworkRules
from prerender.gateway.upstream import Upstream, open_session
from prerender.rendering.renderer import Renderer

# Of a page as a visitor sees it.
_VISITOR_NETWORK = NetworkSettings(
    block_trackers=False,
    max_requests=10_000,
    max_bytes=1024**3,
    max_response_bytes=1024**3,
    cache_bytes=0,
)


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
        network=_VISITOR_NETWORK,
        marked=False,
        language=settings.browser.language,
    )
    async with browsing(settings, rules) as parts:
        yield parts.pool, addresses


def rendering_with(parts: Browsing, settings: Settings) -> Rendering:
    """A renderer that uses an open browser. Reads [render] and [snapshot] of the settings."""
    upstream, gateway, pool = parts
    renderer = Renderer(
        settings.public_url,
        upstream,
        gateway.navigation,
        pool,
        limits=settings.render,
        content=settings.snapshot,
    )
    return Rendering(*parts, renderer)


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
        sandbox = defaults.sandbox(settings, serves=serves)
        await asyncio.to_thread(chromium.remove_leftovers)

        async def launch() -> Chromium:
            program = chromium.find(settings.browser.path)
            return await Chromium.launch(
                program,
                gateway,
                sandbox=sandbox,
                max_memory=defaults.limits(settings).memory,
                timezone=settings.browser.timezone,
            )

        pool = await stack.enter_async_context(
            Pool(
                launch,
                size=defaults.page_count(settings),
                queue=settings.browser.queue,
                limits=defaults.limits(settings),
                try_out=trial(settings.public_url),
            )
        )
        yield Browsing(upstream, gateway, pool)


def rules_of(settings: Settings) -> NetworkRules:
    """The rules for the requests of pages. Reads [network] and [render] optional."""
    return NetworkRules(
        addresses=AddressPolicy.of(settings),
        network=settings.network,
        optional=settings.render.optional,
        language=settings.browser.language,
    )
