"""Verifies crawlers by reverse and forward DNS, or by published address ranges.

As search engines recommend: the address must resolve to a name in one of their domains, and that name
back to the address. The owner of an address can give it any name, but not the reverse. DNS failures do
not verify a crawler, because an impostor may control the nameserver of its address. Previous results
stay valid for a while.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.resolver
import structlog
from cachetools import LRUCache

from prerender.crawlers.known import Crawler
from prerender.crawlers.ranges import Ranges
from prerender.crawlers.user_agents import UserAgents
from prerender.snapshots.request_coalescing import Coalesced
from prerender.urls.hosts import Address

KNOWN_SECONDS = 3600.0
# How long a result stays valid while DNS fails, and the interval of retries.
STALE_SECONDS = 86400.0
RETRY_SECONDS = 60.0
MOST_KNOWN = 8192
# Maximum concurrent lookups: more are a flood of impostors.
MOST_LOOKUPS = 64
_LOOKUP_SECONDS = 3.0
_MOST_NAMES = 4
_LONGEST_USER_AGENT = 1024

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """How to verify a crawler: domains of its host names, and address ranges."""

    domains: tuple[str, ...] = ()
    ranges: tuple[Ranges, ...] = ()


@dataclass(frozen=True, slots=True)
class _Verdict:
    genuine: bool
    at: float
    look_again: float


class Names:
    """DNS lookups with ``nameservers`` (address and port) or the system's.

    Raises ValueError if the system has none.
    """

    def __init__(self, nameservers: Sequence[tuple[str, int]] = ()) -> None:
        try:
            self._resolver = dns.asyncresolver.Resolver(configure=not nameservers)
        except dns.resolver.NoResolverConfiguration as error:
            raise ValueError("the system has no nameserver (/etc/resolv.conf)") from error
        if nameservers:
            self._resolver.nameservers = [
                dns.nameserver.Do53Nameserver(address, port) for address, port in nameservers
            ]
        self._resolver.lifetime = _LOOKUP_SECONDS

    async def belongs(self, address: Address, domains: Sequence[str]) -> bool:
        """Whether the address has a name in one of the domains that resolves back to it.

        Raises DNSException and OSError if DNS fails.
        """
        async with asyncio.timeout(_LOOKUP_SECONDS):
            try:
                response = await self._resolver.resolve_address(str(address))
            except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
                return False
            names = [str(record.target).rstrip(".").lower() for record in response][:_MOST_NAMES]
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
    """Verifies crawlers. ``identities``: by name of the crawler."""

    def __init__(
        self,
        identities: Mapping[str, Identity],
        names: Names,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identities = dict(identities)
        self._user_agents = UserAgents(Crawler(name, "search") for name in identities)
        self._names = names
        self._clock = clock
        self._identity = lru_cache(maxsize=1024)(self._combined)
        self._known: LRUCache[tuple[Address, Identity], _Verdict] = LRUCache(MOST_KNOWN)
        self._lookups: Coalesced[bool] = Coalesced()

    async def is_genuine(self, user_agent: str, address: Address | None) -> bool:
        """Whether a client is the crawler of its User-Agent; True if it cannot be verified at all."""
        identity = self._identity(user_agent[:_LONGEST_USER_AGENT])
        if identity is None:
            return True
        if not identity.domains and not any(ranges.known for ranges in identity.ranges):
            return True
        if address is None:
            return False
        for ranges in identity.ranges:
            if ranges.due and await asyncio.to_thread(ranges.look):
                self.forget()
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

    def forget(self) -> None:
        """Forget all results, because a list of addresses has changed."""
        self._known.clear()

    async def close(self) -> None:
        """Cancel pending lookups."""
        await self._lookups.close()

    async def _look_up(self, key: tuple[Address, Identity], known: _Verdict | None) -> bool:
        address, identity = key
        try:
            genuine = await self._names.belongs(address, identity.domains)
        except (dns.exception.DNSException, OSError) as error:
            log.info("crawler_verification_failed", address=str(address), reason=_reason(error))
            now = self._clock()
            if known is None or now > known.at + STALE_SECONDS:
                known = _Verdict(False, now, now)
            return self._remember(key, _Verdict(known.genuine, known.at, now + RETRY_SECONDS))
        now = self._clock()
        return self._remember(key, _Verdict(genuine, now, now + KNOWN_SECONDS))

    def _remember(self, key: tuple[Address, Identity], verdict: _Verdict) -> bool:
        self._known[key] = verdict
        return verdict.genuine

    def _combined(self, user_agent: str) -> Identity | None:
        """The combined identity of all crawlers that a User-Agent names."""
        crawlers = self._user_agents.crawlers_of(user_agent)
        identities = [self._identities[crawler.name] for crawler in crawlers]
        if not identities:
            return None
        return Identity(
            tuple(domain for identity in identities for domain in identity.domains),
            tuple(ranges for identity in identities for ranges in identity.ranges),
        )


def _reason(error: Exception) -> str:
    # Some of dnspython's have an empty message; their docstring is one.
    return str(error) or (type(error).__doc__ or type(error).__name__).strip()
