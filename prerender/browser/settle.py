"""Waiting until a page has finished, in virtual time.

Virtual time makes a page's timers fire as fast as the CPU allows, while the clock waits for the
network. It is granted in slices; between slices the probe (probe.py) tells what is pending
that virtual time does not see. Work outside the page's thread (workers, databases, sockets) takes real
time, so while there is some the two clocks go side by side.

The browser makes no frame by itself. One is asked for when the probe tells of something that a frame
would tell the page: an observer of layout, an animation, what loads when it is seen.

What never ends must not hold the page: event streams, requests that have been silent for long,
intervals and animation loops, sockets that do not speak.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from prerender.browser import probe
from prerender.browser.device import Window
from prerender.browser.devtools import CommandFailed, Session
from prerender.browser.frames import Frames
from prerender.browser.probe import State
from prerender.gateway.visit import Visit

NOTHING_PENDING = "nothing pending"
FIRST_SLICE_MS = 100.0
# Chromium sets the clock 10 ms ahead with each answer from the network, before the page hears of it.
CONFIRMING_SLICE_MS = 25.0
# Its own document may come when the first slice has begun. That slice is made longer then, so that all
# slices end at the same times of the page, however fast the machine is.
MOST_LATE_MS = 50.0
FRAME_MS = SHORTEST_SLICE_MS = 16.0
LONGEST_SLICE_MS = 4000.0
# After so many slices for short timers that changed nothing, more is granted than the next one needs.
POLLING_SLICES = 10
# While real work is pending, virtual time goes with the real one, in turns of a little more than this.
TURN_SECONDS = 0.01
# A turn takes about 15 ms. What it takes beyond this much, when no request holds the clock, the machine
# was busy with other things, and what is waited for had to wait too: that time does not count.
MOST_TURN_SECONDS = 0.03
# How long something may be silent before it no longer counts: work in a worker, a database or a socket.
WORK_PATIENCE_SECONDS = 3.0
# Work that goes on and on: so long if nothing of it is seen in the page, so long in all.
FRUITLESS_SECONDS = 2.5
WORK_AT_MOST_SECONDS = 8.0
# A page that fetches without end is at work in vain at some time; a page whose data has not come after
# so long waits for a slow server, which is another thing.
SLOW_DATA_SECONDS = 1.0
# A worker or a server that has spoken may have more to say.
TALK_PATIENCE_SECONDS = 0.3
# An answer that the gateway has passed on is not in the page yet.
DELIVERY_SECONDS = 0.2
# Frames of other origins cannot be asked what they wait for, nor can pages that have broken the
# probe: they get some virtual time.
UNKNOWN_MS = 3000.0
# The window grows to the height of a page with parts that load when they are seen, but not without end:
# a page may grow with its window.
HIGHEST_WINDOW = 20_000
MOST_SHOWINGS = 4
# What is shown may need time of its own: a page's loops may have used up the budget by then.
SHOWN_MS = 2000.0
# Intervals and animation loops may cost this much CPU time of the page's process: so much if they
# change nothing, so much if they go on changing the page. Cheap ones run to the end of the virtual
# budget, where a page that changes for ever is the same each time.
IDLE_LOOP_SECONDS = 0.5
BUSY_LOOP_SECONDS = 1.5
COSTLY_SLICE_SECONDS = 0.2
# How long a slice may take before it is asked what holds it.
STALL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Settled:
    """Why a page counts as finished, and what it took."""

    reason: str
    virtual_seconds: float
    real_seconds: float
    slices: int


class _Patience:
    """Seconds of some clock since something last changed."""

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
    """Settles one page once. The caller sets the wall-clock limit around ``settle``.

    ``cpu_seconds``: what the page's process has used so far.
    ``complaints``: the page's scripts have complained of something, or nobody knows.
    ``touched_sheets``: they have touched style sheets.
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
        """Grant slices of virtual time until nothing worth waiting for is pending."""
        slice_ms = FIRST_SLICE_MS
        while True:
            state = await self._run(min(slice_ms, self._budget_left_ms), watching=True)
            before = self._progress(state)
            if self._finished(state):
                # What began just when the slice ended, it did not wait for: a short one tells.
                state = await self._run(CONFIRMING_SLICE_MS)
            reason = self._finished(state)
            went_on = self._progress(state) != before
            if reason == NOTHING_PENDING and went_on and not self._is_in_vain(state):
                # One request after another: between two of them nothing is pending either.
                continue
            if not reason:
                slice_ms = self._next_slice(slice_ms, state)
            elif await self._show_more(state):
                slice_ms = FIRST_SLICE_MS
            else:
                return self._settled(reason)

    async def _run(self, slice_ms: float, *, watching: bool = False) -> State | None:
        """Use up a slice of the budget, with the frames that are waited for, and wait for work that
        needs real time.

        ``watching``: what is watched may have changed.
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
        """Have a frame made, and the tasks done that it has posted."""
        await self._frames.make(drawn=state.drawn > 0)
        await self._grant(FRAME_MS)
        self._budget_left_ms = max(0.0, self._budget_left_ms - FRAME_MS)
        return await self._ask()

    async def _turn(self) -> State | None:
        """A moment of real time, and as much virtual time."""
        started, asked = time.monotonic(), self._visit.requests
        await asyncio.sleep(TURN_SECONDS)
        # Real time is what this waits for, so it does not use up the page's budget.
        await self._grant(self._turn_seconds * 1000)
        state = await self._ask()
        took = time.monotonic() - started
        self._turn_seconds = min(took, MOST_TURN_SECONDS)
        if not self._clock_was_held(asked):
            self._lost_seconds += took - self._turn_seconds
        return state

    def _clock_was_held(self, asked: int) -> bool:
        """Whether the clock has stood still for a request since there were ``asked`` of them."""
        return self._waits_for_network and (
            self._visit.requests > asked or self._visit.has_unfinished
        )

    def _waited(self) -> float:
        """The real clock, but for the time that the machine did not have for this page."""
        return time.monotonic() - self._lost_seconds

    async def _show_more(self, state: State | None) -> bool:
        """Show the parts of the page that wait to be seen; False when there is nothing to show.

        The window is made as high as the page. What cannot be shown so is gone to: in elements that
        scroll, and in pages that grow with their window (sections as high as it), in a window of the
        ordinary height.
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
        """The height of the page, in CSS pixels. The page can say what it likes here."""
        height = await self._see("height()")
        return int(height) if isinstance(height, int | float) else 0

    async def _resize(self, height: int) -> None:
        self._window_height = height
        await self._session.call(
            "Emulation.setDeviceMetricsOverride", **self._window.metrics(height)
        )
        # Until there has been one, the window cannot be resized again.
        await self._frames.make()

    def _next_slice(self, last_ms: float, state: State | None) -> float:
        """Twice the last slice, but not further than the last timer: what is not needed of virtual
        time would only set the page's clock ahead. A page that polls would take long that way."""
        costly = self._last_slice_cpu_seconds > COSTLY_SLICE_SECONDS
        longest = min(last_ms if costly else last_ms * 2, LONGEST_SLICE_MS)
        if state is None or state.intervals or state.frames or state.foreign:
            return longest
        if state.ready is False or self._polls(state):
            return longest
        due = [time for time in state.timers if time <= self._budget_left_ms]
        # A timer can be overdue: the page was busy, or it is one of low priority.
        return min(longest, max(SHORTEST_SLICE_MS, max(due, default=longest) + 1))

    def _polls(self, state: State) -> bool:
        """Whether timer after timer has changed nothing; to be asked once after each slice."""
        changed = state.mutations != self._mutations
        self._mutations = state.mutations
        self._unchanged_slices = 0 if changed else self._unchanged_slices + 1
        return self._unchanged_slices > POLLING_SLICES

    def cut_off(self, reason: str) -> Settled:
        """What to report of a page that was not let settle."""
        return self._settled(reason)

    def _is_working(self, state: State) -> bool:
        """Whether there is work that needs real time, is not hanging, and shows something."""
        slow = self._visit.awaits_slow_data(SLOW_DATA_SECONDS)
        if slow or self._visit.loads_programs(parsed=state.parsed):
            # What the page does with them has all its time when they have come.
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
        """Whether an answer may be on its way to a page whose clock does not wait for it."""
        idle = self._delivery.idle_seconds(self._visit.answered)
        return not self._waits_for_network and idle < DELIVERY_SECONDS

    def _progress(self, state: State | None) -> tuple[int, int]:
        """What changes when the page asks for something, or something that it asked for happens."""
        return self._visit.requests, state.activity if state else 0

    def _is_in_vain(self, state: State | None) -> bool:
        """Whether the page has been at work for long, or for a while without showing anything."""
        self._working_since = self._working_since or self._waited()
        mutations = state.mutations if state else 0
        if self._fruitless.idle_seconds(mutations) > FRUITLESS_SECONDS:
            return True
        return self._waited() - self._working_since > WORK_AT_MOST_SECONDS

    def _finished(self, state: State | None) -> str:
        """Why nothing more is to be expected, or '' while something is."""
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
            state = None  # the page has broken what the probe relies on
        self.complaints = state is None or state.errors > 0
        self.touched_sheets = state is None or state.sheets > 0
        return state

    async def _grant(self, slice_ms: float) -> None:
        """Let the page have ``slice_ms`` of virtual time, however long that really takes."""
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
        """Look at what holds the clock, and let it go on if that is nothing worth waiting for."""
        if not self._waits_for_network:
            return
        hanging = self._visit.only_hanging(self._patience_seconds)
        if hanging or stalled_seconds > self._patience_seconds:
            # What is left of the network never ends. From now on the clock does not wait for it, and
            # the requests worth waiting for are waited for here.
            self._waits_for_network = False
            await self._clock.advance()

    def _settled(self, reason: str) -> Settled:
        return Settled(
            reason,
            virtual_seconds=round(self._virtual_ms / 1000, 3),
            real_seconds=round(time.monotonic() - self._started, 4),
            slices=self._slices,
        )
