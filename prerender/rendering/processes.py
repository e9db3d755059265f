"""The processes of a browser, as the kernel sees them: what each is for, its memory, its state."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath

import psutil

from prerender.rendering import guardian


@dataclass(frozen=True, slots=True)
class Process:
    """One process. ``own_bytes`` is memory of its own, ``shared_bytes`` what others may have too."""

    pid: int
    kind: str
    stopped: bool
    own_bytes: int
    shared_bytes: int


def survey(guardian_pid: int) -> list[Process]:
    """The guardian and all processes below it. It reads /proc for some milliseconds."""
    found = []
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(guardian_pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error), process.oneshot():
                memory = process.memory_info()
                found.append(
                    Process(
                        process.pid,
                        kind_of(process.cmdline()),
                        process.status() == psutil.STATUS_STOPPED,
                        memory.rss - memory.shared,
                        memory.shared,
                    )
                )
    return found


def memory_of(processes: list[Process]) -> int:
    """About the bytes of memory that these processes take together.

    Their resident sizes would count the program itself once for each of them, and the proportional
    ones may not be read: processes in the sandbox belong to root. Measured, this is within a tenth.
    """
    shared = max((process.shared_bytes for process in processes), default=0)
    return sum(process.own_bytes for process in processes) + shared


def kind_of(command: list[str]) -> str:
    """What a process of a browser is for, by its command line: "browser", "renderer", "network", ...

    A zombie, which has none, is "unknown".
    """
    if not command:
        return "unknown"
    if guardian.__file__ in command:
        return "guardian"
    if "sh" in PurePath(command[0]).name.split("."):
        return "wrapper"
    for argument in command:
        if argument.startswith("--utility-sub-type="):
            return argument.partition("=")[2].partition(".")[0]
        if argument.startswith("--type=") and argument != "--type=utility":
            return argument.partition("=")[2]
    return "browser"
