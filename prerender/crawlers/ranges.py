"""Address ranges of crawlers, as their operators publish them.

Most are in the format of Google, which Apple, Bing, OpenAI and others use, too: JSON with ``prefixes``.
Some are plain text with an address or a network on each line.
"""

import json
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Protocol

from prerender.config.watched_file import WatchedFile

LOOK_SECONDS = 60.0
MOST_BYTES = 4 * 1024**2
_MOST_NETWORKS = 20_000
# A list with wider ones would let everybody pass. Apple publishes 17.0.0.0/8 for its whole network.
_SHORTEST_PREFIX = {4: 8, 6: 24}
_LONGEST_LINE = 64
_KEYS = ("ipv4Prefix", "ipv6Prefix", "ip_prefix", "ipv6_prefix")


class Ranges(Protocol):
    """A list of networks."""

    @property
    def known(self) -> bool:
        """Whether there is a list at all."""

    @property
    def due(self) -> bool:
        """Whether to call ``look``."""

    def look(self) -> bool:
        """Renew the list. Returns whether it is different. Blocking."""

    def __contains__(self, address: IPv4Address | IPv6Address) -> bool:
        """Whether an address is in one of the networks."""


def networks_of(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks in a published list, at least one. Raises ValueError."""
    try:
        prefixes = (
            _in_json(json.loads(text)) if text.lstrip()[:1] in ("{", "[") else _in_lines(text)
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        prefixes = []
    if not prefixes:
        raise ValueError(
            'expected a list of address ranges: {"prefixes": [{"ipv4Prefix": "192.0.2.0/24"}]}, '
            "or a network on each line"
        )
    if len(prefixes) > _MOST_NETWORKS:
        raise ValueError(f"has more than {_MOST_NETWORKS} address ranges")
    networks = tuple(ip_network(str(prefix), strict=False) for prefix in prefixes)
    for network in networks:
        if network.prefixlen < _SHORTEST_PREFIX[network.version]:
            raise ValueError(f"{network} is too wide for the addresses of a crawler")
    return networks


def _in_json(content: Any) -> list[object]:
    entries = content["prefixes"] if isinstance(content, dict) else content
    return [
        prefix
        for entry in entries
        for prefix in (
            [entry] if isinstance(entry, str) else [entry[k] for k in _KEYS if k in entry]
        )
    ]


def _in_lines(text: str) -> list[object]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    # Longer ones are of another format, and would make the error as long.
    return [line[:_LONGEST_LINE] for line in lines if line]


class RangesFile(WatchedFile[tuple[IPv4Network | IPv6Network, ...]]):
    """The networks in a file, which is reloaded when it changes."""

    known = True

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read it. Raises OSError and ValueError."""
        super().__init__(
            path, networks_of, LOOK_SECONDS, unreadable="address_ranges_unreadable", clock=clock
        )

    def __contains__(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self.content)
