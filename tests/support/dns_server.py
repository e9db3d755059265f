"""A name server over UDP that can lie and be silent."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.reversename
import dns.rrset

# The answer to a name of which nothing is known, and no answer at all.
FAILS = "SERVFAIL"
SILENT = "silent"


class NameServer(asyncio.DatagramProtocol):
    """``addresses``: names by address; ``names``: addresses by name, or one of the words above."""

    def __init__(
        self, addresses: Mapping[str, Sequence[str] | str], names: Mapping[str, Sequence[str] | str]
    ) -> None:
        reverse = {dns.reversename.from_address(it).to_text(): of for it, of in addresses.items()}
        self.records = {**reverse, **{f"{name}.": of for name, of in names.items()}}
        self.questions: list[str] = []
        self.silent = False
        self.port = 0
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def find(self, name: str) -> Sequence[str] | str | None:
        """The records of a name."""
        return self.records.get(name)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        message = dns.message.from_wire(data)
        question = message.question[0]
        name = question.name.to_text()
        self.questions.append(name)
        found = self.find(name)
        if self.silent or found == SILENT:
            return
        answer = dns.message.make_response(message, recursion_available=True)
        if found is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif found == FAILS:
            answer.set_rcode(dns.rcode.SERVFAIL)
        else:
            ending = "." if name.endswith(".arpa.") else ""
            texts = [f"{text}{ending}" for text in found]
            texts = [text for text in texts if ending or (":" in text) == (question.rdtype == 28)]
            if texts:
                answer.answer.append(
                    dns.rrset.from_text_list(name, 60, "IN", question.rdtype, texts)
                )
        assert self._transport is not None
        self._transport.sendto(answer.to_wire(), addr)


@asynccontextmanager
async def name_server(
    addresses: Mapping[str, Sequence[str] | str], names: Mapping[str, Sequence[str] | str]
) -> AsyncIterator[NameServer]:
    """A name server on a free loopback port."""
    loop = asyncio.get_running_loop()
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.bind(("127.0.0.1", 0))
    transport, server = await loop.create_datagram_endpoint(
        lambda: NameServer(addresses, names), sock=listening
    )
    server.port = listening.getsockname()[1]
    try:
        yield server
    finally:
        transport.close()
