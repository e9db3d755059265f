"""Notices when Chromium is replaced on disk while it runs, as by ``apt upgrade``.

A running browser keeps the files that it has open, but its new processes would read new ones beside its
old program, and security fixes would wait for its next replacement.
"""

import os
import time
from pathlib import Path

# The program's own files beside it. Its folder can be /usr/bin, so others do not count.
_KINDS = (".bin", ".dat", ".pak", ".so")
CHECK_SECONDS = 5.0
# A package manager replaces one file after the other.
SETTLED_SECONDS = 10.0

_Files = dict[str, tuple[int, int, int]]


class Installed:
    """The files of the program that process ``pid`` runs."""

    def __init__(self, pid: int) -> None:
        link = f"/proc/{pid}/exe"
        self._program = Path(os.readlink(link))
        # The link leads to the file that runs, even if there is another one of its name already.
        self._first = _files(self._program) | {self._program.name: _version(link)}
        self._current = self._first
        self._since = self._looked_at = time.monotonic()

    def is_replaced(self) -> bool:
        """Whether other files are there now, and have been for a while. Looks every few seconds."""
        now = time.monotonic()
        if now - self._looked_at >= CHECK_SECONDS:
            self._looked_at = now
            files = _files(self._program)
            if files != self._current:
                self._current, self._since = files, now
        is_there = self._program.name in self._current
        return is_there and self._current != self._first and now - self._since >= SETTLED_SECONDS


def _files(program: Path) -> _Files:
    files: _Files = {}
    try:
        for entry in os.scandir(program.parent):
            if entry.name == program.name or entry.name.endswith(_KINDS):
                files[entry.name] = _version(entry.path)
    except OSError:
        return {}  # some are being replaced
    return files


def _version(path: str) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, status.st_size
