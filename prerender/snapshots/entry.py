"""Stored snapshots, and their format in external stores.

The format, all numbers big-endian: ``PRS4``, the fence (8 bytes, at a fixed offset because Redis
compares it), XXH3-64 of the rest (8), the length of the header (4), the header as JSON, the body,
its encoded forms in the order of the header, and its manifest. JSON, because reading it executes
nothing. The header contains the key, so that bytes stored under another key are not accepted.
"""

import json
import re
import struct
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import inf

import xxhash

from prerender.errors import BadEntry
from prerender.http.encodings import CODINGS, IDENTITY
from prerender.snapshots import strict_json
from prerender.snapshots.purges import MOST_TAGS, is_tag
from prerender.snapshots.renewals import Renewals
from prerender.snapshots.snapshot import Facts, Header, Snapshot
from prerender.snapshots.variants import ORDINARY, Variant

FORMAT = b"PRS4"
# The end of the year 9999, the last one in HTTP dates.
LATEST = 253402300799
# No setting and no page can set more.
LONGEST_SECONDS = 366 * 86400.0

_PREFIX = struct.Struct(">4sQQL")
_FENCE = slice(4, 12)
_CHECKED_FROM = 20

# RFC 9110, sections 5.1, 5.5 and 8.8.3.
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_VALUE = re.compile(r"[^\0-\x08\n-\x1f\x7f]*")
_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"', re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored snapshot. ``path``: its path, query and ``#!`` fragment; ``key``: its cache key.

    Unix seconds: ``stored`` when its render began, or it was renewed without rendering, ``expires``
    until when it is fresh, ``retry`` before when it is not refreshed again. ``refusals``: how many
    worse snapshots were refused. ``generation``: the last purge before it. ``fence``: its lease.
    ``trusted``: until when this copy may be used without reading the store again.
    """

    key: str
    path: str
    snapshot: Snapshot
    stored: float
    expires: float
    retry: float = 0.0
    refusals: int = 0
    generation: int = 0
    fence: int = 0
    trusted: float = field(default=inf, compare=False)
    variant: Variant = ORDINARY
    renewals: Renewals | None = None

    @property
    def rendered(self) -> float:
        """When its render began, in Unix seconds: before ``stored`` if it was renewed since."""
        return self.stored if self.renewals is None else self.renewals.rendered

    @property
    def size_bytes(self) -> int:
        """Approximate size in memory."""
        return self.snapshot.size_bytes + len(self.path)


@dataclass(frozen=True, slots=True)
class _Head:
    """The header: everything except the bodies, with their codings and lengths, identity first."""

    key: str
    path: str
    variant: Variant
    stored: float
    expires: float
    retry: float
    refusals: int
    generation: int
    status: int
    headers: tuple[Header, ...]
    etag: str
    last_modified: int
    storable: bool
    ttl: float | None
    tags: tuple[str, ...]
    asset_fingerprint: str
    content_type: str
    facts: Facts
    bodies: tuple[tuple[str, int], ...]
    manifest_bytes: int
    unrenewable: str
    renewals: Renewals | None


# Left out, so that an entry without a manifest is the same as one of an older release.
_DEFAULTS = {"manifest_bytes": 0, "unrenewable": "", "renewals": None}


def encode(entry: Entry) -> bytes:
    """Encode an entry."""
    snapshot = entry.snapshot
    bodies = ((IDENTITY, snapshot.body), *snapshot.encoded)
    head = _Head(
        key=entry.key,
        path=entry.path,
        variant=entry.variant,
        stored=entry.stored,
        expires=entry.expires,
        retry=entry.retry,
        refusals=entry.refusals,
        generation=entry.generation,
        status=snapshot.status,
        headers=snapshot.headers,
        etag=snapshot.etag,
        last_modified=snapshot.last_modified,
        storable=snapshot.storable,
        ttl=snapshot.ttl,
        tags=snapshot.tags,
        asset_fingerprint=snapshot.asset_fingerprint,
        content_type=snapshot.content_type,
        facts=snapshot.facts,
        bodies=tuple((coding, len(body)) for coding, body in bodies),
        manifest_bytes=len(snapshot.manifest),
        unrenewable=snapshot.unrenewable,
        renewals=entry.renewals,
    )
    fields = {
        name: value for name, value in asdict(head).items() if value != _DEFAULTS.get(name, ...)
    }
    text = json.dumps(fields, separators=(",", ":")).encode("ascii")
    parts = [text, *(body for _, body in bodies), snapshot.manifest]
    fence = struct.pack(">Q", entry.fence)
    checksum = _checksum(fence, struct.pack(">L", len(text)), *parts)
    return b"".join((_PREFIX.pack(FORMAT, entry.fence, checksum, len(text)), *parts))


def decode(data: bytes) -> Entry:
    """Decode an entry. Raises only BadEntry."""
    try:
        view = memoryview(data)
        magic, fence, checksum, length = _PREFIX.unpack_from(view)
        if magic != FORMAT or _checksum(view[_FENCE], view[_CHECKED_FROM:]) != checksum:
            raise BadEntry("an entry of another version, or incomplete")
        start = _PREFIX.size + length
        head = _head(data[_PREFIX.size : start])
        end = len(data) - head.manifest_bytes
        bodies = _bodies(head.bodies, data[:end] if head.manifest_bytes else data, start)
    except (struct.error, ValueError, TypeError) as error:
        raise BadEntry(str(error)) from error
    snapshot = Snapshot(
        status=head.status,
        headers=head.headers,
        body=bodies[0][1],
        etag=head.etag,
        last_modified=head.last_modified,
        storable=head.storable,
        facts=head.facts,
        ttl=head.ttl,
        tags=head.tags,
        asset_fingerprint=head.asset_fingerprint,
        encoded=bodies[1:],
        content_type=head.content_type,
        manifest=data[end:],
        unrenewable=head.unrenewable,
    )
    return Entry(
        head.key,
        head.path,
        snapshot,
        head.stored,
        head.expires,
        head.retry,
        head.refusals,
        head.generation,
        fence,
        variant=head.variant,
        renewals=head.renewals,
    )


def not_ahead_of(entry: Entry, now: float, skew_seconds: float, last_purge: int) -> Entry:
    """Limit the times and numbers of an entry to ``now`` plus the skew.

    If a clock is wrong, an entry from the future would never expire, never be renewed, or be newer
    than all purges. It is not up to ``last_purge``, a number by the clock of the store.
    """
    latest = now + skew_seconds
    newest = max(int(latest * 1_000_000), last_purge)
    if entry.rendered > latest:
        entry = replace(entry, renewals=None)
    is_past = max(entry.stored, entry.retry - skew_seconds) <= latest
    if is_past and entry.generation <= newest:
        return entry
    return replace(
        entry,
        stored=min(entry.stored, now),
        expires=now if entry.stored > latest else entry.expires,
        retry=min(entry.retry, latest),
        generation=entry.generation if entry.generation <= newest else 0,
    )


# Popular entries are read twice a second from a shared store: 13 us without the cache, 1 with it.
@lru_cache(maxsize=256)
def _head(text: bytes) -> _Head:
    """Parse a header. Raises ValueError and BadEntry."""
    head = strict_json.read(_Head, text, _DEFAULTS)
    if problem := _problem(head):
        raise BadEntry(problem)
    return head


def _checksum(*parts: bytes | memoryview) -> int:
    checked = xxhash.xxh3_64()
    for part in parts:
        checked.update(part)
    return checked.intdigest()


def _bodies(
    listed: tuple[tuple[str, int], ...], data: bytes, start: int
) -> tuple[tuple[str, bytes], ...]:
    """Split the bodies after the header. Raises BadEntry."""
    bodies = []
    for coding, size in listed:
        bodies.append((coding, data[start : start + size]))
        start += size
    if start != len(data):
        raise BadEntry(f"{len(data)} bytes instead of {start}")
    return tuple(bodies)


def _problem(head: _Head) -> str:
    """Why a header is invalid, or ''."""
    if not 200 <= head.status <= 599:
        return f"status {head.status}"
    codings = [coding for coding, _ in head.bodies]
    if codings[:1] != [IDENTITY] or not set(codings[1:]) <= set(CODINGS):
        return f"content codings {codings}"
    if len(set(codings)) < len(codings) or any(size < 0 for _, size in head.bodies):
        return f"bodies {head.bodies}"
    fields = [*head.headers, ("Content-Type", head.content_type)]
    if not all(_NAME.fullmatch(name) and _is_value(value) for name, value in fields):
        return "an invalid header"
    if not _ETAG.fullmatch(head.etag):
        return f"ETag {head.etag!r}"
    if len(head.tags) > MOST_TAGS or not all(map(is_tag, head.tags)):
        return "invalid cache tags"
    times = (head.stored, head.expires, head.retry, head.last_modified, head.ttl or 0)
    if not all(0 <= time <= LATEST for time in times):
        return "an invalid time"
    if not head.expires - head.stored <= LONGEST_SECONDS:
        return "too long a TTL"
    numbers: tuple[int, ...] = (head.refusals, head.generation, head.manifest_bytes)
    if (made := head.renewals) is not None:
        numbers = (*numbers, made.count, made.confirmed, made.futile)
        if not (0 <= made.rendered <= LATEST and 0 <= made.suspended <= LATEST):
            return "an invalid time"
    return "" if min(numbers) >= 0 else "a negative number"


def _is_value(value: str) -> bool:
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return _VALUE.fullmatch(value) is not None
