"""TCP connections with timeouts, as asyncio protocols."""

import asyncio
import socket
import struct
from math import inf
from typing import Protocol, cast

from prerender.errors import BadMessage, CutShort
from prerender.http.body import Decoder
from prerender.http.message_head import MAX_HEAD_BYTES

# The size of reads. Reading pauses while this much is buffered.
_READ_BYTES = 32768
_SWEEP_SECONDS = 0.2
_PROBES = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def reset(transport: asyncio.Transport) -> None:
    """Close at once with a TCP reset, which cannot be mistaken for a normal end."""
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()


class Swept(Protocol):
    """A connection whose deadlines a ``Sweeper`` checks."""

    def sweep(self, now: float) -> None:
        """Handle deadlines that have passed at ``now``, in loop time."""

    def abort(self) -> None:
        """Close at once."""


class Connection(asyncio.BufferedProtocol):
    """A TCP connection. One task may read while another one writes.

    A sweep over all connections checks deadlines (``Sweeper``): a timer for each wait would be
    the largest part of the cost of a small request. They are accurate to ``_SWEEP_SECONDS``.
    """

    def __init__(self, sweeper: "Sweeper") -> None:
        self.buffer = bytearray()
        self.ended = False
        self.lost = False
        self._sweeper = sweeper
        self._loop = sweeper.loop
        self._transport: asyncio.Transport | None = None
        self._reading_paused = False
        self._reader: asyncio.Future[None] | None = None
        self._read_deadline = inf
        self._head_deadline: float | None = None  # None: no head is awaited
        self._failure: BaseException | None = None
        self._writing_paused = False
        self._writer: asyncio.Future[None] | None = None
        self._write_deadline = inf
        self._write_timeout = inf
        self._unsent_bytes = 0

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._sweeper.connections.add(self)

    def get_buffer(self, _: int) -> bytearray:
        # buffer_updated copies the data at once, so all connections share one buffer.
        return self._sweeper.scratch

    def buffer_updated(self, nbytes: int) -> None:
        self.buffer += self._sweeper.received[:nbytes]
        if len(self.buffer) >= _READ_BYTES:
            self.hold()
        self.wake_reader()

    def eof_received(self) -> bool | None:
        self.ended = True
        self.wake_reader()
        return None

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = self.lost = True
        self._sweeper.connections.discard(self)
        self.wake_reader()
        self._wake_writer()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._wake_writer()

    # Called by the rest of the project.

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    async def receive(self, deadline: float) -> bool:
        """Wait for more bytes in ``buffer``. Returns False at the end of the input.

        Raises TimeoutError at ``deadline``, in loop time.
        """
        if self._failure is not None:
            raise self._failure
        if self.ended:
            return False
        if self._loop.time() >= deadline:
            # A sweep would not see it if something arrives all the time.
            raise TimeoutError("nothing was received in time")
        if self._reading_paused:
            self._reading_paused = False
            self.transport.resume_reading()
        self._reader = self._loop.create_future()
        self._read_deadline = deadline
        try:
            await self._reader
        finally:
            self._reader = None
            self._read_deadline = inf
        return bool(self.buffer) or not self.ended

    async def receive_head(self, deadline: float) -> bytes | None:
        """The head of a message without the empty line after it; None if the input ends before it.

        Raises BadMessage if it is too long, CutShort, and TimeoutError at ``deadline`` (loop time) or
        at that of ``expect_by``.
        """
        searched = 0
        self._head_deadline = deadline
        try:
            while (end := self.buffer.find(b"\r\n\r\n", searched)) < 0:
                if len(self.buffer) > MAX_HEAD_BYTES:
                    raise BadMessage("the head is too long", 431)
                searched = max(0, len(self.buffer) - 3)
                if not await self.receive(self._head_deadline):
                    if self.buffer:
                        raise CutShort("the head is incomplete")
                    return None
        finally:
            self._head_deadline = None
        if end > MAX_HEAD_BYTES:
            raise BadMessage("the head is too long", 431)
        head = bytes(self.buffer[:end])
        del self.buffer[: end + 4]
        return head

    async def receive_body(self, decoder: Decoder, timeout: float) -> bytes:
        """The next piece of a body; b"" at its end.

        Raises BadMessage, CutShort, and TimeoutError after ``timeout`` seconds without a byte.
        """
        while not decoder.done:
            if self.buffer and (piece := decoder.decode(self.buffer)):
                if self.buffer:
                    await asyncio.sleep(0)  # tiny chunks: give other tasks a turn
                return piece
            if not decoder.done and not await self.receive(self._loop.time() + timeout):
                decoder.end_of_input()
        return b""

    def hold(self) -> None:
        """Pause reading until ``receive`` is called again."""
        if not self._reading_paused and not self.lost:
            self._reading_paused = True
            self.transport.pause_reading()

    def expect_by(self, deadline: float) -> None:
        """Change the deadline of the head that is awaited, if any: it may have arrived already."""
        if self._head_deadline is not None:
            self._read_deadline = self._head_deadline = deadline

    def wake_reader(self) -> None:
        """End the current read."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def fail_reader(self, error: BaseException) -> None:
        """Make the current read, or else the next one, raise an error."""
        self._failure = error
        if self._reader is not None and not self._reader.done():
            self._reader.set_exception(error)

    def write(self, data: bytes) -> None:
        """Queue bytes. Call ``drain`` before the next ones."""
        if not self.lost and self._transport is not None:
            self._transport.write(data)

    @property
    def congested(self) -> bool:
        """Whether the peer reads more slowly than is written."""
        return self._writing_paused and not self.lost

    async def drain(self, timeout: float) -> None:
        """Wait until the peer has read most of what was written.

        Raises TimeoutError if it read nothing for ``timeout`` seconds, ConnectionError if it left.
        """
        while self._writing_paused and not self.lost:
            self._writer = self._loop.create_future()
            self._watch_writing(timeout)
            try:
                await self._writer
            finally:
                self._writer = None
                self._write_deadline = inf
        if self.lost:
            raise ConnectionResetError("the connection is gone")

    def close(self, timeout: float) -> None:
        """Close after everything is sent, or if nothing was sent for ``timeout`` seconds."""
        if self._transport is not None and not self.lost:
            self._watch_writing(timeout)
            self._transport.close()

    def abort(self) -> None:
        """Close at once (see ``reset``)."""
        if self._transport is not None and not self.lost:
            reset(self._transport)

    def sweep(self, now: float) -> None:
        """End waits whose deadlines have passed."""
        if now >= self._read_deadline:
            self._read_deadline = inf
            if self._reader is not None and not self._reader.done():
                self._reader.set_exception(TimeoutError("nothing was received in time"))
        if now >= self._write_deadline:
            unsent = self.transport.get_write_buffer_size()
            if unsent < self._unsent_bytes:
                self._watch_writing(self._write_timeout)
            else:
                self._write_deadline = inf
                if self._writer is None:
                    self.abort()
                elif not self._writer.done():
                    self._writer.set_exception(TimeoutError("the peer read nothing in time"))

    def _watch_writing(self, timeout: float) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._write_timeout = timeout
        self._write_deadline = self._loop.time() + timeout

    def notice_death(self) -> None:
        """Detect a dead peer within two minutes by TCP keep-alive."""
        connection: socket.socket = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _PROBES:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)

    def _wake_writer(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)


class Sweeper:
    """Checks the deadlines of all connections while it is open (a context manager)."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.connections: set[Swept] = set()
        self.scratch = bytearray(_READ_BYTES)
        self.received = memoryview(self.scratch)
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "Sweeper":
        self._sweep()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.abort()

    def _sweep(self) -> None:
        self._timer = self.loop.call_later(_SWEEP_SECONDS, self._sweep)
        now = self.loop.time()
        for connection in tuple(self.connections):
            connection.sweep(now)
