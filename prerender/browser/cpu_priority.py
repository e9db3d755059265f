"""The CPU priority of a page: one that uses much CPU time may continue, but gives way to the others.

The priority of its process is lowered in steps. Each worker is a thread, with a share of the CPUs like
a whole page's: if there are many, theirs is lowered at once, and the page itself continues.
"""

import os
import signal
from contextlib import suppress

import structlog

from prerender.browser.proc import cpu_seconds, stat_of, thread_name, threads_of

# CPU seconds of a render, and the niceness of the page's process from then on. Chromium has 5.
_STEPS = ((2.0, 12), (5.0, 19))
_LAST_NICENESS = 19
# Up to so many workers, each counts as a page.
_FEW_WORKERS = 4
_TICKS = os.sysconf("SC_CLK_TCK")
# Indices in the result of stat_of() (proc_pid_stat(5), fields 14, 15, 20 and 22).
_USER_TICKS, _SYSTEM_TICKS, _THREADS, _STARTED = 10, 11, 16, 18

log = structlog.get_logger(__name__)


class PageProcess:
    """The process of a page. ``gives_way``: its priority was lowered, and cannot be raised again.

    It holds no descriptor, so nothing is left open when its browser dies. Raises ProcessLookupError
    if the process has ended already.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        # Distinguishes this process from a later one with the same number.
        self._started = stat_of(pid)[_STARTED]
        self._used_before = 0.0
        self._niceness = 0
        self._threads = 0
        # Worker threads whose priority was lowered.
        self._slowed: set[int] = set()

    @property
    def gives_way(self) -> bool:
        """Whether it should not serve another render."""
        return self._niceness > 0 or bool(self._slowed)

    def begin(self) -> None:
        """Note the start of a render."""
        self._used_before = self.cpu_seconds()

    def cpu_seconds(self) -> float:
        """CPU time so far in seconds; 0 if it has ended."""
        with suppress(OSError):
            return cpu_seconds(self.pid)
        return 0.0

    def weigh(self) -> None:
        """Lower the priority of many workers, and of a page that has used much CPU time."""
        threads = self._thread_count()
        if not threads:
            return  # its number may be that of another process by now
        if threads != self._threads and self._slow_workers():
            self._threads = threads
        # Without the workers' time, for which the page itself must not be slowed down.
        seconds = self._main_thread_seconds() if self._slowed else self.cpu_seconds()
        used = seconds - self._used_before
        niceness = max((nice for least, nice in _STEPS if used > least), default=0)
        if niceness > self._niceness:
            self._niceness = niceness
            log.info("page_gives_way", pid=self.pid, cpu_seconds=round(used, 1))
            for thread in threads_of(self.pid):
                _lower(thread, niceness)

    def _slow_workers(self) -> bool:
        """Give workers the lowest priority if there are many. A new one has that of its creator.

        Returns whether all threads are known: a new one has the name of the main one at first.
        """
        names = {thread: self._name_of(thread) for thread in threads_of(self.pid) - self._slowed}
        workers = {thread for thread, name in names.items() if b"Worker" in name}
        main = names.pop(self.pid, b"")
        if len(self._slowed) + len(workers) > _FEW_WORKERS:
            if not self._slowed:
                self._used_before = self._main_thread_seconds()
                log.info("page_workers_give_way", pid=self.pid)
            self._slowed |= workers
            for thread in workers:
                _lower(thread, _LAST_NICENESS)
        return main not in names.values()

    def kill(self) -> None:
        """Kill it at once."""
        with suppress(OSError):
            handle = os.pidfd_open(self.pid)
            try:
                # The descriptor stays that of this process, even if its number is reused.
                if stat_of(self.pid)[_STARTED] == self._started:
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)

    def _thread_count(self) -> int:
        """The number of threads; 0 if the process has ended."""
        with suppress(OSError):
            fields = stat_of(self.pid)
            if fields[_STARTED] == self._started:
                return fields[_THREADS]
        return 0

    def _main_thread_seconds(self) -> float:
        with suppress(OSError):
            fields = stat_of(self.pid, thread=self.pid)
            return (fields[_USER_TICKS] + fields[_SYSTEM_TICKS]) / _TICKS
        return 0.0

    def _name_of(self, thread: int) -> bytes:
        """Chromium's name, with "Worker" for all kinds of workers; b"" if the thread has ended."""
        with suppress(OSError):
            return thread_name(self.pid, thread)
        return b""


def _lower(thread: int, niceness: int) -> None:
    # Priorities belong to threads.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
        if niceness == _LAST_NICENESS:
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
