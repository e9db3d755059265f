"""A DevTools endpoint that a test controls.

A test reads the commands that arrive, and responds late, twice, with garbage, or not at all.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

Message = dict[str, Any]
SECONDS = 5.0


class FakeDevTools(asyncio.Protocol):
    """Create it with ``async with FakeDevTools.open()``; ``socket`` is its end of the connection."""

    def __init__(self) -> None:
        self._commands: asyncio.Queue[Message] = asyncio.Queue()
        self._received = b""
        self._transport: asyncio.Transport
        self.socket, self._own = socket.socketpair()

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["FakeDevTools"]:
        """A fake with a connection to it."""
        fake = cls()
        loop = asyncio.get_running_loop()
        fake._transport, _ = await loop.create_unix_connection(lambda: fake, sock=fake._own)
        try:
            yield fake
        finally:
            fake._transport.abort()

    def data_received(self, data: bytes) -> None:
        *texts, self._received = (self._received + data).split(b"\0")
        for text in texts:
            self._commands.put_nowait(json.loads(text))

    async def command(self, method: str = "") -> Message:
        """The next command, which must be ``method`` if it is given."""
        async with asyncio.timeout(SECONDS):
            command = await self._commands.get()
        assert method in ("", command["method"])
        return command

    async def answer(self, command: Message, **result: Any) -> None:
        """Answer a command with a result."""
        await self._respond(command, result=result)

    async def refuse(self, command: Message, text: str) -> None:
        """Answer a command with an error."""
        await self._respond(command, error={"code": -1, "message": text})

    async def _respond(self, command: Message, **outcome: Any) -> None:
        session = {key: command[key] for key in ("sessionId",) if key in command}
        await self.text(json.dumps({"id": command["id"], **outcome, **session}))

    async def event(self, method: str, session_id: str = "", **params: Any) -> None:
        """Send an event; with a session, of its page."""
        session = {"sessionId": session_id} if session_id else {}
        await self.text(json.dumps({"method": method, "params": params, **session}))

    async def text(self, text: str) -> None:
        """Send any text as one message."""
        await self.bytes(text.encode() + b"\0")

    async def bytes(self, content: bytes) -> None:
        """Send any bytes, which need not be a message."""
        if self._transport.is_closing():
            raise ConnectionError("there is no connection")
        self._transport.write(content)

    def stop_reading(self) -> None:
        """Stop reading, like a stopped process: the kernel's buffers fill."""
        self._transport.pause_reading()

    def hang_up(self) -> None:
        """Close the connection after everything was sent."""
        self._transport.close()

    def reset(self) -> None:
        """Close the connection at once."""
        self._transport.abort()
