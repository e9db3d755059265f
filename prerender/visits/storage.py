"""Where visits are kept: the interface of stores, and the one in memory."""

from collections.abc import Mapping
from typing import Protocol

import structlog

from prerender.errors import BadEntry
from prerender.visits.figures import (
    MOST_PAGES,
    Cell,
    Day,
    Key,
    Page,
    add_day,
    bounded,
    decode,
    merge_page,
)

# Days are numbered since 1970-01-01, in UTC.
Days = dict[int, Day]
Pages = dict[str, Page]
log = structlog.get_logger(__name__)


class VisitStore(Protocol):
    """Keeps days and pages. Additions of all processes are summed up. Raises StoreError.

    ``kind``: "memory", "file" or "redis".
    """

    kind: str

    async def add_day(self, day: int, cells: Mapping[Key, Cell]) -> None:
        """Add cells to a day, all of them or none."""

    async def add_pages(self, pages: Mapping[str, Page]) -> None:
        """Add visits of pages by path. If there are too many, the longest unvisited are dropped."""

    async def drop_before(self, day: int) -> None:
        """Forget all days before this one."""

    async def days(self, first: int, last: int) -> Days:
        """The days from ``first`` to ``last`` of which something is known."""

    async def since(self) -> int | None:
        """The first day of which something is known."""

    async def pages(self) -> Pages:
        """All pages by path."""

    async def close(self) -> None:
        """Close its connections."""


class MemoryVisits:
    """Keeps visits until the process ends."""

    kind = "memory"

    def __init__(self) -> None:
        self._days: Days = {}
        self._pages: Pages = {}

    async def add_day(self, day: int, cells: Mapping[Key, Cell]) -> None:
        """Add cells to a day."""
        known = self._days.get(day, {})
        add_day(known, cells)
        self._days[day] = bounded(known)

    async def add_pages(self, pages: Mapping[str, Page]) -> None:
        """Add visits of pages."""
        for path, page in pages.items():
            # In the order of their last visits.
            known = self._pages.pop(path, {})
            merge_page(known, page)
            self._pages[path] = known
        while len(self._pages) > MOST_PAGES:
            del self._pages[next(iter(self._pages))]

    async def drop_before(self, day: int) -> None:
        """Forget all days before this one."""
        for old in [one for one in self._days if one < day]:
            del self._days[old]

    async def days(self, first: int, last: int) -> Days:
        """Days; the caller must not change them."""
        return {day: cells for day, cells in self._days.items() if first <= day <= last}

    async def since(self) -> int | None:
        """The first known day."""
        return min(self._days, default=None)

    async def pages(self) -> Pages:
        """All pages; the caller must not change them."""
        return dict(self._pages)

    async def close(self) -> None:
        """Nothing to close."""


def decoded(data: bytes, day: int) -> Day:
    """A stored day. One that cannot be read counts as empty."""
    try:
        return decode(data) if data else {}
    except BadEntry as error:
        log.warning("bad_day_of_visits", day=day, reason=str(error))
        return {}
