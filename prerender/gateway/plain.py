"""Whole answers of the gateway."""

from aiohttp.web import Response


class Plain(Response):
    """A response with just the header fields it was given: aiohttp would name itself in Server, and
    guess a Content-Type (RFC 9110 sections 8.3 and 10.2.4)."""

    async def _prepare_headers(self) -> None:
        invented = [name for name in ("Content-Type", "Server") if name not in self.headers]
        await super()._prepare_headers()
        for name in invented:
            self.headers.popall(name, None)
