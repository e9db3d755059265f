"""Decides when a page has settled, and what to do until then. Pure.

The rules, which apply in this order after each step:

1. The first slice of virtual time is as long for every page, however late its document arrives.
2. What waits for a frame (layout observers, animations) gets one.
3. A page with ``window.prerenderReady = true`` has settled, one with ``false`` has not.
4. Work in real time (requests, workers, databases, sockets) is waited for while it is worth it
   (patience.py). Virtual time follows real time meanwhile, without using up the budget.
5. Timers within the budget of virtual time are waited for. Intervals and animation loops get some CPU
   time if only they are left.
6. That nothing is pending counts only if a short slice confirms it, without any activity.
7. Then content that waits to become visible is made visible (lazy_content.py), and the page goes on.

A page without a probe, or with frames of other origins, gets a fixed time. A used-up budget ends
any page. ``begin`` returns the first step, and ``decide`` and ``after_show`` the next one.
"""

from dataclasses import dataclass, field, replace
from enum import Enum, auto

from prerender.browser.probe import ProbeState
from prerender.browser.settling.lazy_content import Show, Showing
from prerender.browser.settling.observation import Observation
from prerender.browser.settling.patience import Loops, WaitTurns, Work
from prerender.browser.settling.reasons import SettleReason

FIRST_SLICE_MS = 100.0
# Chromium advances the clock by 10 ms for each response, before the page gets it.
CONFIRMING_SLICE_MS = 25.0
# The page's document may arrive during the first slice. That slice is extended then, so that slices
# end at the same page times however fast the machine is.
MOST_LATE_MS = 50.0
FRAME_MS = SHORTEST_SLICE_MS = 16.0
LONGEST_SLICE_MS = 4000.0
COSTLY_SLICE_SECONDS = 0.2
# After this many slices for short timers that changed nothing, longer slices are granted.
POLLING_SLICES = 10
# Frames of other origins, and pages that have broken the probe, do not report pending work: they
# get some virtual time.
UNKNOWN_MS = 3000.0
# Lazy content gets its own time: a page's loops may have used up the budget by then. Counters that
# begin when they are seen take two to four seconds.
SHOWN_MS = 5000.0


@dataclass(frozen=True, slots=True)
class Slice:
    """Grant virtual time."""

    milliseconds: float


@dataclass(frozen=True, slots=True)
class Frame:
    """Draw a frame, with its pixels if ``drawn``. Then grant FRAME_MS for the tasks that it posted."""

    drawn: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Let real time pass, then grant virtual time."""

    pause_seconds: float
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """The page has settled."""

    reason: SettleReason


Step = Slice | Frame | Wait | Show | Done


@dataclass(frozen=True, slots=True)
class Budget:
    """Virtual time in milliseconds: what is ``left`` for timers, and all that was ``granted``."""

    left: float
    granted: float = 0.0

    def spend(self, milliseconds: float) -> "Budget":
        """Grant time from the budget."""
        return Budget(max(0.0, self.left - milliseconds), self.granted + milliseconds)

    def add(self, milliseconds: float) -> "Budget":
        """Grant time that is not taken from the budget."""
        return Budget(self.left, self.granted + milliseconds)


@dataclass(frozen=True, slots=True)
class Slices:
    """The last slice in milliseconds, and how many slices for timers changed nothing."""

    last: float = FIRST_SLICE_MS
    unchanged: int = 0
    mutations: int = 0

    def after(self, seen: Observation, left_ms: float) -> "Slices":
        """The next slice: twice the last one, but not beyond the last timer. Unnecessary virtual time
        would only set the page's clock ahead. For a polling page, that would take long."""
        costly = seen.slice_cpu_seconds > COSTLY_SLICE_SECONDS
        longest = min(self.last if costly else self.last * 2, LONGEST_SLICE_MS)
        page = seen.page
        if page is None or page.ready is False or page.intervals or page.frames or page.foreign:
            return replace(self, last=longest)
        unchanged = self.unchanged + 1 if page.mutations == self.mutations else 0
        if unchanged > POLLING_SLICES:
            return Slices(longest, unchanged, page.mutations)
        due = [time for time in page.timers if time <= left_ms]
        # A timer can be overdue if the page was busy or the timer has a low priority.
        until = max(SHORTEST_SLICE_MS, max(due, default=longest) + 1)
        return Slices(min(longest, until), unchanged, page.mutations)


class Stage(Enum):
    """What may follow a step, before it is decided whether the page has settled."""

    FIRST = auto()  # the rest of the first slice
    FRAME = auto()  # a frame, which the page wanted before the rest of the first slice
    SLICE = auto()  # a frame, if observed elements may have changed
    WORK = auto()  # frames, and turns of waiting for work


@dataclass(frozen=True, slots=True)
class SettlingProgress:
    """How far a page is. ``confirming``: the observation that a short slice has to confirm.

    ``reason``: why it has settled, while content is made visible.
    """

    budget: Budget
    showing: Showing
    stage: Stage = Stage.FIRST
    slices: Slices = Slices()
    turns: WaitTurns = field(default_factory=WaitTurns)
    work: Work = field(default_factory=Work)
    loops: Loops = field(default_factory=Loops)
    confirming: Observation | None = None
    reason: SettleReason | None = None


SettlingDecision = tuple[SettlingProgress, Step]


