"""The responses of the report API, which openapi.py describes by these types.

Times are Unix seconds (in CSV: RFC 3339), durations are seconds, sizes are bytes, dates are days in
UTC.
"""

from typing import Literal

from typing_extensions import TypedDict

# As those of prerender check.
Finding = Literal[
    "noindex", "title-missing", "title-duplicate", "canonical-elsewhere", "thin-text", "status"
]  # fmt: skip


class Report(TypedDict):
    """What is kept about visits."""

    since: str
    """The first day of the figures; empty if there are none yet."""
    kept_in: str
    """"file" or "redis"; "memory": only until this process ends; "off": [visits] days = 0."""
    days: int
    """How many days are kept."""
    available: bool
    """Whether the last visits could be written."""
    dropped: int
    """Visits that were not kept because the store was away for too long."""


class Visits(TypedDict):
    """Requests of crawlers with one crawler, day and folder, as far as they were asked for."""

    day: str
    crawler: str
    kind: str
    """The class of the crawler; empty if it is unknown or unverified."""
    folder: str
    requests: int
    fresh: int
    """Fresh snapshots."""
    stale: int
    """Expired snapshots."""
    rendered: int
    """Snapshots that the crawler waited for."""
    forwarded: int
    """Pages without a snapshot, from the origin."""
    file: int
    """Scripts, images and other files, from the origin."""
    not_found: int
    """404 and 410."""
    client_errors: int
    """Other 4xx."""
    unavailable: int
    """503."""
    server_errors: int
    """Other 5xx."""
    refused: int
    left: int
    """The crawler disconnected before the response."""
    bytes: int
    median_seconds: float
    p95_seconds: float


class VisitList(TypedDict):
    first: str
    last: str
    items: list[Visits]


class RecentVisits(TypedDict):
    since: float
    """The beginning of the first hour."""
    items: list[Visits]
    """By crawler, most requests first; of all replicas, also from before a restart."""


class Change(TypedDict):
    """A crawler in two periods of the same length."""

    crawler: str
    kind: str
    requests_before: int
    requests_after: int
    errors_before: int
    """404, 4xx, 503 and 5xx."""
    errors_after: int
    median_before: float
    median_after: float


class ChangeList(TypedDict):
    date: str
    days: int
    """The days of each period; the second one begins at the date."""
    items: list[Change]


class PageVisits(TypedDict):
    url: str
    last: float
    """The last visit of any crawler; 0: never."""
    status: int
    """The status of its response; 0 without one."""
    kinds: dict[str, float]
    """The last visit of each class of crawlers."""


class PageVisitList(TypedDict):
    count: int
    """The total number of matches."""
    known: int
    """The number of pages that were looked at: those with visits, or those in the sitemap."""
    items: list[PageVisits]
    next: str | None
    """The cursor of the next results; null at the end. The gap has none."""


class SnapshotFinding(TypedDict):
    url: str
    finding: Finding
    detail: str


class FindingList(TypedDict):
    snapshots: int
    """Stored snapshots, of each page one."""
    read: int
    """Those whose content was read, at their last render; titles and statuses are of all."""
    count: int
    """The total number of matches."""
    items: list[SnapshotFinding]
