"""Which proxies are trusted, and the client's address behind them. Pure."""

import re
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple, Protocol

from prerender.http.fields import Fields
from prerender.urls.hosts import Address, Network

# RFC 7239 section 4: for=192.0.2.1, for="[2001:db8::1]:4711".
_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*"?([^";]+)"?', re.IGNORECASE)
_FORWARDED_FOR = "x-forwarded-for"
_FORWARDED = "forwarded"
_REMEMBERED = 1024
_LONGEST_REMEMBERED = 1024
_WITH_PORT = re.compile(r"\[([^\]]+)\](?::[0-9]+)?|([0-9.]+):[0-9]+")


class Peer(NamedTuple):
    """The sender of a request: its address, and whether it is one of [server] trusted_proxies."""

    remote: str = ""
    trusted: bool = False


NOBODY = Peer()


class ReceivedRequest(Protocol):
    """A request and its peer."""

    @property
    def remote(self) -> str:
        """The peer's address."""

    @property
    def trusted(self) -> bool:
        """Whether the peer is a trusted proxy."""

    @property
    def headers(self) -> Fields:
        """The request's headers."""


def client_address(remote: str, headers: Fields, trusted: tuple[Network, ...]) -> Address | None:
    """The address of the nearest client that is not a trusted proxy; None if unknown.

    ``remote``: the address of the peer. X-Forwarded-For of trusted proxies counts, or Forwarded if
    there is none.
    """
    hops = ", ".join(headers.getall(_FORWARDED_FOR)).split(",")
    if _FORWARDED_FOR not in headers:
        elements = ",".join(headers.getall(_FORWARDED)).split(",")
        hops = [match[1] if (match := _FOR.search(element)) else "" for element in elements]
        if _FORWARDED not in headers:
            hops = []
    address = _address(remote)
    for text in reversed(hops):
        if address is None or not is_trusted(address, trusted):
            return address
        address = _address(text)
    return address


class Clients:
    """Determines clients' addresses. ``trusted``: the networks of trusted proxies."""

    def __init__(self, trusted: tuple[Network, ...]) -> None:
        self._trusted = trusted
        self._known = lru_cache(maxsize=_REMEMBERED)(self._read)

    def address_of(self, request: ReceivedRequest) -> str:
        """The client's address; the peer's, if the forwarding headers have no valid address."""
        remote, fields = request.remote, request.headers
        if not request.trusted or (
            _FORWARDED_FOR not in fields.names and _FORWARDED not in fields.names
        ):
            return remote
        hops = (fields.get(_FORWARDED_FOR), fields.get(_FORWARDED))
        known = self._known if sum(map(len, hops)) <= _LONGEST_REMEMBERED else self._read
        return known(remote, *hops)

    def _read(self, remote: str, forwarded_for: str, forwarded: str) -> str:
        lines = [
            (name, f"{name}: {value}".encode("latin-1"))
            for name, value in ((_FORWARDED_FOR, forwarded_for), (_FORWARDED, forwarded))
            if value
        ]
        return str(client_address(remote, Fields(lines), self._trusted) or remote)


def peer_of(text: str, trusted: tuple[Network, ...]) -> Peer:
    """The peer with an IP address, in its canonical form."""
    address = _address(text)
    assert address is not None, text
    return Peer(str(address), is_trusted(address, trusted))


def is_trusted(address: Address, trusted: tuple[Network, ...]) -> bool:
    """Whether an address is in one of the networks."""
    return any(address in network for network in trusted)


def _address(text: str) -> Address | None:
    text = text.strip()
    if match := _WITH_PORT.fullmatch(text):
        text = match[1] or match[2]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
