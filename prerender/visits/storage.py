"""Where visits are kept: the interface of stores, and the one in memory."""

from collections.abc import Collection, Mapping
from typing import Literal, Protocol

import structlog

from prerender.errors import BadEntry
from prerender.visits.figures import (
    MOST_PAGES,
    Cell,
    CellKey,
    Day,
    Page,
    add_day,
    bounded,
    decode,
    merge_page,
)

# Days and hours are numbered since 1970-01-01, in UTC. Those of hours have no sections.
Span = Literal["days", "hours"]
Days = dict[int, Day]
Pages = dict[str, Page]
log = structlog.get_logger(__name__)


class VisitStore(Protocol):
    """Keeps days, hours and pages. Additions of all processes are summed up. Raises StoreError.

    ``kind``: "memory", "file" or "redis".
    """

    kind: str

    async def add(self, span: Span, number: int, cells: Mapping[CellKey, Cell]) -> None:
        """Add cells to a day or an hour, all of them or none."""

    async def add_pages(self, pages: Mapping[str, Page]) -> None:
        """Add visits of pages by path. If there are too many, the longest unvisited are dropped."""

    async def drop_before(self, span: Span, number: int) -> None:
        """Forget all days or hours before this one."""

    async def read(self, span: Span, first: int, last: int) -> Days:
        """The days or hours from ``first`` to ``last`` of which something is known."""

    async def since(self) -> int | None:
        """The first day of which something is known."""

    async def pages(self, paths: Collection[str] | None = None) -> Pages:
        """All pages by path, or the known ones of ``paths``."""

    async def close(self) -> None:
        """Close its connections."""


class MemoryVisits:
    """Keeps visits until the process ends."""

    kind = "memory"

    def __init__(self) -> None:
        self._spans: dict[Span, Days] = {"days": {}, "hours": {}}
        self._pages: Pages = {}

    async def add(self, span: Span, number: int, cells: Mapping[CellKey, Cell]) -> None:
        """Add cells to a day or an hour."""
        known = self._spans[span].get(number, {})
        add_day(known, cells)
        self._spans[span][number] = bounded(known)

    async def add_pages(self, pages: Mapping[str, Page]) -> None:
        """Add visits of pages."""
        for path, page in pages.items():
            # In the order of their last visits.
            known = self._pages.pop(path, {})
            merge_page(known, page)
            self._pages[path] = known
        while len(self._pages) > MOST_PAGES:
            del self._pages[next(iter(self._pages))]

    async def drop_before(self, span: Span, number: int) -> None:
        """Forget all days or hours before this one."""
        for old in [one for one in self._spans[span] if one < number]:
            del self._spans[span][old]

    async def read(self, span: Span, first: int, last: int) -> Days:
        """Days or hours; the caller must not change them."""
        known = self._spans[span].items()
        return {number: cells for number, cells in known if first <= number <= last}

    async def since(self) -> int | None:
        """The first known day."""
        return min(self._spans["days"], default=None)

    async def pages(self, paths: Collection[str] | None = None) -> Pages:
        """Pages; the caller must not change them."""
        if paths is None:
            return dict(self._pages)
        return {path: self._pages[path] for path in paths if path in self._pages}

    async def close(self) -> None:
        """Nothing to close."""


def decoded(data: bytes, span: Span, number: int) -> Day:
    """A stored day or hour. One that cannot be read counts as empty."""
    try:
        return decode(data) if data else {}
    except BadEntry as error:
        log.warning("bad_visits", of=span, number=number, reason=str(error))
        return {}
