"""Lists of hosts in settings. Pure.

www.example.com            that host, at ports 80 and 443
*.example.com              example.com and its subdomains
10.1.2.3, 10.1.0.0/16      an address or a network, also for names that resolve to it; the same ports
http://app.internal:3001   one origin; required for other ports
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from yarl import URL

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_DEFAULT_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(
    r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*", re.ASCII | re.IGNORECASE
)
HELP = (
    'give a host ("cdn.example.com"), a domain ("*.example.com"), a network ("10.1.0.0/16") '
    'or an origin ("http://app.internal:3001")'
)


@dataclass(frozen=True, slots=True)
class Origin:
    """A scheme, host and port (RFC 6454 section 4)."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """The host and port as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def normalized(host: str) -> str:
    """A host in a form for comparison: lower case, without brackets and trailing dot."""
    return host.lower().strip("[]").removesuffix(".")


def host_of(authority: str) -> str:
    """The host of a Host header, ``normalized``."""
    has_port = not authority.endswith("]") and ":" in authority
    return normalized(authority.rpartition(":")[0] if has_port else authority)


def parse(text: str) -> str | Network | Origin:
    """Parse an entry: a name (with ``*.`` for a domain), a network or an origin.

    Raises ValueError with what is allowed.
    """
    if "@" in text:
        raise ValueError("an entry must not contain a user name or password")
    if re.search(r"\s", text):
        raise ValueError(f"{text!r} is not a host: {HELP}")
    if "://" in text:
        return _origin(text)
    try:
        return ip_network(text.strip("[]"))
    except ValueError:
        if "/" in text:
            raise ValueError(f"{text!r} is not a network: {HELP}") from None
    name = _ascii(text.removeprefix("*."))
    # The last label of a name is never a number (RFC 1123 section 2.1): this is a misspelled address.
    if not _NAME.fullmatch(name) or name.rpartition(".")[2].isdigit():
        raise ValueError(f"{text!r} is not a host: {HELP}")
    return f"*.{name}" if text.startswith("*.") else name


def _origin(text: str) -> Origin:
    try:
        url = URL(text)
        port = url.port
    except ValueError:
        port = None
    if port is None or url.scheme not in _DEFAULT_PORTS or not url.raw_host:
        raise ValueError(f"{text!r} is not an origin: {HELP}")
    if str(url).rstrip("/") != str(url.origin()) or "*" in url.raw_host:
        raise ValueError(f"{text!r} must be scheme, host and port only")
    return Origin(url.scheme, normalized(url.raw_host), port)


def _ascii(name: str) -> str:
    """An internationalized name in ASCII (RFC 5891)."""
    try:
        return normalized(URL.build(scheme="http", host=name).raw_host or "")
    except ValueError:
        return ""


class Hosts:
    """A set of entries. Matching a name costs a lookup per label."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        parsed = [parse(entry) for entry in entries]
        self._names = frozenset(entry for entry in parsed if isinstance(entry, str))
        self._networks = [entry for entry in parsed if isinstance(entry, Network)]
        self.origins = [entry for entry in parsed if isinstance(entry, Origin)]
        self._of_origins = frozenset((origin.host, origin.port) for origin in self.origins)

    def named(self, host: str, port: int) -> bool:
        """Whether a host is listed by name, or by address if it is one."""
        if self.has_origin(host, port):
            return True
        host = normalized(host)
        with suppress(ValueError):
            return self.has_address(ip_address(host))
        if host in self._names or f"*.{host}" in self._names:
            return True
        labels = host.split(".")
        return any(f"*.{'.'.join(labels[i:])}" in self._names for i in range(1, len(labels)))

    def has_origin(self, host: str, port: int) -> bool:
        """Whether an origin with this host and port is listed."""
        return (normalized(host), port) in self._of_origins

    def has_address(self, address: Address) -> bool:
        """Whether an address belongs to a listed network."""
        return any(address in network for network in self._networks)


def is_address(host: str) -> bool:
    """Whether a host is an IP address, without brackets."""
    with suppress(ValueError):
        return bool(ip_address(host))
    return False


def is_loopback(host: str) -> bool:
    """Whether an address (with or without brackets) or name is loopback."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def address_and_port(text: str, default: int = 53) -> tuple[str, int]:
    """The address and port of a server; ``default`` is the port if there is none. Raises ValueError."""
    alone = text.count(":") > 1 and "[" not in text
    url = urlsplit(f"//[{text}]" if alone else f"//{text}")
    return str(ip_address(url.hostname or "")), url.port or default


def servers(netloc: str, default_port: int) -> list[tuple[str, int]]:
    """The hosts and ports of ``user:password@host:port,host:port``. Raises ValueError."""
    hosts = []
    for server in netloc.rpartition("@")[2].split(","):
        url = urlsplit(f"//{server}")
        if not url.hostname or url.port == 0:
            raise ValueError(f"{server!r} is not a host and port")
        hosts.append((url.hostname, url.port or default_port))
    return hosts
