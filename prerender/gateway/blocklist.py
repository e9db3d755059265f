"""Blocks requests that a snapshot does not need: trackers, denied hosts and file types. Pure.

address_policy.py decides which addresses may be reached at all.
"""

from functools import cache
from importlib.resources import files

from prerender.config.settings import NetworkSettings
from prerender.gateway.resource_kind import TYPES
from prerender.urls.hosts import Hosts


@cache
def trackers() -> Hosts:
    """The hosts of trackers.txt."""
    text = (files("prerender.gateway") / "trackers.txt").read_text(encoding="utf-8")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return Hosts(f"*.{line}" for line in lines if line)


class Blocklist:
    """Blocks the hosts and file types of [network]: ``deny``, trackers that are not in ``allow``, and
    ``block_types`` (``resource_kind.TYPES``)."""

    def __init__(self, network: NetworkSettings) -> None:
        self._allow = Hosts(network.allow)
        self._deny = Hosts(network.deny)
        self._trackers = trackers() if network.block_trackers else Hosts()
        self._destinations = frozenset(kind for name in network.block_types for kind in TYPES[name])

    def unwanted_type(self, destination: str) -> str:
        """Why a destination is blocked on any host, or ''."""
        return f"block_types has {destination}" if destination in self._destinations else ""

    def unwanted_host(self, host: str, port: int) -> str:
        """Why a third party is blocked, or ''."""
        if self._deny.named(host, port):
            return "deny has its host"
        if self._trackers.named(host, port) and not self._allow.named(host, port):
            return "a tracker"
        return ""
