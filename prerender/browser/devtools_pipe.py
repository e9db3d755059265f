"""Chromium's ``--remote-debugging-pipe``, with the methods of a WebSocket that pyppeteer uses.

Each message is a JSON text in UTF-8 that ends with a zero byte (Chromium's devtools_pipe_handler.cc).
"""

import asyncio
import socket
from collections import deque
from typing import Self, cast


class Pipe(asyncio.Protocol):
    """One end of the pipe. Create it with ``await Pipe.over(socket)``.

    ``lost`` is set when the connection has ended, on either side.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._pieces: list[bytes] = []
        self._messages: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self.lost = asyncio.Event()

    @classmethod
    async def over(cls, connection: socket.socket) -> Self:
        """Use a socket whose other end is the browser's descriptors 3 and 4."""
        loop = asyncio.get_running_loop()
        try:
            _, pipe = await loop.create_unix_connection(cls, sock=connection)
        except BaseException:
            connection.close()
            raise
        return pipe

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()

    async def recv(self) -> str:
        """The next message. Raises ConnectionResetError if the connection is lost."""
        while not self._messages:
            if self.lost.is_set():
                raise ConnectionResetError("the browser's pipe is closed")
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft().decode()

    async def send(self, message: str) -> None:
        """Send a message."""
        self.write(message)

    def write(self, message: str) -> None:
        """Send a message. It is buffered without limit: commands are small, and callers wait.

        On a lost connection nothing is sent; the next ``recv`` raises.
        """
        if not self._transport.is_closing():
            self._transport.write(message.encode() + b"\0")

    async def close(self) -> None:
        """End the connection, and wait until it has ended."""
        self.abort()
        await self.lost.wait()

    def abort(self) -> None:
        """End the connection. Unread messages are dropped."""
        self._messages.clear()
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        *ends, rest = data.split(b"\0")
        for end in ends:
            self._pieces.append(end)
            self._messages.append(b"".join(self._pieces))
            self._pieces.clear()
        if rest:
            self._pieces.append(rest)
        if ends:
            self._arrived.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()
        self._arrived.set()
