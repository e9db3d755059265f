"""Values that pass between the layers: snapshots and results. Frozen, so they are shared."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import blake2b
from html import unescape
from typing import Any, Literal, NamedTuple, Protocol, get_args

from prerender.errors import Unusable
from prerender.http.conditional import format_http_date
from prerender.http.encodings import IDENTITY
from prerender.http.message_head import status_line
from prerender.snapshots.target import Target
from prerender.words import Word

Header = tuple[str, str]
HTML = "text/html; charset=utf-8"
# Verdicts of renders (rendering/verdict.py).
RenderVerdict = Literal["complete", "moved", "cut-off", Unusable]
# Verdicts of snapshots that must not be stored or replace a good one.
UNUSABLE: tuple[Unusable, ...] = get_args(Unusable)
FetchVerdict = Literal["allowed", "cached", "blocked", "failed", "stream", "unanswered", "aborted"]

_LONGEST_TITLE = 120
# A title, or what may contain something that looks like one.
_TITLE = re.compile(
    rb"<(?:title[^<>]*>([^<]*)|(!--|(?:script|style|template|noscript|svg)(?=[\s/>])))",
    re.IGNORECASE,
)


class Fetch(NamedTuple):
    """A request of a page during its render: a line of the waterfall.

    ``kind``: Sec-Fetch-Dest, "" if unknown. ``verdict``: "cached" came from a cache, "stream" had no
    end, "unanswered" had no response yet, "aborted" was aborted by the page. ``bytes``: of the body as
    transferred. ``start``: seconds after the page's first request; ``seconds``: the duration.
    ``reason``: why it was blocked.
    """

    method: str
    url: str
    kind: str
    verdict: FetchVerdict
    status: int
    bytes: int
    start: float
    seconds: float
    reason: str


class Phase(Word):
    """A phase of a render, in their order."""

    DOCUMENT = "document", "fetching the document"
    QUEUE = "queue", "waiting for a page"
    SETTLE = "settle", "settling"
    SERIALIZE = "serialize", "serializing the DOM"


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of real time of the phases of a render, and the requests of the page."""

    queue: float = 0.0
    document: float = 0.0
    settle: float = 0.0
    serialize: float = 0.0
    fetches: tuple[Fetch, ...] = field(default=(), repr=False)

    def phases(self) -> dict[Phase, float]:
        """The seconds of each phase."""
        return {phase: getattr(self, phase) for phase in Phase}


def settle_value(stored: str) -> str:
    """The value of why a page settled. Versions up to 0.2 stored it in words."""
    return "prerender_ready" if stored == "prerenderReady" else stored.replace(" ", "_")


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a render, and its verdict.

    ``why``: the reason of ``verdict``; ``lasting``: the failure is permanent;
    ``soft_404``: data of the page was not found, but its status is 200. ``settled``: why it counted as
    settled (SettleReason), after ``virtual_seconds`` and ``real_seconds``. ``text_length``:
    characters. The lists of requests have URLs.
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

    def __post_init__(self) -> None:
        """Convert what versions up to 0.2 have stored."""
        object.__setattr__(self, "settled", settle_value(self.settled))

    def described(self) -> dict[str, Any]:
        """The facts by name, as people read them."""
        return {
            ("permanent" if name == "lasting" else name): value
            for name, value in asdict(self).items()
        }

    @property
    def unusable(self) -> bool:
        """Whether another render may be better, so this is not a good snapshot."""
        return self.verdict in UNUSABLE and not self.lasting

    @property
    def unfinished(self) -> bool:
        """Whether it is unusable or was cut off, so it is not stored."""
        return self.unusable or self.verdict == "cut-off"


@dataclass(frozen=True, slots=True)
class Representation:
    """A snapshot in one content coding, ready to be sent.

    ``fields``: the header lines of every response; ``content_fields``: of responses with ``body``;
    ``head``: the status line and all these lines, with the length of the body.
    """

    etag: str
    fields: bytes
    content_fields: bytes
    head: bytes
    body: bytes


def _end_of(name: bytes, body: bytes, start: int) -> int:
    """Where an element or comment ends whose content begins at ``start``; -1: nowhere."""
    if name not in (b"svg", b"template"):
        return body.find(b"-->" if name == b"!--" else b"</" + name, start)
    depth = 1
    for tag in re.compile(rb"<(/?)" + name + rb"(?=[\s/>])", re.IGNORECASE).finditer(body, start):
        depth += -1 if tag[1] else 1
        if not depth:
            return tag.end()
    return -1


