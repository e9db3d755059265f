"""The parent process of Chromium: whatever happens to the proxy, nothing of Chromium survives it.

Run as a program of its own (``python -I -S guardian.py PROFILE FAMILY BYTES CHROMIUM ARGUMENT...``) in
its own session. It starts Chromium and waits for the first of two things: Chromium ends, or the socket
that is its standard input ends. The other end of it is held by the proxy, and the kernel closes it
however the proxy dies, by kill -9 too. Then it ends every process of its session (asking first, if they
were not ended by a fault), removes PROFILE and exits.

A parent-death signal would not do: it reaches the direct child only, and Debian's
``chromium-headless-shell`` is a shell script that does not exec the browser. As a subreaper the
guardian inherits the processes whose parent died, so no zombies are left to the proxy, not even
when the proxy is process 1 of a container.

Chromium has the same socket as its descriptors 3 and 4, where ``--remote-debugging-pipe`` reads and
writes: nobody else can speak to it. And it exits by itself when that ends, should the guardian be
killed together with the proxy.

Chromium gets a lower priority than the proxy and the guardian, and is what the kernel takes first when
memory is short. Before that, the browsers of one FAMILY (of one pool) are kept below BYTES of memory
together (0: no limit): the guardian ends the page that takes most. A page can fill gigabytes in a
second, so the guardian looks the more often the less is left.

Standard library only, and few modules of it, because it starts with every browser.
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
# A third of the CPU time of the proxy, when both want it.
_NICE = 5
# Chromium itself gives its renderers 300: they go first, then the browser, then the proxy.
_OOM_SCORE = 200
# What each CPU can fill in a second, and how often that is looked at.
_GROWTH_BYTES = 2 * 1024**3
_LONGEST_PAUSE_SECONDS = 0.5
_SHORTEST_PAUSE_SECONDS = 0.01
# Smaller pages are not what is wrong: a blank one takes a quarter of this.
_LEAST_PAGE_BYTES = 64 * 1024**2
# Of the limit, what there may be with the pages that are being ended.
_ENDING_SHARE = 1.08
# How the line on standard error begins that tells of a page that was ended.
TOO_LARGE = "the largest page was ended"


def main(profile: str, family: str, most_bytes: int, command: list[str]) -> int:
    """Run ``command`` until it or standard input ends; its exit status, or 128 + its signal."""
    _close_inherited()
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _lock(profile)
    # A core of Chromium can fill a disk, with what was in its pages.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        return _run(command, _MemoryLimit(family, most_bytes))
    finally:
        clean_up(os.getsid(0), profile)


def _close_inherited() -> None:
    """The proxy's loop starts programs with every descriptor of its that is marked inheritable."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the one that was used for listing
                os.close(int(name))


def _lock(profile: str) -> None:
    """Show for as long as this process lives that somebody looks after the profile."""
    with contextlib.suppress(OSError):
        descriptor = os.open(f"{profile}/{LOCK}", os.O_CREAT | os.O_WRONLY, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def is_abandoned(profile: str) -> bool:
    """Whether the guardian of a profile is gone, and could not remove it."""
    try:
        descriptor = os.open(f"{profile}/{LOCK}", os.O_WRONLY)
    except OSError:
        return False  # it is just being made, or somebody else's
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _step_back() -> None:
    """Give way to the proxy in all that is scarce. What is started from here on inherits it."""
    # As root Chromium would give itself a higher priority again.
    _prctl(_PR_CAPBSET_DROP, _CAP_SYS_NICE)
    os.nice(_NICE)
    with contextlib.suppress(OSError):
        # It does not interrupt others when it wakes up.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    # Where the kernel groups processes by session, niceness counts within a group only.
    _write("/proc/self/autogroup", _NICE)
    _write("/proc/self/oom_score_adj", _OOM_SCORE)


def _write(path: str, number: int) -> None:
    with contextlib.suppress(OSError), open(path, "w", encoding="ascii") as file:
        file.write(str(number))


def _prctl(option: int, argument: int) -> None:
    ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def clean_up(session: int, profile: str) -> None:
    """End every process of a session but this one, then remove the profile."""
    _end_session(session, signal.SIGKILL, KILL_SECONDS)
    shutil.rmtree(profile, ignore_errors=True)


def _run(command: list[str], limit: "_MemoryLimit") -> int:
    child = _start(command)
    ended = os.pidfd_open(child)
    events = select.poll()
    events.register(ended, select.POLLIN)
    # What the proxy says is not for us: only that it has gone.
    events.register(0, select.POLLRDHUP)
    while not (happened := dict(events.poll(limit.pause_seconds * 1000))):
        limit.enforce()
    if ended in happened:
        # The proxy need not wait for the end of all this.
        ctypes.CDLL(None).shutdown(0, _SHUT_RDWR)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) % 256
    _end_session(os.getsid(0), signal.SIGTERM, TERM_SECONDS)
    return 0


