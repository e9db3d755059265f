"""The processes of a browser as reported by the kernel: kind, memory and state."""

import asyncio
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath

import structlog

from prerender.browser import guardian
from prerender.browser.memory_limit import Memory, total_bytes
from prerender.browser.proc import Idleness, command_of, is_stopped, session_members, stat_of

# Without a zygote there are no new renderers: the renders of a browser that lost it are discarded. The
# network service is a thread of the browser process.
_VITAL = "zygote"
_LOOK_EVERY_SECONDS = 0.5
# The flag of an exiting process in proc_pid_stat(5).
_PF_EXITING = 4
# The index of the flags in the result of stat_of().
_FLAGS = 5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Process:
    """A process, and its parent."""

    pid: int
    parent: int
    kind: str


def survey(guardian_pid: int) -> list[Process]:
    """The guardian and all processes of its session. Takes a few milliseconds at most."""
    processes = []
    for pid, parent in session_members(guardian_pid).items():
        with suppress(OSError):
            processes.append(Process(pid, parent, kind_of(command_of(pid))))
    return processes


def memory_of(processes: Iterable[Process]) -> int:
    """The approximate total memory of the processes in bytes (memory_limit.total_bytes)."""
    memory = []
    for process in processes:
        with suppress(OSError, ValueError):
            memory.append(Memory.of(process.pid))
    return total_bytes(memory)


def kind_of(command: list[str]) -> str:
    """The kind of a browser process, by its command line: "browser", "renderer", "network", ...

    A zombie has no command line and is "unknown".
    """
    if not command:
        return "unknown"
    if guardian.family_of(command):
        return "guardian"
    if "sh" in PurePath(command[0]).name.split("."):
        return "wrapper"
    for argument in command:
        if argument.startswith("--utility-sub-type="):
            return argument.partition("=")[2].partition(".")[0]
        if argument.startswith("--type=") and argument != "--type=utility":
            return argument.partition("=")[2]
    return "browser"


class Watch:
    """Watches the processes of one browser from the start of its guardian.

    ``died`` completes with the name of an essential process when it is lost.
    """

    def __init__(self, guardian_pid: int) -> None:
        self._guardian_pid = guardian_pid
        self._vital: dict[int, int] = {}  # process id -> pidfd, readable when the process exits
        self._processes: list[Process] = []
        self._idleness = Idleness()
        self._stopped: set[int] = set()
        self.memory_bytes = 0
        self.died: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"watch over {guardian_pid}")

    async def _run(self) -> None:
        while True:
            if not self._idleness.lasts():
                self.look()
            self._kill_stopped()
            await asyncio.sleep(_LOOK_EVERY_SECONDS)

    def look(self) -> None:
        """Register all current processes, and measure their memory."""
        self._processes = processes = survey(self._guardian_pid)
        self._idleness.begin(one.pid for one in processes if one.kind != "guardian")
        self.memory_bytes = memory_of(processes)
        zygotes = {process.pid for process in processes if process.kind == "zygote"}
        for process in processes:
            # A process that a zygote has just forked looks like another zygote until it is renamed.
            copy = process.pid in zygotes and process.parent in zygotes
            if process.kind == _VITAL and not copy and process.pid not in self._vital:
                self._keep(process)

    def _kill_stopped(self) -> None:
        stopped = {process.pid for process in self._processes if is_stopped(process.pid)}
        for pid in stopped & self._stopped:
            # Nobody would continue it, and its renders would wait until their deadline.
            log.warning("stopped_process_killed", pid=pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._stopped = stopped

    def _keep(self, process: Process) -> None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            return  # it has already exited; the browser will soon start another one
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(descriptor)
            if not self.died.done():
                self.died.set_result(f"its {process.kind} process died")

        self._vital[process.pid] = descriptor
        loop.add_reader(descriptor, ended)

    def dying(self) -> str:
        """The essential process that is exiting or has exited, or ''.

        The kernel closes the files of a process before it reports its exit: for some milliseconds pages
        see failed requests, and ``died`` is not done yet.
        """
        if self.died.done():
            return "the browser is closed" if self.died.cancelled() else self.died.result()
        return next((f"process {pid} died" for pid in self._vital if _is_exiting(pid)), "")

    async def stop(self) -> None:
        """Stop watching. Safe to call twice."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self.died.cancel()
        while self._vital:
            _, descriptor = self._vital.popitem()
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)


def _is_exiting(pid: int) -> bool:
    try:
        return bool(stat_of(pid)[_FLAGS] & _PF_EXITING)
    except OSError:
        return True
