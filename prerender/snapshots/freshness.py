"""How long snapshots are fresh, and which new one must not replace an old one. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from prerender.snapshots.snapshot import UNUSABLE, Snapshot
from prerender.urls.patterns import matches

# A snapshot that may not be right is looked at again so soon; so is one whose refresh failed.
DOUBT_SECONDS = 30.0
# What remains of a page's text when something went wrong with it; but content that stays short when
# it is looked at again is the content.
SHRUNKEN = 0.2
MOST_REFUSALS = 3
# An entry that is of no more use to a crawler still tells when its content last changed.
_REMEMBERED_SECONDS = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Rule:
    """Pages whose path matches the pattern are fresh for ``ttl`` seconds; 0: never kept."""

    path: str
    ttl: float


@dataclass(frozen=True, slots=True)
class Freshness:
    """What the owner of the site has decided; all durations in seconds.

    ``ttl`` of ordinary pages, ``error_ttl`` of missing ones, ``rules`` of which the first that
    matches counts. ``page_ttl``: a page's own word counts. ``obey_origin``: what the origin forbids
    to keep is not kept. Past its ttl a snapshot is served for ``stale`` seconds while a new one is
    made, and for ``stale_if_error`` seconds when none can be made (RFC 5861). ``deploys``: a page that
    comes with other scripts and styles makes the snapshots of all that had the same ones stale.
    """

    ttl: float
    error_ttl: float = 60.0
    rules: tuple[Rule, ...] = ()
    page_ttl: bool = False
    obey_origin: bool = True
    stale: float = 0.0
    stale_if_error: float = 0.0
    deploys: bool = False

    def ordinary(self, path: str) -> float:
        """How long the snapshot of a page is fresh if nothing is the matter; 0: never kept."""
        for rule in self.rules:
            if matches(rule.path, path):
                return rule.ttl
        return self.ttl

    def lifetime(self, path: str, snapshot: Snapshot, *, doubt: bool = True) -> float:
        """How long a new snapshot is fresh. ``doubt``: it is the first with this content."""
        ttl = self.ordinary(path)
        facts = snapshot.facts
        forbidden = self.obey_origin and not snapshot.storable
        if not ttl or forbidden or facts.unfinished:
            return 0.0
        if facts.lasting:
            return DOUBT_SECONDS
        if self.page_ttl and snapshot.ttl is not None:
            ttl = snapshot.ttl
        if snapshot.status == 200:
            return min(ttl, DOUBT_SECONDS) if facts.failed_requests and doubt else ttl
        if snapshot.status in (404, 410):
            # It may appear soon; one that is wrongly missing must not stay so for long.
            return min(ttl, self.error_ttl)
        return 0.0

    def kept(self, lifetime: float) -> float:
        """How long an entry is of any use that is fresh for ``lifetime`` seconds."""
        return lifetime + max(self.stale, self.stale_if_error, _REMEMBERED_SECONDS)


def worse_than(old: Snapshot, new: Snapshot) -> str:
    """In what a new snapshot is so much worse than the old one that it should not replace it, or ''.

    Only pages that are there are compared: one that is gone is gone.
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
    """What a page says of itself: seconds, the first that is a number of them, at most a year."""
    for word in words:
        if re.fullmatch(r"[0-9]{1,9}", word, re.ASCII):
            return min(float(word), 365 * 86400.0)
    return None
