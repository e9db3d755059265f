"""Which network addresses a page may reach through the gateway.

The origin is reached by the gateway's own configuration. Everything else must resolve to an address
of the public Internet: the browser runs next to the site's internal services, and a page (or what
somebody got into it) must not be able to talk to them.
"""

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

# Of IPv6, addresses are given out of this block only.
_GLOBAL_UNICAST = IPv6Network("2000::/3")
# An IPv4 address rides in the last 32 bits (RFC 6052), so it has to be looked at by itself.
_NAT64 = IPv6Network("64:ff9b::/96")
# Blocks that are not globally reachable (IANA's special-purpose registries, RFC 6890) and that
# ``is_global`` of one Python version or another lets pass. In the first some clouds keep metadata.
_NOT_PUBLIC = (
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv6Network("2001::/23"),
    IPv6Network("3fff::/20"),
)


class Forbidden(OSError):
    """A host is, or resolves to, an address that pages may not reach."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address belongs to the public Internet, whatever notation it hides in."""
    if isinstance(address, IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            embedded = IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is not None:
            return is_public(embedded)
        if address not in _GLOBAL_UNICAST:
            return False
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast


def check(host: str) -> None:
    """Raises Forbidden for the text of an address that is not public. Names pass.

    What a name stands for is looked at when it is resolved. The client takes everything of digits
    and dots for an address and does not resolve it, so such a host has to be a proper address.
    """
    try:
        address = ip_address(host)
    except ValueError:
        if ":" in host or host.replace(".", "").isdigit():
            raise Forbidden(f"{host} is not an address in its ordinary notation") from None
        return
    if not is_public(address):
        raise Forbidden(f"{address} is not a public address")


class PublicResolver(AbstractResolver):
    """Resolves names, and leaves only public addresses.

    The connector connects to exactly what is returned here, so a name cannot change its address
    between the check and the connection (DNS rebinding).
    """

    def __init__(self) -> None:
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The public addresses of a host. Raises Forbidden when it has none."""
        found = await self._resolver.resolve(host, port, family)
        public = [result for result in found if is_public(ip_address(result["host"].split("%")[0]))]
        if not public:
            raise Forbidden(f"{host} has no public address")
        return public

    async def close(self) -> None:
        """Nothing is held."""
