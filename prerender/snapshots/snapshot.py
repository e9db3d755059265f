"""The values that pass between the layers. Frozen: what is stored cannot be changed by a reader."""

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Literal, Protocol

from yarl import URL

from prerender.ajax_crawling import PrettyURL
from prerender.conditional import format_http_date

Header = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """The page to render: its path and query as the crawler sent them, and its fragment.

    ``url`` is the public URL that the browser opens. ``key`` names the target in every store: two
    targets have the same key only if they are the same page.
    """

    path: str
    url: str
    key: str = field(repr=False)

    @classmethod
    def of(cls, public: URL, pretty: PrettyURL) -> "Target":
        """The target of a pretty URL on the site with the public URL ``public``."""
        url = f"{public.origin()}{pretty}"
        return cls(pretty.path, url, _digest(url.encode("utf-8", "surrogateescape")))


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of the wall clock that the phases of a render took."""

    queue: float = 0.0
    document: float = 0.0
    settle: float = 0.0
    serialize: float = 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """How a render went: what the owner of the site wants to know, and what is to be thought of it.

    Seconds of virtual and of real time until the page had settled, and the reason why it counted as
    settled; the length of its text in characters; URLs of requests of the page.
    """

    partial: bool = False
    settled: str = ""
    virtual_seconds: float = 0.0
    real_seconds: float = 0.0
    text_length: int = 0
    failed_requests: tuple[str, ...] = ()
    blocked_requests: tuple[str, ...] = ()
    unanswered_requests: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """What a crawler gets for a target.

    ``headers`` are those of the page itself, without validators and framing. ``last_modified`` (Unix
    seconds) is when the content last changed, which may be long before it was last rendered.
    ``storable``: the origin allows that it is kept.
    """

    status: int
    headers: tuple[Header, ...]
    body: bytes
    etag: str
    last_modified: int
    storable: bool = True
    facts: Facts = Facts()

    @cached_property
    def fields(self) -> bytes:
        """The header fields that are the same in every 200 of this snapshot, as they are sent."""
        lines = [
            *(f"{name}: {value}" for name, value in self.headers),
            f"ETag: {self.etag}",
            f"Last-Modified: {format_http_date(self.last_modified)}",
        ]
        return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "surrogateescape")

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers) + 512


def etag_of(status: int, headers: tuple[Header, ...], body: bytes) -> str:
    """A strong entity-tag (RFC 9110 section 8.8.3) of the content, the same in every process."""
    head = repr((status, headers)).encode()
    return '"' + _digest(head + b"\0" + body) + '"'


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Answer:
    """A snapshot, and how it was come by. ``age`` and ``ttl`` (what is left of it) in seconds.

    "kept": the old snapshot, because the new one was worse; ``detail`` says in what.
    """

    snapshot: Snapshot
    how: Literal["hit", "miss", "coalesced", "kept"] = "miss"
    stored: bool = False
    age: float = 0.0
    ttl: float = 0.0
    timings: Timings = Timings()
    detail: str = ""


class Snapshots(Protocol):
    """What every layer offers to the one above it."""

    async def snapshot(self, target: Target) -> Answer:
        """The snapshot of a target. Raises RenderError, OriginError or NotRenderable."""
        ...