def begin(budget_seconds: float, window_height: int) -> SettlingDecision:
    """The first step for a page. ``window_height`` in CSS pixels."""
    progress = SettlingProgress(
        Budget(budget_seconds * 1000), Showing(window_height, window_height)
    )
    return _slice(progress, progress.slices, Stage.FIRST)


def decide(progress: SettlingProgress, seen: Observation) -> SettlingDecision:
    """The next step after a slice, a frame or a turn."""
    if progress.turns.before is not None:
        progress = replace(progress, turns=progress.turns.after(seen))
    page = seen.page
    if page is None:
        return _judge(progress, seen)
    missing_ms = FIRST_SLICE_MS - page.elapsed
    if progress.stage is Stage.FIRST and 0 < missing_ms < MOST_LATE_MS:
        # The probe says only once that a frame is wanted.
        stage = Stage.FRAME if page.layout else Stage.SLICE
        budget = progress.budget.add(missing_ms)
        return replace(progress, budget=budget, stage=stage), Slice(missing_ms)
    if progress.stage is Stage.FRAME or (progress.stage is not Stage.WORK and page.watched):
        return _frame(progress, page)
    if page.ready is True:
        return _judge(progress, seen)
    if page.layout and progress.budget.left > 0:
        return _frame(progress, page)
    work, is_pending = progress.work.after(seen, page, seen.seconds - progress.turns.lost_seconds)
    progress = replace(progress, work=work)
    return _wait(progress, seen) if is_pending else _judge(progress, seen)


def after_show(progress: SettlingProgress, measured: object) -> SettlingDecision:
    """The next step after a ``Show`` and the page's answer to it, which can be anything."""
    showing, step = progress.showing.after(measured)
    progress = replace(progress, showing=showing)
    if isinstance(step, Show):
        return progress, step
    if not step:
        assert progress.reason is not None
        return progress, Done(progress.reason)
    return _slice(progress, replace(progress.slices, last=FIRST_SLICE_MS))


def _slice(
    progress: SettlingProgress, slices: Slices, stage: Stage = Stage.SLICE
) -> SettlingDecision:
    milliseconds = min(slices.last, progress.budget.left)
    budget = progress.budget.spend(milliseconds)
    progress = replace(progress, slices=slices, budget=budget, stage=stage, confirming=None)
    return progress, Slice(milliseconds)


def _frame(progress: SettlingProgress, page: ProbeState) -> SettlingDecision:
    budget = progress.budget.spend(FRAME_MS)
    return replace(progress, budget=budget, stage=Stage.WORK), Frame(drawn=page.drawn > 0)


def _wait(progress: SettlingProgress, seen: Observation) -> SettlingDecision:
    """Wait for work. This takes real time, so it does not use up the page's budget."""
    milliseconds = progress.turns.seconds * 1000
    budget, turns = progress.budget.add(milliseconds), replace(progress.turns, before=seen)
    step = Wait(turns.pause_seconds, milliseconds)
    return replace(progress, budget=budget, turns=turns, stage=Stage.WORK), step


def _confirm(progress: SettlingProgress, seen: Observation) -> SettlingDecision:
    """A slice does not wait for work that begins at its end: a short one shows it."""
    budget = progress.budget.spend(CONFIRMING_SLICE_MS)
    progress = replace(progress, budget=budget, stage=Stage.WORK, confirming=seen)
    return progress, Slice(CONFIRMING_SLICE_MS)


def _judge(progress: SettlingProgress, seen: Observation) -> SettlingDecision:
    """End, or go on with the next slice."""
    progress, reason = _finished(progress, seen)
    if reason is None:
        return _slice(progress, progress.slices.after(seen, progress.budget.left))
    if progress.confirming is None:
        return _confirm(progress, seen)
    if reason is SettleReason.NOTHING_PENDING and _goes_on(progress, seen):
        return _slice(progress, progress.slices)
    page, seconds = seen.page, seen.seconds - progress.turns.lost_seconds
    may_show = page and page.unseen and not page.ready
    if page and may_show and progress.showing.may_begin(page.mutations, seconds):
        showing, step = progress.showing.begin(page.mutations, seconds)
        # Loops may have used up the budget.
        budget = replace(progress.budget, left=max(progress.budget.left, SHOWN_MS))
        return replace(progress, showing=showing, budget=budget, reason=reason), step
    return progress, Done(reason)


def _goes_on(progress: SettlingProgress, seen: Observation) -> bool:
    """Whether this may be the pause between two requests of a sequence, where nothing is pending."""
    assert progress.confirming is not None
    if seen.activity == progress.confirming.activity:
        return False
    return not progress.work.is_unproductive(seen.seconds - progress.turns.lost_seconds)


def _finished(
    progress: SettlingProgress, seen: Observation
) -> tuple[SettlingProgress, SettleReason | None]:
    """Why no more content is expected; None while some is."""
    page, budget = seen.page, progress.budget
    if page is None:
        is_over = budget.granted >= UNKNOWN_MS or budget.left <= 0
        return progress, SettleReason.NO_PROBE if is_over else None
    if page.ready is True:
        return progress, SettleReason.PRERENDER_READY
    if budget.left <= 0:
        return progress, SettleReason.BUDGET
    if page.ready is False or not page.complete:
        return progress, None
    if any(due <= budget.left for due in page.timers):
        return progress, None
    if page.foreign and budget.granted < UNKNOWN_MS:
        return progress, None
    if not page.intervals and not page.frames:
        return progress, SettleReason.NOTHING_PENDING
    loops, reason = progress.loops.after(page, seen.cpu_seconds)
    return replace(progress, loops=loops), reason
