"""The settler: executes the steps of settling a page, and observes it after each."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from prerender.browser import probe
from prerender.browser.devtools import CommandFailed, Session
from prerender.browser.frame_drawing import FrameDrawing
from prerender.browser.probe import ProbeState
from prerender.browser.settling.decision import (
    FRAME_MS,
    Done,
    Frame,
    Slice,
    Wait,
    after_show,
    begin,
    decide,
)
from prerender.browser.settling.lazy_content import Show
from prerender.browser.settling.observation import NetworkView, Observation, PageNetwork
from prerender.browser.settling.reasons import SettleReason

# How long a slice may take before its cause is investigated.
STALL_SECONDS = 0.1
# How long no request begins or ends before the tasks that these have caused run.
QUIET_SECONDS = 0.02
# Browsers list 250 resources of a page.
_MOST_DELIVERIES = 200


@dataclass(frozen=True, slots=True)
class Settled:
    """Why a page counts as settled, and what it took."""

    reason: SettleReason
    virtual_seconds: float
    real_seconds: float


class Settler:
    """Settles one page once. The caller sets a timeout around ``settle``.

    ``network``: the page's requests. ``patience_seconds``: how long one may be silent.
    ``window_height``: CSS pixels. ``resize``: gives the window another height.
    ``cpu_seconds``: the CPU time of the page's process so far.
    """

    def __init__(
        self,
        session: Session,
        frames: FrameDrawing,
        network: NetworkView,
        budget_seconds: float,
        patience_seconds: float,
        *,
        window_height: int,
        resize: Callable[[int], Awaitable[object]],
        cpu_seconds: Callable[[], float],
    ) -> None:
        self._session = session
        self._frames = frames
        self._network = network
        self._patience_seconds = patience_seconds
        self._resize = resize
        self._cpu_seconds = cpu_seconds
        self._started = time.monotonic()
        self._progress, self._step = begin(budget_seconds, window_height)
        self._clock_waits = True
        self._page: ProbeState | None = None

    @property
    def complaints(self) -> bool:
        """Whether the page's scripts have reported errors, or that is unknown."""
        return self._page is None or self._page.errors > 0

    @property
    def touched_sheets(self) -> bool:
        """Whether the page's scripts have modified style sheets, or that is unknown."""
        return self._page is None or self._page.sheets > 0

    @property
    def attachments(self) -> bool:
        """Whether the page's scripts have attached internals to custom elements, or that is unknown."""
        return self._page is None or self._page.attachments > 0

    @property
    def animates(self) -> bool:
        """Whether the page's scripts wait for an animation frame, or that is unknown."""
        return self._page is None or self._page.frames > 0

    async def settle(self) -> Settled:
        """Execute steps until the page has settled."""
        while not isinstance(self._step, Done):
            if isinstance(self._step, Show):
                measured = await self._show(self._step)
                self._progress, self._step = after_show(self._progress, measured)
            else:
                seen = await self._execute(self._step)
                self._progress, self._step = decide(self._progress, seen)
        return self._settled(self._step.reason)

    async def restore(self) -> None:
        """Give the page its URL and metadata from before it was shown."""
        if self._progress.showing.attempts:
            with suppress(CommandFailed):
                await self._session.evaluate(probe.sight("restore()"))

    def cut_off(self, reason: SettleReason) -> Settled:
        """The result for a page that was cut off."""
        return self._settled(reason)

    async def _execute(self, step: Slice | Frame | Wait) -> Observation:
        match step:
            case Slice(milliseconds):
                return await self._grant(milliseconds)
            case Frame(drawn):
                await self._frames.make(drawn=drawn)
                return await self._grant(FRAME_MS)
            case Wait(pause_seconds, milliseconds):
                await asyncio.sleep(pause_seconds)
                return await self._grant(milliseconds)

    async def _show(self, step: Show) -> object:
        """The page's answer."""
        if step.height is not None:
            await self._resize(step.height)
            # Without a frame in between, the window cannot be resized again.
            await self._frames.make()
        try:
            return await self._session.evaluate(probe.sight(step.call))
        except CommandFailed:
            return None

    async def _grant(self, milliseconds: float) -> Observation:
        """Grant the page virtual time, however long that takes in real time, and observe it."""
        started, used = time.monotonic(), self._cpu_seconds()
        used_up = await self._frames.clock.start(milliseconds, wait_for_network=self._clock_waits)
        await self._until(used_up, started)
        cpu_seconds = self._cpu_seconds()
        self._page = await self._ask()
        if self._network.awaited_seconds > self._patience_seconds:
            unused = await probe.unused(self._session, self._network.of_workers)
            self._network.note_unused(unused)
        network = PageNetwork.of(
            self._network,
            self._patience_seconds,
            parsed=self._page is not None and self._page.parsed,
            delivered=not self._clock_waits and await self._is_delivered(),
        )
        return Observation(
            self._page,
            network,
            seconds=time.monotonic() - self._started,
            cpu_seconds=cpu_seconds,
            slice_cpu_seconds=cpu_seconds - used,
            clock_waits=self._clock_waits,
        )

    async def _until(self, used_up: asyncio.Future[None], started: float) -> None:
        """Wait until a budget is used up. While requests pause the clock, posted tasks run."""
        seen = ran = (-1, -1)
        while True:
            # A clock that does not wait for requests is not held by them.
            timeout = QUIET_SECONDS if self._clock_waits else None
            if (await asyncio.wait({used_up}, timeout=timeout))[0]:
                return
            before, seen = seen, (self._network.requests, self._network.answered)
            is_quiet = seen == before
            if self._network.has_unfinished and is_quiet and ran != seen:
                await self._frames.clock.run_tasks()
                ran = seen
                if self._clock_waits and self._network.only_known_to_hang:
                    await self._go_on_without()
            stalled_seconds = time.monotonic() - started
            if stalled_seconds > STALL_SECONDS and not used_up.done():
                await self._unstall(stalled_seconds)

    async def _unstall(self, stalled_seconds: float) -> None:
        """Stop waiting for requests that no content depends on."""
        network, patience_seconds = self._network, self._patience_seconds
        hanging = network.has_unfinished and not network.waiting_for(patience_seconds)
        if hanging or stalled_seconds > patience_seconds:
            await self._go_on_without()

    async def _go_on_without(self) -> None:
        """From now on, the clock does not wait for requests, as some never end. The relevant ones are
        waited for here."""
        self._clock_waits = False
        await self._frames.clock.advance()

    async def _ask(self) -> ProbeState | None:
        """The probe's answer; None if the page has broken a dependency of the probe."""
        try:
            return ProbeState.read(await self._session.evaluate(probe.STATE))
        except CommandFailed:
            return None

    async def _is_delivered(self) -> bool:
        """Whether the page is known to have got all responses."""
        urls = self._network.answered_urls
        if len(urls) > _MOST_DELIVERIES:
            return False
        try:
            return await self._session.evaluate(probe.has(urls)) is True
        except CommandFailed:
            return False

    def _settled(self, reason: SettleReason) -> Settled:
        return Settled(
            reason,
            virtual_seconds=round(self._progress.budget.granted / 1000, 3),
            real_seconds=round(time.monotonic() - self._started, 4),
        )
