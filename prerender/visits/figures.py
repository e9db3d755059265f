"""The figures of a day, and the last visits of a page: counting, adding and storing them. Pure.

A day is a table of cells: requests by crawler, section of the site and outcome, with bytes and a
logarithmic histogram of durations. Sums of days and replicas are exact, quantiles accurate to 20 %.
"""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from prerender.errors import BadEntry
from prerender.telemetry.durations import Scale

# What crawlers got. "file": a forwarded request that is not for a page, by its extension; "404": also
# 410; "left": the client disconnected.
VisitOutcome = Literal[
    "fresh", "stale", "rendered", "forwarded", "file", "404", "4xx", "503", "5xx", "refused", "left"
]  # fmt: skip
OUTCOMES: tuple[VisitOutcome, ...] = get_args(VisitOutcome)

# Bounds of a day. The smallest are added to OTHER, so a scanner does not displace what is large.
MOST_SECTIONS = 30
MOST_CRAWLERS = 100
MOST_CELLS = 1500
OTHER = "other"
MOST_PAGES = 100_000
LONGEST_PATH = 300
DAY_SECONDS = 86400
HOUR_SECONDS = 3600

# Stored days have its powers.
DURATIONS = Scale(1.4, 1e-5)
# The format of a stored day. An unknown one is not read.
_MAGIC = b"VD1"
_MOST_UNPACKED_BYTES = 4 * 1024**2


class CellKey(NamedTuple):
    """The key of a cell. ``kind``: the class of the crawler; "" if it is unknown or unverified."""

    crawler: str
    kind: str
    section: str
    outcome: VisitOutcome


@dataclass(slots=True)
class Cell:
    """Requests of one kind. ``durations``: their number by power of the histogram's base."""

    requests: int = 0
    bytes: int = 0
    durations: Counter[int] = field(default_factory=Counter)

    def add(self, other: "Cell") -> None:
        """Add the requests of another cell."""
        self.requests += other.requests
        self.bytes += other.bytes
        # Counter.update is several times as slow for a few numbers.
        for power, number in other.durations.items():
            self.durations[power] += number

    def quantile(self, share: float) -> float:
        """A quantile of the durations in seconds; 0 without requests."""
        return DURATIONS.quantile(self.durations, share)


Day = dict[CellKey, Cell]
# By class of crawlers: Unix seconds of the last visit, and its status. By FACTS: when it was rendered,
# and what its snapshot says: 1 for noindex, a foreign canonical or "", and the characters of its text.
# What has the later first value wins, whatever it is: Redis merges pages by the same rule.
LastVisits = dict[str, tuple[int | str, ...]]
FACTS = "#"
# Of the names of crawlers in requests from addresses that are not their own.
UNVERIFIED_SUFFIX = " (unverified)"
# Pages that were rendered again, by hour: with less than half of their text, or not.
THINNER = ("thinner", FACTS, "", "rendered")
WHOLE = ("whole", FACTS, "", "rendered")
_LEAST_CHARACTERS = 500


def section_of(path: str) -> str:
    """The folder at the top of a path, such as "/items/"; of a ``#!`` state, "#!/items/".

    Pages without a folder are in "/".
    """
    path, _, state = path.partition("#!")
    path = path.partition("?")[0]
    if state and path == "/":
        return f"#!{section_of(state if state.startswith('/') else f'/{state}')}"
    end = path.find("/", 1)
    return path[: end + 1][:60] if end > 0 and path.startswith("/") else "/"


def add_day(day: Day, more: Mapping[CellKey, Cell]) -> None:
    """Add the cells of ``more``."""
    for key, cell in more.items():
        day.setdefault(key, Cell()).add(cell)


