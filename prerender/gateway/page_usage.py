"""How much of the network a page uses in one render, and the limits of [network]."""

import time
from dataclasses import dataclass, field

from prerender.config.settings import NetworkSettings
from prerender.gateway.exchange import Exchange

# WebSocket messages, for each request that a page may make.
_MESSAGES = 10


class LimitReached(OSError):
    """A render exceeded a limit. The message names the setting."""

    @classmethod
    def of(cls, setting: str, limit: int) -> "LimitReached":
        """The error for a limit of [network]."""
        return cls(f"limit reached: [network] {setting} = {limit}")


@dataclass(slots=True)
class PageUsage:
    """Counts requests, bytes and WebSocket messages of a page. ``limits``: [network]."""

    limits: NetworkSettings = field(default_factory=NetworkSettings)
    requests: int = 0
    received_bytes: int = 0
    messages: int = 0

    @property
    def is_flooded(self) -> bool:
        """Whether the excess of the limit of requests has been recorded already."""
        return self.requests > self.limits.max_requests + 1

    def check_requests(self) -> None:
        """Raises LimitReached if this request exceeds the limit."""
        if self.requests > self.limits.max_requests:
            raise LimitReached.of("max_requests", self.limits.max_requests)

    def expect(self, size: int) -> None:
        """Raises LimitReached if a body of ``size`` bytes would exceed a limit."""
        self._check_bytes(self.received_bytes + size, size)

    def received(self, exchange: Exchange, size: int) -> None:
        """Count bytes of a response body. Raises LimitReached."""
        exchange.received_bytes += size
        exchange.last_byte = time.monotonic()
        self.received_bytes += size
        try:
            self._check_bytes(self.received_bytes, exchange.received_bytes)
        except LimitReached as error:
            exchange.blocked = exchange.limited = True
            exchange.reason = str(error)
            raise

    def message(self, exchange: Exchange, size: int) -> None:
        """Count a WebSocket message, in either direction. Raises LimitReached."""
        self.messages += 1
        if self.messages > _MESSAGES * self.limits.max_requests:
            limit = LimitReached.of("max_requests", self.limits.max_requests)
            exchange.blocked = exchange.limited = True
            exchange.reason = f"{limit}, for each of which there may be {_MESSAGES} messages"
            raise LimitReached(exchange.reason)
        self.received(exchange, size)

    def _check_bytes(self, total: int, of_one: int) -> None:
        if of_one > self.limits.max_response_bytes:
            raise LimitReached.of("max_response_bytes", self.limits.max_response_bytes)
        if total > self.limits.max_bytes:
            raise LimitReached.of("max_bytes", self.limits.max_bytes)
