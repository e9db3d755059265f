"""Browsers are replaced without a gap: a new one starts before the old one ends, and no render
waits.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from prerender.browser import chromium, installed, supervisor
from prerender.browser.pool import Pool
from prerender.browser.supervisor import Limits, ReplacementCause
from prerender.errors import BrowserGone
from tests.conftest import StartOrigin, StartProxy, pages
from tests.support import processes
from tests.support.pools import SECONDS, Borrower, crawl, pool_of, session_of, shop_and_proxy, state


@pytest.fixture(autouse=True)
async def folder(
    no_shared_browser: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    """The temporary folder of a test. At the end, nothing of any browser may be left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert processes.sessions() == []
    await processes.all_gone((), tmp_path)


async def started(pool: Pool, number: int) -> None:
    """Wait until this number of browsers was started."""
    async with asyncio.timeout(SECONDS):
        while pool.browsers_started < number:
            await asyncio.sleep(0.01)


async def only_the_last(pool: Pool, wanted: str) -> int:
    """Wait until the pool has one browser and is in this state. Returns the browser's session."""
    async with asyncio.timeout(SECONDS):
        while len(sessions := processes.sessions()) != 1 or str(sessions[0]) not in repr(pool):
            await asyncio.sleep(0.02)
    await state(pool, wanted)
    return sessions[0]


@pytest.mark.ci_only
async def test_replaced_by_renders_under_load(
    start_origin: StartOrigin, start_own_proxy: StartProxy
) -> None:
    """Two clients crawl all the time, through a replacement. No render fails."""
    _, proxy = await shop_and_proxy(start_origin, start_own_proxy, 1, max_renders=4)
    pool = proxy.running.pool
    numbers = iter(range(100_000))
    statuses: list[int] = []

    async def client() -> None:
        while pool.browsers_started < 2:
            statuses.append(await crawl(proxy, next(numbers)))
            await asyncio.sleep(0.05)  # the CPU is for the new browser, too

    async with asyncio.timeout(60):
        await asyncio.gather(*(client() for _ in range(2)))
    assert set(statuses) == {200}
    assert len(statuses) > 4
    await only_the_last(pool, "1 idle, 0 busy, 0 waiting")


@pytest.mark.ci_only
async def test_replaced_by_age_while_a_page_is_lent() -> None:
    """Running renders finish on the old browser; later ones use the new one."""
    async with pool_of(2, limits=Limits(age=2)) as pool:
        slow = Borrower(pool)
        page = await slow.has_page()
        first = session_of(pool)
        async with asyncio.timeout(SECONDS):
            while session_of(pool) == first:
                await asyncio.sleep(0.01)
        assert not page.broken
        assert first in processes.sessions()
        other = Borrower(pool)
        assert (await other.has_page()).devtools is not page.devtools
        await slow.give_back()
        await processes.all_gone([first])
        await other.give_back()


