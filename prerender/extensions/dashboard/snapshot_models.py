"""The responses of the admin API about snapshots and their renders. See models.py."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from prerender.admin.models import Id
from prerender.snapshots.list_rows import Form, RowState
from prerender.snapshots.snapshot import FetchVerdict, RenderVerdict
from prerender.snapshots.variants import Device

Uri = Annotated[str, Field(json_schema_extra={"format": "uri"})]
_Hreflang = Annotated[str, Field(description="hreflang")]
_Href = Annotated[str, Field(description="href")]
_Property = Annotated[str, Field(description="property")]
_Content = Annotated[str, Field(description="content")]


class Phases(TypedDict):
    queue: float
    document: float
    settle: float
    serialize: float


class SnapshotRow(TypedDict):
    id: Id
    url: Uri
    path: str
    """The path, query and #! fragment of the URL."""
    device: Device
    """The device of the variant ([cache] vary)."""
    language: str
    """The language that the page was rendered for; empty without [cache] vary = ["language"]."""
    format: Form
    """The Markdown form is converted from the HTML snapshot with the same id."""
    title: str
    status: int
    state: RowState
    age: float
    """Seconds since the render, or the renewal without rendering."""
    stored: float
    """Unix time in seconds of the same."""
    expires: float
    """Unix time in seconds of the end of its TTL."""
    size: int
    """Bytes of HTML."""
    seconds: float
    """Seconds of real time until the page settled."""
    settled: str
    problems: int
    """The number of failed and unanswered requests and of script errors."""


class Facts(TypedDict):
    verdict: RenderVerdict
    """The verdict about the render."""
    why: str
    """The first reason for the verdict."""
    permanent: bool
    """A retry would not help: the site does not have the file that failed."""
    soft_404: bool
    """Data of the page was not found (404 or 410)."""
    settled: str
    """Why the page was considered finished."""
    virtual_seconds: float
    real_seconds: float
    text_length: int
    """Characters."""
    failed_requests: list[str]
    blocked_requests: list[str]
    unanswered_requests: list[str]
    errors: list[str]


class Encoding(TypedDict):
    coding: str
    size: int


class Renewal(TypedDict):
    count: int
    """How often since the render, because nothing that the page requested had changed."""
    always_rendered_because: str
    """Why it cannot be renewed without rendering; empty if it can."""


class Snapshot(SnapshotRow):
    rendered: float
    """Unix time in seconds of its render, before ``stored`` if it was renewed without rendering."""
    renewal: Renewal | None
    """Null for Markdown, and without [cache] revalidate."""
    ugly_url: str
    etag: str
    last_modified: int
    """Unix time in seconds of the last change of the content."""
    headers: list[tuple[str, str]]
    encodings: list[Encoding]
    tags: list[str]
    refusals: int
    """The number of worse renders that did not replace it."""
    facts: Facts


class StructuredData(TypedDict):
    types: list[str]
    valid: bool
    """Whether it is valid JSON."""
    text: str


class LinkPreview(TypedDict):
    title: str
    description: str
    image: str
    """An absolute URL, or empty."""
    site: str


class Reading(TypedDict):
    title: str
    description: str
    canonical: str
    robots: str
    noindex: bool
    """A meta tag keeps the page out of the index of all search engines, or of Google's."""
    language: str
    headings: list[tuple[Annotated[int, Field(description="1 to 3")], str]]
    alternates: list[tuple[_Hreflang, _Href]]
    open_graph: list[tuple[_Property, _Content]]
    structured_data: list[StructuredData]
    preview: LinkPreview
    links: int
    images: int
    images_without_text: int


class Fetch(TypedDict):
    method: str
    url: str
    kind: str
    """The Sec-Fetch-Dest value, or empty."""
    verdict: FetchVerdict
    status: int
    """0: no response."""
    bytes: int
    start: float
    """Seconds after the first request of the page."""
    seconds: float
    reason: str
    """Why it was blocked."""


class Render(TypedDict):
    time: float
    """Unix time in seconds of its end."""
    seconds: float
    error: str
    """The code of the error; empty if there is a snapshot."""
    reason: str
    status: int
    verdict: RenderVerdict
    """The verdict about the render."""
    why: str
    """The first reason for the verdict."""
    settled: str
    settled_text: str
    """``settled`` for people."""
    virtual_seconds: float
    phases: Phases
    errors: list[str]
    """Errors of the page's scripts."""
    fetches: list[Fetch]


class Version(TypedDict):
    time: float
    """Unix time in seconds when this version was first rendered."""
    status: int
    etag: str
    size: int
    title: str
    characters: int
    """Characters of its text."""


class Page(TypedDict):
    id: Id
    url: str
    snapshot: Snapshot | None
    reading: Reading | None
    render: Render | None
    versions: list[Version]


class Passage(TypedDict):
    kind: Literal["same", "changed"]
    left: str
    right: str


class Differences(TypedDict):
    similarity: Annotated[float, Field(ge=0, le=1)]
    """The share of words that are in both texts; 1 for equal texts."""
    cut: bool
    """Only the first lines of the texts are in the passages."""
    passages: list[Passage]


class RemovedElement(TypedDict):
    selector: str
    text: str
    """The beginning of its text."""


class Comparison(Differences):
    """left: the visitor's text; right: the snapshot's text."""

    unannounced: list[str]
    """Texts in the accessibility tree of the page, but not of the snapshot."""
    removed: list[RemovedElement]
    """Elements of the page that the snapshot lacks because of [snapshot] remove."""
    not_found: list[str]
    """Selectors of [snapshot] remove that match nothing on the page now."""
    added: list[str]
    """HTML that the snapshot has because of [snapshot] add."""


class VersionComparison(Differences):
    """left: the older version; right: the newer version."""

    old: int
    new: int
