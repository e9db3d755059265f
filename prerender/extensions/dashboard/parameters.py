"""The query parameters and bodies that the dashboard's API accepts. Pure. See admin/parameters.py."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from prerender.admin.models import Id
from prerender.admin.parameters import Body, Parameters
from prerender.config.crawler_classes import CrawlerClass
from prerender.snapshots.list_rows import RowState, Sort
from prerender.snapshots.snapshot import CacheResult
from prerender.telemetry.records import DecisionKind

Count = Annotated[int, Field(ge=0)]
Status = Annotated[int, Field(ge=0, le=599)]
Limit = Annotated[int, Field(ge=0, le=200)]
Order = Literal["asc", "desc"]


class _List(Parameters):
    search: str = ""
    """A substring, case-insensitive."""
    status: Status = 0
    """A status such as 404, or 4 for all 4xx."""
    limit: Limit = 50
    """The maximum number of results; 0 counts as 1."""
    cursor: str = ""
    """The cursor "next" of the previous page of results."""


class CrawlersQuery(Parameters):
    period: Literal["hour", "start"] = "hour"


class RequestsQuery(_List):
    page: str = ""
    """The URL of a page: only requests for it."""
    crawler: CrawlerClass | Literal["others", ""] = ""
    """A class of crawlers; "others": unknown clients that requested ugly URLs."""
    decision: Literal[DecisionKind, ""] = ""
    cache: CacheResult | Literal[""] = ""
    sort: Literal["time", "status", "seconds", "bytes", "target"] = "time"
    order: Order = "desc"


class SnapshotsQuery(_List):
    state: Literal[RowState, ""] = ""
    least_age: Count = 0
    """Seconds."""
    most_age: Count = 10**9
    """Seconds."""
    sort: Sort = "age"
    order: Order = "asc"


class PageQuery(Parameters):
    url: str
    """The URL of a page of the site, pretty or ugly; with or without scheme and host."""


class HistoryQuery(Parameters):
    old: Annotated[int, Field(ge=-1)] = -1
    """The default, -1, is the version before "new"."""
    new: Count = 0
    """0 is the latest version."""


class LogIn(Body):
    token: str


class RenderBody(Body):
    """Either the URL of a page or the id of a stored snapshot."""

    url: Annotated[str, Field(min_length=1)] | None = None
    """A page of the site; rendered as the desktop variant in the browser's default language."""
    id: Id | None = None
    """The id of a stored snapshot; its page is rendered as the same variant."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.url is None) == (self.id is None):
            raise ValueError("give either url or id")
        return self
