"""A connector that checks every connection for the browser when its socket is created.

So nothing is sent to an address that the policy forbids, whether it comes from a URL, a redirect or DNS
rebinding.
"""

import socket
from contextvars import ContextVar
from functools import partial
from ipaddress import ip_address
from typing import Any

from aiohttp import AddrInfoType, ClientRequest, TCPConnector
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from prerender.gateway.address_policy import AddressPolicy, Forbidden, at_other
from prerender.http.portions import Portions, Turns

_DNS_CACHE_SECONDS = 10
# Shorter than that of common servers (Node.js: 5 s): a POST that meets their close is not repeated.
_KEEP_ALIVE_SECONDS = 4
# Host and port of the request for which sockets are being opened.
_PEER: ContextVar[tuple[str, int]] = ContextVar("peer")


class _Response(Portions, ResponseHandler):
    """A connection whose peer may send many tiny chunks."""

    turns = Turns()  # not those of clients


class CheckedConnector(TCPConnector):
    """Connects only to what ``policy`` allows; all other requests fail with Forbidden."""

    def __init__(self, policy: AddressPolicy, resolver: AbstractResolver | None = None) -> None:
        super().__init__(
            limit=0,
            resolver=resolver,
            ttl_dns_cache=_DNS_CACHE_SECONDS,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            socket_factory=self._open_socket,
        )
        self._policy = policy
        # There is no public way to choose the protocol.
        self._factory: Any = partial(_Response, loop=self._loop)

    async def connect(self, req: ClientRequest, *args: Any, **options: Any) -> Connection:
        """A connection for a request, or for one of its redirects. Raises Forbidden."""
        if req.proxy:
            raise Forbidden(f"the proxy {req.proxy} would bypass the address policy")
        host, port = req.url.raw_host or "", req.url.port or 0
        self._policy.check(host, port)
        token = _PEER.set((host, port))
        try:
            return await super().connect(req, *args, **options)
        finally:
            _PEER.reset(token)

    def _open_socket(self, info: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, peer = info
        host, port = _PEER.get()
        # An IPv6 address may have a zone (RFC 4007 section 11).
        address = ip_address(str(peer[0]).partition("%")[0])
        if not self._policy.lets_pass(address, host, port):
            # The same message for all addresses of a host, so that it is reported as one error.
            raise Forbidden(f"{host} has no address that pages may reach{at_other(port)}")
        return socket.socket(family, kind, protocol)
