"""The values that pass between the layers. Frozen: what is stored cannot be changed by a reader."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from html import unescape
from typing import Literal, NamedTuple, Protocol, get_args

from yarl import URL

from prerender.errors import Unusable
from prerender.http.conditional import format_http_date
from prerender.http.encodings import IDENTITY
from prerender.snapshots.variants import ORDINARY, Variant
from prerender.urls.ajax_crawling import PrettyURL
from prerender.urls.tracking import NO_TRACKING, Tracking

Header = tuple[str, str]
HTML = "text/html; charset=utf-8"
# What a render amounts to (rendering/verdict.py).
RenderVerdict = Literal["complete", "moved", "cut-off", Unusable]
# Not to be stored, and not to replace a good one.
UNUSABLE: tuple[Unusable, ...] = get_args(Unusable)
Verdict = Literal["allowed", "cached", "blocked", "failed", "stream", "unanswered", "aborted"]

_LONGEST_TITLE = 120
_HEAD_BYTES = 16384
_TITLE = re.compile(rb"<title[^>]*>([^<]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """The page to render: its path and query as the crawler sent them, and its fragment.

    ``url`` is the public URL that the browser opens, ``path`` the part of it after the host. ``key``
    names the target in every store: two targets have the same key only if they are the same ``variant``
    of the same page.
    """

    request_target: str
    url: str
    path: str = field(repr=False)
    key: str = field(repr=False)
    variant: Variant = ORDINARY

    @classmethod
    def of(
        cls,
        public: URL,
        pretty: PrettyURL,
        tracking: Tracking = NO_TRACKING,
        variant: Variant = ORDINARY,
    ) -> "Target":
        """The target of a pretty URL, less ``tracking``, on the site with the public URL ``public``."""
        pretty = replace(pretty, path=tracking.without(pretty.path))
        path = str(pretty)
        url = f"{public.origin()}{path}"
        # No URL has a space.
        name = url if variant == ORDINARY else f"{url} {variant}"
        key = _digest(name.encode("utf-8", "surrogateescape"))
        return cls(pretty.path, url, path, key, variant)


class Fetch(NamedTuple):
    """One request of a page while it was rendered: a line of the waterfall.

    ``kind``: what it was for (Sec-Fetch-Dest, "" if that cannot be told). ``verdict``: "cached" was
    answered without asking anybody, "stream" had no end, "unanswered" had no answer yet, "aborted": the
    page did not wait for it. ``bytes``: of the body as it was sent. ``start`` and ``seconds``: from the
    page's first request on, and how long it took. ``reason``: why it was blocked.
    """

    method: str
    url: str
    kind: str
    verdict: Verdict
    status: int
    bytes: int
    start: float
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of the wall clock that the phases of a render took, and what the page asked for."""

    queue: float = 0.0
    document: float = 0.0
    settle: float = 0.0
    serialize: float = 0.0
    fetches: tuple[Fetch, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Facts:
    """How a render went: what the owner of the site wants to know, and what is to be thought of it.

    ``verdict``, and ``why`` in a few words; ``lasting``: what failed will not pass by itself;
    ``soft_404``: data of the page was not found, and its status is 200 all the same.
    Seconds of virtual and of real time until the page had settled, and the reason why it counted as
    settled; the length of its text in characters; URLs of requests of the page.
    """

    verdict: RenderVerdict = "complete"
    why: str = ""
    lasting: bool = False
    soft_404: bool = False
    settled: str = ""
    virtual_seconds: float = 0.0
    real_seconds: float = 0.0
    text_length: int = 0
    failed_requests: tuple[str, ...] = ()
    blocked_requests: tuple[str, ...] = ()
    unanswered_requests: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def unusable(self) -> bool:
        """Whether the page lacks what another render may bring: it is not a good snapshot."""
        return self.verdict in UNUSABLE and not self.lasting

    @property
    def unfinished(self) -> bool:
        """Whether it is unusable, or was cut off: it is not stored."""
        return self.unusable or self.verdict == "cut-off"


@dataclass(frozen=True, slots=True)
class Representation:
    """A snapshot in one content coding, ready to be sent.

    ``fields`` are the header lines of every answer, ``content_fields`` those of answers with ``body``.
    """

    etag: str
    fields: bytes
    content_fields: bytes
    body: bytes


@dataclass(frozen=True)
class Snapshot:
    """What a crawler gets for a target.

    ``headers`` are those of the page itself, without validators and framing. ``last_modified`` (Unix
    seconds) is when the content last changed, which may be long before it was last rendered.
    ``storable``: the origin allows that it is kept. ``ttl`` (seconds) and ``tags`` are what the
    page itself asks for; ``asset_fingerprint`` identifies the scripts and styles of its document.
    ``encoded``: the body by content coding. ``content_type`` is the field's value.
    """

    status: int
    headers: tuple[Header, ...]
    body: bytes
    etag: str
    last_modified: int
    storable: bool = True
    facts: Facts = Facts()
    ttl: float | None = None
    tags: tuple[str, ...] = ()
    asset_fingerprint: str = ""
    encoded: tuple[tuple[str, bytes], ...] = ()
    content_type: str = HTML

    @cached_property
    def _bodies(self) -> dict[str, bytes]:
        return {IDENTITY: self.body, **dict(self.encoded)}

    @cached_property
    def _made(self) -> dict[str, Representation]:
        return {}

    @cached_property
    def title(self) -> str:
        """The title of the page, by a look at the beginning of its HTML."""
        found = _TITLE.search(self.body, 0, _HEAD_BYTES)
        text = found[1].decode("utf-8", "replace") if found else ""
        return " ".join(unescape(text).split())[:_LONGEST_TITLE]

    def best(self, codings: Iterable[str]) -> Representation:
        """The representation for a client that takes ``codings``, best first, identity among them."""
        made = self._made
        for coding in codings:
            if coding in made:
                return made[coding]
            if coding in self._bodies:
                made[coding] = self._representation(coding, self._bodies[coding])
                return made[coding]
        raise ValueError("identity is not among them")

    def _representation(self, coding: str, body: bytes) -> Representation:
        # Other bytes are another representation, with a validator of its own (section 8.8.3.3).
        etag = self.etag if coding == IDENTITY else f'{self.etag[:-1]}-{coding}"'
        lines = [
            *(f"{name}: {value}" for name, value in self.headers),
            f"ETag: {etag}",
            f"Last-Modified: {format_http_date(self.last_modified)}",
            "Vary: Accept-Encoding",
        ]
        of_content = [f"Content-Type: {self.content_type}", "Accept-Ranges: none"]
        if coding != IDENTITY:
            of_content.append(f"Content-Encoding: {coding}")
        return Representation(etag, _field_lines(lines), _field_lines(of_content), body)

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        bodies = len(self.body) + sum(len(body) for _, body in self.encoded)
        words = sum(len(name) + len(value) for name, value in self.headers)
        # Each body comes with its header lines, which repeat those words.
        return bodies + (1 + len(self.encoded)) * (words + 512) + 1024


def _field_lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "surrogateescape")


def etag_of(status: int, headers: tuple[Header, ...], body: bytes) -> str:
    """A strong entity-tag (RFC 9110 section 8.8.3) of the content, the same in every process."""
    head = repr((status, headers)).encode()
    return '"' + _digest(head + b"\0" + body) + '"'


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


@dataclass(slots=True)  # not frozen: that would be a tenth of the cost of a cached answer
class SnapshotResult:
    """A snapshot, and how it was come by. ``age`` and ``ttl`` (what is left of it) in seconds.

    "hit" with a negative ``ttl``: a stale one, while a new one is made. "kept": the old snapshot,
    because the new one was worse or could not be made; ``detail`` says why.
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

    async def snapshot(self, target: Target) -> SnapshotResult:
        """The snapshot of a target. Raises RenderError, OriginError or NotRenderable."""
        ...
