"""Frames of a page. The browser draws them only on command.

A frame computes the page's styles and layout, advances its animations, and dispatches the events of
both. Its time is that of the page's virtual clock.
"""

import asyncio
import time
from base64 import b64decode
from contextlib import suppress
from typing import Any, Protocol

from prerender.browser.cpu_priority import PageProcess
from prerender.browser.devtools import DevTools, Session, ignore_failure
from prerender.browser.virtual_clock import VirtualClock
from prerender.errors import RenderError

# The caller's deadline applies.
_NO_DEADLINE_SECONDS = 3600.0
# A page whose scripts hang in its frame blocks the frames of others, so its CPU time and real time are
# limited.
_HANGING_CPU_SECONDS = 3.0
_HANGING_SECONDS = 10.0
_CHECK_SECONDS = 0.25
# Each attempt terminates one script; a frame can run several.
_ATTEMPTS = 3
_ATTEMPT_SECONDS = 0.5
# A frame with the time of the last one would never complete.
_LATER_MS = 0.01
# The first frames of a window are empty.
_MOST_FRAMES = 5
_CLOSE_SECONDS = 1.0


class Surroundings(Protocol):
    """What a page shares with others: its browser, and the clock and process of its context."""

    devtools: DevTools
    clock: VirtualClock
    process: PageProcess | None


class FrameDrawing:
    """Draws the frames of one page. A browser draws one at a time: two at once crash Chromium 156,
    even for different pages."""

    def __init__(self, session: Session, context: Surroundings) -> None:
        self.clock = context.clock
        self._session = session
        self._context = context
        self._drawing = context.devtools.drawing
        self._last_ticks = 0.0
        self._making: asyncio.Future[dict[str, Any]] | None = None

    async def make(self, *, drawn: bool = False, **more: Any) -> dict[str, Any]:
        """Draw a frame, which runs scripts of the page. ``drawn``: with its pixels.

        Raises RenderError, and TimeoutError if the page hangs in its frame: its scripts are
        terminated.

        Cancelling the caller does not end the frame: that would harm the next one.
        """
        making = self._make(noDisplayUpdates=not drawn, **more)
        self._making = asyncio.create_task(making, name="frame")
        ignore_failure(self._making)
        return await asyncio.shield(self._making)

    async def _make(self, **options: Any) -> dict[str, Any]:
        async with self._drawing:
            self._last_ticks = max(self.clock.ticks, self._last_ticks + _LATER_MS)
            made = asyncio.ensure_future(
                self._session.call(
                    "HeadlessExperimental.beginFrame",
                    _NO_DEADLINE_SECONDS,
                    frameTimeTicks=self._last_ticks,
                    **options,
                )
            )
            if not await self._comes(made):
                await self._end_scripts(made)
                raise TimeoutError("the page hangs in its frame")
        return await made

    async def _comes(self, made: asyncio.Future[dict[str, Any]]) -> bool:
        """Wait for a frame, unless it hangs. Returns whether it is complete."""
        begun = time.monotonic()
        process, used = self._context.process, 0.0
        while not (await asyncio.wait({made}, timeout=_CHECK_SECONDS))[0]:
            if process is not None:
                used = used or process.cpu_seconds()
                if process.cpu_seconds() - used > _HANGING_CPU_SECONDS:
                    return False
            if time.monotonic() - begun > _HANGING_SECONDS:
                return False
        return True

    async def _end_scripts(self, made: asyncio.Future[dict[str, Any]]) -> None:
        """End the frame, if necessary with the page's process: a second one would crash the browser."""
        ignore_failure(made)
        for _ in range(_ATTEMPTS):
            with suppress(RenderError):
                await self._session.call("Runtime.terminateExecution", _ATTEMPT_SECONDS)
            if (await asyncio.wait({made}, timeout=_ATTEMPT_SECONDS))[0]:
                return
        if self._context.process is not None:
            self._context.process.kill()
        await asyncio.wait({made}, timeout=_CLOSE_SECONDS)

    async def picture(self) -> bytes:
        """The content of the window as PNG. Raises RenderError."""
        for _ in range(_MOST_FRAMES):
            frame = await self.make(drawn=True, screenshot={"format": "png"})
            if "screenshotData" in frame:
                return b64decode(frame["screenshotData"])
            await (await self.clock.start(1))
        raise RenderError("the browser does not take a screenshot")

    async def finish(self) -> None:
        """Wait for the frame of a cancelled caller. The caller sets a deadline."""
        if self._making is not None:
            await asyncio.wait({self._making})

    async def end(self) -> None:
        """Wait for the last frame of a page whose process was killed."""
        if self._making is not None:
            await asyncio.wait({self._making}, timeout=_CLOSE_SECONDS)
