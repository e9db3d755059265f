"""Relays WebSockets of the browser message by message. Clients' WebSockets: proxy/websocket_tunnel.py.

The server's handshake comes first, so subprotocol, cookies and refusals are the server's
(RFC 6455 section 4.2).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog
from aiohttp import (
    ClientError,
    ClientSession,
    ClientWebSocketResponse,
    WSMessage,
    WSMsgType,
    WSServerHandshakeError,
)
from aiohttp.web import BaseRequest, Response, StreamResponse, WebSocketResponse
from multidict import CIMultiDict
from yarl import URL

from prerender.errors import OriginError
from prerender.gateway.connection_errors import reason_of

# Applications that send larger ones to show a page are not known. Fragments count, too.
MAX_MESSAGE_BYTES = 8 * 1024**2
_WITH_DATA = (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.PING, WSMsgType.PONG)
CLOSE_SECONDS = 2.0
GOING_AWAY = 1001

# Headers that the client library sets itself.
_HANDSHAKE = frozenset(
    {
        "sec-websocket-key",
        "sec-websocket-version",
        "sec-websocket-extensions",
        "sec-websocket-protocol",
    }
)

log = structlog.get_logger(__name__)

Socket = ClientWebSocketResponse | WebSocketResponse
# Called with the length of each message, in both directions. An OSError ends the connection.
OnMessage = Callable[[int], None]


def is_upgrade(request: BaseRequest) -> bool:
    """Whether a request asks for a WebSocket (RFC 6455 section 4.2.1)."""
    return request.method == "GET" and request.headers.get("Upgrade", "").lower() == "websocket"


async def relay(
    request: BaseRequest,
    session: ClientSession,
    url: URL,
    headers: CIMultiDict[str],
    on_message: OnMessage,
) -> StreamResponse:
    """Relay the browser's WebSocket to ``url`` until either side closes.

    Raises OriginError if the server cannot be reached. Its refusal is passed on.
    """
    protocols = [
        protocol.strip()
        for value in request.headers.getall("Sec-WebSocket-Protocol", ())
        for protocol in value.split(",")
    ]
    sent = CIMultiDict((k, v) for k, v in headers.items() if k.lower() not in _HANDSHAKE)
    try:
        origin = await session.ws_connect(
            url,
            protocols=protocols,
            headers=sent,
            autoping=False,
            autoclose=False,
            max_msg_size=MAX_MESSAGE_BYTES,
        )
    except WSServerHandshakeError as refusal:
        return Response(status=refusal.status if refusal.status != 101 else 502)
    except (ClientError, OSError, TimeoutError, ValueError) as error:
        raise OriginError(reason_of(error), about=f"WebSocket {url.raw_host}") from error
    client = WebSocketResponse(
        protocols=[origin.protocol] if origin.protocol else (),
        autoping=False,
        autoclose=False,
        compress=False,
        max_msg_size=MAX_MESSAGE_BYTES,
    )
    try:
        await client.prepare(request)
        async with asyncio.TaskGroup() as both:
            both.create_task(_pump(client, origin, on_message), name="websocket to origin")
            both.create_task(_pump(origin, client, on_message), name="websocket to client")
    finally:
        await asyncio.gather(_close(client, GOING_AWAY), _close(origin, GOING_AWAY))
    return client


async def _close(one: Socket, code: int, reason: bytes = b"") -> None:
    """Close a WebSocket, also if its other side reads nothing: then aiohttp closes the connection."""
    with suppress(ClientError, OSError, TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await one.close(code=code, message=reason)


async def _pump(source: Socket, sink: Socket, on_message: OnMessage) -> None:
    """Copy messages until ``source`` closes, then close ``sink`` with the same code and reason."""
    code = GOING_AWAY
    reason = b""
    try:
        while True:
            message: WSMessage = await source.receive()
            on_message(len(message.data or b"") if message.type in _WITH_DATA else 0)
            match message.type:
                case WSMsgType.TEXT:
                    await sink.send_str(message.data)
                case WSMsgType.BINARY:
                    await sink.send_bytes(message.data)
                case WSMsgType.PING:
                    await sink.ping(message.data)
                case WSMsgType.PONG:
                    await sink.pong(message.data)
                case WSMsgType.CLOSE:
                    code, reason = message.data or 1000, (message.extra or "").encode()
                    return
                case _:
                    return
    except (ClientError, OSError) as error:
        log.debug("websocket_lost", error=reason_of(error))
    finally:
        await _close(sink, code, reason)
