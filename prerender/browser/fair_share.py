"""What one page may take from the others that render at the same time: CPU time, frames, requests.

A page that uses much CPU time may go on until its time is up, but its process gives way to the others,
step by step. What keeps the browser or the proxy busy cannot give way: a page with far too many frames
or requests is ended.
"""

import os
import signal
from contextlib import suppress

import structlog

# CPU seconds of one render, and the niceness of the page's process from then on. Chromium has 5.
_STEPS = ((2.0, 12), (5.0, 19))
# Each worker is a thread, and each thread one more competitor for the CPUs. A page itself has up to 25.
_MANY_THREADS = 60
_LAST_NICENESS = 19
_TICKS = os.sysconf("SC_CLK_TCK")
# An ordinary page has a few frames. Each costs the browser's own process a few milliseconds.
MOST_FRAMES = 200
# Requests beyond [network] max_requests are refused; so many times as many are a flood.
FLOOD = 3

log = structlog.get_logger(__name__)


class PageProcess:
    """The process of a page. ``gives_way``: its priority was lowered, and cannot be raised again."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        # Of this process, and not of another one that has its number later.
        self._handle = os.pidfd_open(pid)
        self._used_before = 0.0
        self._niceness = 0

    def close(self) -> None:
        """Let go of the handle."""
        os.close(self._handle)

    @property
    def gives_way(self) -> bool:
        """Whether it should not serve another render."""
        return self._niceness > 0

    def begin(self) -> None:
        """A render begins."""
        self._used_before = self._usage()[0]

    def weigh(self) -> None:
        """Lower the priority of a process that has taken much since the render began."""
        seconds, threads = self._usage()
        used = seconds - self._used_before
        niceness = max((nice for least, nice in _STEPS if used > least), default=0)
        if threads > _MANY_THREADS:
            niceness = _LAST_NICENESS
        if niceness > self._niceness:
            self._niceness = niceness
            log.info("page_gives_way", pid=self.pid, cpu_seconds=round(used, 1), threads=threads)
            self._give_way(niceness)

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _usage(self) -> tuple[float, int]:
        """CPU seconds so far, and threads; none of either if the process has ended."""
        with suppress(OSError), open(f"/proc/{self.pid}/stat", encoding="latin-1") as stat:
            # proc_pid_stat(5): fields from the third on, behind a name that can be anything.
            fields = stat.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[17])
        return 0.0, 0

    def _give_way(self, niceness: int) -> None:
        # Priorities belong to threads; a new one has that of the thread that made it.
        for thread in _threads(self.pid):
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, thread, niceness)
                if niceness == _LAST_NICENESS:
                    os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def _threads(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []
