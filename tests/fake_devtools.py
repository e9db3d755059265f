"""A browser's DevTools endpoint that does what a test says, and nothing by itself.

A test reads the commands that arrive and answers them, late, twice, with garbage, or not at all.
"""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from aiohttp import WSMsgType, web

Message = dict[str, Any]
SECONDS = 5.0


class FakeDevTools:
    """Make it with ``async with FakeDevTools.open()``; it takes one connection at a time."""

    def __init__(self) -> None:
        self.url = ""
        self._commands: asyncio.Queue[Message] = asyncio.Queue()
        self._connected = asyncio.Event()
        self._socket = web.WebSocketResponse(autoping=False)
        self._transport: asyncio.Transport | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["FakeDevTools"]:
        """A fake that listens on a free port of the loopback interface."""
        fake = cls()
        runner = web.ServerRunner(web.Server(fake._serve, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            fake.url = f"ws://127.0.0.1:{runner.addresses[0][1]}/devtools/browser/fake"
            yield fake
        finally:
            await runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self._transport = cast("asyncio.Transport", request.transport)
        await self._socket.prepare(request)
        self._connected.set()
        async for message in self._socket:
            if message.type is WSMsgType.TEXT:
                self._commands.put_nowait(json.loads(message.data))
        return self._socket

    async def command(self, method: str = "") -> Message:
        """The next command that arrives; its method has to be ``method`` if that is given."""
        async with asyncio.timeout(SECONDS):
            command = await self._commands.get()
        assert method in ("", command["method"])
        return command

    async def answer(self, command: Message, **result: Any) -> None:
        """Answer a command with a result."""
        await self.text(json.dumps({"id": command["id"], "result": result}))

    async def refuse(self, command: Message, text: str) -> None:
        """Answer a command with an error."""
        await self.text(json.dumps({"id": command["id"], "error": {"code": -1, "message": text}}))

    async def event(self, method: str, session_id: str = "", **params: Any) -> None:
        """Tell an event, of a page if there is a session."""
        session = {"sessionId": session_id} if session_id else {}
        await self.text(json.dumps({"method": method, "params": params, **session}))

    async def text(self, text: str) -> None:
        """Send any text as one message."""
        async with asyncio.timeout(SECONDS):
            await self._connected.wait()
        await self._socket.send_str(text)

    async def bytes(self, content: bytes) -> None:
        """Send raw bytes past the WebSocket protocol."""
        self._wire().write(content)

    def stop_reading(self) -> None:
        """Be as deaf as a stopped process: the kernel's buffers fill up."""
        self._wire().pause_reading()

    async def close(self) -> None:
        """Close as the protocol wants it."""
        await self._socket.close()

    def hang_up(self) -> None:
        """Close the TCP connection without a word."""
        self._wire().close()

    def reset(self) -> None:
        """Let the kernel answer with RST."""
        wire = self._wire()
        linger = struct.pack("ii", 1, 0)
        wire.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        wire.abort()

    def _wire(self) -> asyncio.Transport:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("there is no connection")
        return self._transport
