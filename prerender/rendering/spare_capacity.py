"""Whether the browser and the CPUs have capacity to spare for work that nobody waits for."""

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import psutil

from prerender.browser import container
from prerender.browser.pool import Pool
from prerender.snapshots.snapshot_cache import CachedSnapshots

# Of the pages that must stay idle, and of the CPUs that may be in use.
_IDLE_SHARE = 0.25
_BUSY_SHARE = 0.8
_LEAST_SECONDS = 0.5
# How long a render may wait for the page of one in the background.
_LOOK_SECONDS = 0.05

T = TypeVar("T")


class SpareCapacity:
    """The capacity of a pool that renders for clients leave."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._cpus = CPUUsage()

    def has_room(self) -> bool:
        """Whether one more render may be started."""
        state = self._pool.state
        # A page stays idle for the next client, except where there is only one page.
        reserve = max(1.0, state.size * _IDLE_SHARE) if state.size > 1 else 0.0
        idle = state.idle - state.admitted  # who is admitted will need one
        return idle > reserve and not state.waiting and self._cpus.share() < _BUSY_SHARE

    def has_page(self) -> bool:
        """Whether a page is idle and nobody waits for one, regardless of the CPUs."""
        state = self._pool.state
        return state.idle > state.admitted and not state.waiting

    def is_crowded(self) -> bool:
        """Whether renders wait for a page."""
        return self._pool.state.waiting > 0


class Background(Generic[T]):
    """Renders in the background, by the keys of their targets; they give way to those of clients.

    ``is_crowded``: whether renders wait for a page.
    """

    def __init__(self, snapshots: CachedSnapshots, is_crowded: Callable[[], bool]) -> None:
        self._snapshots = snapshots
        self._is_crowded = is_crowded
        self._begun = asyncio.Event()
        self.running: dict[str, T] = {}

    def add(self, key: str, one: T) -> None:
        """Add one that was started; who adds it removes it from ``running``."""
        self.running[key] = one
        self._begun.set()

    async def watch(self) -> None:
        """Make room for clients as long as something runs."""
        while True:
            await self._begun.wait()
            self._begun.clear()
            while self.running:
                self.make_room()
                await asyncio.sleep(_LOOK_SECONDS)

    def make_room(self) -> None:
        """Cancel the last one if a render waits, unless its own page was requested meanwhile."""
        if self._is_crowded():
            for key in reversed(self.running):
                if self._snapshots.cancel_refresh(key):
                    return


class CPUUsage:
    """Measures the CPUs of the machine and, in a container with a quota, of the container."""

    def __init__(self) -> None:
        self._measured = 0.0
        self._machine = (0.0, 0.0)
        self._used = 0.0
        self._share = 0.0

    def share(self) -> float:
        """The share of the CPUs that was in use since the last call, from 0 to 1."""
        now = time.monotonic()
        if (seconds := now - self._measured) < _LEAST_SECONDS:
            return self._share
        machine, used = _machine_seconds(), container.cpu_seconds()
        total = machine[1] - self._machine[1]
        of_machine = (machine[0] - self._machine[0]) / total if total > 0 else 0.0
        of_quota = (
            (used - self._used) / (seconds * quota) if (quota := container.cpu_quota()) else 0.0
        )
        self._measured, self._machine, self._used = now, machine, used
        self._share = min(1.0, max(0.0, of_machine, of_quota))
        return self._share


def _machine_seconds() -> tuple[float, float]:
    """CPU seconds of the machine since its start: in use, and altogether."""
    times = psutil.cpu_times()
    # guest is part of user (proc(5)).
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return total - times.idle - getattr(times, "iowait", 0.0), total
