"""What the kernel reports about processes in /proc (proc(5)).

It imports only modules of the standard library, because the guardian uses it.
"""

import contextlib
import os
import time
from collections.abc import Iterable

# MAKE_PROCESS_CPUCLOCK and CPUCLOCK_SCHED of the kernel.
_CLOCK_BITS, _CPU_TIME = 3, 2


def all_processes() -> list[int]:
    """The ids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def session_members(session: int) -> dict[int, int]:
    """The processes of a session, except the caller and zombies of other parents, each with its
    parent."""
    own = os.getpid()
    members = {}
    for pid in all_processes():
        try:
            if pid == own or os.getsid(pid) != session:
                continue
            state, parent, *_ = _stat(pid, 0)
        except OSError:
            continue
        if state != b"Z" or int(parent) == own:
            members[pid] = int(parent)
    return members


def resident_bytes(pid: int) -> tuple[int, int, int]:
    """The resident memory of a process: private, shared, and of files (RssAnon, RssShmem and RssFile in
    proc_pid_status(5)). Raises OSError, and ValueError if it has ended."""
    lines = _read(f"/proc/{pid}/status")
    private, files, shared = lines[lines.index(b"\nRssAnon:") :].split(None, 9)[1:9:3]
    return int(private) * 1024, int(shared) * 1024, int(files) * 1024


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used. Raises OSError if it has ended.

    Its clock (clock_getcpuclockid(3)) takes a fifteenth of the time of proc_pid_stat(5).
    """
    return time.clock_gettime(~pid << _CLOCK_BITS | _CPU_TIME)


class Idleness:
    """Whether processes have used hardly any CPU time: too little to fill memory or to start others.

    A look at all processes takes a hundred times as long.
    """

    # To start a process, Chromium needs thirty.
    _MOST_SECONDS = 0.002

    def __init__(self) -> None:
        self._pids: tuple[int, ...] = ()
        self._before: float | None = None

    def begin(self, pids: Iterable[int]) -> None:
        """Note the CPU time until now."""
        self._pids = tuple(pids)
        self._before = self._used()

    def lasts(self) -> bool:
        """Whether all of the processes are idle since then. Not if one has ended, or there are none."""
        used = self._used()
        if used is None or self._before is None:
            return False
        # Less than before: the number of a process that has ended is that of another one.
        return 0 <= used - self._before < self._MOST_SECONDS

    def _used(self) -> float | None:
        with contextlib.suppress(OSError):
            return sum(map(cpu_seconds, self._pids)) if self._pids else None
        return None


def command_of(pid: int) -> list[str]:
    """The command line of a process. Raises OSError."""
    line = _read(f"/proc/{pid}/cmdline").decode("utf-8", "replace")
    words = line.rstrip("\0").split("\0")
    # Processes forked by a zygote have theirs in one piece.
    return words if len(words) > 1 else words[0].split()


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal or a debugger; False if it has ended."""
    with contextlib.suppress(OSError):
        return _stat(pid, 0)[0] in b"Tt"
    return False


def stat_of(pid: int, thread: int = 0) -> list[int]:
    """The fields of proc_pid_stat(5) from the fourth on, of a process or a thread. Raises OSError."""
    return [int(field) for field in _stat(pid, thread)[1:]]


def _stat(pid: int, thread: int) -> list[bytes]:
    task = f"/task/{thread}" if thread else ""
    try:
        # After the name, which can be anything. The first field is the state.
        return _read(f"/proc/{pid}{task}/stat").rpartition(b")")[2].split()
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error


def _read(path: str) -> bytes:
    """The first 32 KiB of a file: memory follows the list of groups, which can be long. A file object
    takes twice the time, and renders and guardians read several of these files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 32 * 1024)
    finally:
        os.close(descriptor)


def threads_of(pid: int) -> set[int]:
    """The threads of a process; none if it has ended."""
    with contextlib.suppress(OSError):
        return {int(name) for name in os.listdir(f"/proc/{pid}/task")}
    return set()


def is_runnable(pid: int) -> bool:
    """Whether a thread of a process uses a CPU or waits for one."""
    for thread in threads_of(pid):
        with contextlib.suppress(OSError):
            if _stat(pid, thread)[0] == b"R":
                return True
    return False


def thread_name(pid: int, thread: int) -> bytes:
    """The name of a thread (proc_pid_comm(5)). Raises OSError."""
    return _read(f"/proc/{pid}/task/{thread}/comm")
