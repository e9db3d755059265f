"""Lists of what is kept: one row for each snapshot, searched and sorted in pieces. Pure.

A row holds what a list shows, so that no list reads snapshots. The stores keep rows beside the
snapshots (``dump``), and hand them out a thousand at a time; none of them is asked to search.
"""

import heapq
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from prerender.snapshots import strict_json
from prerender.snapshots.entry import Entry
from prerender.snapshots.purges import Purges
from prerender.snapshots.snapshot import HTML
from prerender.snapshots.variants import DEVICES, Device

# How many rows are looked at before others get their turn: about a millisecond's worth.
PIECE = 500

Sort = Literal["path", "status", "age", "size", "seconds"]
SORTS: tuple[Sort, ...] = get_args(Sort)
Form = Literal["html", "markdown"]
FORMS: tuple[Form, ...] = get_args(Form)
State = Literal["fresh", "stale"]
STATES: tuple[State, ...] = get_args(State)


class Row(NamedTuple):
    """A kept snapshot in a list: of a page, for a ``device`` and a ``language``, in a ``form``.

    ``stored``, ``expires`` and ``until`` in Unix seconds: when it was rendered, until when it is fresh
    and until when it is kept. ``size``: of its HTML, in bytes. ``seconds``: of real time until the page
    had settled. ``problems``: how many requests of the page failed or got no answer, and errors of its
    scripts. The rest is what purges go by.
    """

    key: str
    path: str
    title: str
    status: int
    stored: float
    expires: float
    until: float
    size: int
    seconds: float
    settled: str
    problems: int
    generation: int
    asset_fingerprint: str
    tags: list[str]
    device: Device
    language: str
    form: Form

    @classmethod
    def of(cls, entry: Entry, until: float) -> "Row":
        """The row of an entry."""
        snapshot = entry.snapshot
        facts = snapshot.facts
        problems = (facts.failed_requests, facts.unanswered_requests, facts.errors)
        return cls(
            entry.key,
            entry.path,
            snapshot.title,
            snapshot.status,
            float(entry.stored),
            float(entry.expires),
            float(until),
            len(snapshot.body),
            float(facts.real_seconds),
            facts.settled,
            sum(map(len, problems)),
            entry.generation,
            snapshot.asset_fingerprint,
            list(snapshot.tags),
            entry.variant.device,
            entry.variant.language,
            "html" if snapshot.content_type == HTML else "markdown",
        )

    def dump(self) -> bytes:
        """How it stands in the stores: a line of JSON."""
        return json.dumps(self, separators=(",", ":")).encode("ascii")

    def state(self, now: float) -> State:
        """What is to be thought of it."""
        return "fresh" if now < self.expires else "stale"


# Those of a row that JSON gives.
_TYPES = tuple(
    {list[str]: list, Device: str, Form: str}.get(kind, kind)
    for kind in get_type_hints(Row).values()
)
_TAGS, _DEVICE, _FORM = map(Row._fields.index, ("tags", "device", "form"))


def parse(lines: Sequence[bytes]) -> list[Row]:
    """The rows whose dumps these are. What is no row of this version is left out."""
    try:
        found = strict_json.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError):
        found = []
    if len(found) != len(lines):
        found = [row for line in lines for row in _alone(line)]
    return [Row._make(row) for row in found if _is_row(row)]


def _alone(line: bytes) -> list[Any]:
    try:
        return [strict_json.loads(line)]
    except (ValueError, RecursionError):
        return []


def _is_row(row: Any) -> bool:
    """By the types of its values: building them by strict_json would double the time of a list."""
    return (
        type(row) is list
        and tuple(map(type, row)) == _TYPES
        and all(type(tag) is str for tag in row[_TAGS])
        and row[_DEVICE] in DEVICES
        and row[_FORM] in FORMS
    )


