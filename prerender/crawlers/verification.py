"""Whether a crawler is whom it says: by the name of its address, both ways, or by published ranges.

"Both ways" is what the search engines themselves ask for: the address has a name in one of their
domains, and that name has the address. Who owns an address can give it any name, but not the reverse.
What could not be found out counts for nothing: names of addresses are asked of servers that may be an
impostor's own, and silence must not help. Whoever was genuine an hour ago still is, though.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.resolver
import structlog
from cachetools import LRUCache

from prerender.crawlers.ranges import RangesFile
from prerender.crawlers.user_agents import words_of
from prerender.snapshots.coalesced import Coalesced

Address = IPv4Address | IPv6Address

KNOWN_SECONDS = 3600.0
# How long a verdict is used further when no new one can be had, and when that is tried again.
STALE_SECONDS = 86400.0
RETRY_SECONDS = 60.0
MOST_KNOWN = 8192
# More lookups at once are a flood of false crawlers.
MOST_LOOKUPS = 64
_LOOKUP_SECONDS = 3.0
_MOST_NAMES = 4
_LONGEST_USER_AGENT = 1024

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """How the crawlers of one name are known: domains of their addresses' names, and address ranges."""

    domains: tuple[str, ...] = ()
    ranges: tuple[RangesFile, ...] = ()


@dataclass(frozen=True, slots=True)
class _Verdict:
    genuine: bool
    found: float
    look_again: float


class Names:
    """Names and addresses by DNS, of ``nameservers`` (address and port), or of the system's own.

    Raises ValueError when the system has none.
    """

    def __init__(self, nameservers: Sequence[tuple[str, int]] = ()) -> None:
        try:
            self._resolver = dns.asyncresolver.Resolver(configure=not nameservers)
        except dns.resolver.NoResolverConfiguration as error:
            raise ValueError("the system knows no nameserver (/etc/resolv.conf)") from error
        if nameservers:
            self._resolver.nameservers = [
                dns.nameserver.Do53Nameserver(address, port) for address, port in nameservers
            ]
        self._resolver.lifetime = _LOOKUP_SECONDS

    async def belongs(self, address: Address, domains: Sequence[str]) -> bool:
        """Whether the address has a name below one of the domains, and that name the address.

        Raises DNSException and OSError when that cannot be found out.
        """
        async with asyncio.timeout(_LOOKUP_SECONDS):
            try:
                answer = await self._resolver.resolve_address(str(address))
            except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
                return False
            names = [str(record.target).rstrip(".").lower() for record in answer][:_MOST_NAMES]
            kind = "A" if address.version == 4 else "AAAA"
            for name in names:
                if not any(name.endswith(f".{domain}") for domain in domains):
                    continue
                try:
                    forward = await self._resolver.resolve(f"{name}.", kind)
                except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
                    continue
                if any(record.address == str(address) for record in forward):
                    return True
        return False


class Verifier:
    """Knows genuine crawlers by what is known of each name (``identities``)."""

    def __init__(
        self,
        identities: Mapping[str, Identity],
        names: Names,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identities = [(words_of([name]), identity) for name, identity in identities.items()]
        self._names = names
        self._clock = clock
        self._identity = lru_cache(maxsize=1024)(self._combined)
        self._known: LRUCache[tuple[Address, Identity], _Verdict] = LRUCache(MOST_KNOWN)
        self._lookups: Coalesced[bool] = Coalesced()

    async def is_genuine(self, user_agent: str, address: Address | None) -> bool:
        """Whether a client is the crawler it names; True for names of which nothing is known."""
        identity = self._identity(user_agent[:_LONGEST_USER_AGENT])
        if identity is None:
            return True
        if address is None:
            return False
        for ranges in identity.ranges:
            if ranges.due and await asyncio.to_thread(ranges.look):
                self._known.clear()
        now = self._clock()
        key = (address, identity)
        known = self._known.get(key)
        if known is not None and now < known.look_again:
            return known.genuine
        if any(address in ranges for ranges in identity.ranges):
            return self._remember(key, _Verdict(True, now, now + KNOWN_SECONDS))
        if not identity.domains:
            return self._remember(key, _Verdict(False, now, now + KNOWN_SECONDS))
        if len(self._lookups) >= MOST_LOOKUPS:
            return False
        name = f"{address} {identity.domains}"
        genuine, _ = await self._lookups.run(name, lambda: self._look_up(key, known))
        return genuine

    async def close(self) -> None:
        """Give up what is being looked up."""
        await self._lookups.close()

    async def _look_up(self, key: tuple[Address, Identity], known: _Verdict | None) -> bool:
        address, identity = key
        try:
            genuine = await self._names.belongs(address, identity.domains)
        except (dns.exception.DNSException, OSError) as error:
            log.info("crawler_verification_failed", address=str(address), reason=repr(error))
            now = self._clock()
            if known is None or now > known.found + STALE_SECONDS:
                known = _Verdict(False, now, now)
            return self._remember(key, _Verdict(known.genuine, known.found, now + RETRY_SECONDS))
        now = self._clock()
        return self._remember(key, _Verdict(genuine, now, now + KNOWN_SECONDS))

    def _remember(self, key: tuple[Address, Identity], verdict: _Verdict) -> bool:
        self._known[key] = verdict
        return verdict.genuine

    def _combined(self, user_agent: str) -> Identity | None:
        """What is known of those whom a User-Agent names: it may be any of them."""
        identities = [
            identity for pattern, identity in self._identities if pattern.search(user_agent)
        ]
        if not identities:
            return None
        return Identity(
            tuple(domain for identity in identities for domain in identity.domains),
            tuple(ranges for identity in identities for ranges in identity.ranges),
        )
