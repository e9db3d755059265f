"""Exports spans if [tracing] endpoint is set."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prerender.errors import ConfigError
from prerender.extension import Proxy
from prerender.telemetry.redaction import Redaction


@asynccontextmanager
async def extend(proxy: Proxy) -> AsyncIterator[None]:
    """Export a span of each request and render. Raises ConfigError if a library is missing."""
    settings = proxy.settings.tracing
    if not settings.endpoint:
        yield
        return
    try:
        from prerender.extensions.tracing.tracing import Tracing  # noqa: PLC0415 (optional)
    except ImportError as error:
        raise ConfigError(
            [f"[tracing] endpoint: {error}: install it with pip install 'prerender-proxy[otel]'"]
        ) from error
    tracing = Tracing(settings.endpoint, settings.sample, Redaction(proxy.settings.log.secrets))
    proxy.telemetry.requests.subscribe(tracing.request)
    proxy.telemetry.renders.subscribe(tracing.render)
    proxy.handler.begin_span = tracing.begin
    try:
        yield
    finally:
        # Blocking: it waits for the collector.
        await asyncio.to_thread(tracing.close)
