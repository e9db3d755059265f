"""The responses of the admin API, which openapi.py describes by these types.

Times are Unix seconds, durations are seconds, sizes are bytes.
"""

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from prerender.config.crawler_classes import CrawlerClass
from prerender.snapshots.freshness import Servable
from prerender.telemetry.records import DecisionKind

ID_LENGTH = 32

Id = Annotated[str, Field(pattern=f"^[0-9a-f]{{{ID_LENGTH}}}$")]


class Problem(TypedDict):
    """Problem details (RFC 9457)."""

    title: str
    status: int
    detail: str
    """A description of the error."""


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
    shown: Servable | None
    """How the stored snapshot would be served; null if it would not."""
    renewed: bool
    """Whether it would be refreshed in the background."""


class ExplainedSnapshot(TypedDict):
    rendered: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    age_seconds: float
    fresh_for_seconds: float
    """Negative: its TTL has ended."""
    not_tried_again_for_seconds: float
    renewed_without_rendering: int
    """How often since the render, because nothing that the page requested had changed."""
    always_rendered_because: str
    """Why it cannot be renewed without rendering; empty if it can, or [cache] revalidate is off."""
    refused_replacements: int
    status: int
    bytes: int
    etag: str
    tags: list[str]
    settled: str
    failed_requests: list[str]
    unanswered_requests: list[str]
    removed: list[str]
    """The selectors of [snapshot] remove that it was made with."""
    added: list[str]
    """HTML of [snapshot] add that it was made with."""


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
    decision: DecisionKind
    reason: str
    reason_text: str
    """``reason`` for people; of a forwarded crawler, with the setting to change."""
    answered_by: str
    signature: NotRequired[ExplainedSignature]
    """Of requests with Signature-Agent."""
    page: NotRequired[ExplainedPage]
    freshness: NotRequired[ExplainedFreshness]
    snapshot: NotRequired[ExplainedSnapshot | None]
    last_render: NotRequired[ExplainedRender | None]
    rendering: NotRequired[ExplainedRendering]
