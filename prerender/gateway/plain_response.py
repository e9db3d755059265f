"""Responses of the gateway without the headers that aiohttp would add."""

from typing import TYPE_CHECKING

from aiohttp.web import Response, StreamResponse

if TYPE_CHECKING:
    _Base = StreamResponse
else:
    _Base = object


class _Plain(_Base):
    """Without Server and Content-Type unless they are given (RFC 9110 sections 8.3 and 10.2.4)."""

    async def _prepare_headers(self) -> None:
        invented = [name for name in ("Content-Type", "Server") if name not in self.headers]
        await super()._prepare_headers()
        for name in invented:
            self.headers.popall(name, None)


class Plain(_Plain, Response):
    """A complete response."""


class PlainStream(_Plain, StreamResponse):
    """A response whose body is written piece by piece."""
