"""Settling: waiting in virtual time until a page is complete.

In virtual time, a page's timers fire as fast as the CPU allows, and the clock waits for the network.
It is granted in slices. Between slices, the probe (probe.py) reports pending work that virtual time
does not cover. Work outside the page's thread (workers, databases, sockets) takes real time, so both
clocks advance together while some is pending.

The browser draws no frames by itself. One is requested if the probe reports something that waits for a
frame: a layout observer, an animation, lazy content.

Endless work must not hold the page: event streams, requests that have long been silent, intervals,
animation loops, and silent sockets.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from prerender.browser import probe
from prerender.browser.devtools import CommandFailed, Session
from prerender.browser.emulation import Window
from prerender.browser.frames import Frames
from prerender.browser.probe import State
from prerender.gateway.visit import Visit

NOTHING_PENDING = "nothing pending"
FIRST_SLICE_MS = 100.0
# Chromium advances the clock by 10 ms for each response, before the page gets it.
CONFIRMING_SLICE_MS = 25.0
# The page's document may arrive during the first slice. That slice is extended then, so that slices
# end at the same page times however fast the machine is.
MOST_LATE_MS = 50.0
FRAME_MS = SHORTEST_SLICE_MS = 16.0
LONGEST_SLICE_MS = 4000.0
# After this many slices for short timers that changed nothing, longer slices are granted.
POLLING_SLICES = 10
# While real work is pending, virtual time follows real time, in turns of a little more than this.
TURN_SECONDS = 0.01
# A turn takes about 15 ms. If it takes longer than this and no request holds the clock, the machine
# was busy, and the work that is waited for was delayed, too: that time does not count.
MOST_TURN_SECONDS = 0.03
# How long work in a worker, a database or a socket may be silent before it is ignored.
WORK_PATIENCE_SECONDS = 3.0
# Limits of endless work: without a visible effect in the page, and in total.
FRUITLESS_SECONDS = 2.5
WORK_AT_MOST_SECONDS = 8.0
# When an endlessly fetching page counts as working in vain. A page whose data has not arrived after
# this time waits for a slow server, which is different.
SLOW_DATA_SECONDS = 1.0
# A worker or server that has sent something may send more.
TALK_PATIENCE_SECONDS = 0.3
# A response that the gateway has passed on takes a moment to reach the page.
DELIVERY_SECONDS = 0.2
# Frames of other origins, and pages that have broken the probe, cannot be asked for pending work: they
# get some virtual time.
UNKNOWN_MS = 3000.0
# The window grows to the height of a page with lazy content, but only up to this: a page may grow with
# its window.
HIGHEST_WINDOW = 20_000
MOST_SHOWINGS = 4
# Lazy content gets its own time: a page's loops may have used up the budget by then.
SHOWN_MS = 2000.0
# CPU time that intervals and animation loops may use: if they change nothing, and if they keep
# changing the page. Cheap ones run to the end of the virtual budget, where an endlessly changing page
# is the same each time.
IDLE_LOOP_SECONDS = 0.5
BUSY_LOOP_SECONDS = 1.5
COSTLY_SLICE_SECONDS = 0.2
# How long a slice may take before its cause is investigated.
STALL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Settled:
    """Why a page counts as settled, and what it took."""

    reason: str
    virtual_seconds: float
    real_seconds: float
    slices: int


class _Patience:
    """Seconds of a clock since the last change of something."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: object = None
        self._since = clock()

    def restart(self) -> None:
        self._since = self._clock()

    def idle_seconds(self, seen: object) -> float:
        if seen != self._seen:
            self._seen = seen
            self.restart()
        return self._clock() - self._since


