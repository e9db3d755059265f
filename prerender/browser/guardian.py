"""The parent process of Chromium: whatever happens to the proxy, nothing of Chromium survives it.

Run as a program of its own (``python -I -S guardian.py PROFILE CHROMIUM ARGUMENT...``) in its own
session. It starts Chromium and waits for the first of two things: Chromium ends, or the socket that is
its standard input ends. The other end of it is held by the proxy, and the kernel closes it however the
proxy dies, by kill -9 too. Then it ends every process of its session (asking first, if they were not
ended by a fault), removes PROFILE and exits.

A parent-death signal would not do: it reaches the direct child only, and Debian's
``chromium-headless-shell`` is a shell script that does not exec the browser. As a subreaper the
guardian inherits the processes whose parent died, so no zombies are left to the proxy, not even
when the proxy is process 1 of a container.

Chromium has the same socket as its descriptors 3 and 4, where ``--remote-debugging-pipe`` reads and
writes: nobody else can speak to it. And it exits by itself when that ends, should the guardian be
killed together with the proxy.

Chromium gets a lower priority than the proxy, and is what the kernel takes first when memory is
short.

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

LOCK = "guardian.lock"
TERM_SECONDS = 1.0
KILL_SECONDS = 5.0

_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_CAP_SYS_NICE = 23
_SHUT_RDWR = 2
# A third of the CPU time of the proxy, when both want it.
_NICE = 5
# Chromium itself gives its renderers 300: they go first, then the browser, then the proxy.
_OOM_SCORE = 200


def main(profile: str, command: list[str]) -> int:
    """Run ``command`` until it or standard input ends; its exit status, or 128 + its signal."""
    _close_inherited()
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _lock(profile)
    _step_back()
    # A core of Chromium can fill a disk, with what was in its pages.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        return _run(command)
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


def _run(command: list[str]) -> int:
    try:
        with open(os.devnull, "r+b", buffering=0) as nothing:
            child = os.posix_spawn(
                command[0],
                command,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing.fileno(), 5),
                    (os.POSIX_SPAWN_DUP2, 0, 3),
                    (os.POSIX_SPAWN_DUP2, 0, 4),
                    (os.POSIX_SPAWN_DUP2, 5, 0),
                    (os.POSIX_SPAWN_CLOSE, 5),
                ],
                setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE),
            )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    ended = os.pidfd_open(child)
    events = select.poll()
    events.register(ended, select.POLLIN)
    # What the proxy says is not for us: only that it has gone.
    events.register(0, select.POLLRDHUP)
    if ended in dict(events.poll()):
        # The proxy need not wait for the end of all this.
        ctypes.CDLL(None).shutdown(0, _SHUT_RDWR)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) % 256
    _end_session(os.getsid(0), signal.SIGTERM, TERM_SECONDS)
    return 0


def _end_session(session: int, number: signal.Signals, seconds: float) -> None:
    """Send a signal to every process of a session, and wait so long until there is none."""
    deadline = time.monotonic() + seconds
    asked: set[int] = set()
    while others := _session_members(session):
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


def _session_members(session: int) -> list[int]:
    own = os.getpid()
    members = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own:
            with contextlib.suppress(OSError):
                if os.getsid(int(name)) == session and not _is_zombie_of_other(name, own):
                    members.append(int(name))
    return members


def _is_zombie_of_other(pid: str, own: int) -> bool:
    """A zombie that somebody else has to reap cannot be waited for here."""
    with open(f"/proc/{pid}/stat", encoding="latin-1") as stat:
        state, parent = stat.read().rpartition(")")[2].split()[:2]
    return state == "Z" and int(parent) != own


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
