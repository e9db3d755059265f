"""The HTTP server of the gateway. The public one is proxy/server.py."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from prerender.gateway.plain_response import Plain
from prerender.http.raw_request import raw_request
from prerender.http.server_log import server_log

# Limit of a header line and of the request target. Browsers percent-encode, so a target of the public
# listener may be three times as long here. They also send up to 180 cookies of 4 KiB in one line.
MAX_LINE_BYTES = 1024**2
# In both directions. Browsers limit only the bytes.
MAX_HEADERS = 1000


_log = server_log(__name__)


class GatewayConnection(RequestHandler):
    """Refuses malformed requests with an empty body, which a page cannot mistake for its document.

    ``reusable``: no request is under way, and the last response has not set a cookie, so that the
    browser may use it for another page.
    """

    reusable = False

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send what is left of the response."""
        try:
            response, lost = await super().finish_response(request, resp, start_time)
        except RuntimeError as error:
            # uvloop's error for a connection that was aborted a moment ago, at the end of a visit.
            if request.transport is not None and not request.transport.is_closing():
                raise
            raise ConnectionResetError("the connection was aborted") from error
        self.reusable = (
            not lost and bool(response.keep_alive) and "Set-Cookie" not in response.headers
        )
        return response, lost

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """An empty response instead of aiohttp's text. The reason is logged."""
        super().handle_error(request, status, exc, message)
        if isinstance(exc, LineTooLong):
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE  # RFC 6585 section 5
        response = Plain(status=status)
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return GatewayConnection(self, loop=self._loop, **self._kwargs)


def http_server(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], keepalive_seconds: float
) -> web.Server:
    """A server that passes raw requests, and cancels ``handler`` when the client disconnects."""

    async def response(request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("GatewayConnection", request.protocol)
        connection.reusable = False
        return await handler(request)

    return _Server(
        response,
        request_factory=raw_request,
        handler_cancellation=True,
        access_log=None,
        logger=_log,
        auto_decompress=False,
        keepalive_timeout=keepalive_seconds,
        max_line_size=MAX_LINE_BYTES,
        max_field_size=MAX_LINE_BYTES,
        max_headers=MAX_HEADERS,
    )
