"""The virtual clock of a process, and so of the pages in it, which come one after the other.

While it stands still, none of the page's timers run; while it runs, they fire as fast as the CPU
allows. It runs for budgets, one after the other: Chromium never forgets a budget, so one that was
left unfinished has to be run to its end before the next is given.

The page's Date goes with this clock: behind the real one after a wait for the network, ahead of it
after long timers. It can be set ahead, but not back.
"""

import asyncio
import time
from typing import Any

from prerender.browser.devtools import Session

# A page that posts tasks to itself without end would stop the clock: it is pushed on.
TASK_STARVATION_COUNT = 10_000
# Answered only when the page's thread is free; the caller's deadline bounds it.
_NO_DEADLINE_SECONDS = 3600.0
# So much is the clock ahead of the real one when a render begins. The browser says when a navigation
# began, by the real clock: if that lay in the page's future, loading would seem to have taken no time.
_LEAST_LEAD_SECONDS = 0.02


class VirtualClock:
    """Give it budgets with ``start``. The caller sets a deadline: a page can hold its clock."""

    def __init__(self) -> None:
        self._session: Session
        self._budget: asyncio.Future[None] | None = None
        self._first_start = 0.0
        self._base_ms = 0.0
        self._granted_seconds = 0.0

    def attach(self, session: Session) -> None:
        """From now on the clock is run by this page."""
        self._session = session
        session.on("Emulation.virtualTimeBudgetExpired", self._expired)

    @property
    def lead_seconds(self) -> float:
        """Seconds that the page's clock is ahead of the real one; negative when it is behind."""
        if not self._first_start:
            return 0.0
        return self._granted_seconds - (time.monotonic() - self._first_start)

    @property
    def ticks(self) -> float:
        """The page's time, in milliseconds of the machine's uptime, as frames have it."""
        return self._base_ms + self._granted_seconds * 1000

    async def start(
        self, milliseconds: float, *, wait_for_network: bool = False
    ) -> asyncio.Future[None]:
        """Run for a budget of virtual milliseconds; the future is done when it is used up.

        With ``wait_for_network`` the clock stands still while a request of the page is unanswered.
        """
        assert self._budget is None or self._budget.done()
        assert milliseconds >= 0, "a budget below 0 never ends"
        self._first_start = self._first_start or time.monotonic()
        self._granted_seconds += milliseconds / 1000
        self._budget = self._session.future("a budget of virtual time")
        policy = "pauseIfNetworkFetchesPending" if wait_for_network else "advance"
        self._base_ms = await self._set_policy(policy, budget=milliseconds)
        return self._budget

    async def advance(self) -> None:
        """Go on with the budget under way, whatever the network does."""
        await self._set_policy("advance")

    @property
    def has_budget(self) -> bool:
        """Whether an interrupted render has left something of its budget."""
        return self._budget is not None and not self._budget.done()

    async def finish(self) -> None:
        """Run what an interrupted render left of its budget. Only for a page that is blank."""
        if self._budget is not None and not self._budget.done():
            await self.advance()
            await self._budget

    async def catch_up(self) -> None:
        """Bring the clock up to the real time. For a page that has not been opened yet."""
        behind = _LEAST_LEAD_SECONDS - self.lead_seconds
        if self._first_start and behind > 0:
            await (await self.start(behind * 1000))

    async def _set_policy(self, policy: str, **more: Any) -> float:
        answer = await self._session.call(
            "Emulation.setVirtualTimePolicy",
            _NO_DEADLINE_SECONDS,
            policy=policy,
            maxVirtualTimeTaskStarvationCount=TASK_STARVATION_COUNT,
            **more,
        )
        base: float = answer["virtualTimeTicksBase"]
        return base

    def _expired(self, _: dict[str, Any]) -> None:
        if self._budget is not None and not self._budget.done():
            self._budget.set_result(None)
