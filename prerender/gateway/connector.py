"""Connections that serve the browser. Each one is checked where its socket is created.

Whatever led here (a URL of the page, a redirect, a name that changes its address), nothing is sent to
an address that the policy of the session does not allow.
"""

import socket
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any

from aiohttp import AddrInfoType, ClientRequest, TCPConnector
from aiohttp.abc import AbstractResolver
from aiohttp.connector import Connection

from prerender.gateway.address_policy import AddressPolicy, Forbidden

_DNS_CACHE_SECONDS = 10
# Host and port of the request for which sockets are being opened.
_PEER: ContextVar[tuple[str, int]] = ContextVar("peer")


class CheckedConnector(TCPConnector):
    """Connects only to what ``policy`` allows; all other requests fail with Forbidden."""

    def __init__(self, policy: AddressPolicy, resolver: AbstractResolver | None = None) -> None:
        super().__init__(
            limit=0,
            resolver=resolver,
            ttl_dns_cache=_DNS_CACHE_SECONDS,
            socket_factory=self._open_socket,
        )
        self._policy = policy

    async def connect(self, req: ClientRequest, *args: Any, **options: Any) -> Connection:
        """A connection for one request, also for each of its redirects. Raises Forbidden."""
        if req.proxy:
            raise Forbidden(f"{req.proxy} would connect where nobody looks")
        host, port = req.url.raw_host or "", req.url.port or 0
        self._policy.check(host, port)
        asked = _PEER.set((host, port))
        try:
            return await super().connect(req, *args, **options)
        finally:
            _PEER.reset(asked)

    def _open_socket(self, info: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, peer = info
        host, port = _PEER.get()
        # The text of an IPv6 address may name an interface (RFC 4007 section 11).
        address = ip_address(str(peer[0]).partition("%")[0])
        if not self._policy.lets_pass(address, host, port):
            # The same text for all of a host's addresses: then it stays the error that it is.
            raise Forbidden(f"{host} has no address that pages may reach")
        return socket.socket(family, kind, protocol)
