"""Tunnels WebSockets as bytes, once the origin has accepted the handshake.

The handshake is forwarded like any request, so subprotocols, extensions, cookies and refusals are the
origin's. After its 101, bytes pass unchanged. Frames are only counted, so that on shutdown a close
frame can be inserted between two of them (RFC 6455 sections 5.2 and 7.4.1: 1001, going away).
"""

import asyncio
import secrets
from math import inf

from prerender.background import cancel_all
from prerender.http.connection import Connection
from prerender.http.fields import members
from prerender.http.message_head import Request
from prerender.proxy.client_stream import ClientStream

_GOING_AWAY = (1001).to_bytes(2, "big")
_CLOSE_SECONDS = 2.0
_WRITE_SECONDS = 60.0


def is_upgrade(request: Request) -> bool:
    """Whether a request asks for a WebSocket (RFC 6455 section 4.2.1)."""
    return (
        "upgrade" in request.headers.names
        and request.method == "GET"
        and request.minor == 1
        and request.body_bytes == 0
        and request.headers.get("upgrade").lower() == "websocket"
        and "upgrade" in members(request.headers.get("connection"))
    )


class FrameBoundaries:
    """Tracks frame boundaries in a stream (RFC 6455 section 5.2). Pure."""

    __slots__ = ("_header", "_left")

    def __init__(self) -> None:
        self._header = bytearray()
        self._left = 0

    @property
    def between(self) -> bool:
        """Whether the position is between two frames."""
        return not self._left and not self._header

    def count(self, data: bytes, *, one: bool = False) -> int:
        """Advance by ``data``, with ``one`` at most to the end of the frame. Returns the bytes used."""
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
            else:
                self._header.append(data[at])
                at += 1
                self._read_header()
            if one and self.between:
                break
        return at

    def _read_header(self) -> None:
        header = self._header
        if len(header) < 2:
            return
        short = header[1] & 0x7F
        length_bytes = {126: 2, 127: 8}.get(short, 0)
        mask_bytes = 4 if header[1] & 0x80 else 0
        if len(header) == 2 + length_bytes + mask_bytes:
            self._left = (
                int.from_bytes(header[2 : 2 + length_bytes], "big") if length_bytes else short
            )
            header.clear()


class _Direction:
    """Copies bytes from one side to the other."""

    def __init__(self, source: Connection, sink: Connection, goodbye: bytes) -> None:
        self._source = source
        self._sink = sink
        self._goodbye = goodbye
        self._frames = FrameBoundaries()
        self._leaving = False
        self._left = False

    async def run(self) -> None:
        """Copy until the source ends. Raises OSError if the sink stops reading."""
        while self._source.buffer or await self._source.receive(inf):
            data = bytes(self._source.buffer)
            self._source.buffer.clear()
            if self._left:
                continue
            passed = self._frames.count(data, one=self._leaving)
            self._sink.write(data[:passed])
            self._leave_if_between()
            if self._sink.congested:
                await self._sink.drain(_WRITE_SECONDS)

    def leave(self) -> None:
        """Send the close frame to the sink after the current frame."""
        self._leaving = True
        self._leave_if_between()

    def _leave_if_between(self) -> None:
        if self._leaving and not self._left and self._frames.between:
            self._left = True
            self._sink.write(self._goodbye)


async def tunnel(stream: ClientStream, origin: Connection, status: int, head: bytes) -> None:
    """Send the response ``head`` with this status, then copy bytes in both directions until one side
    ends, and close the other."""
    directions: tuple[_Direction, ...] = ()

    def going_away() -> None:
        for direction in directions:
            direction.leave()
        asyncio.get_running_loop().call_later(_CLOSE_SECONDS, client.close, _CLOSE_SECONDS)

    client = stream.switch(status, head, going_away)
    for side in (client, origin):
        side.notice_death()
    directions = (
        _Direction(client, origin, _close_frame(masked=True)),
        _Direction(origin, client, _close_frame(masked=False)),
    )
    tasks = [
        asyncio.create_task(directions[0].run(), name="websocket to origin"),
        asyncio.create_task(directions[1].run(), name="websocket to client"),
    ]
    try:
        if stream.draining:
            going_away()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(tasks)
        client.close(_CLOSE_SECONDS)
        origin.close(_CLOSE_SECONDS)


def _close_frame(*, masked: bool) -> bytes:
    if not masked:
        return b"\x88\x02" + _GOING_AWAY
    mask = secrets.token_bytes(4)
    return b"\x88\x82" + mask + bytes(a ^ b for a, b in zip(_GOING_AWAY, mask, strict=False))
