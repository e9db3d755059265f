"""What the API of jobs accepts and returns. Pure.

Times are Unix seconds.
"""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from prerender.admin.parameters import Body, Parameters, Strings
from prerender.extensions.jobs.job import MOST_PAGES, JobSource, PageOutcome, Priority, State

_MOST_SITEMAPS = 100


class JobBody(Body):
    """The pages to render: either url or sitemap."""

    url: Annotated[Strings, Field(max_length=MOST_PAGES)] = Field(default_factory=list)
    """Pretty or ugly URLs of the site, with or without scheme and host. Invalid ones are reported."""
    lastmod: list[float | None] = Field(default_factory=list)
    """When they changed last, in the same order; null: unknown. For stale_only."""
    sitemap: Annotated[Strings, Field(max_length=_MOST_SITEMAPS)] = Field(default_factory=list)
    """URLs of sitemaps or of their indexes on the site. They are read from the origin."""
    priority: Priority = "normal"
    """Which job comes first. Crawlers always do."""
    rate: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Maximum pages per second over all replicas; 0: as many as crawlers leave room for."""
    stale_only: bool = False
    """Leave pages whose snapshot is fresh, and not older than lastmod."""


class JobPagesQuery(Parameters):
    outcome: Literal[PageOutcome, "waiting", ""] = ""
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """About how many."""
    cursor: str = ""
    """The cursor "next" of the previous pages."""


class JobState(TypedDict):
    id: str
    created: float
    ended: float | None
    state: State
    """"reading": its list is not complete yet, but pages are rendered."""
    sitemaps: list[str]
    priority: Priority
    rate: float
    stale_only: bool
    source: JobSource
    """"sitemaps": their pages have changed ([sitemaps] watch)."""
    pages: int
    """Without duplicates."""
    waiting: int
    """Pages that are not done. A cancelled job does not do them."""
    outcomes: dict[PageOutcome, int]
    """The pages that are done. rendered: stored; fresh: nothing to do; kept: rendering failed, and the
    old snapshot stays; redirected: to another page; not_stored: rendered, but not good enough or not to
    be stored; missing: 404 or 410; not_a_page: not HTML; failed: twice; invalid: not a URL of a page of
    the site."""
    duplicates: int
    note: str
    """What could not be read of sitemaps."""


class JobList(TypedDict):
    kept_in: Literal["memory", "file", "redis"]
    """Where jobs are kept. In memory, they end with the process."""
    items: list[JobState]
    """The newest first. Ended ones are kept for a week."""


class Sitemap(TypedDict):
    url: str
    pages: int
    error: str
    """What could not be read."""


class Sitemaps(TypedDict):
    """What the last reading of the watched sitemaps has found, of any replica."""

    watched: bool
    """[sitemaps] watch. Otherwise there is nothing else."""
    time: NotRequired[float]
    next: NotRequired[float]
    """When they are read again."""
    sitemaps: NotRequired[list[Sitemap]]
    pages: NotRequired[int]
    """Known pages."""
    new: NotRequired[int]
    changed: NotRequired[int]
    gone: NotRequired[int]
    changed_at: NotRequired[float]
    """When something changed last, of which new, changed and gone say how many pages. 0: never."""
    disallowed: NotRequired[int]
    """By robots.txt: they are not rendered."""
    invalid: NotRequired[int]
    """Not pages of the site."""
    job: NotRequired[str]
    """The id of the last job that renders changes; empty if there was none."""
    notes: NotRequired[list[str]]
    """What is wrong."""


class JobPage(TypedDict):
    url: str
    outcome: PageOutcome | None
    """null: not done."""
    status: int
    """Of the snapshot, or of the origin's response; 0: unknown."""
    reason: str
    time: float | None


class JobPages(TypedDict):
    items: list[JobPage]
    next: str | None
    """The cursor of the next pages; null if there are none."""
