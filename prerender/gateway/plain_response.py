"""Responses of the gateway without the headers that aiohttp would add."""

from aiohttp.web import Response, StreamResponse


class PlainStream(StreamResponse):
    """A response whose body is written piece by piece, without Server and Content-Type unless they are
    given (RFC 9110 sections 8.3 and 10.2.4)."""

    async def _prepare_headers(self) -> None:
        invented = [name for name in ("Content-Type", "Server") if name not in self.headers]
        await super()._prepare_headers()
        for name in invented:
            self.headers.popall(name, None)


class Plain(PlainStream, Response):
    """A complete response."""
