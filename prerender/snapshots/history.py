"""What has become of a page: its last render, and the text of its last versions. Pure.

A history is kept beside the snapshot, not in it: it is read by the owner of the site only, and no
request of a crawler pays for it.
"""

import json
import zlib
from dataclasses import asdict, dataclass, field, replace

from lxml import etree

from prerender.errors import BadEntry
from prerender.snapshots import strict_json
from prerender.snapshots.reading import parse
from prerender.snapshots.snapshot import Facts, Snapshot, Timings

# Redis compares the twelve bytes of the format and of a fence: of histories the last one counts.
_MAGIC = b"PRH2" + bytes(8)
_LONGEST_TEXT = 65536
_MOST_BYTES = 262144
_MOST_UNPACKED_BYTES = 16 * 1024**2
_INERT = "//template[not(@shadowrootmode)]"


@dataclass(frozen=True, slots=True)
class Version:
    """What a page said. ``time`` in Unix seconds: when it was first seen so; ``size`` in bytes."""

    time: float
    status: int
    etag: str
    size: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Render:
    """How the last render of a page went, whether its snapshot was kept or not.

    ``time``: its end in Unix seconds; ``seconds``: how long it took. ``error`` and ``reason``: the name
    of the error's class and its text, "" if there is a snapshot.
    """

    time: float
    seconds: float
    error: str = ""
    reason: str = ""
    status: int = 0
    timings: Timings = field(default_factory=Timings)
    facts: Facts = field(default_factory=Facts)


@dataclass(frozen=True, slots=True)
class History:
    """The last render of a page, and its versions, the newest first. ``key``: that of its snapshot."""

    key: str
    path: str
    render: Render | None = None
    versions: tuple[Version, ...] = ()

    def after(self, render: Render, snapshot: Snapshot | None, most: int) -> "History":
        """The history after one more render, with at most so many versions."""
        history = replace(self, render=render)
        if snapshot is None or (self.versions and self.versions[0].etag == snapshot.etag):
            return history
        version = Version(
            time=render.time,
            status=snapshot.status,
            etag=snapshot.etag,
            size=len(snapshot.body),
            title=snapshot.title,
            text=text_of(snapshot.body),
        )
        return replace(history, versions=(version, *self.versions)[:most])


def text_of(body: bytes) -> str:
    """What a page says, a line for each piece of text; the first 65,536 characters."""
    root = parse(body)
    if root is None:
        return ""
    # What is not seen goes first: to look above each text for it takes six times as long.
    for template in root.xpath(_INERT):
        template.tag = "noscript"
    etree.strip_elements(root, "script", "style", "noscript", with_tail=False)
    lines = (" ".join(text.split()) for text in root.xpath("//body//text()"))
    return "\n".join(line for line in lines if line)[:_LONGEST_TEXT]


def encode(history: History) -> bytes:
    """The bytes of a history: at most 256 KiB, for which the oldest versions are left out."""
    while True:
        data = _MAGIC + zlib.compress(json.dumps(asdict(history)).encode("ascii"), 6)
        if len(data) <= _MOST_BYTES or not history.versions:
            return data
        history = replace(history, versions=history.versions[:-1])


def decode(data: bytes) -> History:
    """The history that was made into these bytes. Raises BadEntry, and nothing else."""
    try:
        if not data.startswith(_MAGIC):
            raise BadEntry("not a history of this version")
        decoder = zlib.decompressobj()
        unpacked = decoder.decompress(data[len(_MAGIC) :], _MOST_UNPACKED_BYTES)
        if not decoder.eof:
            raise BadEntry("not a whole history, or too large a one")
        return strict_json.read(History, unpacked)
    except (zlib.error, ValueError) as error:
        raise BadEntry(str(error)) from error
