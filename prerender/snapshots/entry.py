"""A snapshot as it is kept, and as bytes in the stores that are not ours alone.

The format, all numbers big-endian: ``PRS3``, the fence (8 bytes, at a place of its own because Redis
compares it), XXH3-64 of all that follows (8), length of the header (4), the header as JSON, the body,
and its encoded forms in the order of the header. JSON because nothing that is read can run.
"""

import json
import struct
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

import xxhash

from prerender.errors import BadEntry
from prerender.snapshots.snapshot import Facts, Snapshot
from prerender.snapshots.variants import ORDINARY, Variant

FORMAT = b"PRS3"
_PREFIX = struct.Struct(">4sQQL")
_CHECKED_FROM = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A kept snapshot of a ``variant`` of a page (path, query and ``#!`` fragment).

    ``stored``, ``expires``, ``retry`` in Unix seconds: when it was rendered, until when it is fresh,
    and before when no refresh is worth trying again. ``refusals``: how often a worse snapshot was
    refused in its favour. ``generation``: the last purge that it is known to be newer than.
    ``fence``: the lease under which it was rendered. ``trusted``: until when this copy counts
    without a look at the store that it was read from.
    """

    page: str
    snapshot: Snapshot
    stored: float
    expires: float
    retry: float = 0.0
    refusals: int = 0
    generation: int = 0
    fence: int = 0
    variant: Variant = ORDINARY
    trusted: float = field(default=inf, compare=False)

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return self.snapshot.size_bytes


def encode(entry: Entry) -> bytes:
    """The bytes of an entry."""
    snapshot = entry.snapshot
    header = {
        "page": entry.page,
        "variant": [entry.variant.device, entry.variant.language],
        "stored": entry.stored,
        "expires": entry.expires,
        "retry": entry.retry,
        "refusals": entry.refusals,
        "generation": entry.generation,
        "status": snapshot.status,
        "headers": snapshot.headers,
        "etag": snapshot.etag,
        "last_modified": snapshot.last_modified,
        "storable": snapshot.storable,
        "ttl": snapshot.ttl,
        "tags": snapshot.tags,
        "shell": snapshot.shell,
        "content_type": snapshot.content_type,
        "facts": asdict(snapshot.facts),
        "bodies": [
            ["", len(snapshot.body)],
            *([coding, len(body)] for coding, body in snapshot.encoded),
        ],
    }
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    parts = [text, snapshot.body, *(body for _, body in snapshot.encoded)]
    checked = xxhash.xxh3_64(struct.pack(">L", len(text)))
    for part in parts:
        checked.update(part)
    return b"".join((_PREFIX.pack(FORMAT, entry.fence, checked.intdigest(), len(text)), *parts))


def decode(data: bytes, trusted: float = inf) -> Entry:
    """The entry that was made into these bytes. Raises BadEntry, and nothing else."""
    try:
        magic, fence, checksum, length = _PREFIX.unpack_from(data)
        if (
            magic != FORMAT
            or xxhash.xxh3_64_intdigest(memoryview(data)[_CHECKED_FROM:]) != checksum
        ):
            raise BadEntry("not an entry of this version, or not a whole one")
        start = _PREFIX.size + length
        header = json.loads(data[_PREFIX.size : start])
        bodies = []
        for coding, size in header["bodies"]:
            bodies.append((coding, data[start : start + size]))
            start += size
        facts: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in header["facts"].items()
        }
        snapshot = Snapshot(
            status=header["status"],
            headers=tuple((name, value) for name, value in header["headers"]),
            body=bodies[0][1],
            etag=header["etag"],
            last_modified=header["last_modified"],
            storable=header["storable"],
            facts=Facts(**facts),
            ttl=header["ttl"],
            tags=tuple(header["tags"]),
            shell=header["shell"],
            encoded=tuple(bodies[1:]),
            content_type=header["content_type"],
        )
        return Entry(
            header["page"],
            snapshot,
            header["stored"],
            header["expires"],
            header["retry"],
            header["refusals"],
            header["generation"],
            fence,
            Variant(*header["variant"]),
            trusted,
        )
    except (struct.error, ValueError, TypeError, KeyError, IndexError) as error:
        raise BadEntry(str(error)) from error
