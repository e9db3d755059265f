"""Jobs in an SQLite file next to the snapshots, or in memory."""

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from prerender.extensions.jobs.job import (
    Job,
    JobProgress,
    PageResult,
    PageRow,
    WaitingPage,
    parse_job,
    parse_result,
)
from prerender.snapshots.stores.sqlite_file import SQLiteFile

_SCHEMA = (
    "CREATE TABLE jobs (id TEXT PRIMARY KEY, job TEXT, state TEXT, ended REAL DEFAULT 0, "
    "note TEXT DEFAULT '', duplicates INTEGER DEFAULT 0, next REAL DEFAULT 0)",
    # ``due``: when it is to be done, or is another replica's; NULL: it is done. The first times are the
    # order of the list.
    "CREATE TABLE pages (job TEXT, path TEXT, due REAL, since REAL, tries INTEGER, result TEXT, "
    "PRIMARY KEY (job, path)) WITHOUT ROWID",
    "CREATE INDEX todo ON pages (job, due) WHERE due IS NOT NULL",
    "CREATE TABLE counts (job TEXT, outcome TEXT, count INTEGER, PRIMARY KEY (job, outcome))",
)
_COUNT = (
    "INSERT INTO counts VALUES (?, ?, ?) "
    "ON CONFLICT (job, outcome) DO UPDATE SET count = count + excluded.count"
)
_END = (
    "UPDATE jobs SET state = 'done', ended = ? WHERE id = ? AND state = 'running' "
    "AND NOT EXISTS (SELECT 1 FROM pages WHERE job = jobs.id AND due IS NOT NULL)"
)


