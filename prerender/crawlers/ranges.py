"""Address ranges of crawlers, in the format of Google, Bing and OpenAI: JSON with ``prefixes``."""

import json
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from pathlib import Path

import structlog

LOOK_SECONDS = 60.0
_KEYS = ("ipv4Prefix", "ipv6Prefix")
_MOST_BYTES = 16 * 1024**2

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


class RangesFile:
    """The networks in a file, which is reloaded when it changes."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read it. Raises OSError and ValueError."""
        self._path = path
        self._clock = clock
        self._networks: tuple[IPv4Network | IPv6Network, ...] = ()
        self._read_at = (0, 0)
        self._look_at = 0.0
        self._read()

    @property
    def due(self) -> bool:
        """Whether it is time to check the file again."""
        return self._clock() >= self._look_at

    def look(self) -> bool:
        """Reload the file if it has changed. Returns whether the list is different. Blocking."""
        before = self._networks
        try:
            self._read()
        except (OSError, ValueError) as error:
            # It may be incomplete or invalid: keep the last good list.
            log.warning("address_ranges_unreadable", file=str(self._path), reason=str(error))
        return self._networks != before

    def __contains__(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self._networks)

    def _read(self) -> None:
        self._look_at = self._clock() + LOOK_SECONDS
        status = self._path.stat()
        version = (status.st_mtime_ns, status.st_size)
        if version == self._read_at:
            return
        if status.st_size > _MOST_BYTES:
            raise ValueError("is too large for a list of address ranges")
        self._networks = networks_of(self._path.read_text(encoding="utf-8"))
        self._read_at = version