class Settler:
    """Settles one page once. The caller sets a timeout around ``settle``.

    ``cpu_seconds``: the CPU time of the page's process so far.
    ``complaints``: the page's scripts have reported errors, or that is unknown.
    ``touched_sheets``: they have modified style sheets.
    """

    def __init__(
        self,
        session: Session,
        frames: Frames,
        visit: Visit,
        budget_seconds: float,
        patience_seconds: float,
        *,
        window: Window,
        cpu_seconds: Callable[[], float],
    ) -> None:
        self._session = session
        self._clock = frames.clock
        self._frames = frames
        self._visit = visit
        self._budget_left_ms = budget_seconds * 1000
        self._patience_seconds = patience_seconds
        self._virtual_ms = 0.0
        self._slices = 0
        self._started = time.monotonic()
        self._waits_for_network = True
        self._turn_seconds = TURN_SECONDS
        self._lost_seconds = 0.0
        self._cpu_seconds = cpu_seconds
        self._fruitless = _Patience(self._waited)
        self._working_since = 0.0
        self._work = _Patience(self._waited)
        self._delivery = _Patience(self._waited)
        self._loops = _Patience(cpu_seconds)
        self._looping_since: float | None = None
        self._last_slice_cpu_seconds = 0.0
        self._mutations = 0
        self._unchanged_slices = 0
        self._window = window
        self._window_height = window.height
        self._showings = 0
        self._grows_with_window = False
        self.complaints = True
        self.touched_sheets = True

    async def settle(self) -> Settled:
        """Grant slices of virtual time until nothing relevant is pending."""
        slice_ms = FIRST_SLICE_MS
        while True:
            state = await self._run(min(slice_ms, self._budget_left_ms), watching=True)
            before = self._progress(state)
            if self._finished(state):
                # The slice did not wait for work that began at its end: a short one shows it.
                state = await self._run(CONFIRMING_SLICE_MS)
            reason = self._finished(state)
            went_on = self._progress(state) != before
            if reason == NOTHING_PENDING and went_on and not self._is_in_vain(state):
                # In a sequence of requests, nothing is pending between two of them.
                continue
            if not reason:
                slice_ms = self._next_slice(slice_ms, state)
            elif await self._show_more(state):
                slice_ms = FIRST_SLICE_MS
            else:
                return self._settled(reason)

    async def _run(self, slice_ms: float, *, watching: bool = False) -> State | None:
        """Use up a slice of the budget, draw frames that are waited for, and wait for work in real
        time.

        ``watching``: observed elements may have changed.
        """
        await self._grant(slice_ms)
        self._budget_left_ms -= slice_ms
        state = await self._ask()
        if state and self._slices == 1 and 0 < FIRST_SLICE_MS - state.elapsed < MOST_LATE_MS:
            await self._grant(FIRST_SLICE_MS - state.elapsed)
            state = await self._ask()
        if state and watching and state.watched:
            state = await self._frame(state)
        while state and state.ready is not True:
            if state.layout and self._budget_left_ms > 0:
                state = await self._frame(state)
            elif self._is_working(state):
                state = await self._turn()
            else:
                break
        return state

    async def _frame(self, state: State) -> State | None:
        """Draw a frame, and run the tasks that it has posted."""
        await self._frames.make(drawn=state.drawn > 0)
        await self._grant(FRAME_MS)
        self._budget_left_ms = max(0.0, self._budget_left_ms - FRAME_MS)
        return await self._ask()

    async def _turn(self) -> State | None:
        """Spend a moment of real time, and as much virtual time."""
        started, asked = time.monotonic(), self._visit.requests
        await asyncio.sleep(TURN_SECONDS)
        # This waits for real time, so it does not use up the page's budget.
        await self._grant(self._turn_seconds * 1000)
        state = await self._ask()
        took = time.monotonic() - started
        self._turn_seconds = min(took, MOST_TURN_SECONDS)
        if not self._clock_was_held(asked):
            self._lost_seconds += took - self._turn_seconds
        return state

    def _clock_was_held(self, asked: int) -> bool:
        """Whether the clock has waited for a request since their number was ``asked``."""
        return self._waits_for_network and (
            self._visit.requests > asked or self._visit.has_unfinished
        )

    def _waited(self) -> float:
        """Real time, without the time when the machine was busy with other things."""
        return time.monotonic() - self._lost_seconds

    async def _show_more(self, state: State | None) -> bool:
        """Make content visible that waits for that. Returns False if there is none.

        The window grows to the height of the page. Content that remains invisible is scrolled to: in
        scrolling elements, and in pages that grow with their window (sections of its height), in a
        window of the ordinary height.
        """
        if state is None or state.ready or not state.unseen:
            return False
        if self._showings == MOST_SHOWINGS:
            return False
        self._showings += 1
        self._budget_left_ms = max(self._budget_left_ms, SHOWN_MS)
        height = min(await self._height(), HIGHEST_WINDOW)
        if height > self._window_height and not self._grows_with_window:
            await self._resize(height)
            if height == HIGHEST_WINDOW or await self._height() <= height:
                await self._see("shown()")
                return True
            self._grows_with_window = True
            await self._resize(self._window.height)
        elif not await self._see("hasNextToVisit()"):
            return False
        await self._see("tour()")
        return True

    async def _height(self) -> int:
        """The height of the page in CSS pixels. The page can return anything here."""
        height = await self._see("height()")
        return int(height) if isinstance(height, int | float) else 0

    async def _resize(self, height: int) -> None:
        self._window_height = height
        await self._session.call(
            "Emulation.setDeviceMetricsOverride", **self._window.metrics(height)
        )
        # Without a frame in between, the window cannot be resized again.
        await self._frames.make()

    def _next_slice(self, last_ms: float, state: State | None) -> float:
        """Twice the last slice, but not beyond the last timer: unnecessary virtual time would only set
        the page's clock ahead. For a polling page, that would take long."""
        costly = self._last_slice_cpu_seconds > COSTLY_SLICE_SECONDS
        longest = min(last_ms if costly else last_ms * 2, LONGEST_SLICE_MS)
        if state is None or state.intervals or state.frames or state.foreign:
            return longest
        if state.ready is False or self._polls(state):
            return longest
        due = [time for time in state.timers if time <= self._budget_left_ms]
        # A timer can be overdue if the page was busy or the timer has a low priority.
        return min(longest, max(SHORTEST_SLICE_MS, max(due, default=longest) + 1))

    def _polls(self, state: State) -> bool:
        """Whether timers keep changing nothing. Call this once after each slice."""
        changed = state.mutations != self._mutations
        self._mutations = state.mutations
        self._unchanged_slices = 0 if changed else self._unchanged_slices + 1
        return self._unchanged_slices > POLLING_SLICES

    def cut_off(self, reason: str) -> Settled:
        """The result for a page that was cut off."""
        return self._settled(reason)

    def _is_working(self, state: State) -> bool:
        """Whether work is pending in real time that neither hangs nor is in vain."""
        slow = self._visit.awaits_slow_data(SLOW_DATA_SECONDS)
        if slow or self._visit.loads_programs(parsed=state.parsed):
            # The page has all its time when they have arrived.
            self._working_since = 0.0
            self._fruitless.restart()
            return True
        if self._is_in_vain(state):
            return False
        if self._visit.waiting_for(self._patience_seconds) or self._is_delivering():
            return True
        silent = self._work.idle_seconds(state.activity)
        if state.working and silent < WORK_PATIENCE_SECONDS:
            return True
        return bool(state.talking) and silent < TALK_PATIENCE_SECONDS

    def _is_delivering(self) -> bool:
        """Whether a response may be on its way to a page whose clock does not wait for it."""
        idle = self._delivery.idle_seconds(self._visit.answered)
        return not self._waits_for_network and idle < DELIVERY_SECONDS

    def _progress(self, state: State | None) -> tuple[int, int]:
        """Values that change when the page requests something, or a request progresses."""
        return self._visit.requests, state.activity if state else 0

    def _is_in_vain(self, state: State | None) -> bool:
        """Whether the page has been working for long, or for a while without a visible effect."""
        self._working_since = self._working_since or self._waited()
        mutations = state.mutations if state else 0
        if self._fruitless.idle_seconds(mutations) > FRUITLESS_SECONDS:
            return True
        return self._waited() - self._working_since > WORK_AT_MOST_SECONDS

    def _finished(self, state: State | None) -> str:
        """Why no more content is expected, or '' while some is."""
        if state is None:
            return "no probe" if self._virtual_ms >= UNKNOWN_MS else ""
        if state.ready is True:
            return "prerenderReady"
        if self._budget_left_ms <= 0:
            return "budget"
        if state.ready is False or not state.complete:
            return ""
        if any(due <= self._budget_left_ms for due in state.timers):
            return ""
        if state.foreign and self._virtual_ms < UNKNOWN_MS:
            return ""
        if not state.intervals and not state.frames:
            return NOTHING_PENDING
        if self._loops.idle_seconds(state.mutations) > IDLE_LOOP_SECONDS:
            return "only loops without effect"
        used = self._cpu_seconds()
        if self._looping_since is None:
            self._looping_since = used
        return "only loops" if used - self._looping_since > BUSY_LOOP_SECONDS else ""

    async def _see(self, call: str) -> object:
        try:
            return await self._session.evaluate(probe.sight(call))
        except CommandFailed:
            return None

    async def _ask(self) -> State | None:
        try:
            state = State.read(await self._session.evaluate(probe.STATE))
        except CommandFailed:
            state = None  # the page has broken a dependency of the probe
        self.complaints = state is None or state.errors > 0
        self.touched_sheets = state is None or state.sheets > 0
        return state

    async def _grant(self, slice_ms: float) -> None:
        """Grant the page ``slice_ms`` of virtual time, however long that takes in real time."""
        self._virtual_ms += slice_ms
        self._slices += 1
        started, used = time.monotonic(), self._cpu_seconds()
        used_up = await self._clock.start(slice_ms, wait_for_network=self._waits_for_network)
        while not used_up.done():
            await asyncio.wait({used_up}, timeout=STALL_SECONDS)
            if not used_up.done():
                await self._unstall(time.monotonic() - started)
        self._last_slice_cpu_seconds = self._cpu_seconds() - used

    async def _unstall(self, stalled_seconds: float) -> None:
        """Check what holds the clock, and continue it if that is irrelevant."""
        if not self._waits_for_network:
            return
        hanging = self._visit.only_hanging(self._patience_seconds)
        if hanging or stalled_seconds > self._patience_seconds:
            # The remaining requests never end. From now on, the clock does not wait for requests; the
            # relevant ones are waited for here.
            self._waits_for_network = False
            await self._clock.advance()

    def _settled(self, reason: str) -> Settled:
        return Settled(
            reason,
            virtual_seconds=round(self._virtual_ms / 1000, 3),
            real_seconds=round(time.monotonic() - self._started, 4),
            slices=self._slices,
        )
