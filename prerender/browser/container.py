"""The limits of the container or service that this process runs in: control groups of Linux.

Version 2 (cgroups(7), https://docs.kernel.org/admin-guide/cgroup-v2.html) and the memory and CPU
controllers of version 1. In a container, the folder of the process is the root; in a systemd service
it is below, and the limits of all folders above apply, too.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
# By controller of version 1, "" for version 2: the limit and the usage.
_MEMORY_FILES = (
    ("", "memory.max", "memory.current"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def cpu_quota(root: Path = ROOT, own: Path = OWN) -> float:
    """The CPUs that this process may use; 0 without a limit."""
    return min(_quotas(root, own), default=0.0)


def memory_limit(root: Path = ROOT, own: Path = OWN) -> int:
    """The bytes that the processes of the container may use together; 0 without a limit."""
    return min((limit for limit, _ in _memory(root, own)), default=0)


def memory_left(root: Path = ROOT, own: Path = OWN) -> float:
    """The bytes of the limit that are not in use; infinity without a limit."""
    return min((max(0, limit - used) for limit, used in _memory(root, own)), default=math.inf)


def cpu_seconds(root: Path = ROOT, own: Path = OWN) -> float:
    """The CPU time of the container (version 2); 0 if it is unknown."""
    for folder in _folders(root, own, ""):
        for line in _text(folder / "cpu.stat").splitlines():
            name, _, value = line.partition(" ")
            if name == "usage_usec":
                return int(value) / 1_000_000
    return 0.0


def _quotas(root: Path, own: Path) -> Iterator[float]:
    for folder in _folders(root, own, ""):
        with suppress(ValueError, ZeroDivisionError):
            quota, period = _text(folder / "cpu.max").split()
            yield int(quota) / int(period)
    for folder in _folders(root, own, "cpu"):
        with suppress(ValueError, ZeroDivisionError):
            microseconds = int(_text(folder / "cpu.cfs_quota_us"))
            if microseconds > 0:
                yield microseconds / int(_text(folder / "cpu.cfs_period_us"))


def _memory(root: Path, own: Path) -> Iterator[tuple[int, int]]:
    """The limits that apply, each with the bytes in use."""
    for controller, limit, usage in _MEMORY_FILES:
        for folder in _folders(root, own, controller):
            with suppress(ValueError):
                yield int(_text(folder / limit)), int(_text(folder / usage) or 0)


def _folders(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """The folder of this process and all above it. ``controller``: of version 1; "": version 2."""
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        top = root / controller
        relative = PurePosixPath(path.lstrip("/"))
        # A container may see the path of its host, which does not exist in it.
        folder = top / relative if (top / relative).is_dir() else top
        yield folder
        while folder != top:
            folder = folder.parent
            yield folder


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