@dataclass(frozen=True)
class Snapshot:
    """What a crawler gets for a target.

    ``headers``: of the page, without validators and framing. ``last_modified``: Unix seconds when the
    content last changed, which may be long before the last render. ``storable``: the origin allows
    storing it. ``ttl`` (seconds) and ``tags``: set by the page itself; ``asset_fingerprint``: of the
    scripts and styles of its document. ``encoded``: the body by content coding. ``may_be_the_page``: of
    a new one with faults: visitors may see it like this. ``still_loading``: of a new one whose time for
    timers was over while the page showed that it was loading. ``manifest``: what the page was made from
    (extensions/revalidation/), or ``unrenewable``: why that does not tell whether it has changed.
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
    may_be_the_page: bool = field(default=False, compare=False)
    still_loading: bool = field(default=False, compare=False)
    manifest: bytes = field(default=b"", compare=False, repr=False)
    unrenewable: str = field(default="", compare=False)

    @cached_property
    def _bodies(self) -> dict[str, bytes]:
        return {IDENTITY: self.body, **dict(self.encoded)}

    @cached_property
    def _made(self) -> dict[str, Representation]:
        return {}

    @cached_property
    def title(self) -> str:
        """The title of the document, or ""."""
        text, start = b"", 0
        while start >= 0 and (match := _TITLE.search(self.body, start)):
            if not match[2]:
                text = match[1]
                break
            start = _end_of(match[2].lower(), self.body, match.end())
        return " ".join(unescape(text.decode("utf-8", "replace")).split())[:_LONGEST_TITLE]

    def best(self, codings: Iterable[str]) -> Representation:
        """The best representation for a client. ``codings``: best first, including identity."""
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
        ]
        of_content = [f"Content-Type: {self.content_type}", "Accept-Ranges: none"]
        length = b"Content-Length: %d\r\n" % len(body)
        if coding != IDENTITY:
            of_content.append(f"Content-Encoding: {coding}")
        fields, content_fields = _field_lines(lines), _field_lines(of_content)
        head = b"".join((status_line(self.status), fields, content_fields, length))
        return Representation(etag, fields, content_fields, head, body)

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        bodies = len(self.body) + sum(len(body) for _, body in self.encoded)
        words = sum(len(name) + len(value) for name, value in self.headers)
        facts = self.facts
        lists = (facts.failed_requests, facts.blocked_requests, facts.unanswered_requests)
        texts = (facts.why, *facts.errors, *self.tags, *(url for urls in lists for url in urls))
        # Each body comes with its header lines and its head, which repeat those words.
        representations = (1 + len(self.encoded)) * 2 * (words + 512)
        bodies += len(self.manifest) + len(self.unrenewable)
        return bodies + representations + sum(len(text) + 100 for text in texts) + 1024


def _field_lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "surrogateescape")


def etag_of(status: int, headers: tuple[Header, ...], body: bytes) -> str:
    """A strong ETag (RFC 9110 section 8.8.3) of the content, the same in every process."""
    content = repr((status, headers)).encode() + b"\0" + body
    return f'"{blake2b(content, digest_size=16).hexdigest()}"'


class CacheResult(Word):
    """Where a snapshot came from. ``is_hit``: from the store, without a render."""

    is_hit: bool

    HIT = "hit", "a fresh snapshot"
    STALE = "stale", "an expired snapshot, while a new one is rendered"
    REVALIDATED = "revalidated", "an expired snapshot whose page has not changed since"
    MISS = "miss", "rendered for this request"
    COALESCED = "coalesced", "rendered for another request at the same time"
    KEPT = "kept", "the old snapshot, because the new one was worse or failed"
    ERROR = "error", "the page could not be rendered"

    def __init__(self, value: str, _: str = "") -> None:
        # An attribute: members of enumerations are slow to look up, and this is read for each hit.
        self.is_hit = value in ("hit", "stale", "revalidated")


@dataclass(slots=True)  # not frozen: that would be a tenth of the cost of a cached answer
class SnapshotResult:
    """A snapshot with its cache result. ``age`` and ``ttl`` (the rest of it) in seconds.

    ``timings``: of the render in this process that made it. ``detail``: more about ``how``, for
    Cache-Status.
    """

    snapshot: Snapshot
    how: CacheResult = CacheResult.MISS
    stored: bool = False
    age: float = 0.0
    ttl: float = 0.0
    timings: Timings | None = None
    detail: str = ""


class Snapshots(Protocol):
    """The interface of a layer that provides snapshots."""

    async def snapshot(self, target: Target) -> SnapshotResult:
        """The snapshot of a target. Raises RenderError, OriginError or NotRenderable."""
        ...
