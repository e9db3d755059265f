"""A monotonic clock in Unix time, for ages that are independent of clock changes."""

import time

_OFFSET_SECONDS = time.time() - time.monotonic()


def now() -> float:
    """Unix seconds at the start of the process, plus the monotonic time since then."""
    return _OFFSET_SECONDS + time.monotonic()
