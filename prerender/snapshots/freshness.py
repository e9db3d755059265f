"""TTLs of snapshots, which are fresh or stale, and whether a new one may replace an old one. Pure."""

import re
from collections.abc import Iterable
from typing import Literal

from prerender.config.settings import CacheSettings
from prerender.snapshots.entry import Entry
from prerender.snapshots.snapshot import UNUSABLE, Snapshot
from prerender.urls.patterns import comparable, matches

Servable = Literal["fresh", "stale", "stale-if-error"]

# TTL of doubtful snapshots, and of old ones whose refresh failed.
DOUBT_SECONDS = 30.0
# TTL of those with lasting faults that were the same again.
LASTING_SECONDS = 300.0
# A snapshot with less than this share of the old text is refused, but accepted if it stays short.
SHRUNKEN = 0.2
MOST_REFUSALS = 3
# Expired entries are stored this long, to compare new content with.
_REMEMBERED_SECONDS = 7 * 86400.0


def is_fresh(expires: float, now: float) -> bool:
    """Whether a snapshot with this end of its TTL is fresh; otherwise it is stale. Unix seconds."""
    return now < expires


class Freshness:
    """How long snapshots are fresh, and used when they are not: by ``cache``, the section [cache]."""

    def __init__(self, cache: CacheSettings) -> None:
        self._cache = cache

    def ordinary(self, path: str) -> float:
        """The TTL of a path without regard to the snapshot; 0: never stored."""
        page = comparable(path) if self._cache.rules else path
        for pattern, ttl in self._cache.rules:
            if matches(pattern, page):
                return ttl
        return self._cache.ttl

    def lifetime(self, path: str, snapshot: Snapshot, *, doubt: bool = True) -> float:
        """The TTL of a new snapshot. ``doubt``: it is the first with this content."""
        ttl = self.ordinary(path)
        facts = snapshot.facts
        forbidden = self._cache.obey_origin and not snapshot.storable
        if not ttl or forbidden or facts.unfinished:
            return 0.0
        if self._cache.page_ttl and snapshot.ttl is not None:
            ttl = snapshot.ttl
        if facts.lasting or (doubt and (facts.failed_requests or snapshot.still_loading)):
            ttl = min(ttl, DOUBT_SECONDS if doubt else LASTING_SECONDS)
        if snapshot.status == 200:
            return ttl
        if snapshot.status in (403, 404, 410):
            # The page may appear soon, or may be missing by mistake.
            return min(ttl, self._cache.error_ttl)
        return 0.0

    def shown(self, entry: Entry, now: float) -> Servable | None:
        """How an entry is served without waiting for a render; None if it is not."""
        if is_fresh(entry.expires, now):
            return "fresh"
        if now < entry.expires + self._cache.stale:
            return "stale"
        if now < entry.retry and self.good_on_error(entry, now):
            return "stale-if-error"
        return None

    def renewed(self, entry: Entry, now: float) -> bool:
        """Whether an entry that is served stale is renewed in the background."""
        return self.shown(entry, now) == "stale" and now >= entry.retry

    def good_on_error(self, entry: Entry, now: float) -> bool:
        """Whether an entry is served if its render fails, so that no worse one may replace it."""
        return now < entry.expires + self._cache.stale_if_error

    def storage_seconds(self, lifetime: float | None = None) -> float:
        """How long to store an entry with this TTL, by default the ordinary one, in seconds."""
        lifetime = self._cache.ttl if lifetime is None else lifetime
        return lifetime + max(self._cache.stale, self._cache.stale_if_error, _REMEMBERED_SECONDS)


def due_at(entry: Entry, before: float) -> float:
    """When a snapshot is refreshed ahead, in Unix seconds: ``before`` seconds before it expires, but
    not in the first half of its life."""
    return entry.expires - min(before, (entry.expires - entry.stored) / 2)


def worse_than(old: Snapshot, new: Snapshot) -> str:
    """Why a new snapshot is too bad to replace the old one, or ''.

    Only existing pages are compared: a page that is gone is replaced.
    """
    if old.status != 200:
        return ""
    if new.status >= 500:
        return f"status-{new.status}"
    if new.facts.verdict in UNUSABLE and old.facts.verdict not in UNUSABLE:
        return new.facts.verdict
    if new.status != 200:
        return ""
    if new.facts.verdict == "cut-off":
        return "cut-off"
    if new.facts.text_length < old.facts.text_length * SHRUNKEN:
        return "shrunken"
    return ""


def page_ttl(words: Iterable[str]) -> float | None:
    """The TTL that a page asks for: the first valid number of seconds, at most a year."""
    for word in words:
        if re.fullmatch(r"[0-9]{1,9}", word, re.ASCII):
            return min(float(word), 365 * 86400.0)
    return None