class FileJobs:
    """Keeps jobs in ``file``, whose folder exists and which one process uses; None: in memory."""

    def __init__(self, file: Path | None) -> None:
        self.kind = "file" if file else "memory"
        self._file = file
        self._database = SQLiteFile(file, _SCHEMA)
        self._started = False

    async def jobs(self) -> list[JobProgress]:
        """All jobs, the oldest first. Does not create the file."""
        if self._file is not None and not self._file.exists():
            return []

        def jobs(database: sqlite3.Connection) -> list[JobProgress]:
            if not self._started:
                # What the last process had taken.
                database.execute("UPDATE pages SET due = 0 WHERE due > 1")
                self._started = True
            rows = database.execute(
                "SELECT job, state, ended, note, duplicates, (SELECT count(*) FROM pages "
                "WHERE job = jobs.id AND due IS NOT NULL) FROM jobs ORDER BY rowid"
            ).fetchall()
            return [
                JobProgress(
                    job, state, ended, note, twice, waiting, dict(_counts(database, job.id))
                )
                for text, state, ended, note, twice, waiting in rows
                if (job := parse_job(text)) is not None
            ]

        return await self._database.run(jobs)

    async def add(self, job: Job) -> None:
        """Add a job without pages."""
        row = (job.id, json.dumps(asdict(job)))
        query = "INSERT INTO jobs (id, job, state) VALUES (?, ?, 'reading')"
        await self._database.run(lambda database: database.execute(query, row))

    async def add_pages(self, job: str, pages: Sequence[tuple[str, float | PageResult]]) -> int:
        """Add pages to an unfinished job."""

        def add(database: sqlite3.Connection) -> int:
            query = "SELECT 1 FROM jobs WHERE id = ? AND state IN ('reading', 'running')"
            if database.execute(query, (job,)).fetchone() is None:
                return 0
            (place,) = database.execute(
                "SELECT count(*) FROM pages WHERE job = ?", (job,)
            ).fetchone()
            new = 0
            for path, page in pages:
                if isinstance(page, PageResult):
                    row = (job, path, None, 0.0, page.dump())
                else:
                    row = (job, path, (place + new) * 1e-6, page, "")
                query = "INSERT OR IGNORE INTO pages VALUES (?, ?, ?, ?, 0, ?)"
                if database.execute(query, row).rowcount:
                    new += 1
                    if isinstance(page, PageResult):
                        database.execute(_COUNT, (job, page.outcome, 1))
            query = "UPDATE jobs SET duplicates = duplicates + ? WHERE id = ?"
            database.execute(query, (len(pages) - new, job))
            return new

        return await self._database.run(add)

    async def listed(self, job: str, note: str) -> None:
        """The list of a job is complete."""

        def change(database: sqlite3.Connection) -> None:
            query = "UPDATE jobs SET state = 'running', note = ? WHERE id = ? AND state = 'reading'"
            database.execute(query, (note, job))
            database.execute(_END, (time.time(), job))

        await self._database.run(change)

    async def cancel(self, job: str) -> bool:
        """Cancel a job. Its pages that are not done stay as they are."""
        query = (
            "UPDATE jobs SET state = 'cancelled', ended = ? WHERE id = ? AND state IN "
            "('reading', 'running')"
        )
        row = (time.time(), job)
        return await self._database.run(lambda one: one.execute(query, row).rowcount > 0)

    async def drop(self, job: str) -> None:
        """Forget a job."""

        def drop(database: sqlite3.Connection) -> None:
            for table, column in (("jobs", "id"), ("pages", "job"), ("counts", "job")):
                database.execute(f"DELETE FROM {table} WHERE {column} = ?", (job,))  # noqa: S608

        await self._database.run(drop)

    async def take(self, job: str, rate: float, seconds: float) -> WaitingPage | None:
        """The next page of a job."""

        def take(database: sqlite3.Connection) -> WaitingPage | None:
            now = time.time()
            query = "SELECT next FROM jobs WHERE id = ? AND state IN ('reading', 'running')"
            job_row = database.execute(query, (job,)).fetchone()
            if job_row is None or job_row[0] > now:
                return None
            row = database.execute(
                "SELECT path, since, tries FROM pages WHERE job = ? AND due <= ? ORDER BY due LIMIT 1",
                (job, now),
            ).fetchone()
            if row is None:
                return None
            query = "UPDATE pages SET due = ? WHERE job = ? AND path = ?"
            database.execute(query, (now + seconds, job, row[0]))
            if rate:
                after = max(job_row[0], now - 1) + 1 / rate
                database.execute("UPDATE jobs SET next = ? WHERE id = ?", (after, job))
            return WaitingPage(*row)

        return await self._database.run(take)

    async def put_back(self, job: str, page: WaitingPage, seconds: float) -> None:
        """Do a page in so many seconds."""
        query = "UPDATE pages SET due = ?, tries = ? WHERE job = ? AND path = ? AND due IS NOT NULL"
        row = (time.time() + seconds, page.tries, job, page.path)
        await self._database.run(lambda database: database.execute(query, row))

    async def finish(self, job: str, path: str, result: PageResult) -> None:
        """A page is done."""

        def finish(database: sqlite3.Connection) -> None:
            done = database.execute(
                "UPDATE pages SET due = NULL, result = ? WHERE job = ? AND path = ? AND due IS NOT "
                "NULL AND (SELECT state FROM jobs WHERE id = pages.job) != 'cancelled'",
                (result.dump(), job, path),
            )
            if done.rowcount:
                database.execute(_COUNT, (job, result.outcome, 1))
                database.execute(_END, (time.time(), job))

        await self._database.run(finish)

    async def rows(
        self, job: str, outcome: str, cursor: str, most: int
    ) -> tuple[list[PageRow], str | None]:
        """Pages by path; the cursor is the last one."""
        like = "" if outcome == "waiting" else f'["{outcome}"%' if outcome else "%"
        query = (
            "SELECT path, result FROM pages WHERE job = ? AND path > ? AND result LIKE ? LIMIT ?"
        )

        def rows(database: sqlite3.Connection) -> list[PageRow]:
            pairs = database.execute(query, (job, cursor, like, most))
            return [(path, parse_result(result)) for path, result in pairs]

        listed = await self._database.run(rows)
        return listed, listed[-1][0] if len(listed) == most else None

    async def close(self) -> None:
        """Forget jobs in memory."""
        self._database.close()


def _counts(database: sqlite3.Connection, job: str) -> list[tuple[str, int]]:
    query = "SELECT outcome, count FROM counts WHERE job = ?"
    return database.execute(query, (job,)).fetchall()
