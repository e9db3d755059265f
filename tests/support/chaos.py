"""Crawlers send requests while the browser's processes are killed: the run and its outcome.

A test does it for some seconds, benchmarks/chaos.py for a minute.
"""

import asyncio
import os
import random
import re
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from aiohttp import ClientError

from tests.conftest import Proxy
from tests.support import processes
from tests.support.pools import crawl, state

# All that end or stop a process which does not handle them.
SIGNALS = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT),
    *(signal.SIGBUS, signal.SIGFPE, signal.SIGKILL, signal.SIGUSR1, signal.SIGSEGV, signal.SIGPIPE),
    *(signal.SIGALRM, signal.SIGTERM, signal.SIGSTOP),
)
# More than a render may take.
HANGING_SECONDS = 30.0


@dataclass
class Outcome:
    """The outcomes of requests (seconds), the killed processes, and the state before and after."""

    snapshots: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    browsers: int = 0
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)

    @property
    def changes(self) -> dict[str, object]:
        """What of the state differs. Of the tasks, those that are left, and names that nothing has any
        more. Some of several may have ended: those of a browser of the test before. Of the files, only
        those of which there are more: pipes of commands of other tests may end."""
        changes = {key: value for key, value in self.after.items() if value != self.before[key]}
        if "files" in changes:
            before, after = dict(self.before["files"]), dict(self.after["files"])
            counts = {name: (before.get(name, 0), count) for name, count in after.items()}
            changes["files"] = {
                name: (old, new) for name, (old, new) in counts.items() if new > old
            }
        if "tasks" in changes:
            before, after = Counter(self.before["tasks"]), Counter(self.after["tasks"])
            changes["tasks"] = [*(after - before), *(before.keys() - after.keys())]
        return {key: it for key, it in changes.items() if it or key not in ("files", "tasks")}

    @property
    def share(self) -> float:
        """The share of snapshots among all responses."""
        return len(self.snapshots) / max(
            1, len(self.snapshots) + len(self.refused) + len(self.wrong)
        )


async def run(
    proxy: Proxy, *, pages: int, clients: int, seconds: float, seed: int, merciful: bool = False
) -> Outcome:
    """Crawl with this number of clients. Once a second, a random process of the browser gets a
    signal.

    ``merciful``: only while the browser has pages. Otherwise, on a machine where a start takes
    longer than a second, it would never have any.
    """
    idle = f"{pages} idle, 0 busy, 0 waiting"
    outcome = Outcome()
    await state(proxy.running.pool, idle)
    outcome.before = await _census(proxy, pages)
    chance = random.Random(seed)
    end = time.monotonic() + seconds
    crawlers = [
        asyncio.create_task(_crawl(proxy, f"{number}/", outcome, end)) for number in range(clients)
    ]
    while time.monotonic() < end:
        if proxy.running.pool.ready or not merciful:
            _kill_one(chance, outcome)
        await asyncio.sleep(min(1.0, max(0.0, end - time.monotonic())))
    await asyncio.gather(*crawlers)
    await state(proxy.running.pool, idle)
    outcome.browsers = proxy.running.pool.browsers_started
    # Tasks of a browser that was killed last may end a moment later.
    with suppress(TimeoutError):
        async with asyncio.timeout(HANGING_SECONDS):
            while not outcome.after or outcome.changes:
                outcome.after = await _census(proxy, pages)
    return outcome


def _kill_one(chance: random.Random, outcome: Outcome) -> None:
    victims = [member for session in processes.sessions() for member in processes.members(session)]
    if not victims:
        return
    victim, number = chance.choice(victims), chance.choice(SIGNALS)
    with suppress(psutil.Error, ProcessLookupError):
        outcome.killed[processes.kind(victim)] += 1
        os.kill(victim.pid, number)


async def _crawl(proxy: Proxy, prefix: str, outcome: Outcome, end: float) -> None:
    number = 0
    while time.monotonic() < end:
        number += 1
        started = time.monotonic()
        try:
            async with asyncio.timeout(HANGING_SECONDS):
                status = await crawl(proxy, f"{prefix}{number}")
        except (AssertionError, ClientError, TimeoutError) as error:
            outcome.wrong.append(f"{prefix}{number}: {error!r}")
            continue
        kept = outcome.snapshots if status == 200 else outcome.refused
        kept.append(time.monotonic() - started)
        if status != 200:
            await asyncio.sleep(1)  # a crawler obeys Retry-After


async def _census(proxy: Proxy, pages: int) -> dict[str, Any]:
    """What must be equal before and after, when all pages were used and nothing runs."""
    for _ in range(2):
        await asyncio.gather(*(crawl(proxy, f"census/{time.monotonic_ns()}") for _ in range(pages)))
    await state(proxy.running.pool, f"{pages} idle, 0 busy, 0 waiting")
    (session,) = processes.sessions()
    kinds = Counter(processes.kind(process) for process in processes.members(session))
    kinds.pop("renderer", None)  # one is kept in reserve, or not
    return {
        "processes": dict(sorted(kinds.items())),
        "pool": repr(proxy.running.pool).partition(", Chromium")[0],
        "files": sorted(Counter(_open_files()).items()),
        "tasks": sorted(_tasks()),
    }


def _tasks() -> list[str]:
    """The names of all tasks, except those of pooled connections."""
    names = (task.get_name() for task in asyncio.all_tasks())
    kept = (name for name in names if not re.match(r"Task-\d|client |connection ", name))
    return [re.sub(r"\d+", "N", name) for name in kept]


def _open_files() -> list[str]:
    """The open files of this process, except sockets, which connection pools keep open."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            name = os.readlink(entry)
            # The processes are just being looked at.
            if not name.startswith(("socket:", "/proc/")):
                found.append(name.partition(":[")[0])
    return found
