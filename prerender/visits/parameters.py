"""The query parameters that the report API accepts, and days as numbers and dates. Pure."""

from datetime import UTC, date, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from prerender.admin.parameters import Parameters
from prerender.config.crawler_classes import CLASSES
from prerender.visits.models import Finding


class _Query(Parameters):
    format: Literal["json", "csv"] = "json"
    """"csv": the items as text/csv."""


def _date(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("give a date such as 2026-03-31") from None


def _parts(text: str) -> str:
    parts = text.split(",")
    if not set(parts) <= {"crawler", "day", "folder"}:
        raise ValueError('give "crawler", "day" and "folder", separated by commas')
    return text


Date = Annotated[str, AfterValidator(_date)]
DayCount = Annotated[int, Field(ge=1, le=3650)]
RowLimit = Annotated[int, Field(ge=1, le=200_000)]


class VisitsQuery(_Query):
    days: DayCount = 28
    """The last days, with today."""
    by: Annotated[str, AfterValidator(_parts)] = "crawler"
    """What to distinguish: "crawler", "day", "folder", or several of them: "day,crawler"."""
    crawler: str = ""
    """Only this crawler."""
    only: Literal["errors", ""] = ""
    """"errors": only rows with 404, 4xx, 503 or 5xx, most first."""


class RecentQuery(_Query):
    hours: Annotated[int, Field(ge=1, le=336)] = 1
    """The full hours before the current one, which counts, too."""


class ChangeQuery(_Query):
    date: Date
    """The day of a deploy, for example."""
    days: DayCount = 7
    """The days before, and the days from this date on. The same number, even if there are fewer yet."""


class PagesQuery(_Query):
    search: str = ""
    """A substring of the URL, case-insensitive."""
    unvisited_by: str = ""
    """Only pages that none of these classes has visited: "search,ai_search"."""
    limit: RowLimit = 100
    cursor: str = ""
    """The cursor "next" of the previous page of results."""


class GapQuery(_Query):
    sitemap: str = "/sitemap.xml"
    """A sitemap or sitemap index of the site, with or without scheme and host."""
    limit: RowLimit = 1000


class SnapshotFindingsQuery(_Query):
    finding: Literal[Finding, ""] = ""
    thin: Annotated[int, Field(ge=0)] = 500
    """Pages with fewer characters of text are thin."""
    limit: RowLimit = 1000


# Crawlers whose visits make a page known to search and AI.
FINDERS = [kind for kind in CLASSES if kind.startswith(("search", "ai_"))]


def day_of(number: int) -> str:
    """The date of a day since 1970-01-01."""
    return datetime.fromtimestamp(number * 86400, UTC).date().isoformat()


def time_of(seconds: float) -> str:
    """A time in UTC (RFC 3339); "" for 0."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}" if seconds else ""


def number_of(day: str) -> int:
    """The number of a day since 1970-01-01."""
    return (date.fromisoformat(day) - date(1970, 1, 1)).days
