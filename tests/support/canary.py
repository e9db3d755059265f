"""A listener of this machine that no page may reach."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Canary:
    """A listener on TCP and UDP that no page may reach. ``touched``: who did."""

    def __init__(self) -> None:
        self.touched: list[str] = []
        self.port = 0

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator["Canary"]:
        canary = cls()
        loop = asyncio.get_running_loop()

        class Datagrams(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: object) -> None:
                canary.touched.append(f"UDP {data!r:.30}")

        server = await asyncio.start_server(canary._touch, "127.0.0.1", 0)
        canary.port = server.sockets[0].getsockname()[1]
        server6 = await asyncio.start_server(canary._touch, "::1", canary.port)
        udp, _ = await loop.create_datagram_endpoint(
            Datagrams, local_addr=("127.0.0.1", canary.port)
        )
        udp6, _ = await loop.create_datagram_endpoint(Datagrams, local_addr=("::1", canary.port))
        try:
            yield canary
        finally:
            server.close()
            server6.close()
            udp.close()
            udp6.close()

    async def _touch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(1):
                line = await reader.readline()
        except (TimeoutError, ValueError, OSError):
            line = b"TCP"
        self.touched.append(line.decode("latin-1").strip())
        writer.close()
