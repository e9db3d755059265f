"""Where jobs are kept: pages are taken once, come back when a replica dies, and are counted once."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from prerender.errors import StoreError
from prerender.extensions.jobs.file import FileJobs
from prerender.extensions.jobs.job import (
    RETENTION_SECONDS,
    Job,
    JobProgress,
    JobStore,
    PageResult,
    WaitingPage,
)
from prerender.extensions.jobs.redis import RedisJobs
from tests.support.redis_server import RedisServer, redis_server

JOB = Job("1", 1_700_000_000.0, priority="low")
LONG = 100.0


@pytest.fixture(params=["memory", "file", "redis"])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JobStore]:
    if request.param == "memory":
        yield FileJobs(None)
    elif request.param == "file":
        yield FileJobs(tmp_path / "jobs.sqlite3")
    else:
        redis = RedisServer(tmp_path)
        await redis.start()
        store = RedisJobs(redis.url, "prerender:{x:jobs}")
        yield store
        await store.close()
        await redis.kill()


async def only(kept: JobStore) -> JobProgress:
    (found,) = await kept.jobs()
    return found


def done(outcome: str = "rendered") -> PageResult:
    return PageResult(outcome, time.time(), 200, "é")  # type: ignore[arg-type]


async def test_a_job_from_its_list_to_its_end(kept: JobStore) -> None:
    assert await kept.jobs() == []
    await kept.add(JOB)
    invalid = PageResult("invalid", 1.0, 0, "no URL")
    assert await kept.add_pages("1", [("/b", 5.5), ("/a", 0.0), ("/b", 0.0), ("x", invalid)]) == 3
    assert await kept.take("1", 0, LONG) == WaitingPage("/b", 5.5)
    await kept.listed("1", "a note")
    assert await kept.take("1", 0, LONG) == WaitingPage("/a", 0.0)
    assert await kept.take("1", 0, LONG) is None
    await kept.finish("1", "/b", done())
    await kept.finish("1", "/b", done("failed"))
    assert await only(kept) == JobProgress(
        JOB, "running", 0.0, "a note", 1, 1, {"rendered": 1, "invalid": 1}
    )
    before = time.time()
    await kept.finish("1", "/a", done("kept"))
    ended = await only(kept)
    assert (ended.state, ended.waiting, ended.pages) == ("done", 0, 3)
    assert abs(ended.ended - before) < 5
    rows, after = await kept.rows("1", "", "", 10)
    assert after is None
    assert {path: result.outcome for path, result in rows if result} == {
        "/b": "rendered", "/a": "kept", "x": "invalid",
    }  # fmt: skip
    ((path, result),) = (await kept.rows("1", "kept", "", 10))[0]
    assert (path, result and result.reason) == ("/a", "é")
    assert not await kept.cancel("1")
    await kept.drop("1")
    assert await kept.jobs() == []


async def test_a_page_of_a_replica_that_died_is_taken_again(kept: JobStore) -> None:
    await kept.add(JOB)
    await kept.add_pages("1", [("/a", 0.0)])
    assert await kept.take("1", 0, -1) == WaitingPage("/a", 0.0)  # its time is over at once
    assert await kept.take("1", 0, LONG) == WaitingPage("/a", 0.0)
    assert await kept.take("1", 0, LONG) is None
    await kept.put_back("1", WaitingPage("/a", 7.0, 1), 0)
    taken = await kept.take("1", 0, LONG)
    assert taken is not None
    assert taken.tries == 1
    assert (await kept.rows("1", "waiting", "", 10))[0] == [("/a", None)]


async def test_a_cancelled_job_does_nothing_more(kept: JobStore) -> None:
    await kept.add(JOB)
    await kept.add_pages("1", [("/a", 0.0), ("/b", 0.0)])
    assert await kept.take("1", 0, LONG)
    assert await kept.cancel("1")
    await kept.finish("1", "/a", done())
    await kept.listed("1", "")
    assert await kept.take("1", 0, LONG) is None
    found = await only(kept)
    assert (found.state, found.waiting, found.outcomes) == ("cancelled", 2, {})


async def test_nothing_is_added_to_a_job_that_has_ended(kept: JobStore) -> None:
    await kept.add(JOB)
    await kept.cancel("1")
    assert await kept.add_pages("1", [("/a", 0.0), ("x", done("invalid"))]) == 0
    assert (await only(kept)).pages == 0
    await kept.drop("1")
    assert await kept.add_pages("1", [("/a", 0.0), ("x", done("invalid"))]) == 0
    assert await kept.jobs() == []
    assert (await kept.rows("1", "", "", 10))[0] == []


async def test_the_rate_is_that_of_all_who_take(kept: JobStore) -> None:
    await kept.add(JOB)
    await kept.add_pages("1", [(f"/{n}", 0.0) for n in range(9)])
    taken = await asyncio.gather(*(kept.take("1", 0.01, LONG) for _ in range(9)))
    assert len([one for one in taken if one]) == 1


async def test_a_job_without_pages_is_done(kept: JobStore) -> None:
    await kept.add(JOB)
    await kept.listed("1", "empty")
    assert (await only(kept)).state == "done"


async def test_lists_are_in_pieces(kept: JobStore) -> None:
    await kept.add(JOB)
    paths = {f"/{'x' * 80}{n}" for n in range(1200)}
    await kept.add_pages("1", [(path, 0.0) for path in paths])
    found: list[str] = []
    cursor: str | None = ""
    pieces = 0
    while cursor is not None:
        rows, cursor = await kept.rows("1", "waiting", cursor, 500)
        found += [path for path, _ in rows]
        pieces += 1
    assert set(found) == paths
    assert pieces > 1


async def test_what_a_process_had_taken_when_it_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sqlite3"
    before = FileJobs(file)
    await before.add(JOB)
    await before.add_pages("1", [("/a", 0.0)])
    assert await before.take("1", 0, LONG)
    after = FileJobs(file)
    assert (await only(after)).waiting == 1
    assert await after.take("1", 0, LONG) == WaitingPage("/a", 0.0)


async def test_a_job_of_another_release_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sqlite3"
    kept = FileJobs(file)
    await kept.add(JOB)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("INSERT INTO jobs (id, job, state) VALUES ('2', '{\"id\": 2}', 'running')")
    assert (await only(kept)).job == JOB


async def test_a_job_is_kept_as_long_as_it_runs_and_ended_ones_expire(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as redis:
        kept = RedisJobs(redis.url, "{x:jobs}")
        await kept.add(JOB)
        await kept.add_pages("1", [("/a", 0.0)])
        names = sorted(await redis.client.keys("*"))
        assert names == [b"{x:jobs}", b"{x:jobs}:1", b"{x:jobs}:1:pages", b"{x:jobs}:1:todo"]

        async def times() -> list[int]:
            for name in names:
                await redis.client.expire(name, 60)
            await kept.jobs()
            return [await redis.client.ttl(name) for name in names]

        assert min(await times()) > RETENTION_SECONDS
        for cursor in ("x", "/a", "9" * 20, "9" * 5000):
            with pytest.raises(ValueError, match="cursor: invalid for this list"):
                await kept.rows("1", "", cursor, 1)
        await kept.cancel("1")
        assert max(await times()) <= 60
        await kept.close()


async def test_foreign_values_in_redis_count_as_missing(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as redis:
        kept = RedisJobs(redis.url, "{x:jobs}")
        for first in (kept.jobs(), kept.add(JOB)):
            await redis.client.set("{x:jobs}", "foreign")
            await first
        await kept.add(replace(JOB, id="2"))
        for end in ("", ":todo", ":pages"):
            await kept.add(JOB)
            await redis.client.set(f"{{x:jobs}}:1{end}", "foreign")
            assert "2" in [progress.job.id for progress in await kept.jobs()]
            await kept.add(JOB)
            assert await kept.add_pages("1", [("/a", 0.0)]) == 1
            assert await kept.take("1", 0, LONG) == WaitingPage("/a", 0.0)
            await kept.drop("1")
        await kept.close()


async def test_faults(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sqlite3"
    file.write_bytes(b"something else " * 100)
    kept = FileJobs(file)
    with pytest.raises(StoreError):
        await kept.jobs()
    assert await kept.jobs() == []
    with pytest.raises(StoreError):
        await RedisJobs("redis://127.0.0.1:1/0", "x").jobs()
