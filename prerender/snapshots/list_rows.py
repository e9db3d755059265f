"""Lists of snapshots: a row per snapshot, filtered and sorted in pieces. Pure.

A row has the fields of the list, so that lists do not read snapshots. Stores keep rows next to the
snapshots (``dump``), and return them in pieces of 500; they do not search.
"""

import heapq
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from prerender.snapshots import strict_json
from prerender.snapshots.entry import Entry
from prerender.snapshots.freshness import is_fresh
from prerender.snapshots.purges import Purges
from prerender.snapshots.snapshot import HTML
from prerender.snapshots.variants import DEVICES, Device
from prerender.urls.addresses import searched

# Rows to add at once.
PIECE = 500
# Rows to add, besides the limit, before the best ones are merged.
_MERGED_AT_ONCE = 10 * PIECE

Sort = Literal["path", "status", "age", "size", "seconds"]
SORTS: tuple[Sort, ...] = get_args(Sort)
Form = Literal["html", "markdown"]
FORMS: tuple[Form, ...] = get_args(Form)
RowState = Literal["fresh", "stale"]
STATES: tuple[RowState, ...] = get_args(RowState)


class Row(NamedTuple):
    """A stored snapshot in a list: of a path, for a ``device`` and a ``language``, in a ``form``.

    Unix seconds: ``stored`` when it was rendered, ``expires`` until when it is fresh, ``until`` when
    it is deleted. ``size``: bytes of its HTML. ``seconds``: real time until the page settled.
    ``problems``: the number of requests that failed or got no response, and of script errors. Other
    fields are for purges.
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
        """The stored form: a line of JSON."""
        return json.dumps(self, separators=(",", ":")).encode("ascii")

    def state(self, now: float) -> RowState:
        """Whether it is fresh or stale."""
        return "fresh" if is_fresh(self.expires, now) else "stale"


# The types of a row in JSON.
_TYPES = tuple(
    {list[str]: list, Device: str, Form: str}.get(kind, kind)
    for kind in get_type_hints(Row).values()
)
_TAGS, _DEVICE, _FORM = map(Row._fields.index, ("tags", "device", "form"))


def parse(lines: Sequence[bytes]) -> list[Row]:
    """Parse dumped rows. Rows of other versions are skipped."""
    try:
        values = strict_json.loads(b"[" + b",".join(lines) + b"]")
    except (ValueError, RecursionError):
        values = []
    if len(values) != len(lines):
        values = [row for line in lines for row in _alone(line)]
    return [Row._make(row) for row in values if _is_row(row)]


def _alone(line: bytes) -> list[Any]:
    try:
        return [strict_json.loads(line)]
    except (ValueError, RecursionError):
        return []


def _is_row(row: Any) -> bool:
    """Check the types of a row. strict_json would double the time of a list."""
    return (
        type(row) is list
        and tuple(map(type, row)) == _TYPES
        and all(type(tag) is str for tag in row[_TAGS])
        and row[_DEVICE] in DEVICES
        and row[_FORM] in FORMS
    )


@dataclass(frozen=True, slots=True)
class Query:
    """A query for at most ``limit`` rows ``after`` a cursor.

    ``search``: part of the path, escaped or not, or of the title; case-insensitive. ``status``:
    404, or 4 for 4xx. ``least_age`` and ``most_age`` in seconds. ``purged``: only rows that these
    purges apply to. ``after``: ``SelectedRows.next`` of the previous page.
    """

    search: str = ""
    status: int = 0
    state: RowState | None = None
    least_age: float = 0.0
    most_age: float = float("inf")
    sort: Sort = "age"
    descending: bool = False
    limit: int = 50
    after: tuple[float | str, str] | None = None
    purged: Purges | None = None


@dataclass(slots=True)
class SelectedRows:
    """A page of rows, the total count and size of all matches, and the cursor of the next page."""

    rows: list[Row] = field(default_factory=list)
    count: int = 0
    size: int = 0
    next: tuple[float | str, str] | None = None


class Selection:
    """Filters and sorts rows that are added in pieces.

    It belongs into a thread: with a high limit, or many prefixes and patterns of purges, a piece takes
    half a second. Sorted pieces are merged in Python, step by step: other threads would have to wait
    for a single ``sort`` of all rows.

    Raises ValueError if ``after`` does not fit the order of the query.
    """

    def __init__(self, query: Query, purges: Purges, now: float) -> None:
        if query.after and isinstance(query.after[0], str) != (query.sort == "path"):
            raise ValueError("cursor: invalid for this list")
        self._query = query
        self._purges = purges
        self._now = now
        self._terms = searched(query.search) if query.search else ()
        # The forms in dumped lines, for a fast filter. Other texts are searched after parsing.
        plain = query.search.isascii() and query.search.isprintable()
        terms = self._terms if plain else ()
        self._needles = [json.dumps(term)[1:-1].encode() for term in terms]
        # Sorted, each without what is beyond the limit.
        self._runs: list[list[tuple[tuple[float | str, str], Row]]] = []
        self._unmerged = 0
        self._selected = SelectedRows()
        # Redis may return a row twice.
        self._seen: set[str] = set()

    def add_lines(self, lines: list[bytes]) -> None:
        """Add dumped rows."""
        if self._needles:
            lines = [line for line in lines if self._may_match(line.lower())]
        if lines:
            self.add(parse(lines))

    def _may_match(self, line: bytes) -> bool:
        return any(needle in line for needle in self._needles)

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows."""
        query, after = self._query, self._query.after
        candidates = []
        for row in rows:
            if (shown := self._matching(row)) is None:
                continue
            self._selected.count += 1
            self._selected.size += shown.size
            place = (self._value(shown), shown.key)
            if after is None or (place < after if query.descending else place > after):
                candidates.append((place, shown))
        # Places are distinct, so rows are never compared.
        candidates.sort(reverse=query.descending)
        # One more than the limit shows whether there is another page.
        del candidates[query.limit + 1 :]
        if candidates:
            self._runs.append(candidates)
            self._unmerged += len(candidates)
        if self._unmerged > query.limit + _MERGED_AT_ONCE:
            self._merge()

    def selected(self) -> SelectedRows:
        """The result for all added rows."""
        self._merge()
        selected, limit, (best,) = self._selected, self._query.limit, self._runs
        selected.rows = [row for _, row in best[:limit]]
        selected.next = best[limit - 1][0] if len(best) > limit else None
        return selected

    def _merge(self) -> None:
        """Drop added rows that are beyond the limit."""
        merged = heapq.merge(*self._runs, reverse=self._query.descending)
        self._runs = [list(islice(merged, self._query.limit + 1))]
        self._unmerged = 0

    def _matching(self, row: Row) -> Row | None:
        """The row after all purges, if it matches the query."""
        query = self._query
        if row.until <= self._now or row.key in self._seen:
            return None
        self._seen.add(row.key)
        if self._terms and not self._has_term(row):
            return None
        if query.status and query.status not in (row.status, row.status // 100):
            return None
        # Clocks of other machines may be ahead.
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
        if query.purged is not None and not query.purged.verdict(
            row.path, row.tags, row.asset_fingerprint, 0
        ):
            return None
        return row

    def _has_term(self, row: Row) -> bool:
        path, title = row.path.casefold(), row.title.casefold()
        return any(term in path or term in title for term in self._terms)

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
                return -row.stored  # newest first
