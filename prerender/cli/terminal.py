"""What commands print, and where: results to standard output, all else to standard error."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

FAILED = 1
USAGE = 2
INTERRUPTED = 130


def open_standard_streams() -> None:
    """Lead what was closed (``2>&-``) nowhere, so that no socket gets its file descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def say(text: str) -> None:
    """Print a line about how it goes, after what was logged before."""
    if logs := sys.modules.get("prerender.telemetry.logs"):  # else nothing has been logged
        logs.flush()
    print(text, file=sys.stderr)


def write(data: bytes | str) -> bool:
    """Print a result; False if it cannot be written.

    Whoever reads may stop early (``| head``): that is told by the exit status alone.
    """
    try:
        sys.stdout.buffer.write(data if isinstance(data, bytes) else data.encode())
        sys.stdout.flush()
    except OSError as error:
        # Python would try again at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            say(f"prerender: the result cannot be written: {error.strerror}")
        return False
    return True


def write_json(value: object) -> bool:
    """Print a result for programs; False if it cannot be written."""
    return write(as_json(value))


def as_json(value: object) -> str:
    """A result for programs."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def counted(number: int, noun: str) -> str:
    """A number of things: "1 page", "2 pages"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Progress:
    """How far a command is: a bar on a terminal, otherwise the lines that it is told."""

    def __init__(self, bar: Any = None) -> None:
        self._bar = bar

    def line(self, text: str) -> None:
        """Print a line to standard error, above the bar if there is one."""
        if self._bar is None:
            say(text)
        else:
            self._bar.write(text, file=sys.stderr)

    def result(self, text: str) -> None:
        """Print a line of the result to standard output, above the bar if there is one."""
        if self._bar is None:
            write(f"{text}\n")
        else:
            self._bar.write(text, file=sys.stdout)

    def found(self, count: int) -> None:
        """So many more are to be done."""
        if self._bar is not None:
            self._bar.total = (self._bar.total or 0) + count
            self._bar.refresh()

    def done(self) -> None:
        """One more is done."""
        if self._bar is not None:
            self._bar.update()


@contextmanager
def progress(unit: str) -> Iterator[Progress]:
    """Shows progress for as long as the context lasts, in ``unit`` such as "page"."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    from tqdm import tqdm  # noqa: PLC0415 - most commands show no progress

    # Where nobody has told the terminal its size, tqdm would draw a bar of no width.
    size: dict[str, Any] = {"ncols": 80, "nrows": 24}
    with suppress(OSError):
        if os.get_terminal_size(sys.stderr.fileno()).columns:
            size = {"dynamic_ncols": True}
    with tqdm(total=0, unit=unit, file=sys.stderr, leave=False, **size) as bar:
        yield Progress(bar)
