"""The parent process of Chromium: no process of Chromium outlives the proxy, whatever happens to it.

Run as a separate program (``command()``) in its own session. It starts Chromium and waits until either
Chromium or the socket that is its standard input ends. The proxy holds the other end of the socket, and
the kernel closes it however the proxy dies, even by kill -9. Then the guardian ends all processes of
its session (first by SIGTERM, unless Chromium failed), removes the profile and exits. Until then it
enforces the memory limit (memory_limit.py), and reports ended pages on its standard output.

A parent-death signal is not enough: it reaches only the direct child, and Debian's
``chromium-headless-shell`` is a shell script that does not exec the browser. As a subreaper, the
guardian inherits orphaned processes, so the proxy gets no zombies, even as process 1 of a container.

Chromium has the same socket as descriptors 3 and 4, where ``--remote-debugging-pipe`` reads and
writes, so nobody else can connect to it. It exits by itself when the socket ends, in case the guardian
is killed together with the proxy.

Chromium gets a lower priority than the proxy and the guardian, and the kernel's OOM killer selects it
first.

This module and those that it imports use only a few modules of the standard library, because a guardian
starts with every browser.
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

from prerender.browser.memory_limit import MemoryLimit
from prerender.browser.proc import session_members

LOCK = "guardian.lock"
TERM_SECONDS = 1.0
KILL_SECONDS = 5.0

_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_CAP_SYS_NICE = 23
_SHUT_RDWR = 2
# A third of the proxy's CPU time when both need it.
_NICE = 5
# Chromium gives its renderers 300: they are killed first, then the browser, then the proxy.
_OOM_SCORE = 200
# Where this package is installed; after the standard library, which nothing there may replace.
# As bytes: the locale of the guardian can have another encoding than the proxy's.
_PATH = os.fsencode(os.path.abspath(f"{__file__}/../../.."))
# Not the file itself, which could not import from its package and would be compiled at every start.
_PROGRAM = (
    f"import os, sys; sys.path.append(os.fsdecode({_PATH!r})); "
    "from prerender.browser import guardian; sys.exit(guardian.main(sys.argv[1:]))"
)


def command(family: str, profile: str, max_bytes: int, chromium: list[str]) -> list[str]:
    """The command line of a guardian.

    ``family``: the same for all browsers of a pool. ``max_bytes``: the memory that they may use
    together; 0: no limit. ``chromium``: the program and its arguments.
    """
    # Isolated from the environment and from other packages. The proxy has compiled the modules already,
    # if it may write them.
    options = ["-I", "-S", "-B"]
    return [sys.executable, *options, "-c", _PROGRAM, family, profile, str(max_bytes), *chromium]


def family_of(words: list[str]) -> str:
    """The family in a guardian's command line; '' if it is that of another program."""
    return words[6] if len(words) > 6 and words[5] == _PROGRAM else ""


def main(arguments: list[str]) -> int:
    """Run Chromium until it or standard input ends. Returns its exit status or 128 + signal."""
    family, profile, max_bytes, *chromium = arguments
    _close_inherited()
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _lock(profile)
    # A core dump of Chromium can fill a disk, and contains its pages.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        limit = MemoryLimit(int(max_bytes), lambda words: family_of(words) == family)
        return _run(chromium, limit)
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


def _run(chromium: list[str], limit: MemoryLimit) -> int:
    child = _start(chromium)
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


def _start(chromium: list[str]) -> int:
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
        for descriptor in (0, 1):
            os.dup2(nothing, descriptor)
        os.close(nothing)
        os.execv(chromium[0], chromium)  # noqa: S606 (no shell is wanted)
    except OSError as error:
        print(f"{chromium[0]}: {error.strerror}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def _end_session(session: int, number: signal.Signals, seconds: float) -> None:
    """Send a signal to all processes of a session, and wait up to this long until there are none."""
    deadline = time.monotonic() + seconds
    terminated: set[int] = set()
    while others := session_members(session):
        for pid in others:
            if pid not in terminated:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
                terminated.add(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return
        time.sleep(0.005)
