"""The memory limit of Chromium, ``[browser] max_memory``: above it, the largest page is ended.

It applies to all browsers of a pool together, and each browser's guardian enforces it (guardian.py). A
page can fill gigabytes per second, so the guardian checks more often the less memory is left, unless
all processes are idle. Before that, the supervisor replaces a browser that keeps using much memory
(supervisor.py).
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

from prerender.browser.proc import Idleness, all_processes, command_of, resident_bytes

_SYS_PROCESS_MRELEASE = 448
_FILL_BYTES_PER_SECOND_PER_CPU = 2 * 1024**3
# The limits of the interval between checks.
_LONGEST_PAUSE_SECONDS = 0.5
_SHORTEST_PAUSE_SECONDS = 0.01
# Another browser of the family may have started, of which this guardian does not know yet.
_LONGEST_IDLE_SECONDS = 1.0
# Smaller pages are not the cause: a blank one takes a quarter of this.
_LEAST_PAGE_BYTES = 64 * 1024**2
# A browser process of this size holds data of a page, such as blobs, of which the page's own process
# shows nothing.
_LARGE_BROWSER_BYTES = 400 * 1024**2
# The share of the limit that may be used while pages are being ended.
_ENDING_SHARE = 1.08


class Memory:
    """Memory of a process in bytes: private, shared with others, and of files."""

    __slots__ = ("file_bytes", "private_bytes", "shared_bytes")

    def __init__(self, private_bytes: int, shared_bytes: int, file_bytes: int) -> None:
        self.private_bytes = private_bytes
        self.shared_bytes = shared_bytes
        self.file_bytes = file_bytes

    @classmethod
    def of(cls, pid: int) -> "Memory":
        """That of a process. Raises OSError, and ValueError if it has ended."""
        return cls(*resident_bytes(pid))

    @property
    def own_bytes(self) -> int:
        """The memory that becomes free when it ends."""
        return self.private_bytes + self.shared_bytes


def total_bytes(processes: Iterable[Memory]) -> int:
    """The approximate memory of a browser's processes together, as charged to a container.

    Resident sizes would count the program once per process, and shared memory twice. Proportional
    sizes (smaps_rollup) cannot be read for sandboxed processes, and take long. Pages share memory with
    the browser.
    """
    listed = list(processes)
    private = sum(process.private_bytes for process in listed)
    shared = [process.shared_bytes for process in listed] or [0]
    program = max((process.file_bytes for process in listed), default=0)
    return private + max(*shared, sum(shared) - max(shared), 0) + program


class MemoryLimit:
    """Ends the largest page when the browsers of a family use more than ``max_bytes`` together (0: no
    limit).

    Each browser has a guardian, and ``is_guardian`` recognizes those of the family by their command
    lines. All see the same processes, and each ends only pages of its own browser.
    """

    def __init__(self, max_bytes: int, is_guardian: Callable[[list[str]], bool]) -> None:
        self._family = _Family(is_guardian)
        self._max_bytes = max_bytes
        self._ending: set[int] = set()
        self._growth = _FILL_BYTES_PER_SECOND_PER_CPU * len(os.sched_getaffinity(0))
        self.pause_seconds = _LONGEST_PAUSE_SECONDS if max_bytes else 3600.0
        self._idleness = Idleness()
        self._idle_until = 0.0

    def enforce(self) -> None:
        """Check all processes, and set ``pause_seconds`` until the next check."""
        if self._idleness.lasts() and time.monotonic() < self._idle_until:
            return
        memory = self._look()
        self._ending &= set(memory)
        # A killed process frees its memory with a delay. Do not end another one meanwhile, unless it
        # takes too long.
        left = {pid: memory[pid] for pid in memory if pid not in self._ending}
        room = min(
            self._max_bytes - total_bytes(left.values()),
            self._max_bytes * _ENDING_SHARE - total_bytes(memory.values()),
        )
        pause = max(room / self._growth, _SHORTEST_PAUSE_SECONDS)
        if room < 0 and not self._end_largest(left):
            pause = _LONGEST_PAUSE_SECONDS
        self.pause_seconds = min(pause, _LONGEST_PAUSE_SECONDS)
        if room > _LEAST_PAGE_BYTES:
            self._idleness.begin(memory.keys() - {os.getpid()})
            self._idle_until = time.monotonic() + _LONGEST_IDLE_SECONDS

    def _look(self) -> dict[int, Memory]:
        memory = {}
        for pid in self._family.members():
            with contextlib.suppress(OSError, ValueError):
                memory[pid] = Memory.of(pid)
        return memory

    def _end_largest(self, memory: dict[int, Memory]) -> bool:
        """End the largest page, or leave it to its own guardian. Returns whether that frees memory at
        once: the browser process is slower to free what it holds for a page."""
        pages = [pid for pid in memory if _is_page(pid)]
        largest = max(pages, key=lambda pid: memory[pid].own_bytes, default=0)
        if not largest:
            return False
        is_large = memory[largest].own_bytes >= _LEAST_PAGE_BYTES
        rest = max((memory[pid].own_bytes for pid in memory if pid not in pages), default=0)
        if not is_large and rest < _LARGE_BROWSER_BYTES:
            return False
        with contextlib.suppress(OSError):
            if os.getsid(largest) == os.getsid(0):
                # Report it before its end can be noticed: its render must not be repeated.
                _report(largest, memory[largest].own_bytes)
                _end_now(largest)
                self._ending.add(largest)
        return is_large


def _report(pid: int, size_bytes: int) -> None:
    """Report an ended page on standard output, as a line of JSON (chromium.py reads it)."""
    sys.stdout.write(f'{{"pid": {pid}, "bytes": {size_bytes}}}\n')
    sys.stdout.flush()


def _end_now(pid: int) -> None:
    """Kill a process and free its memory. It may not get the CPU time to do that itself."""
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        # process_mrelease(2), since Linux 5.15. If it fails, the process frees its memory.
        ctypes.CDLL(None).syscall(_SYS_PROCESS_MRELEASE, handle, 0)
    finally:
        os.close(handle)


def _is_page(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "--type=renderer" in command_of(pid)
    return False


class _Family:
    """The processes of all sessions led by guardians of one family."""

    def __init__(self, is_guardian: Callable[[list[str]], bool]) -> None:
        self._is_guardian = is_guardian
        # Other sessions. A new one may get a guardian a moment later.
        self._others: set[int] = set()
        self._known_others: set[int] = set()

    def members(self) -> list[int]:
        """Find them. Other sessions are checked only twice."""
        is_ours: dict[int, bool] = {}
        members = []
        for pid in all_processes():
            with contextlib.suppress(OSError):
                session = os.getsid(pid)
                if session not in is_ours:
                    is_ours[session] = session not in self._known_others and self._leads(session)
                if is_ours[session]:
                    members.append(pid)
        others = {session for session, ours in is_ours.items() if not ours}
        self._known_others, self._others = others & self._others, others
        return members

    def _leads(self, session: int) -> bool:
        return session > 0 and self._is_guardian(command_of(session))