def _start(command: list[str]) -> int:
    """Start Chromium: its process id. One that cannot be started exits with 127."""
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
    """Bytes of a process that are its own, that it may share with others, and that are of files."""

    __slots__ = ("file_bytes", "private_bytes", "shared_bytes")

    def __init__(self, private_bytes: int, shared_bytes: int, file_bytes: int) -> None:
        self.private_bytes = private_bytes
        self.shared_bytes = shared_bytes
        self.file_bytes = file_bytes

    @classmethod
    def of(cls, status: dict[str, str]) -> "Memory":
        """By what /proc says of it. Raises KeyError for one that has ended."""
        sizes = (status[name] for name in ("RssAnon", "RssShmem", "RssFile"))
        return cls(*(int(size.split()[0]) * 1024 for size in sizes))

    @property
    def own_bytes(self) -> int:
        """What is given back when it ends."""
        return self.private_bytes + self.shared_bytes


class _MemoryLimit:
    """Ends the largest page of a family's browsers when these take more than ``most_bytes`` together.

    Every browser has its guardian, all of which see the same; each ends pages of its own browser only.
    """

    def __init__(self, family: str, most_bytes: int) -> None:
        self._family = _Family(family)
        self._most_bytes = most_bytes
        self._ending: set[int] = set()
        self._growth = _GROWTH_BYTES * len(os.sched_getaffinity(0))
        self.pause_seconds = _LONGEST_PAUSE_SECONDS if most_bytes else 3600.0

    def enforce(self) -> None:
        """Look at all processes, and say in ``pause_seconds`` when to look again."""
        memory = self._look()
        self._ending &= set(memory)
        # What has been killed gives its memory back, but not at once: nobody else is ended for it,
        # unless it takes too long.
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
        """End the page that takes most, or leave it to its own guardian; whether there is one."""
        pages = [pid for pid in memory if _is_page(pid)]
        largest = max(pages, key=lambda pid: memory[pid].own_bytes, default=0)
        if not largest or memory[largest].own_bytes < _LEAST_PAGE_BYTES:
            return False
        with contextlib.suppress(OSError):
            if os.getsid(largest) == os.getsid(0):
                size = memory[largest].own_bytes >> 20
                # Before its end can be seen: its render must not be repeated.
                print(f"{TOO_LARGE}: process {largest}, {size} MiB", file=sys.stderr, flush=True)
                _end_now(largest)
                self._ending.add(largest)
        return True


def _end_now(pid: int) -> None:
    """Kill a process and free its memory: it may itself get no CPU time to do that for long."""
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        # process_mrelease(2), since Linux 5.15. Where it fails, the process does it.
        ctypes.CDLL(None).syscall(_SYS_PROCESS_MRELEASE, handle, 0)
    finally:
        os.close(handle)


def _is_page(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "--type=renderer" in command_of(pid)
    return False


def total_bytes(processes: Iterable[Memory]) -> int:
    """About the memory that the processes of a browser take together: what a container is charged for.

    The resident sizes would count the program once for each process, and what two of them share twice.
    The proportional sizes (smaps_rollup) may not be read of processes in the sandbox, and take long.
    What pages share, they share with the browser.
    """
    found = list(processes)
    private = sum(process.private_bytes for process in found)
    shared = [process.shared_bytes for process in found] or [0]
    program = max((process.file_bytes for process in found), default=0)
    return private + max(*shared, sum(shared) - max(shared), 0) + program


def status_of(pid: int) -> dict[str, str]:
    """What the kernel says of a process (proc_pid_status(5)). Raises OSError."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as status:
        fields = (line.partition(":") for line in status)
        return {name: value.strip() for name, _, value in fields}


class _Family:
    """The processes of all sessions that a guardian of one family leads."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Sessions of others. One that has just begun may have a guardian a moment later.
        self._others: set[int] = set()
        self._known_others: set[int] = set()

    def members(self) -> list[int]:
        """Find them. The sessions of others are looked at twice only."""
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
    # Processes that were forked by a zygote have written theirs in one piece.
    return words if len(words) > 1 else words[0].split()


def _end_session(session: int, number: signal.Signals, seconds: float) -> None:
    """Send a signal to every process of a session, and wait so long until there is none."""
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
    """The processes of a session, but for the caller and for zombies that others have to reap."""
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
