"""Requests of aiohttp's server, as they were received."""

import asyncio

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler


def raw_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    """A request for ``request_factory``. Only ``raw_path`` has the request target, not ``url``."""
    message = without_host(message)
    return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())


def without_host(message: RawRequestMessage) -> RawRequestMessage:
    """Make an absolute URL relative.

    aiohttp decodes its host (IDNA 2008, RFC 5891). If that fails, as for "xn--a", it never responds.
    """
    return message._replace(url=message.url.relative()) if message.url.absolute else message