@dataclass(frozen=True, slots=True)
class Query:
    """What somebody wants to see: at most ``limit`` rows that come ``after`` a place in their order.

    ``search``: a part of the page or of the title, in any case. ``status``: 404, or 4 for all that
    begin with it. ``least_age`` and ``most_age`` in seconds. ``after``: ``Found.next`` of the page
    before.
    """

    search: str = ""
    status: int = 0
    state: State | None = None
    least_age: float = 0.0
    most_age: float = float("inf")
    sort: Sort = "age"
    descending: bool = False
    limit: int = 50
    after: tuple[float | str, str] | None = None


@dataclass(slots=True)
class Found:
    """The rows of one page of a list, how many there are in all and of what
    size, and where the next page begins."""

    rows: list[Row] = field(default_factory=list)
    count: int = 0
    size: int = 0
    next: tuple[float | str, str] | None = None


class Selection:
    """Rows are put in, a piece at a time; what the query wants comes out.

    Raises ValueError when ``after`` is no place of the query's order.
    """

    def __init__(self, query: Query, purges: Purges, now: float) -> None:
        if query.after and isinstance(query.after[0], str) != (query.sort == "path"):
            raise ValueError("cursor: invalid for this list")
        self._query = query
        self._purges = purges
        self._now = now
        self._search = query.search.casefold()
        # As it stands in a line. What has other forms there is looked for when the line is read.
        plain = self._search.isascii() and self._search.isprintable()
        self._needle = json.dumps(self._search)[1:-1].encode() if plain else b""
        self._best: list[tuple[tuple[float | str, str], Row]] = []
        self._found = Found()
        # Redis may hand out a row twice.
        self._seen: set[str] = set()

    def add_lines(self, lines: list[bytes]) -> None:
        """Look at some more, which are dumps."""
        if needle := self._needle:
            lines = [line for line in lines if needle in line.lower()]
        if lines:
            self.add(parse(lines))

    def add(self, rows: Iterable[Row]) -> None:
        """Look at some more."""
        query, after = self._query, self._query.after
        candidates = self._best
        for row in rows:
            if (shown := self._matching(row)) is None:
                continue
            self._found.count += 1
            self._found.size += shown.size
            place = (self._value(shown), shown.key)
            if after is None or (place < after if query.descending else place > after):
                candidates.append((place, shown))
        # One more than is shown: it tells whether there is another page.
        pick = heapq.nlargest if query.descending else heapq.nsmallest
        self._best = pick(query.limit + 1, candidates, key=lambda candidate: candidate[0])

    def found(self) -> Found:
        """What was found in all that was put in."""
        found, limit = self._found, self._query.limit
        found.rows = [row for _, row in self._best[:limit]]
        found.next = self._best[limit - 1][0] if len(self._best) > limit else None
        return found

    def _matching(self, row: Row) -> Row | None:
        """The row as it is after all purges, if it is wanted."""
        query = self._query
        if row.until <= self._now or row.key in self._seen:
            return None
        self._seen.add(row.key)
        if self._search and not (
            self._search in row.path.casefold() or self._search in row.title.casefold()
        ):
            return None
        if query.status and query.status not in (row.status, row.status // 100):
            return None
        # The clock of another machine may be ahead.
        age = max(0.0, self._now - row.stored)
        if not query.least_age <= age <= query.most_age:
            return None
        if row.generation < self._purges.generation:
            verdict = self._purges.verdict(
                row.path, row.tags, row.asset_fingerprint, row.generation
            )
            if verdict is not None:
                if not verdict.soft:
                    return None
                row = row._replace(expires=min(row.expires, verdict.since))
        if query.state is not None and row.state(self._now) != query.state:
            return None
        return row

    def _value(self, row: Row) -> float | str:
        match self._query.sort:
            case "path":
                return row.path
            case "status":
                return row.status
            case "size":
                return row.size
            case "seconds":
                return row.seconds
            case "age":
                return -row.stored  # the youngest first
