"""Turns of the event loop for peers that send much work in few bytes, such as chunks of one byte.

Parsing 256 KiB of them, which arrive in one read, would take a third of a second. So such data is
parsed in portions, and all such work together gets a quarter of the time.
"""

import asyncio
import time
from collections import deque
from typing import Any, cast

from aiohttp.base_protocol import BaseProtocol

_PORTION_BYTES = 4096
# In the data of ordinary bodies, ends of lines and chunks are rarer.
_DENSE_BYTES = 64
_SHARE = 0.25
# The loop's timers have this resolution.
_SHORTEST_SECONDS = 0.001


class Turns:
    """Shares time between those that take much of it."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def after(self, spent: float) -> float:
        """The seconds to wait for the next turn, after one that took ``spent`` seconds."""
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + spent / _SHARE
        return self._free_at - now


class Portions(BaseProtocol):
    """Mixin for a protocol of aiohttp: dense data reaches it in portions. Put it first.

    Connections with the same ``turns`` wait for each other.
    """

    turns: Turns
    _portions: deque[bytes]
    _wire_of_portions: asyncio.Transport
    _has_ended = False
    _is_waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._portions = deque()
        self._wire_of_portions = cast("asyncio.Transport", transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass ordinary data on, or hold back dense data and everything after it.

        aiohttp also calls this with b"", to parse data that it has held back.
        """
        length, size = len(data), _PORTION_BYTES
        is_dense = length > size and data.count(b"\n") > length // _DENSE_BYTES
        if not (is_dense or self._portions) or not data:
            super().data_received(data)
            return
        has_begun = bool(self._portions)
        self._portions += (data[at : at + size] for at in range(0, length, size))
        self._wire_of_portions.pause_reading()
        if not has_begun:
            self._pass_on()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Go on after ``pause_reading``. aiohttp also calls this for each chunk that is read."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _resume_transport_reading(self) -> None:
        """Not while data is held back, which comes first. aiohttp has no public way for this."""
        if not self._portions:
            super()._resume_transport_reading()
        elif self._is_waiting:
            self._is_waiting = False
            self._loop.call_soon(self._pass_on)

    def eof_received(self) -> Any:
        """End after what was held back."""
        if self._portions:
            self._has_ended = True
            return True
        return super().eof_received()

    def connection_lost(self, exc: Any) -> None:
        """Pass on what was held back, unless the connection failed."""
        while self._portions:
            portion = self._portions.popleft()
            if exc is None:
                super().data_received(portion)
        super().connection_lost(exc)

    def _pass_on(self) -> None:
        if not self._portions:
            return  # the connection is lost
        if self._reading_paused or self._buffer_paused:
            self._is_waiting = True
            return
        began = time.perf_counter()
        # It stays in the queue until it was passed on, so that later data is behind it.
        super().data_received(self._portions[0])
        if self._portions:
            self._portions.popleft()
        wait = self.turns.after(time.perf_counter() - began)
        if self._portions and wait < _SHORTEST_SECONDS:
            self._loop.call_soon(self._pass_on)
        elif self._portions:
            self._loop.call_later(wait, self._pass_on)
        elif self._has_ended:
            if not super().eof_received():
                self._wire_of_portions.close()
        elif not (self._reading_paused or self._buffer_paused):
            self._resume_transport_reading()