def bounded(day: Day) -> Day:
    """A day within the bounds."""
    sections = _smallest(((key.section, cell.requests) for key, cell in day.items()), MOST_SECTIONS)
    if sections:
        day = _folded(
            day, lambda key: key.section in sections, lambda key: key._replace(section=OTHER)
        )
    crawlers = _smallest(((key.crawler, cell.requests) for key, cell in day.items()), MOST_CRAWLERS)
    if crawlers:
        day = _folded(
            day,
            lambda key: key.crawler in crawlers,
            lambda key: key._replace(crawler=OTHER, kind=""),
        )
    if len(day) > MOST_CELLS:
        small = sorted(day, key=lambda key: day[key].requests)[: len(day) - MOST_CELLS // 2]
        gone = set(small).__contains__
        day = _folded(day, gone, lambda key: key._replace(section=OTHER))
    return day


def _smallest(requests: Iterable[tuple[str, int]], most: int) -> set[str]:
    """The names with the fewest requests, if there are more than ``most``."""
    sums: Counter[str] = Counter()
    for name, number in requests:
        sums[name] += number
    if len(sums) <= most:
        return set()
    return sums.keys() - {one for one, _ in sums.most_common(most - 1)} - {OTHER}


def _folded(
    day: Day, is_small: Callable[[CellKey], bool], other: Callable[[CellKey], CellKey]
) -> Day:
    folded: Day = {}
    for key, cell in day.items():
        folded.setdefault(other(key) if is_small(key) else key, Cell()).add(cell)
    return folded


def compared(page: LastVisits, more: LastVisits) -> CellKey | None:
    """Whether a page has become thin, to be counted; None without facts of two renders."""
    if FACTS not in page or FACTS not in more:
        return None
    before, after = int(page[FACTS][3]), int(more[FACTS][3])
    return CellKey._make(THINNER if before >= _LEAST_CHARACTERS and after < before / 2 else WHOLE)


def merge_page(page: LastVisits, more: LastVisits) -> None:
    """Add later visits."""
    for name, value in more.items():
        if name not in page or page[name][0] <= value[0]:  # type: ignore[operator]
            page[name] = value


def encode(day: Day) -> bytes:
    """The stored form: about 25 bytes per cell."""
    rows = []
    for key, cell in sorted(day.items()):
        first = min(cell.durations, default=0)
        buckets = [
            cell.durations[power] for power in range(first, max(cell.durations, default=-1) + 1)
        ]
        rows.append((*key, cell.requests, cell.bytes, first, *buckets))
    return _MAGIC + zlib.compress(json.dumps(rows, separators=(",", ":")).encode())


def decode(data: bytes) -> Day:
    """Decode a stored day. Raises BadEntry."""
    if not data.startswith(_MAGIC):
        raise BadEntry("not a day of this version")
    try:
        text = zlib.decompressobj().decompress(data[len(_MAGIC) :], _MOST_UNPACKED_BYTES)
        return dict(map(_cell, json.loads(text)))
    except (zlib.error, ValueError, TypeError, RecursionError) as error:
        raise BadEntry(str(error)) from error


def _cell(row: list[object]) -> tuple[CellKey, Cell]:
    crawler, kind, section, outcome, requests, size, first, *buckets = row
    if outcome not in OUTCOMES:
        raise ValueError(f"unknown outcome: {outcome}")
    if not all(type(number) is int for number in (requests, size, first, *buckets)):
        raise ValueError("not a number")
    durations = {first + place: number for place, number in enumerate(buckets) if number}  # type: ignore[operator]
    cell = Cell(requests, size, Counter(durations))  # type: ignore[arg-type]
    return CellKey(str(crawler), str(kind), str(section), outcome), cell


def encode_page(page: LastVisits) -> str:
    """The stored form of a page, as JSON, which Redis merges, too."""
    return json.dumps(page, separators=(",", ":"))


def decode_page(text: str | bytes) -> LastVisits:
    """Decode a stored page; what is not understood is left out."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {
        name: tuple(value)
        for name, value in content.items()
        if isinstance(value, list)
        and len(value) == (4 if name == FACTS else 2)
        and all(isinstance(one, int | str) for one in value)
        and isinstance(value[0], int)
    }
