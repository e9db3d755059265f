"""The virtual clock of a renderer process, and so of its pages, which follow one another.

While the clock is paused, no timer of the page runs; while it runs, timers fire as fast as the CPU
allows. It runs for one budget after another. Chromium never forgets a budget, so an unfinished one
must be used up before the next. Within it, short ones are possible (``run_tasks``): Chromium pauses the
clock at the end of each, and does not pass the end of the one granted last.

The page's Date follows this clock: it is behind real time after waiting for the network, and ahead
after long timers. It can be set forward, but not back.
"""

import asyncio
import time
from typing import Any

from prerender.browser.devtools import Session, ignore_failure

# A page that posts tasks to itself forever would stop the clock: Chromium advances it after so many.
TASK_STARVATION_COUNT = 10_000
# The clock waits for requests.
_WAITING = "pauseIfNetworkFetchesPending"
# While requests pause the clock, tasks run for this long. Timers that are due later do not fire.
_MOMENT_MS = 0.01
# A page that posts tasks forever gets this many of them.
_MOST_TASKS = 1000
# Chromium counts microseconds.
_ROUNDING_MS = 0.002
# The response comes only when the page's thread is free; the caller's deadline applies.
_NO_DEADLINE_SECONDS = 3600.0
# How far the clock is ahead when a render begins, at least. The browser reports the start of a
# navigation in real time; if that were in the page's future, loading would seem to take no time.
_LEAST_LEAD_SECONDS = 0.02
# How far it is ahead after it was set: under load, it falls behind a little with each render.
_NEW_LEAD_SECONDS = 0.25


