"""A name server for the network of canaries. All names below these domains have the same address."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from tests.gateway.canaries.network import ORIGIN, PRIVATE, PUBLIC, SITE
from tests.support.dns_server import NameServer

ADDRESS = ("127.0.0.53", 53)
PUBLIC_HOST = "cdn.example"
PRIVATE_DOMAIN = "private.example"
DOMAINS: dict[str, Sequence[str]] = {
    "www.example.com": [SITE],
    PUBLIC_HOST: [PUBLIC],
    "origin.internal": [ORIGIN],
    PRIVATE_DOMAIN: [PRIVATE["10/8"]],
    "here.example": ["127.0.0.1", "::1"],
    "local6.example": [PRIVATE["unique local"]],
    "metadata.example": [PRIVATE["metadata"]],
    "both.example": [PUBLIC, PRIVATE["192.168/16"]],
}
# Public when it is asked for first (an A and an AAAA record), and private from then on.
REBINDING = "rebinding.example"
_FIRST_QUESTIONS = 2


class Names(NameServer):
    """``asked`` is called with every name."""

    def __init__(self, asked: Callable[[str], None]) -> None:
        super().__init__({}, {})
        self._asked = asked

    def find(self, name: str) -> Sequence[str] | str | None:
        """The addresses of a name; None if it does not exist."""
        host = name.rstrip(".").lower()
        self._asked(host)
        if host.endswith(REBINDING):
            first = self.questions.count(name) <= _FIRST_QUESTIONS
            return [PUBLIC] if first else [PRIVATE["10/8"]]
        for domain, addresses in DOMAINS.items():
            if host == domain or host.endswith(f".{domain}"):
                return addresses
        return None

    @classmethod
    @asynccontextmanager
    async def serving(cls, asked: Callable[[str], None]) -> AsyncIterator["Names"]:
        """Start a name server."""
        loop = asyncio.get_running_loop()
        transport, names = await loop.create_datagram_endpoint(
            lambda: cls(asked), local_addr=ADDRESS
        )
        try:
            yield names
        finally:
            transport.close()
