"""The responses of the dashboard's API. See admin/models.py."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from prerender.admin.models import Id
from prerender.config.crawler_classes import CrawlerClass
from prerender.errors import ErrorCode
from prerender.extensions.dashboard.bots import Why
from prerender.extensions.dashboard.last_hour import Point
from prerender.extensions.dashboard.snapshot_models import Phases, SnapshotRow, Uri
from prerender.snapshots.snapshot import CacheResult
from prerender.snapshots.variants import Device
from prerender.telemetry.records import DecisionKind, Source

MOST_TOP_PAGES = 5
MOST_BOTS = 100


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
    outcome; timed: renders whose phases are known; queue to serialize: total seconds of these phases.
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
    crawler: CrawlerClass | Literal[""]
    """Its class; empty for "others"."""
    operator: str
    """Who runs it; empty if unknown."""
    docs: str
    """The URL of its documentation; empty if there is none."""
    javascript: bool
    """Whether it is known to run JavaScript."""
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
    preset: str
    """The smallest preset that serves its class; empty if there is none or the class is set."""
    median_seconds: float
    p95_seconds: float
    last: float
    """Unix time in seconds."""
    pages: Annotated[list[TopPage], Field(max_length=MOST_TOP_PAGES)]


class AddressRanges(TypedDict):
    url: str
    fetched: float | None
    """When the list was received, in Unix seconds; null if it never was."""
    networks: int
    error: str
    """Why it could not be renewed; empty if it could."""


class CrawlerList(TypedDict):
    since: float
    """Unix time in seconds."""
    listed: str
    """The date of the built-in list of crawlers, such as 2026-11-26."""
    ranges: list[AddressRanges]
    """The published lists of addresses by which crawlers are verified."""
    median_seconds: float
    p95_seconds: float
    items: list[CrawlerFigures]


class BotFigures(TypedDict):
    name: str
    """A word of the User-Agent to find it by; empty if there is none that browsers lack."""
    user_agent: str
    """One of its User-Agents, truncated to 300 characters."""
    why: Why
    """"name": its User-Agent is that of a program; "behavior": it reads pages without a language and
    without their files."""
    requests: int
    pages: int
    """Requests that may be for pages."""
    files: int
    """Requests for scripts, images and other files."""
    robots: int
    """Requests for /robots.txt."""
    languages: int
    """Requests with Accept-Language."""
    snapshots: int
    forwarded: int
    refused: int
    errors: int
    """Responses with 5xx."""
    missing: int
    """Responses with 4xx."""
    last: float
    """Unix time in seconds."""


# Keyword "class".
CrawlerName = TypedDict("CrawlerName", {"class": str, "name": str})


class BotList(TypedDict):
    since: float
    """Unix time in seconds."""
    count: int
    more: list[CrawlerName]
    """[triggers] more of this proxy."""
    items: Annotated[list[BotFigures], Field(max_length=MOST_BOTS)]


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
    crawler: CrawlerClass | Literal[""]
    agent: str
    """The host or URL of the keys of the agent that signed it; empty unless verified."""
    decision: DecisionKind
    reason: str
    reason_text: str
    """``reason`` for people."""
    source: Source
    cache: CacheResult | Literal[""]
    cache_text: str
    """``cache`` for people."""
    detail: str
    status: int
    bytes: int
    error: ErrorCode | Literal[""]
    error_text: str
    """``error`` for people."""
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
    stored: bool
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
    stored: bool
    """Whether the snapshot was stored."""
    detail: str
    """Why the snapshot is not served or not stored."""
    seconds: float
