"""Logging to standard error: one event per line, for the console or as JSON.

A separate thread writes, so that requests do not wait if the reader of standard error is slow.
"""

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor

from prerender.config.settings import LogSettings
from prerender.http.trace_context import CURRENT
from prerender.telemetry.redaction import Redaction

_STANDARD_ERROR = 2
_QUEUED_BYTES = 16 * 1024**2
_LAST_LINES_SECONDS = 1.0
# Characters of a value, such as a URL of 64 KiB in a line of each request for it.
_LONGEST_VALUE = 2000


class _StandardError(logging.Handler):
    """Queues lines for a writer thread. Lines that do not fit into the queue are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: queue.Queue[bytes] = queue.Queue()
        self._queued_bytes = 0
        self._counting = threading.Lock()
        self.before: Callable[[], None] = lambda: None
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        self.before()
        self.write(f"{self.format(record)}\n")

    def write(self, lines: str) -> None:
        """Queue one or several complete lines."""
        data = lines.encode("utf-8", "backslashreplace")
        with self._counting:
            if self._queued_bytes + len(data) > _QUEUED_BYTES:
                return
            self._queued_bytes += len(data)
        self.lines.put(data)

    def _write(self) -> None:
        # Not sys.stderr: its lock could be held when the interpreter exits.
        while True:
            lines = memoryview(self.lines.get())
            size = len(lines)
            with suppress(OSError):
                while lines:
                    lines = lines[os.write(_STANDARD_ERROR, lines) :]
            with self._counting:
                self._queued_bytes -= size
            self.lines.task_done()

    def flush(self) -> None:
        """Wait, with a timeout, until everything is written. The logging module calls this at exit."""
        with self.lines.all_tasks_done:
            self.lines.all_tasks_done.wait_for(
                lambda: not self.lines.unfinished_tasks, _LAST_LINES_SECONDS
            )


def write(lines: str) -> None:
    """Write complete lines in order."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _StandardError):
            handler.write(lines)


def waiting_lines() -> "queue.Queue[bytes] | None":
    """The lines that wait for the writer thread; None before ``configure``."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _StandardError):
            return handler.lines
    return None


def flush() -> None:
    """Wait, with a timeout, until everything logged is written."""
    for handler in logging.getLogger().handlers:
        handler.flush()


@contextmanager
def preceded_by(write_collected: Callable[[], None]) -> Iterator[None]:
    """Call a function before each line, to write lines collected elsewhere in order."""
    handlers = [one for one in logging.getLogger().handlers if isinstance(one, _StandardError)]
    for handler in handlers:
        handler.before = write_collected
    try:
        yield
    finally:
        for handler in handlers:
            handler.before = lambda: None
        write_collected()


def is_coloured(stream: TextIO) -> bool:
    """Whether lines for a stream are coloured: on a terminal, unless NO_COLOR is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def _add_trace(_: object, __: str, event: EventDict) -> EventDict:
    if trace := CURRENT.get():
        event["trace_id"] = trace.trace_id
    return event


def _without_secrets(redaction: Redaction) -> Processor:
    def processor(_: object, __: str, event: EventDict) -> EventDict:
        return {
            name: redaction(value) if isinstance(value, str) else value
            for name, value in event.items()
        }

    return processor


def _shortened(_: object, __: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if name != "exception" and isinstance(value, str) and len(value) > _LONGEST_VALUE:
            event[name] = f"{value[:_LONGEST_VALUE]}... ({len(value)} characters)"
    return event


def configure(settings: LogSettings) -> None:
    """Set up structlog, and route the logging of libraries through it."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _add_trace,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if settings.format == "json"
        else structlog.dev.ConsoleRenderer(colors=is_coloured(sys.stderr))
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = _StandardError()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _without_secrets(Redaction(settings.secrets)),
                _shortened,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    # At debug level these log every protocol message.
    for name in ("pyppeteer", "websockets"):
        logging.getLogger(name).setLevel(logging.WARNING)
