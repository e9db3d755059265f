"""The responses of the admin API. openapi.json is generated from these types by scripts/openapi.

Times are Unix seconds, durations are seconds, sizes are bytes.
"""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from prerender.admin.last_hour import Point
from prerender.admin.snapshot_models import Id, Phases, SnapshotRow, Uri
from prerender.config.types import CrawlerClass
from prerender.snapshots.freshness import Shown
from prerender.snapshots.importing import Adopted
from prerender.snapshots.variants import Device
from prerender.telemetry.records import CacheWord, Kind, Source

MOST_TOP_PAGES = 5

Imported = dict[Adopted, int]


class Problem(TypedDict):
    """Problem details (RFC 9457)."""

    title: str
    status: int
    detail: str
    """A description of the error."""


class Session(TypedDict):
    token_needed: bool
    open: bool
    """Whether the client is authorized."""


class Pool(TypedDict):
    size: int
    idle: int
    busy: int
    waiting: int
    """Renders that wait for a browser page."""
    queue_limit: int
    browsers_started: int
    memory: int
    """Bytes of all processes of the browser."""


class Store(TypedDict):
    kind: str
    """The backing store: "memory", "file", "redis", "object store" or "redis and object store"."""
    available: bool
    memory: int
    """Bytes."""
    in_memory: int
    """Snapshots in memory."""
    faults: int


class Notice(TypedDict):
    name: str
    seen: float
    """When it last applied, in Unix seconds."""
    consequence: str
    remedy: str


class Summary(TypedDict):
    site: Uri
    version: str
    now: float
    """Unix time in seconds."""
    started: float
    """Unix time in seconds."""
    ready: bool
    """Whether the browser is available."""
    pool: Pool
    store: Store
    notices: list[Notice]
    """Recommended configuration changes."""
    step: int
    """Seconds per point."""
    points: list[Point]
    """The counts of each step; zeros are left out.

    time: Unix time in seconds of its start; hit to refuse: requests by response; errors: responses
    with 5xx; seconds: total time of responses with snapshots; complete to cancelled: renders by
    outcome; queue to serialize: seconds of their phases.
    """


class TopPage(TypedDict):
    url: str
    id: str
    """Empty if its requests did not ask for a snapshot."""
    requests: int


class CrawlerFigures(TypedDict):
    name: str
    """Its name in the User-Agent; of a signed agent, the host of its keys; "others": unknown clients
    that requested ugly URLs."""
    crawler: Literal[CrawlerClass, ""]
    """Its class; empty for "others"."""
    requests: int
    snapshots: int
    forwarded: int
    refused: int
    errors: int
    """Responses with 5xx."""
    unverified: int
    """Requests from addresses that are not this crawler's."""
    without_snapshot: int
    """Requests for pages that were forwarded because [triggers] forwards its class."""
    median_seconds: float
    p95_seconds: float
    last: float
    """Unix time in seconds."""
    pages: Annotated[list[TopPage], Field(max_length=MOST_TOP_PAGES)]


class CrawlerList(TypedDict):
    since: float
    """Unix time in seconds."""
    median_seconds: float
    p95_seconds: float
    items: list[CrawlerFigures]


class Request(TypedDict):
    time: float
    """Unix time in seconds."""
    seconds: float
    method: str
    target: str
    """The request target, truncated to 300 characters."""
    url: str
    """The page, for snapshot requests."""
    id: Id | Literal[""]
    device: Literal[Device, ""]
    language: str
    remote: str
    user_agent: str
    crawler: Literal[CrawlerClass, ""]
    agent: str
    """The host or URL of the keys of the agent that signed it; empty unless verified."""
    decision: Kind
    reason: str
    source: Source
    cache: CacheWord
    detail: str
    status: int
    bytes: int
    error: str
    trace_id: str
    origin_seconds: float | None
    """Seconds until the origin's response headers; null if this request did not contact the origin."""
    phases: Phases | None
    """Seconds of the render that this response waited for."""


class RequestList(TypedDict):
    count: int
    """The total number of matches."""
    items: list[Request]
    next: str | None
    """The cursor of the next page of results."""


class SnapshotList(TypedDict):
    count: int
    """The total number of matches."""
    size: int
    """The total bytes of HTML."""
    complete: bool
    """False: the store cannot list its snapshots, and only those in memory are listed."""
    items: list[SnapshotRow]
    next: str | None
    """The cursor of the next page of results."""


class PageId(TypedDict):
    id: Id
    url: str
    kept: bool
    """Whether a snapshot of it is stored."""


class PageRenders(TypedDict):
    id: Id
    url: str
    renders: int
    failed: int
    cut_off: int
    mean_seconds: float
    slowest_seconds: float
    last: float
    """Unix time in seconds."""
    last_problem: float
    """Unix time in seconds; 0: never."""
    failing_since: float
    """Unix time of the first failure since the last success; 0 if the last render did not fail."""
    reason: str


class Problems(TypedDict):
    slowest: list[PageRenders]
    failing: list[PageRenders]
    cut_off: list[PageRenders]
    troubled: list[PageRenders]


class Rendered(TypedDict):
    id: Id
    url: str
    status: int
    kept: bool
    """Whether the snapshot was stored."""
    detail: str
    """Why the snapshot is not served or not stored."""
    seconds: float


class Purged(TypedDict):
    purged: int
    """The number of purges."""
    snapshots: NotRequired[int | None]
    """With "count": how many stored snapshots they apply to; null if the store cannot list them."""


class ExplainedRequest(TypedDict):
    method: str
    target: str
    user_agent: str


class ExplainedPage(TypedDict):
    url: str
    key: Id
    """The key of the stored snapshot."""
    variant: str
    markdown: bool


class ExplainedFreshness(TypedDict):
    ttl_seconds: float
    """0: never stored."""
    shown: Shown | None
    """How the stored snapshot would be served; null if it would not."""
    renewed: bool
    """Whether it would be refreshed in the background."""


class ExplainedSnapshot(TypedDict):
    rendered: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    age_seconds: float
    fresh_for_seconds: float
    """Negative: its TTL has ended."""
    not_tried_again_for_seconds: float
    refused_replacements: int
    status: int
    bytes: int
    etag: str
    tags: list[str]
    settled: str
    failed_requests: list[str]
    unanswered_requests: list[str]


class ExplainedRender(TypedDict):
    """The last render of the page, whether its snapshot was stored or not."""

    ended: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    verdict: str
    reason: str
    """The first reason for the verdict."""
    requests: list[str]
    """Requests that were refused, failed or got no response, with the reason."""
    errors: list[str]
    """Errors of scripts and of the browser, with file and line."""


class ExplainedRendering(TypedDict):
    this_page_now: bool
    ready: bool
    """Whether the browser is available."""
    queue: int


class ExplainedSignature(TypedDict):
    verified: bool
    agent: str
    """The host or URL of the agent's keys; empty unless verified."""
    reason: str
    """Why it is not verified."""


class Explanation(TypedDict):
    """The decision for a request, which is not executed."""

    request: ExplainedRequest
    crawler: CrawlerClass | None
    """The class of a known crawler, or "signed" for another agent whose signature is verified."""
    decision: Kind
    reason: str
    answered_by: str
    signature: NotRequired[ExplainedSignature]
    """Of requests with Signature-Agent."""
    page: NotRequired[ExplainedPage]
    freshness: NotRequired[ExplainedFreshness]
    snapshot: NotRequired[ExplainedSnapshot | None]
    last_render: NotRequired[ExplainedRender | None]
    rendering: NotRequired[ExplainedRendering]
