"""Cancelling work at every await leaves everything in order."""

import asyncio
import tempfile
from collections.abc import Coroutine, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from prerender.rendering import from_settings
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import StartOrigin, settings_for
from tests.support import no_programs, processes
from tests.support.pools import SECONDS, Shop, gateway_of, launch_browser, state

pytestmark = pytest.mark.usefixtures("no_shared_browser")


class Interrupted:
    """Awaits work, and cancels its task at the n-th wait."""

    def __init__(self, work: Coroutine[Any, Any, Any], n: int) -> None:
        self._work = work
        self._left = n

    async def run(self) -> bool:
        """Returns whether the work ended before it was cancelled."""
        async with asyncio.timeout(SECONDS):
            await self
        return self._left > 0

    def __await__(self) -> Generator[Any, None, Any]:
        inner = self._work.__await__()
        resume = partial(inner.send, None)
        while True:
            try:
                awaited = resume()
            except StopIteration as end:
                return end.value
            self._left -= 1
            if self._left == 0:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield awaited
                resume = partial(inner.send, None)
            except BaseException as error:  # it is for the work to see
                resume = partial(inner.throw, error)


async def cancelled_at(n: int, work: Coroutine[Any, Any, Any]) -> bool:
    """Cancel the work at its n-th wait. Returns False if it waits less often."""
    task = asyncio.create_task(Interrupted(work, n).run())
    await asyncio.wait([task])
    if task.cancelled():
        return True
    assert task.result(), "a cancellation was swallowed"
    return False


@pytest.mark.ci_only
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
async def test_a_render(start_origin: StartOrigin, step: int) -> None:
    """From the queue to the serialized page: the page returns to the pool, and the next render is
    correct.
    """
    shop = Shop()
    application = web.Application()
    application.add_routes([web.get("/", shop.page), web.get("/text", shop.text)])
    origin = await start_origin(application)
    settings = settings_for(origin.url, {"browser": {"pages": 1}})
    no_programs.check()
    async with from_settings.rendering(settings) as (_, _, pool, renderer):
        await state(pool, "1 idle, 0 busy, 0 waiting")
        points, more = 1 - step, True
        while more:
            points += step
            target = Target.of(settings.public_url, PrettyURL("/", f"cut/{points}"))
            more = await cancelled_at(points, renderer.snapshot(target))
            await state(pool, "1 idle, 0 busy, 0 waiting")
            target = Target.of(settings.public_url, PrettyURL("/", f"whole/{points}"))
            answer = await renderer.snapshot(target)
            assert f">text of whole/{points}<".encode() in answer.snapshot.body
            await state(pool, "1 idle, 0 busy, 0 waiting")
        assert points > 5
        assert pool.browsers_started == 1


async def test_a_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def launch() -> None:
        browser = await launch_browser(gateway)
        await browser.close()

    async with gateway_of() as gateway:
        before = asyncio.all_tasks()
        points = 1
        # Later in larger steps: a launch waits many times.
        while await cancelled_at(points, launch()):
            assert processes.sessions() == []
            await processes.all_gone((), tmp_path)
            points += 1 if points < 4 else 3
        assert points > 6
        async with asyncio.timeout(SECONDS):
            while left := asyncio.all_tasks() - before:
                await asyncio.wait(left)
