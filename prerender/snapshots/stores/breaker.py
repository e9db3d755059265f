"""A circuit breaker: what failed is left alone for a while, and tried again by one caller."""

import time
from collections.abc import Callable

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 5.0


class Breaker:
    """Closed while all is well. After a failure open for a time that doubles with each new failure."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause = 0.0
        self._until = 0.0
        self._trying = False

    @property
    def closed(self) -> bool:
        """Whether all is well as far as is known."""
        return not self._pause

    def admits(self) -> bool:
        """Whether a caller may try. While open, one at a time may, when the pause is over."""
        if self.closed:
            return True
        now = self._clock()
        if now < self._until:
            return False
        self._until = now + self._pause
        self._trying = True
        return True

    def failed(self) -> None:
        """Open, or stay open for longer if it was a trial. Calls that fail together count once."""
        if self.closed or self._trying:
            self._pause = min(self._pause * 2 or _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            self._until = self._clock() + self._pause
            self._trying = False

    def succeeded(self) -> None:
        """Close."""
        self._pause = 0.0
        self._trying = False
