"""Live figures of the last hour, in steps of half a minute."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Literal, get_args

from prerender.background import running
from prerender.telemetry.records import RenderRecord

STEP_SECONDS = 30
_STEPS = 120
# Sample shortly before the end of a step, so that the sample belongs to it.
_EARLY_SECONDS = 0.05

# The figures of a step: requests by result, ``hits`` (without a render), ``errors`` (5xx responses),
# ``seconds`` (total response time of snapshots), renders by outcome, ``timed`` (renders whose phases
# are known), and total seconds of these phases.
Counted = Literal[
    "hit", "stale", "revalidated", "miss", "coalesced", "kept", "error", "forward", "refuse",
    "hits", "errors", "seconds",
    "complete", "moved", "cut_off", "incomplete", "blank", "redirect",
    "not_a_page", "failed", "cancelled", "timed",
    "queue", "document", "settle", "serialize",
]  # fmt: skip
COUNTED: tuple[Counted, ...] = get_args(Counted)
Point = dict[Literal["time", Counted], float]

HourStep = defaultdict[str, float]


class Figures:
    """``totals`` returns running totals of requests by result. They are sampled, not counted again.
    Renders are counted from their records."""

    def __init__(
        self, totals: Callable[[], Mapping[str, float]], clock: Callable[[], float] = time.time
    ) -> None:
        self._totals = totals
        self._clock = clock
        self._before: Mapping[str, float] = totals()
        self._steps: deque[tuple[int, HourStep]] = deque(maxlen=_STEPS)
        self.started = clock()

    @asynccontextmanager
    async def sampling(self) -> AsyncIterator[None]:
        """Sample the totals once per step while the context is open."""
        async with running(self._look_on(), "live figures"):
            yield

    def render(self, record: RenderRecord) -> None:
        """Count a render."""
        now = self._current()
        now[record.outcome] += 1
        if (timings := record.timings) is not None:
            now["timed"] += 1
            for phase, seconds in timings.phases().items():
                now[phase] += seconds

    def points(self) -> list[Point]:
        """The steps of the last hour, oldest first, without empty ones."""
        self.look()
        oldest = self._clock() - STEP_SECONDS * _STEPS
        return [
            {"time": number * STEP_SECONDS, **_rounded(step)}
            for number, step in self._steps
            if step and number * STEP_SECONDS >= oldest
        ]

    def look(self) -> None:
        """Add the growth of the totals since the last sample to the current step."""
        totals, before = self._totals(), self._before
        self._before = totals
        step = self._current()
        for name, total in totals.items():
            if grown := total - before.get(name, 0):
                step[name] += grown

    async def _look_on(self) -> None:
        while True:
            left = STEP_SECONDS - self._clock() % STEP_SECONDS - _EARLY_SECONDS
            await asyncio.sleep(left if left > 0 else STEP_SECONDS)
            self.look()

    def _current(self) -> HourStep:
        number = int(self._clock()) // STEP_SECONDS
        # If the clock is set back, keep counting in this step.
        if not self._steps or self._steps[-1][0] < number:
            self._steps.append((number, defaultdict(float)))
        return self._steps[-1][1]


def _rounded(step: HourStep) -> Point:
    return {name: round(step[name], 4) for name in COUNTED if step.get(name)}
