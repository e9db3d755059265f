"""The HTTP server of the gateway's two listeners. The public one is http1/server.py."""

from collections.abc import Awaitable, Callable

from aiohttp import web

# Of one header line and of the request target; nginx allows 8 KiB, and its users have set more.
MAX_LINE_BYTES = 65536


def http_server(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], keepalive_seconds: float
) -> web.Server:
    """A server that passes requests on as they came, and cancels ``handler`` when the client leaves."""
    return web.Server(
        handler,
        handler_cancellation=True,
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=keepalive_seconds,
        max_line_size=MAX_LINE_BYTES,
        max_field_size=MAX_LINE_BYTES,
    )
