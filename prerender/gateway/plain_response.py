"""Complete responses of the gateway."""

from aiohttp.web import Response


class Plain(Response):
    """A response without the Server and Content-Type headers that aiohttp would add
    (RFC 9110 sections 8.3 and 10.2.4)."""

    async def _prepare_headers(self) -> None:
        invented = [name for name in ("Content-Type", "Server") if name not in self.headers]
        await super()._prepare_headers()
        for name in invented:
            self.headers.popall(name, None)
