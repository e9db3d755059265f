"""Who a request is from when proxies stand in front of us. Pure."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prerender.http1.head import Fields

if TYPE_CHECKING:
    from prerender.config.types import Network

# RFC 7239 section 4: for=192.0.2.1, for="[2001:db8::1]:4711".
_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*"?([^";]+)"?', re.IGNORECASE)
_WITH_PORT = re.compile(r"\[([^\]]+)\](?::[0-9]+)?|([0-9.]+):[0-9]+")


def client_address(
    remote: str, headers: Fields, trusted: tuple["Network", ...]
) -> IPv4Address | IPv6Address | None:
    """The address of the first client that is no trusted proxy, counted from us; None if unknown.

    ``remote`` is who is connected to us. Only what trusted proxies say counts: X-Forwarded-For, or
    Forwarded where there is none.
    """
    said = ", ".join(headers.getall("x-forwarded-for")).split(",")
    if "x-forwarded-for" not in headers:
        elements = ",".join(headers.getall("forwarded")).split(",")
        said = [found[1] if (found := _FOR.search(element)) else "" for element in elements]
        if "forwarded" not in headers:
            said = []
    address = _address(remote)
    for text in reversed(said):
        if address is None or not is_trusted(address, trusted):
            return address
        address = _address(text)
    return address


def address_and_port(text: str, default: int = 53) -> tuple[str, int]:
    """A server's address and its port, ``default`` if none is named. Raises ValueError."""
    alone = text.count(":") > 1 and "[" not in text
    url = urlsplit(f"//[{text}]" if alone else f"//{text}")
    return str(ip_address(url.hostname or "")), url.port or default


def is_trusted(address: IPv4Address | IPv6Address, trusted: tuple["Network", ...]) -> bool:
    """Whether an address is in one of the networks."""
    return any(address in network for network in trusted)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    text = text.strip()
    if found := _WITH_PORT.fullmatch(text):
        text = found[1] or found[2]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
