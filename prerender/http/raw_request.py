"""Requests of aiohttp's server, as they were received."""

import asyncio

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from yarl import URL

_ROOT = URL("/")


def raw_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    """A request for ``request_factory``. Only ``raw_path`` has the request target, not ``url``.

    aiohttp decodes the host of an absolute URL (IDNA 2008, RFC 5891). If that fails, as for "xn--a", it
    never responds.
    """
    message = message._replace(url=_ROOT)
    return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())
