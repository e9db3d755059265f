"""The parent process of Chromium: whatever happens to the proxy, nothing of Chromium survives it.

Run as a program of its own (``python -I -S guardian.py PROFILE CHROMIUM ARGUMENT...``) in its own
session. It starts Chromium and waits for the first of two things: Chromium ends, or standard input
ends. The other end of that pipe is held by the proxy, and the kernel closes it however the proxy
dies, by kill -9 too. Then it ends every process of its session, removes PROFILE and exits.

A parent-death signal would not do: it reaches the direct child only, and Debian's
``chromium-headless-shell`` is a shell script that does not exec the browser. As a subreaper the
guardian inherits the processes whose parent died, so no zombies are left to the proxy, not even
when the proxy is process 1 of a container.

Standard library only, and few modules of it, because it starts with every browser.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
KILL_SECONDS = 5.0


def main(profile: str, command: list[str]) -> int:
    """Run ``command`` until it or standard input ends; its exit status, or 128 + its signal."""
    _close_inherited()
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
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


def clean_up(session: int, profile: str) -> None:
    """End every process of a session but this one, then remove the profile."""
    _end_session(session)
    shutil.rmtree(profile, ignore_errors=True)


def _run(command: list[str]) -> int:
    try:
        with open(os.devnull, "rb") as nothing:
            child = os.posix_spawn(
                command[0],
                command,
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, nothing.fileno(), 0)],
                setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE),
            )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    ended = os.pidfd_open(child)
    while True:
        readable, _, _ = select.select([ended, 0], [], [])
        if ended in readable:
            _, status = os.waitpid(child, 0)
            return os.waitstatus_to_exitcode(status) % 256
        if not os.read(0, 4096):
            return 0


def _end_session(session: int) -> None:
    deadline = time.monotonic() + KILL_SECONDS
    while others := _session_members(session):
        for pid in others:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
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
