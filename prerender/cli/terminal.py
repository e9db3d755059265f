"""Output of commands: results to standard output, everything else to standard error."""

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

FAILED = 1
USAGE = 2
INTERRUPTED = 130
# Texts of pages are printed. Controls in them would be orders to the terminal (ISO 6429), and some
# characters change the order of a line. Lone surrogates cannot be encoded.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)"
)


def open_standard_streams() -> None:
    """Open /dev/null for closed streams (``2>&-``), so that no socket gets their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def printable(text: str) -> str:
    """A text with escape sequences, as in Python, in place of what is no text or line end."""
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def say(text: str) -> None:
    """Print a line to standard error, after pending log lines."""
    if logs := sys.modules.get("prerender.telemetry.logs"):  # otherwise nothing was logged
        logs.flush()
    print(printable(text), file=sys.stderr)


def write(text: str, *, before: str = "") -> bool:
    """Print a result for people. Returns False if it cannot be written.

    ``before``: printed before it as it is, such as colours.
    """
    return _write(f"{before}{printable(text)}".encode())


def write_data(data: bytes) -> bool:
    """Print a result for programs; at a terminal, as a text. Returns False if it cannot be written."""
    if sys.stdout.isatty():
        return write(data.decode("utf-8", "replace"))
    return _write(data)


def _write(data: bytes) -> bool:
    # If the reader stops early (``| head``), only the exit status reports it.
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except OSError as error:
        # Python would flush again at exit, and report the error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            say(f"prerender: cannot write to standard output: {error.strerror}")
        return False
    return True


def write_json(value: object) -> bool:
    """Print a result as JSON. Returns False if it cannot be written."""
    return write(as_json(value))


def as_json(value: object) -> str:
    """A result as JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def counted(number: int, noun: str) -> str:
    """A count with its noun: "1 page", "2 pages"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Progress:
    """Progress of a command: a bar on a terminal, plain lines otherwise."""

    def __init__(self, bar: Any = None) -> None:
        self._bar = bar

    @property
    def has_bar(self) -> bool:
        """Whether a bar is shown."""
        return self._bar is not None

    def line(self, text: str) -> None:
        """Print a line to standard error, above the bar if there is one."""
        if self._bar is None:
            say(text)
        else:
            self._bar.write(printable(text), file=sys.stderr)

    def result(self, text: str) -> None:
        """Print a line of the result to standard output, above the bar if there is one."""
        if self._bar is None:
            write(f"{text}\n")
        else:
            self._bar.write(printable(text), file=sys.stdout)

    def add_to_total(self, count: int) -> None:
        """Add to the total."""
        if self._bar is not None:
            self._bar.total = (self._bar.total or 0) + count
            self._bar.refresh()

    def done(self, count: int = 1) -> None:
        """Count one or more as done."""
        if self._bar is not None:
            self._bar.update(count)


@contextmanager
def progress(unit: str) -> Iterator[Progress]:
    """Show progress while the context is open, in ``unit`` such as "page"."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    from tqdm import tqdm  # noqa: PLC0415 - most commands show no progress

    # On a terminal of unknown size, tqdm would draw a bar without width.
    size: dict[str, Any] = {"ncols": 80, "nrows": 24}
    with suppress(OSError):
        if os.get_terminal_size(sys.stderr.fileno()).columns:
            size = {"dynamic_ncols": True}
    with tqdm(total=0, unit=unit, file=sys.stderr, leave=False, **size) as bar:
        yield Progress(bar)
