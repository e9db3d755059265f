"""Live figures of the last hour: what happened in each half minute."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from prerender.telemetry.records import RenderRecord

STEP_SECONDS = 30
_STEPS = 120
# Looked at a little before the end of a step, so that all of it is in it.
_EARLY_SECONDS = 0.05

# What there is of each step: requests by how they were answered, ``errors`` (5xx among them) and the
# ``seconds`` of those that were answered with snapshots; what came of renders, and the seconds of their
# phases.
COUNTED = (
    "hit", "stale", "miss", "coalesced", "kept", "error", "forward", "refuse", "errors", "seconds",
    "complete", "moved", "cut-off", "incomplete", "blank", "redirect",
    "not a page", "failed", "cancelled",
    "queue", "document", "settle", "serialize",
)  # fmt: skip

Step = defaultdict[str, float]


class Figures:
    """``answers`` tells how requests were answered since the start, in sums: they are not counted a
    second time here, but looked at now and then. Renders are listened to."""

    def __init__(
        self, answers: Callable[[], Mapping[str, float]], clock: Callable[[], float] = time.time
    ) -> None:
        self._answers = answers
        self._clock = clock
        self._before: Mapping[str, float] = answers()
        self._steps: deque[tuple[int, Step]] = deque(maxlen=_STEPS)
        self.started = clock()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Look at the sums once in each step, as long as the context lasts."""
        looking = asyncio.create_task(self._look_on(), name="live figures")
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def render(self, record: RenderRecord) -> None:
        """Count a render."""
        now = self._current()
        now[record.outcome] += 1
        if (timings := record.timings) is not None:
            now["queue"] += timings.queue
            now["document"] += timings.document
            now["settle"] += timings.settle
            now["serialize"] += timings.serialize

    def points(self) -> list[dict[str, float]]:
        """The last hour, oldest first; half minutes without anything are left out."""
        self.look()
        oldest = self._clock() - STEP_SECONDS * _STEPS
        return [
            {"time": number * STEP_SECONDS}
            | {name: round(step[name], 4) for name in COUNTED if step.get(name)}
            for number, step in self._steps
            if step and number * STEP_SECONDS >= oldest
        ]

    def look(self) -> None:
        """Add what has been answered since the last look to this step."""
        answers, before = self._answers(), self._before
        self._before = answers
        step = self._current()
        for name, total in answers.items():
            if grown := total - before.get(name, 0):
                step[name] += grown

    async def _look_on(self) -> None:
        while True:
            left = STEP_SECONDS - self._clock() % STEP_SECONDS - _EARLY_SECONDS
            await asyncio.sleep(left if left > 0 else STEP_SECONDS)
            self.look()

    def _current(self) -> Step:
        number = int(self._clock()) // STEP_SECONDS
        # The clock may be set back: then it stays in this step.
        if not self._steps or self._steps[-1][0] < number:
            self._steps.append((number, defaultdict(float)))
        return self._steps[-1][1]
