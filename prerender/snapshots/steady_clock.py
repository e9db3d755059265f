"""A monotonic clock in Unix time, for ages and timers that small clock changes do not affect."""

import time
from collections.abc import Callable

_MOST_APART_SECONDS = 30.0
_SURE_SECONDS = 10.0


class SteadyClock:
    """Unix seconds by ``wall`` at the start of the process, plus the ``monotonic`` time since then.

    Other replicas and the store use the wall clock, so a large difference is corrected: the process
    may have started before NTP set the wall clock, and a suspended machine stops the monotonic one. But
    the wall clock may also be wrong for a moment, so it is followed after ten seconds. This clock never
    goes back, and short timers stay short: if it is ahead, it runs at half speed for a while.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._last = monotonic()
        self._offset = wall() - self._last
        self._behind_since: float | None = None

    def __call__(self) -> float:
        """The time in Unix seconds."""
        last, self._last = self._last, self._monotonic()
        ahead = self._offset + self._last - self._wall()
        if ahead > _MOST_APART_SECONDS:
            self._offset -= (self._last - last) / 2
        if ahead >= -_MOST_APART_SECONDS:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = self._last
        elif self._last - self._behind_since >= _SURE_SECONDS:
            self._offset -= ahead
        return self._offset + self._last


now = SteadyClock()
