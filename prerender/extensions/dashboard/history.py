"""The history of a page: its last render, and the text of the last versions that were stored. Pure.

Histories are stored separately from snapshots: only the dashboard reads them, so they do not slow down
hits.
"""

import json
import re
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

from prerender.errors import BadEntry
from prerender.snapshots import strict_json
from prerender.snapshots.parsed_html import parse, texts_of
from prerender.snapshots.snapshot import Facts, Snapshot, Timings

# Redis compares the first twelve bytes, format and fence. The last written history wins.
_MAGIC = b"PRH2" + bytes(8)
_LONGEST_TEXT = 65536
_CAPITAL = re.compile("(?<!^)([A-Z])")
_MOST_BYTES = 262144
_MOST_UNPACKED_BYTES = 16 * 1024**2


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a page. ``time``: Unix seconds when it was first seen; ``size``: bytes."""

    time: float
    status: int
    etag: str
    size: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class RenderSummary:
    """The last render of a page, whether its snapshot was stored or not.

    ``time``: its end in Unix seconds; ``seconds``: its duration. ``error`` and ``reason``: the
    error's code and reason; "" if there is a snapshot.
    """

    time: float
    seconds: float
    error: str = ""
    reason: str = ""
    status: int = 0
    timings: Timings = field(default_factory=Timings)
    facts: Facts = field(default_factory=Facts)

    def __post_init__(self) -> None:
        """Convert the class names that versions up to 0.2 have stored."""
        if self.error[:1].isupper():
            object.__setattr__(self, "error", _CAPITAL.sub(r"_\1", self.error).lower())


@dataclass(frozen=True, slots=True)
class History:
    """The last render of a page, and its versions, newest first. ``key``: of its snapshot."""

    key: str
    path: str
    render: RenderSummary | None = None
    versions: tuple[Version, ...] = ()

    def with_version(self, time: float, snapshot: Snapshot, most: int) -> "History":
        """The history after a snapshot was stored at ``time``, with at most ``most`` versions."""
        if self.versions and self.versions[0].etag == snapshot.etag:
            return self
        version = Version(
            time=time,
            status=snapshot.status,
            etag=snapshot.etag,
            size=len(snapshot.body),
            title=snapshot.title,
            text=text_of(snapshot.body),
        )
        return replace(self, versions=(version, *self.versions)[:most])


def text_of(body: bytes) -> str:
    """The text of a page, a line per piece; the first 65,536 characters."""
    root = parse(body)
    return "" if root is None else "\n".join(texts_of(root))[:_LONGEST_TEXT]


def encode(history: History) -> bytes:
    """The bytes of a history, at most 256 KiB: the oldest versions are dropped."""
    while True:
        text = json.dumps(history, default=_fields_of)
        data = _MAGIC + zlib.compress(text.encode("ascii"), zlib.Z_BEST_SPEED)
        if len(data) <= _MOST_BYTES or not history.versions:
            return data
        history = replace(history, versions=history.versions[:-1])


def _fields_of(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def decode(data: bytes) -> History:
    """Decode a history. Raises only BadEntry."""
    try:
        if not data.startswith(_MAGIC):
            raise BadEntry("not a history of this version")
        decoder = zlib.decompressobj()
        unpacked = decoder.decompress(data[len(_MAGIC) :], _MOST_UNPACKED_BYTES)
        if not decoder.eof:
            raise BadEntry("an incomplete or too large history")
        return strict_json.read(History, unpacked)
    except (zlib.error, ValueError) as error:
        raise BadEntry(str(error)) from error
