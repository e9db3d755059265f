"""Live figures of the last hour: what happened in each half minute, counted as it happens."""

import time
from collections import defaultdict, deque
from collections.abc import Callable

from prerender.telemetry.records import RenderRecord, RequestRecord

STEP_SECONDS = 30
_STEPS = 120

# What is counted in each step. The first eight are how requests were answered; ``errors`` are 5xx among
# them, ``seconds`` the time of those that are answered with snapshots; then what came of renders, and
# the seconds of their phases.
COUNTED = (
    "hit", "stale", "miss", "coalesced", "kept", "error", "forward", "refuse", "errors", "seconds",
    "rendered", "partial", "redirect", "not a page", "failed", "cancelled",
    "queue", "document", "settle", "serialize",
)  # fmt: skip

Step = defaultdict[str, float]


class Figures:
    """Listens to the records of requests and of renders."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._steps: deque[tuple[int, Step]] = deque(maxlen=_STEPS)
        self._until = 0.0
        self._now: Step = defaultdict(float)
        self.started = clock()

    def request(self, record: RequestRecord) -> None:
        """Count a request. Called for every one: about a microsecond."""
        now = self._current(record.time + record.seconds)
        # What should have become a snapshot and is the origin's own answer instead is forwarded.
        now[record.cache or ("forward" if record.kind == "render" else record.kind)] += 1
        if record.status >= 500:
            now["errors"] += 1
        if record.source == "snapshot":
            now["seconds"] += record.seconds

    def render(self, record: RenderRecord) -> None:
        """Count a render."""
        now = self._current(record.time + record.seconds)
        now[record.outcome] += 1
        if (timings := record.timings) is not None:
            now["queue"] += timings.queue
            now["document"] += timings.document
            now["settle"] += timings.settle
            now["serialize"] += timings.serialize

    def points(self) -> list[dict[str, float]]:
        """The last hour, oldest first; half minutes without anything are left out."""
        oldest = self._clock() - STEP_SECONDS * _STEPS
        return [
            {"time": number * STEP_SECONDS}
            | {name: round(step[name], 4) for name in COUNTED if name in step}
            for number, step in self._steps
            if number * STEP_SECONDS >= oldest
        ]

    def _current(self, when: float) -> Step:
        # Time may go back a little, between requests that end in another order; it stays in this step.
        if when >= self._until:
            number = int(when) // STEP_SECONDS
            self._until = (number + 1) * STEP_SECONDS
            self._now = defaultdict(float)
            self._steps.append((number, self._now))
        return self._now
