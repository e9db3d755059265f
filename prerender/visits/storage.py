"""Where visits are kept: the interface of stores."""

from collections.abc import Collection, Mapping
from typing import Literal, Protocol

import structlog

from prerender.errors import BadEntry
from prerender.visits.figures import (
    Cell,
    CellKey,
    Day,
    LastVisits,
    decode,
)

# Days and hours are numbered since 1970-01-01, in UTC. Those of hours have no sections.
Span = Literal["days", "hours"]
Days = dict[int, Day]
Pages = dict[str, LastVisits]
log = structlog.get_logger(__name__)


class VisitStore(Protocol):
    """Keeps days, hours and pages. Additions of all processes are summed up. Raises StoreError.

    ``kind``: "memory", "file" or "redis".
    """

    kind: str

    async def add(self, span: Span, number: int, cells: Mapping[CellKey, Cell]) -> None:
        """Add cells to a day or an hour, all of them or none."""

    async def add_pages(self, pages: Mapping[str, LastVisits]) -> None:
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


def decoded(data: bytes, span: Span, number: int) -> Day:
    """A stored day or hour. One that cannot be read counts as empty."""
    try:
        return decode(data) if data else {}
    except BadEntry as error:
        log.warning("bad_visits", of=span, number=number, reason=str(error))
        return {}
