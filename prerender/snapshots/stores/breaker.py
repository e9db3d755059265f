"""A circuit breaker: after a failure it blocks calls for a while, then lets one through."""

import time
from collections.abc import Callable

_FIRST_PAUSE_SECONDS = 0.5
# Short: a replica that leaves a store alone which has returned renders what others have rendered.
_LONGEST_PAUSE_SECONDS = 1.0


class Breaker:
    """Closed in normal operation. Open after a failure, for a time that doubles with each failure."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause = 0.0
        self._until = 0.0
        self._trying = False

    @property
    def closed(self) -> bool:
        """Whether the last call succeeded."""
        return not self._pause

    def admits(self) -> bool:
        """Whether a call may be made. While open, one at a time after the pause."""
        if self.closed:
            return True
        now = self._clock()
        if now < self._until:
            return False
        self._until = now + self._pause
        self._trying = True
        return True

    def failed(self) -> None:
        """Open, or double the pause after a trial. Concurrent failures count once."""
        if self.closed or self._trying:
            self._pause = min(self._pause * 2 or _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            self._until = self._clock() + self._pause
            self._trying = False

    def succeeded(self) -> None:
        """Close."""
        self._pause = 0.0
        self._trying = False
