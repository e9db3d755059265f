"""Address ranges of crawlers, in the format of Google, Bing and OpenAI: JSON with ``prefixes``."""

import json
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from pathlib import Path

import structlog

from prerender.config.watched_file import WatchedFile

LOOK_SECONDS = 60.0
_KEYS = ("ipv4Prefix", "ipv6Prefix")

log = structlog.get_logger(__name__)


def networks_of(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks in a published list, at least one. Raises ValueError."""
    try:
        content = json.loads(text)
        prefixes = [prefix[key] for prefix in content["prefixes"] for key in _KEYS if key in prefix]
    except (ValueError, TypeError, KeyError, RecursionError):
        prefixes = []
    if not prefixes:
        raise ValueError(
            'is not a list of address ranges: {"prefixes": [{"ipv4Prefix": "192.0.2.0/24"}]}'
        )
    return tuple(ip_network(str(prefix), strict=False) for prefix in prefixes)


class RangesFile(WatchedFile[tuple[IPv4Network | IPv6Network, ...]]):
    """The networks in a file, which is reloaded when it changes."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read it. Raises OSError and ValueError."""
        super().__init__(path, networks_of, LOOK_SECONDS, clock)

    def look(self) -> bool:
        """Reload the file if it has changed. Returns whether the list is different. Blocking."""
        try:
            return super().look()
        except (OSError, ValueError) as error:
            # It may be incomplete or invalid: keep the last good list.
            log.warning("address_ranges_unreadable", file=str(self.path), reason=str(error))
            return False

    def __contains__(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self.content)
