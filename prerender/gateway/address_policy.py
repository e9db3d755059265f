"""The network addresses that a page may reach through the gateway.

The origin has its own connection. Everything else must resolve to a public address or be listed: the
browser runs next to internal services of the site, which a page (or an injected script) must
not reach.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from yarl import URL

from prerender.config import Settings
from prerender.urls.hosts import Address, Hosts, normalized

WEB_PORTS = (80, 443)
# All public IPv6 addresses are in this block.
_GLOBAL_UNICAST = IPv6Network("2000::/3")
# Contains an IPv4 address in the last 32 bits (RFC 6052), which is checked instead.
_NAT64 = IPv6Network("64:ff9b::/96")
# Special-purpose blocks (RFC 6890) that ``is_global`` of some Python versions allows, of which some
# clouds serve metadata in the first, and the address at which Azure serves machines their own settings.
_NOT_PUBLIC = (
    IPv4Network("168.63.129.16/32"),
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv6Network("2001::/23"),
    IPv6Network("3fff::/20"),
)


class Forbidden(OSError):
    """A host is, or resolves to, an address that pages may not reach."""


class Unlisted(Forbidden):
    """Only what [network] allow lists may be reached."""


def is_public(address: Address) -> bool:
    """Whether an address is public, also if it is embedded in an IPv6 address."""
    address = unwrapped(address)
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast


def unwrapped(address: Address) -> Address:
    """The IPv4 address in a mapped, 6to4 or NAT64 address; others unchanged."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def at_other(port: int) -> str:
    """The end of a message about a port that is not a web port, with the remedy."""
    if port in WEB_PORTS:
        return ""
    return f" at port {port}, for which [network] allow must list the origin"


class AddressPolicy:
    """Allows public addresses and those in ``allow``, except those in ``deny``, at web ports.

    With ``only_listed`` only those in ``allow``. Origins in ``allow`` have a port of their own.
    ``own_host``: the site's host, whose API may be at any port.
    """

    def __init__(
        self,
        allow: Hosts | None = None,
        deny: Hosts | None = None,
        *,
        only_listed: bool = False,
        own_host: str = "",
    ) -> None:
        self.own_host = normalized(own_host)
        self.allow = allow or Hosts()
        self._deny = deny or Hosts()
        self._only_listed = only_listed

    @classmethod
    def of(cls, settings: Settings) -> "AddressPolicy":
        """The policy of [network], for the site of the settings."""
        network = settings.network
        return cls(
            Hosts(network.allow),
            Hosts(network.deny),
            only_listed=network.third_parties == "listed",
            own_host=settings.public_url.raw_host or "",
        )

    @classmethod
    def only(cls, url: URL) -> "AddressPolicy":
        """A policy for the host and port of one URL, at any address, and nothing else."""
        return cls(Hosts([str(url.origin())]), only_listed=True)

    def check(self, host: str, port: int) -> None:
        """Check a host before it is resolved. Raises Forbidden.

        Resolved addresses are checked when the socket is opened (connector.py). The client treats
        everything of digits and dots as an address, so such a host must be a valid address.
        """
        try:
            address = ip_address(host)
        except ValueError:
            if ":" in host or host.replace(".", "").isdigit():
                raise Forbidden(f"{host} is not a canonical address") from None
            if self._only_listed and not self.allow.named(host, port):
                raise Unlisted(f"{host} is not in [network] allow") from None
            return
        if not self.lets_pass(address, host, port):
            raise Forbidden(f"{address} is not a public address{at_other(port)}")

    def lets_pass(self, address: Address, host: str, port: int) -> bool:
        """Whether ``host`` may be reached at ``address``."""
        plain = unwrapped(address)
        if self._deny.has_address(plain):
            return False
        if self.allow.has_origin(host, port):
            return True
        is_own = bool(self.own_host) and normalized(host) == self.own_host
        if port not in WEB_PORTS and not is_own:
            return False
        if self.allow.named(host, port) or self.allow.has_address(plain):
            return True
        return not self._only_listed and is_public(address)


class VisitorPolicy(AddressPolicy):
    """Allows what a visitor's browser reaches: also other ports of public addresses, and the site's own
    host at any address.

    ``pages``: the policy for pages. ``refused_to_pages``: hosts and ports that visitors reach, and that
    it would refuse.
    """

    def __init__(self, pages: AddressPolicy) -> None:
        super().__init__(pages.allow, own_host=pages.own_host)
        self._pages = pages
        self.refused_to_pages: set[tuple[str, int]] = set()

    def check(self, host: str, port: int) -> None:
        """Check a host before it is resolved. Raises Forbidden."""
        try:
            self._pages.check(host, port)
        except Forbidden:
            super().check(host, port)
            self.refused_to_pages.add((host, port))

    def lets_pass(self, address: Address, host: str, port: int) -> bool:
        """Whether ``host`` may be reached at ``address``."""
        if self._pages.lets_pass(address, host, port):
            return True
        reached = is_public(address) or normalized(host) == self.own_host
        if reached:
            self.refused_to_pages.add((host, port))
        return reached
