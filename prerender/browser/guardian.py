"""The parent process of Chromium: no process of Chromium outlives the proxy, whatever happens to it.

Run as a separate program (``python -I -S guardian.py PROFILE FAMILY BYTES CHROMIUM ARGUMENT...``) in
its own session. It starts Chromium and waits until either Chromium or the socket that is its standard
input ends. The proxy holds the other end of the socket, and the kernel closes it however the proxy
dies, even by kill -9. Then the guardian ends all processes of its session (first by SIGTERM, unless
Chromium failed), removes PROFILE and exits.

A parent-death signal is not enough: it reaches only the direct child, and Debian's
``chromium-headless-shell`` is a shell script that does not exec the browser. As a subreaper, the
guardian inherits orphaned processes, so the proxy gets no zombies, even as process 1 of a container.

Chromium has the same socket as descriptors 3 and 4, where ``--remote-debugging-pipe`` reads and
writes, so nobody else can connect to it. It exits by itself when the socket ends, in case the guardian
is killed together with the proxy.

Chromium gets a lower priority than the proxy and the guardian, and the kernel's OOM killer selects it
first. Before that, the browsers of one FAMILY (of one pool) are together kept below BYTES of memory
(0: no limit): the guardian ends the largest page. A page can fill gigabytes per second, so the
guardian checks more often the less memory is left.

It imports only a few modules of the standard library, because it starts with every browser.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable

LOCK = "guardian.lock"
TERM_SECONDS = 1.0
KILL_SECONDS = 5.0

_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_CAP_SYS_NICE = 23
_SHUT_RDWR = 2
_SYS_PROCESS_MRELEASE = 448
# A third of the proxy's CPU time when both need it.
_NICE = 5
# Chromium gives its renderers 300: they are killed first, then the browser, then the proxy.
_OOM_SCORE = 200
# Memory that each CPU can fill per second, and the limits of the interval between checks.
_GROWTH_BYTES = 2 * 1024**3
_LONGEST_PAUSE_SECONDS = 0.5
_SHORTEST_PAUSE_SECONDS = 0.01
# Smaller pages are not the cause: a blank one takes a quarter of this.
_LEAST_PAGE_BYTES = 64 * 1024**2
# A browser process of this size holds data of a page, such as blobs, of which the page's own process
# shows nothing.
_LARGE_BROWSER_BYTES = 400 * 1024**2
# The share of the limit that may be used while pages are being ended.
_ENDING_SHARE = 1.08
# The beginning of the line on standard error that reports an ended page.
TOO_LARGE = "the largest page was ended"


def main(profile: str, family: str, most_bytes: int, command: list[str]) -> int:
    """Run ``command`` until it or standard input ends. Returns its exit status or 128 + signal."""
    _close_inherited()
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _lock(profile)
    # A core dump of Chromium can fill a disk, and contains its pages.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        return _run(command, _MemoryLimit(family, most_bytes))
    finally:
        clean_up(os.getsid(0), profile)


def _close_inherited() -> None:
    """Close inherited descriptors: the proxy's event loop passes on all that are inheritable."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))