@pytest.mark.ci_only
async def test_replaced_when_its_package_is_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by apt: each file is replaced by another of its name. Nothing happens in the middle of it, or
    while the program is missing.
    """
    monkeypatch.setattr(installed, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(installed, "SETTLED_SECONDS", 1.0)
    own = a_package(tmp_path / "package")
    async with pool_of(1, program=str(own)) as pool:
        borrower = Borrower(pool)
        page = await borrower.has_page()
        first = session_of(pool)
        upgrade(own.parent, ["resources.pak", "icudtl.dat", own.name])
        upgraded = own.rename(own.with_name("upgraded"))
        await asyncio.wait([waiting := asyncio.create_task(started(pool, 2))], timeout=2)
        assert pool.browsers_started == 1
        upgraded.rename(own)
        await waiting
        assert pool.replacements[ReplacementCause.UPGRADE] == 1
        assert not page.broken
        await borrower.give_back()
        await processes.all_gone([first])
        await only_the_last(pool, "1 idle, 0 busy, 0 waiting")
    shutil.rmtree(own.parent)


def a_package(folder: Path) -> Path:
    """A copy of the installed Chromium in a new folder. Returns its program."""
    program = Path(chromium.find()).resolve()
    if program.read_bytes()[:2] == b"#!":  # Debian's script
        program = Path("/usr/lib/chromium", program.name)
    shutil.copytree(program.parent, folder, copy_function=_linked)
    return folder / program.name


def upgrade(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        if (file := folder / name).exists():
            new = Path(shutil.copy2(file, folder / f"{name}.new"))
            new.replace(file)


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or files of another user
        shutil.copy2(source, target)


@pytest.mark.ci_only
async def test_slots_are_as_many_as_ever_while_a_browser_is_replaced() -> None:
    async with pool_of(2, limits=Limits(renders=2)) as pool:
        await state(pool, "2 idle, 0 busy, 0 waiting")
        old = [Borrower(pool), Borrower(pool)]
        await state(pool, "0 idle, 2 busy, 0 waiting")
        first = session_of(pool)
        await state(pool, "2 idle, 2 busy, 0 waiting")
        waiting = Borrower(pool)
        await state(pool, "2 idle, 2 busy, 1 waiting")
        await old[0].give_back()
        await state(pool, "1 idle, 2 busy, 0 waiting")
        await old[1].give_back()
        await processes.all_gone([first])
        await waiting.give_back()
        await only_the_last(pool, "2 idle, 0 busy, 0 waiting")


@pytest.mark.ci_only
async def test_replaced_for_its_memory_but_not_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "_LARGE_SECONDS", 0.1)
    async with pool_of(1, limits=Limits(memory=100 * 1024**2)) as pool:
        await started(pool, 2)
        second = await only_the_last(pool, "1 idle, 0 busy, 0 waiting")
        # It takes too much itself, as every other one would: that has to be borne for a while.
        pause = asyncio.create_task(started(pool, 3))
        await asyncio.wait([pause], timeout=2)
        pause.cancel()
        assert processes.sessions() == [second]


async def test_a_page_that_takes_more_and_more_memory(
    start_origin: StartOrigin, start_own_proxy: StartProxy
) -> None:
    """It is stopped once, long before the timeout. Other renders are unaffected."""
    bomb = """<p>more<script src=/asked-each-time.js></script><script>
      const kept = [];
      (function more() {
        kept.push(new Uint8Array(2e7).fill(1));
        setTimeout(more, 1);
      })();
    </script>"""
    origin = await pages(start_origin, {"/bomb": bomb, "/": "<p>fine"})
    proxy = await start_own_proxy(origin.url, {"browser": {"pages": 2, "max_memory": "300MiB"}})
    await state(proxy.running.pool, "2 idle, 0 busy, 0 waiting")
    async with asyncio.timeout(60):
        exploding = asyncio.create_task(proxy.crawl("/bomb"))
        number = 0
        while not exploding.done():
            number += 1
            answer = await proxy.crawl(f"/#!{number}")
            assert answer.status == 200
            assert "<p>fine" in answer.text
        assert exploding.result().status == 503
    assert origin.count("/asked-each-time.js") == 1, "it is not rendered again"
    await only_the_last(proxy.running.pool, "2 idle, 0 busy, 0 waiting")


async def test_the_old_one_stays_while_no_new_one_can_be_started() -> None:
    async with pool_of(1, failing=range(2, 5), limits=Limits(renders=3)) as pool:
        used = 0
        while pool.browsers_started < 2:
            borrower = Borrower(pool)
            await state(pool, "0 idle, 1 busy, 0 waiting")
            await borrower.give_back()
            await state(pool, "1 idle, 0 busy, 0 waiting")
            used += 1
            await asyncio.sleep(0.05)
        assert used > 3
        await only_the_last(pool, "1 idle, 0 busy, 0 waiting")


async def test_a_browser_that_keeps_dying_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Starts are retried, because the cause may pass. If not, that is logged as an error, once."""
    program = tmp_path / "dies"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    async with pool_of(1, program=str(program)) as pool:
        async with asyncio.timeout(SECONDS):
            while pool.replacements[ReplacementCause.NOT_STARTED] < 4:
                await asyncio.sleep(0.01)
    failed = [record for record in caplog.records if "browser_start_failed" in str(record.msg)]
    assert [record.levelname for record in failed] == ["WARNING", "ERROR"]
    program.unlink()


@pytest.mark.ci_only
async def test_the_old_one_dies_while_the_new_one_is_made_ready() -> None:
    async with pool_of(1, limits=Limits(renders=1)) as pool:
        await state(pool, "1 idle, 0 busy, 0 waiting")
        (first,) = processes.sessions()
        borrower = Borrower(pool)
        await state(pool, "0 idle, 1 busy, 0 waiting")
        async with asyncio.timeout(SECONDS):
            while len(processes.sessions()) < 2:
                await asyncio.sleep(0.001)
        processes.kill(first, "browser")
        with suppress(BrowserGone):  # if its end has been seen already
            await borrower.give_back()
        await only_the_last(pool, "1 idle, 0 busy, 0 waiting")
        assert pool.browsers_started == 2
