"""The pages of a run, on disk: what is to do, what is done, and what earlier runs did.

An SQLite database. Memory does not depend on the number of pages, and what was written survives the
process, however it ends: a run that was killed is continued by the next one.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from prerender.errors import JournalError

WarmingOutcome = Literal[
    "rendered",
    "fresh",
    "stale",
    "outdated",
    "not_stored",
    "redirected",
    "no_proxy",
    "failed",
]
# "no_proxy": the response is not from this proxy.
_DONE: tuple[WarmingOutcome, ...] = ("rendered", "fresh", "not_stored", "redirected")
# Stale and outdated pages are requested again by the next run.
GOOD: tuple[WarmingOutcome, ...] = (*_DONE, "stale", "outdated")

_VERSION = 1
_CACHE_KIBIBYTES = 8 * 1024
# ``state`` is an outcome, or "listed": to do, "asked": under way, "later": to do once more.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS pages (
    url TEXT PRIMARY KEY, lastmod REAL, depth INTEGER NOT NULL, run INTEGER NOT NULL,
    place INTEGER NOT NULL, state TEXT NOT NULL, done REAL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS todo ON pages (lastmod DESC, place) WHERE state = 'listed';
CREATE INDEX IF NOT EXISTS later ON pages (run) WHERE state = 'later';
UPDATE pages SET state = 'asked' WHERE state IN ('listed', 'later');
PRAGMA user_version = 1;
"""


@dataclass(frozen=True, slots=True)
class PageToWarm:
    """A page to warm. ``lastmod``: its last change in Unix seconds, if known. ``depth``: how far its
    links are followed."""

    url: str
    lastmod: float | None = None
    depth: int = 0


class Added(NamedTuple):
    """How many of some pages are to do, and were done by an earlier run."""

    new: int
    done: int


class Journal:
    """The pages of a run, in ``file`` or, without one, in a temporary file. Raises JournalError.

    ``max_age``: pages that were done longer ago, in seconds, are done again.
    """

    def __init__(self, file: Path | None, max_age: float | None = None) -> None:
        self._name = file or "temporary file"
        self._max_age = max_age
        self._place = 0
        with self._guarded():
            self._database = sqlite3.connect(file or "", isolation_level=None, timeout=0)
            self._run = self._open()

    @contextmanager
    def _guarded(self, *, together: bool = False) -> Iterator[None]:
        """Raise JournalError for errors of the database. ``together``: in one transaction."""
        try:
            if not together:
                yield
                return
            with self._database:
                self._database.execute("BEGIN")
                yield
        except sqlite3.Error as error:
            raise JournalError(f"{self._name}: {_reason(error)}") from error

    def _open(self) -> int:
        """Prepare the database. Returns the number of this run."""
        run = self._database.execute
        # One process only; and nothing but the end of the system can undo a commit.
        run("PRAGMA locking_mode = EXCLUSIVE")
        (version,) = run("PRAGMA user_version").fetchone()
        (tables,) = run("SELECT count(*) FROM sqlite_schema").fetchone()
        if version != _VERSION and (version or tables):
            raise sqlite3.DatabaseError("another database, or of another version")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")
        run(f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}")
        self._database.executescript(_SCHEMA)
        (last,) = run("SELECT max(run) FROM pages").fetchone()
        return int(last or 0) + 1

    def add(self, pages: Iterable[PageToWarm]) -> Added:
        """Add pages of this run, each once."""
        new = done = 0
        with self._guarded(together=True):
            for page in pages:
                state = self._state(page)
                if state is None:
                    continue
                new += state == "listed"
                done += state != "listed"
                self._place += 1
                self._database.execute(
                    "INSERT INTO pages VALUES (?, ?, ?, ?, ?, ?, NULL) ON CONFLICT (url) DO UPDATE SET "
                    "lastmod = coalesce(excluded.lastmod, lastmod), depth = excluded.depth, "
                    "run = excluded.run, place = excluded.place, state = excluded.state",
                    (page.url, page.lastmod, page.depth, self._run, self._place, state),
                )
        return Added(new, done)

    def _state(self, page: PageToWarm) -> str | None:
        """The state of a page that is listed: "listed" or what it was; None if it is in this run."""
        row = self._database.execute(
            "SELECT run, state, lastmod, done FROM pages WHERE url = ?", (page.url,)
        ).fetchone()
        if row is None:
            return "listed"
        run, state, lastmod, done = row
        if run == self._run:
            return None
        # Not by comparing lastmod and the time when it was done: these are two clocks.
        unchanged = page.lastmod is None or page.lastmod == lastmod
        # Where links are followed, the page is requested again: only the snapshot has its links.
        skip = state in _DONE and unchanged and not page.depth and self._is_recent(done)
        return str(state) if skip else "listed"

    def _is_recent(self, done: float) -> bool:
        return self._max_age is None or 0 <= time.time() - done < self._max_age

    def take(self, most: int) -> list[PageToWarm]:
        """The next pages to do, the last changed first, else in the order in which they were added."""
        with self._guarded(together=True):
            rows = self._database.execute(
                "SELECT url, lastmod, depth FROM pages WHERE state = 'listed' "
                "ORDER BY lastmod DESC, place LIMIT ?",
                (most,),
            ).fetchall()
            self._database.executemany(
                "UPDATE pages SET state = 'asked' WHERE url = ?", ((row[0],) for row in rows)
            )
        return [PageToWarm(*row) for row in rows]

    def write(self, url: str, state: WarmingOutcome | Literal["later"]) -> None:
        """Write the outcome of a page. It is kept if the process is killed after this."""
        with self._guarded():
            self._database.execute(
                "UPDATE pages SET state = ?, done = ? WHERE url = ?", (state, time.time(), url)
            )

    def has_later(self) -> bool:
        """Whether there are pages of state "later"."""
        with self._guarded():
            rows = self._database.execute("SELECT 1 FROM pages WHERE state = 'later' LIMIT 1")
            return rows.fetchone() is not None

    def once_more(self) -> int:
        """List the pages of state "later" again. Returns how many they are."""
        with self._guarded():
            return self._database.execute(
                "UPDATE pages SET state = 'listed' WHERE state = 'later'"
            ).rowcount

    def left(self) -> int:
        """How many pages are to do."""
        with self._guarded():
            (count,) = self._database.execute(
                "SELECT count(*) FROM pages WHERE state = 'listed'"
            ).fetchone()
        return int(count)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _reason(error: sqlite3.Error) -> str:
    if "locked" in str(error):
        return "another run uses it"
    if "not a database" in str(error):
        return "is not a state file"
    return str(error)
