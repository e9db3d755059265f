"""Chromium's memory stays below ``[browser] max_memory`` for all pages."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from prerender.browser.memory_limit import Memory
from tests.conftest import Proxy, StartOrigin, StartProxy, pages
from tests.sites.hostile import MEMORY_BOMBS
from tests.support import processes
from tests.support.pools import state

MAX_BYTES = 700 * 1024**2
# What a page fills between a look of the guardian and its end.
TOLERANCE = 1.15
PAGE = "<title>Neighbour</title><p>fine"


class Peak(threading.Thread):
    """Measures the memory of browsers many times a second. ``bytes``: the maximum."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            taken = sum(
                _size(process.pid)
                for session in processes.sessions()
                for process in processes.members(session)
            )
            self.bytes = max(self.bytes, taken)
            time.sleep(0.005)


def _size(pid: int) -> int:
    """The proportional set size, which containers are charged for. If it may not be read: the
    process's own part of it.
    """
    with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        sizes = (int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        return next(sizes, 0)
    with suppress(OSError, ValueError):
        return Memory.of(pid).own_bytes
    return 0


@contextmanager
def measured() -> Iterator[Peak]:
    peak = Peak()
    peak.start()
    try:
        yield peak
    finally:
        peak.ended.set()
        peak.join()


@pytest.fixture
async def proxy(
    no_shared_browser: None, start_origin: StartOrigin, start_own_proxy: StartProxy
) -> Proxy:
    site = {f"/{name}": page for name, page in MEMORY_BOMBS.items()} | {"/": PAGE}
    origin = await pages(start_origin, site)
    proxy = await start_own_proxy(origin.url, {"browser": {"pages": 4, "max_memory": MAX_BYTES}})
    await state(proxy.running.pool, "4 idle, 0 busy, 0 waiting")
    return proxy


async def explode(proxy: Proxy, *bombs: str) -> None:
    """Render memory bombs at once, together with an ordinary page."""
    with measured() as peak:
        exploding = asyncio.gather(*(proxy.crawl(f"/{bomb}") for bomb in bombs))
        number = 0
        while not exploding.done():
            number += 1
            neighbour = await proxy.crawl(f"/#!{bombs[0]}-{number}")
            assert neighbour.status == 200
            assert "<p>fine" in neighbour.text
        assert {answer.status for answer in exploding.result()} <= {200, 503}
    assert peak.bytes < MAX_BYTES * TOLERANCE, f"{peak.bytes >> 20} MiB"


@pytest.mark.long
async def test_bombs_of_several_kinds_at_once(proxy: Proxy) -> None:
    await explode(proxy, "arrays", "canvases", "blobs")


@pytest.mark.long
@pytest.mark.parametrize("bomb", MEMORY_BOMBS)
async def test_bombs_one_by_one(proxy: Proxy, bomb: str) -> None:
    for _ in range(3):
        await explode(proxy, bomb)