def _lock(profile: str) -> None:
    """Lock the profile while this process lives, to show that it is in use."""
    with contextlib.suppress(OSError):
        descriptor = os.open(f"{profile}/{LOCK}", os.O_CREAT | os.O_WRONLY, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def is_abandoned(profile: str) -> bool:
    """Whether the guardian of a profile is gone without having removed it."""
    try:
        descriptor = os.open(f"{profile}/{LOCK}", os.O_WRONLY)
    except OSError:
        return False  # it is being created, or belongs to another user
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _step_back() -> None:
    """Lower the priority for CPU and memory below the proxy's. New processes inherit it."""
    # As root, Chromium would raise its priority again.
    _prctl(_PR_CAPBSET_DROP, _CAP_SYS_NICE)
    os.nice(_NICE)
    with contextlib.suppress(OSError):
        # A batch process does not preempt others when it wakes up.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    # If the kernel groups processes by session (autogroup), niceness only applies within the group.
    _write("/proc/self/autogroup", _NICE)
    _write("/proc/self/oom_score_adj", _OOM_SCORE)


def _write(path: str, number: int) -> None:
    with contextlib.suppress(OSError), open(path, "w", encoding="ascii") as file:
        file.write(str(number))


def _prctl(option: int, argument: int) -> None:
    ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def clean_up(session: int, profile: str) -> None:
    """End all other processes of a session, then remove the profile."""
    _end_session(session, signal.SIGKILL, KILL_SECONDS)
    remove(profile)


def remove(profile: str) -> None:
    """Remove a profile, its lock last: without it, an interrupted removal would not be completed by
    the next start."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(profile):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != LOCK:
                os.unlink(entry.path)
    shutil.rmtree(profile, ignore_errors=True)


def _run(command: list[str], limit: "_MemoryLimit") -> int:
    child = _start(command)
    ended = os.pidfd_open(child)
    events = select.poll()
    events.register(ended, select.POLLIN)
    # Messages of the proxy are for Chromium; only the end of the socket matters here.
    events.register(0, select.POLLRDHUP)
    while not (happened := dict(events.poll(limit.pause_seconds * 1000))):
        limit.enforce()
    if ended in happened:
        # Let the proxy continue.
        ctypes.CDLL(None).shutdown(0, _SHUT_RDWR)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) % 256
    _end_session(os.getsid(0), signal.SIGTERM, TERM_SECONDS)
    return 0


def _start(command: list[str]) -> int:
    """Start Chromium. Returns its process id. Exits with 127 if it cannot be started."""
    child = os.fork()
    if child:
        return child
    try:
        _step_back()
        for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_DFL)
        for descriptor in (3, 4):
            os.dup2(0, descriptor)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.execv(command[0], command)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


class Memory:
    """Memory of a process in bytes: private, shared with others, and of files."""

    __slots__ = ("file_bytes", "private_bytes", "shared_bytes")

    def __init__(self, private_bytes: int, shared_bytes: int, file_bytes: int) -> None:
        self.private_bytes = private_bytes
        self.shared_bytes = shared_bytes
        self.file_bytes = file_bytes

    @classmethod
    def of(cls, status: dict[str, str]) -> "Memory":
        """Read it from /proc. Raises KeyError if the process has ended."""
        sizes = (status[name] for name in ("RssAnon", "RssShmem", "RssFile"))
        return cls(*(int(size.split()[0]) * 1024 for size in sizes))

    @property
    def own_bytes(self) -> int:
        """The memory that becomes free when it ends."""
        return self.private_bytes + self.shared_bytes


class _MemoryLimit:
    """Ends the largest page when the browsers of a family take more than ``most_bytes`` together.

    Each browser has a guardian. All see the same processes, and each ends only pages of its own
    browser.
    """

    def __init__(self, family: str, most_bytes: int) -> None:
        self._family = _Family(family)
        self._most_bytes = most_bytes
        self._ending: set[int] = set()
        self._growth = _GROWTH_BYTES * len(os.sched_getaffinity(0))
        self.pause_seconds = _LONGEST_PAUSE_SECONDS if most_bytes else 3600.0

    def enforce(self) -> None:
        """Check all processes, and set ``pause_seconds`` until the next check."""
        memory = self._look()
        self._ending &= set(memory)
        # A killed process frees its memory with a delay. Do not end another one meanwhile, unless it
        # takes too long.
        left = {pid: memory[pid] for pid in memory if pid not in self._ending}
        room = min(
            self._most_bytes - total_bytes(left.values()),
            self._most_bytes * _ENDING_SHARE - total_bytes(memory.values()),
        )
        pause = max(room / self._growth, _SHORTEST_PAUSE_SECONDS)
        if room < 0 and not self._end_largest(left):
            pause = _LONGEST_PAUSE_SECONDS
        self.pause_seconds = min(pause, _LONGEST_PAUSE_SECONDS)

    def _look(self) -> dict[int, Memory]:
        found = {}
        for pid in self._family.members():
            with contextlib.suppress(OSError, KeyError):
                found[pid] = Memory.of(status_of(pid))
        return found

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
                size = memory[largest].own_bytes >> 20
                # Report it before its end can be noticed: its render must not be repeated.
                print(f"{TOO_LARGE}: process {largest}, {size} MiB", file=sys.stderr, flush=True)
                _end_now(largest)
                self._ending.add(largest)
        return is_large


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


def total_bytes(processes: Iterable[Memory]) -> int:
    """The approximate memory of a browser's processes together, as charged to a container.

    Resident sizes would count the program once per process, and shared memory twice. Proportional
    sizes (smaps_rollup) cannot be read for sandboxed processes, and take long. Pages share memory with
    the browser.
    """
    found = list(processes)
    private = sum(process.private_bytes for process in found)
    shared = [process.shared_bytes for process in found] or [0]
    program = max((process.file_bytes for process in found), default=0)
    return private + max(*shared, sum(shared) - max(shared), 0) + program


def status_of(pid: int) -> dict[str, str]:
    """The status of a process (proc_pid_status(5)). Raises OSError."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
        fields = (line.partition(":") for line in status)
        return {name: value.strip() for name, _, value in fields}


class _Family:
    """The processes of all sessions led by guardians of one family."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Other sessions. A new one may get a guardian a moment later.
        self._others: set[int] = set()
        self._known_others: set[int] = set()

    def members(self) -> list[int]:
        """Find them. Other sessions are checked only twice."""
        is_ours: dict[int, bool] = {}
        members = []
        for pid in _all_processes():
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
        return session > 0 and command_of(session)[3:6:2] == [__file__, self._name]


def command_of(pid: int) -> list[str]:
    """The command line of a process. Raises OSError."""
    with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
        words = file.read().rstrip("\0").split("\0")
    # Processes forked by a zygote have theirs in one piece.
    return words if len(words) > 1 else words[0].split()


def _end_session(session: int, number: signal.Signals, seconds: float) -> None:
    """Send a signal to all processes of a session, and wait up to this long until there are none."""
    deadline = time.monotonic() + seconds
    asked: set[int] = set()
    while others := session_members(session):
        for pid in others:
            if pid not in asked:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
                asked.add(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return
        time.sleep(0.005)


def session_members(session: int) -> list[int]:
    """The processes of a session, except the caller and zombies of other parents."""
    own = os.getpid()
    members = []
    for pid in _all_processes():
        with contextlib.suppress(OSError):
            if pid != own and os.getsid(pid) == session and not _is_zombie_of_other(pid, own):
                members.append(pid)
    return members


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _is_zombie_of_other(pid: int, own: int) -> bool:
    status = status_of(pid)
    return status["State"][0] == "Z" and int(status["PPid"]) != own


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
