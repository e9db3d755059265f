"""Which network addresses a page may reach through the gateway.

The origin is reached by the gateway's own configuration. Everything else must resolve to an address
of the public Internet, or be listed: the browser runs next to the site's internal services, and a
page (or what somebody got into it) must not be able to talk to them.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from yarl import URL

from prerender.urls.hosts import Address, Hosts

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


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public Internet, whatever notation it hides in."""
    address = unwrapped(address)
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast


def unwrapped(address: Address) -> Address:
    """The IPv4 address in a mapped, 6to4 or NAT64 one; any other as it is."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


class AddressPolicy:
    """Says who may be reached: public addresses, and what ``allow`` lists, but not what ``deny`` lists.

    With ``only_listed`` nobody but those in ``allow``.
    """

    def __init__(
        self, allow: Hosts | None = None, deny: Hosts | None = None, *, only_listed: bool = False
    ) -> None:
        self.allow = allow or Hosts()
        self._deny = deny or Hosts()
        self._only_listed = only_listed

    @classmethod
    def only(cls, url: URL) -> "AddressPolicy":
        """Lets pass the host and port of one URL, at any address, and nothing else."""
        return cls(Hosts([str(url.origin())]), only_listed=True)

    def check(self, host: str, port: int) -> None:
        """Raises Forbidden for a host that is not listed, and for the text of a private address.

        What a name stands for is looked at when its socket is opened (connector.py). The client takes
        everything of digits and dots for an address, so such a host has to be a proper address.
        """
        try:
            address = ip_address(host)
        except ValueError:
            if ":" in host or host.replace(".", "").isdigit():
                raise Forbidden(f"{host} is not an address in its ordinary notation") from None
            if self._only_listed and not self.allow.named(host, port):
                raise Forbidden(f"{host} is not in [network] allow") from None
            return
        if not self.lets_pass(address, host, port):
            raise Forbidden(f"{address} is not a public address")

    def lets_pass(self, address: Address, host: str, port: int) -> bool:
        """Whether ``host`` may be reached at ``address``."""
        plain = unwrapped(address)
        if self._deny.has_address(plain):
            return False
        if self.allow.named(host, port) or self.allow.has_address(plain):
            return True
        return not self._only_listed and is_public(address)
