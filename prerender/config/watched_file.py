"""A file whose content is read again when it changes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

_MOST_BYTES = 4 * 1024**2

T = TypeVar("T")

log = structlog.get_logger(__name__)


class WatchedFile(Generic[T]):
    """The ``content`` of a file, parsed by ``parse``, which raises ValueError.

    ``seconds``: how often to look whether the file has changed. ``unreadable``: the event of the log if
    it cannot be read any more.
    """

    def __init__(
        self,
        path: Path,
        parse: Callable[[str], T],
        seconds: float,
        *,
        unreadable: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read it. Raises OSError and ValueError."""
        self.path = path
        self._parse = parse
        self._seconds = seconds
        self._unreadable = unreadable
        self._clock = clock
        self._read_at = (0, 0)
        self.content = self._read()

    @property
    def due(self) -> bool:
        """Whether it is time to look at the file again."""
        return self._clock() >= self._look_at

    def look(self) -> bool:
        """Read the file again if it has changed. Returns whether its content is another one. Blocking.

        If it cannot be read, such as while it is being written, the last content stays.
        """
        before = self.content
        try:
            self.content = self._read()
        except (OSError, ValueError) as error:
            log.warning(self._unreadable, file=str(self.path), reason=reason_of(error))
        return self.content != before

    def _read(self) -> T:
        self._look_at = self._clock() + self._seconds
        status = self.path.stat()
        version = (status.st_mtime_ns, status.st_size)
        if version == self._read_at:
            return self.content
        if status.st_size > _MOST_BYTES:
            raise ValueError("is too large")
        content = self._parse(self.path.read_text(encoding="utf-8-sig"))
        self._read_at = version
        return content


def reason_of(error: OSError | ValueError) -> str:
    """Why a file cannot be read."""
    return getattr(error, "strerror", None) or str(error)
