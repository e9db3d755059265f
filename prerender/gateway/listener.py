"""The HTTP server of the gateway's two listeners. The public one is proxy/server.py."""

import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

# Of one header line and of the request target; nginx allows 8 KiB, and its users have set more.
MAX_LINE_BYTES = 65536


class _WithoutStackTraces(logging.Filter):
    """What is no HTTP is the client's mistake (a page can send what it likes): a line will do."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ConnectionError):
            return False  # a page has left while it was answered: nobody's mistake
        if isinstance(error, HttpProcessingError):
            if record.levelno > logging.INFO:
                record.levelno, record.levelname = logging.INFO, "INFO"
            record.msg, record.args = "bad request: %s", (error.message.partition("\n")[0],)
            record.exc_info = None
        return True


_log = logging.getLogger(__name__)
_log.addFilter(_WithoutStackTraces())


def http_server(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], keepalive_seconds: float
) -> web.Server:
    """A server that passes requests on as they came, and cancels ``handler`` when the client leaves."""
    return web.Server(
        handler,
        handler_cancellation=True,
        access_log=None,
        logger=_log,
        auto_decompress=False,
        keepalive_timeout=keepalive_seconds,
        max_line_size=MAX_LINE_BYTES,
        max_field_size=MAX_LINE_BYTES,
    )
