"""Unix time that never jumps, for ages that outlive a process and survive a change of the clock."""

import time

_OFFSET_SECONDS = time.time() - time.monotonic()


def now() -> float:
    """Unix seconds as they were when the process started, and since then by the monotonic clock."""
    return _OFFSET_SECONDS + time.monotonic()
