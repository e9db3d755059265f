"""A file whose content is read again when it changes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

_MOST_BYTES = 4 * 1024**2

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """The ``content`` of a file, parsed by ``parse``, which raises ValueError.

    ``seconds``: how often to look whether the file has changed.
    """

    def __init__(
        self,
        path: Path,
        parse: Callable[[str], T],
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read it. Raises OSError and ValueError."""
        self.path = path
        self._parse = parse
        self._seconds = seconds
        self._clock = clock
        self._read_at = (0, 0)
        self.content = self._read()

    @property
    def due(self) -> bool:
        """Whether it is time to look at the file again."""
        return self._clock() >= self._look_at

    def look(self) -> bool:
        """Read the file again if it has changed. Returns whether its content is another one. Blocking.

        Raises OSError and ValueError; the last good content stays.
        """
        before = self.content
        self.content = self._read()
        return self.content != before

    def _read(self) -> T:
        self._look_at = self._clock() + self._seconds
        status = self.path.stat()
        version = (status.st_mtime_ns, status.st_size)
        if version == self._read_at:
            return self.content
        if status.st_size > _MOST_BYTES:
            raise ValueError("is too large")
        content = self._parse(self.path.read_text(encoding="utf-8"))
        self._read_at = version
        return content