class VirtualClock:
    """Runs for budgets (``start``). The caller sets a deadline, because a page can block its clock.

    ``granted_seconds``: the sum of all budgets.
    """

    def __init__(self) -> None:
        self._session: Session
        self._budget: asyncio.Future[None] | None = None
        self._budget_ms = 0.0
        # A short budget within it, for posted tasks.
        self._moment: asyncio.Future[None] | None = None
        # How many ends of budgets Chromium has not reported yet. The last one is that of _budget.
        self._ends = 0
        # The end of the budget granted last, as ticks. Chromium does not pass it.
        self._fence = 0.0
        self._step_ms = _MOMENT_MS
        self._measures = False
        self._advancing = asyncio.Lock()
        self._first_start = 0.0
        self._base_ms = 0.0
        self.granted_seconds = 0.0

    def attach(self, session: Session) -> None:
        """Control the clock through this page from now on."""
        self._session = session
        self._measures = False
        session.on("Emulation.virtualTimeBudgetExpired", self._expired)

    @property
    def lead_seconds(self) -> float:
        """Seconds by which the page's clock is ahead of real time; negative if it is behind."""
        if not self._first_start:
            return 0.0
        return self.granted_seconds - (time.monotonic() - self._first_start)

    @property
    def ticks(self) -> float:
        """The page's time as used by frames, in milliseconds since the machine started."""
        return self._base_ms + self.granted_seconds * 1000

    async def start(
        self, milliseconds: float, *, wait_for_network: bool = False
    ) -> asyncio.Future[None]:
        """Run for a budget of virtual milliseconds. The future completes when it is used up.

        ``wait_for_network``: pause the clock while a request of the page is pending.
        """
        assert self._budget is None or self._budget.done()
        assert milliseconds >= 0, "a budget below 0 never ends"
        self._first_start = self._first_start or time.monotonic()
        self.granted_seconds += milliseconds / 1000
        self._budget = self._session.future("a budget of virtual time")
        self._moment, self._ends, self._budget_ms = None, 1, milliseconds
        policy = _WAITING if wait_for_network else "advance"
        self._base_ms = await self._set_policy(policy, budget=milliseconds)
        return self._budget

    async def run_tasks(self) -> None:
        """Run the tasks that the page has already posted, while a request pauses the clock.

        Chromium pauses messages, immediate timers and events of images, too. Without them, a page that
        renders in tasks would send its requests one after the other.
        """
        async with self._advancing:
            if not self.has_budget:
                return
            self._moment = self._session.future("a moment of virtual time")
            self._step_ms = _MOMENT_MS
            self._ends += 1
            await self._set_policy("advance", budget=_MOMENT_MS, tasks=_MOST_TASKS)
            await self._moment
            now = await self._now()
            left = self.ticks - now
            # Chromium's clock can be ahead of what was granted.
            known = 0 < left <= self._budget_ms
            await self._grant_more(_WAITING, now, left if known else self._budget_ms)

    async def _grant_more(self, policy: str, now: float, milliseconds: float) -> None:
        """Grant another budget, which ends with the current one or later, unless that has ended."""
        if self.has_budget:
            self._ends += 1
            self._fence = now + milliseconds
            await self._set_policy(policy, budget=milliseconds)

    async def _now(self) -> float:
        """The page's time during a budget, as ``ticks``, which are those at its end."""
        if not self._measures:
            await self._session.call("Performance.enable")
            self._measures = True
        metrics = await self._session.call("Performance.getMetrics", _NO_DEADLINE_SECONDS)
        return next(
            float(one["value"]) * 1000 for one in metrics["metrics"] if one["name"] == "Timestamp"
        )

    async def advance(self) -> None:
        """Continue with the current budget regardless of pending requests.

        The clock is stopped first. If the budget has just been used up, nothing would stop a clock that
        advances: it ran ahead by days in milliseconds, for all later pages of the process.
        """
        if self._budget is not None:
            await self._go_on(self._budget)

    @property
    def has_budget(self) -> bool:
        """Whether an interrupted render left a part of its budget."""
        return self._budget is not None and not self._budget.done()

    async def finish(self) -> None:
        """Use up the budget that an interrupted render left. Only for a blank page."""
        if self._budget is not None and not self._budget.done():
            await self.advance()
            await self._budget

    async def pause(self) -> None:
        """Pause a new tab. Others are paused after each budget."""
        await self._set_policy("pause")

    async def catch_up(self) -> None:
        """Start a new clock, or set one that is behind real time. For a page that is not open yet."""
        lead = self.lead_seconds
        if lead < _LEAST_LEAD_SECONDS:
            await (await self.start((_NEW_LEAD_SECONDS - lead) * 1000))

    async def _set_policy(
        self, policy: str, *, tasks: int = TASK_STARVATION_COUNT, **more: Any
    ) -> float:
        if policy != "pause":
            more["maxVirtualTimeTaskStarvationCount"] = tasks
        value = await self._session.call(
            "Emulation.setVirtualTimePolicy", _NO_DEADLINE_SECONDS, policy=policy, **more
        )
        base: float = value["virtualTimeTicksBase"]
        return base

    def _expired(self, _: dict[str, Any]) -> None:
        self._ends -= 1
        if self._budget is None or self._budget.done():
            return
        moment = self._moment
        if of_moment := moment is not None and not moment.done():
            moment.set_result(None)
        if self._ends <= 0:
            if moment is not None:
                self.granted_seconds = max(
                    self.granted_seconds, (self._fence - self._base_ms) / 1000
                )
            self._budget.set_result(None)
        elif not of_moment:
            self._going_on = asyncio.create_task(self._go_on(self._budget), name="virtual clock")
            ignore_failure(self._going_on)

    async def _go_on(self, budget: asyncio.Future[None]) -> None:
        """Continue with this budget, also if Chromium has paused the clock before its last end."""
        async with self._advancing:
            if budget.done():
                return
            await self._set_policy("pause")
            # Chromium does not pass the end of a budget granted by run_tasks.
            if self._moment is not None and not budget.done():
                now = await self._now()
                if now >= self._fence - _ROUNDING_MS:
                    # The remaining ends are a few microseconds away, or 10 ms for each response that
                    # had advanced the clock before the budget began.
                    await self._grant_more("advance", now, self._step_ms)
                    self._step_ms *= 2
                    return
            if not budget.done():
                await self._set_policy("advance")
