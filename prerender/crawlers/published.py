"""Address ranges that operators of crawlers publish by URL, renewed every day.

The last good list is kept in the notes of the store, also for the other replicas and the next process.
A list that was never received verifies nobody, and nobody is refused for it.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import structlog
from aiohttp import ClientError, ClientSession
from multidict import CIMultiDict
from yarl import URL

from prerender.background import running
from prerender.crawlers.ranges import MOST_BYTES, networks_of
from prerender.errors import OriginError
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.connection_errors import reason_of
from prerender.gateway.upstream import open_session, send
from prerender.snapshots.stores.notes import Notes
from prerender.urls.addresses import url_of

RENEW_SECONDS = 86400.0
RETRY_SECONDS = 3600.0
# The age above which a list may have become wrong.
OLD_SECONDS = 3 * RENEW_SECONDS
_NOTE_SECONDS = 90 * RENEW_SECONDS
_CONNECT_SECONDS = 5.0
_FETCH_SECONDS = 20.0
_MOST_REDIRECTS = 3
_USER_AGENT = "prerender-proxy (address ranges of crawlers, once a day)"

log = structlog.get_logger(__name__)


class PublishedRanges:
    """A published list. ``fetched``: when it was received, in Unix seconds; None if it never was.
    ``error``: why it could not be renewed, or ''."""

    due = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.networks: tuple[IPv4Network | IPv6Network, ...] = ()
        self.fetched: float | None = None
        self.error = ""
        self.renew_at = 0.0

    @property
    def known(self) -> bool:
        """Whether the list was received."""
        return self.fetched is not None

    def look(self) -> bool:
        """It is renewed in the background."""
        return False

    def __contains__(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self.networks)

    @property
    def note(self) -> str:
        """The key of its note."""
        return f"ranges-{hashlib.sha256(self.url.encode()).hexdigest()[:32]}"

    def take(self, text: str, fetched: float) -> None:
        """Use a list. Raises ValueError if it is none."""
        self.networks = networks_of(text)
        self.fetched = fetched
        self.renew_at = fetched + RENEW_SECONDS


class Renewal:
    """Renews ``lists``. ``changed`` is called when a list has changed."""

    def __init__(
        self,
        lists: Iterable[PublishedRanges],
        policy: AddressPolicy,
        notes: Notes,
        changed: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lists = tuple(lists)
        self._policy = policy
        self._notes = notes
        self._changed = changed
        self._clock = clock

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew the lists while the context is open."""
        async with running(self._renew(), "address ranges"):
            yield

    async def _renew(self) -> None:
        if not self._lists:
            return
        async with open_session(self._policy, _CONNECT_SECONDS, _FETCH_SECONDS) as session:
            while True:
                await self.renew(session)
                soonest = min(one.renew_at for one in self._lists)
                await asyncio.sleep(max(1.0, soonest - self._clock()))

    async def renew(self, session: ClientSession) -> None:
        """Renew the lists that are due, one after the other."""
        due = [one for one in self._lists if self._clock() >= one.renew_at]
        for one in due:
            before = one.networks
            # Another replica, or the process before, may have a newer one.
            await self._recall(one)
            if self._clock() >= one.renew_at:
                await self._fetch(session, one)
            if one.networks != before:
                self._changed()
        # One line: usually all fail for the same reason.
        if failed := [one for one in due if one.error]:
            first = failed[0]
            log.warning(
                "ranges_not_renewed", count=len(failed), first=first.url, reason=first.error
            )

    async def _recall(self, ranges: PublishedRanges) -> None:
        note = await self._notes.get(ranges.note)
        try:
            url, fetched, text = json.loads(note) if note else ("", 0.0, "")
            fetched = min(float(fetched), self._clock())
            if url == ranges.url and fetched > (ranges.fetched or 0.0):
                ranges.take(str(text), fetched)
        except (ValueError, TypeError, RecursionError):
            log.warning("bad_note_of_ranges", url=ranges.url)

    async def _fetch(self, session: ClientSession, ranges: PublishedRanges) -> None:
        now = self._clock()
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                text = await _text(session, URL(ranges.url, encoded=True))
            await asyncio.to_thread(ranges.take, text, now)
        except (OriginError, ClientError, OSError, TimeoutError, ValueError) as error:
            # OSErrors of the address policy say which host is not allowed.
            ranges.error = reason_of(error.__cause__ or error) or "timeout"
            ranges.renew_at = now + RETRY_SECONDS
            return
        ranges.error = ""
        log.info("ranges_renewed", url=ranges.url, networks=len(ranges.networks))
        data = json.dumps((ranges.url, now, text)).encode()
        await self._notes.set(ranges.note, data, _NOTE_SECONDS)


async def _text(session: ClientSession, url: URL) -> str:
    """The text at a URL. Each address is checked, also after redirects, which may not lose TLS."""
    fields = CIMultiDict({"User-Agent": _USER_AGENT, "Accept-Encoding": "identity"})
    for _ in range(_MOST_REDIRECTS + 1):
        async with send(session, "GET", url, fields) as response:
            location = response.headers.get("Location", "")
            if 300 <= response.status < 400 and location:
                target = url.join(url_of(location, encoded=False))
                if target.scheme != url.scheme:
                    raise OriginError(f"redirects to {target.scheme or 'nowhere'}", about=str(url))
                url = target
                continue
            if response.status != 200:
                raise OriginError(f"status {response.status}")
            body = bytearray()
            async for part in response.content.iter_any():
                body += part
                if len(body) > MOST_BYTES:
                    raise ValueError("is too large for a list of address ranges")
            return body.decode("utf-8", "replace")
    raise OriginError("too many redirects")
