"""The access log: one line per request, at low cost.

Values are quoted as JSON strings in ASCII, so clients cannot inject lines or control characters. Lines
are written in batches, or before the next line of another logger.
"""

import asyncio
import json.encoder
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Literal

from prerender.telemetry.records import RequestRecord
from prerender.telemetry.redaction import Redaction

_FLUSH_SECONDS = 0.1
# Longer values are truncated, to bound the length of lines.
_LONGEST = 2048
_REMEMBERED = 1024

_quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii


class AccessLog:
    """Subscribes to the records of requests, and passes lines to ``write`` in batches.

    ``only_snapshots``: omit forwarded requests.
    """

    def __init__(
        self, write: Callable[[str], None], line: "LineFormatter", *, only_snapshots: bool = False
    ) -> None:
        self._write = write
        self._line = line
        self._only_snapshots = only_snapshots
        self._lines: deque[str] = deque()
        self._loop = asyncio.get_running_loop()

    def __call__(self, record: RequestRecord) -> None:
        """Add a request."""
        if self._only_snapshots and record.kind == "forward":
            return
        if not self._lines:
            self._loop.call_later(_FLUSH_SECONDS, self.flush)
        self._lines.append(self._line(record))

    def flush(self) -> None:
        """Write pending lines. Thread-safe."""
        lines = []
        with suppress(IndexError):
            while True:
                lines.append(self._lines.popleft())
        if lines:
            self._write("".join(lines))


class LineFormatter:
    """Formats a record as JSON, or like structlog's console.

    Its time is the end of the response, so that the log is in order.
    """

    def __init__(
        self, form: Literal["console", "json"], redaction: Redaction, *, coloured: bool = False
    ) -> None:
        if form == "json":
            self._whole, self._pair = _JSON, ', "%s": %s'
        else:
            self._whole, self._pair = _CONSOLE_FORMS[coloured]
        self._redaction = redaction
        # Frequent values are cached.
        self._target = lru_cache(maxsize=_REMEMBERED)(self._read_target)
        self._client = lru_cache(maxsize=_REMEMBERED)(self._read_client)
        self._decision = lru_cache(maxsize=_REMEMBERED)(self._read_decision)

    def __call__(self, record: RequestRecord) -> str:
        """The line with its line end."""
        target = record.target
        ended = record.time + record.seconds
        whole_seconds = int(ended)
        return self._whole % (
            _second(whole_seconds),
            (ended - whole_seconds) * 1e6,
            record.method,
            self._target(target if len(target) <= _LONGEST else target[:_LONGEST]),
            record.status,
            record.seconds * 1000,
            record.sent_bytes,
            self._decision(
                record.kind, record.reason, record.source, record.cache or "", record.detail
            ),
            record.remote,
            self._client(record.user_agent[:_LONGEST], record.crawler),
            self._rest(record),
        )

    def _read_target(self, target: str) -> str:
        return _quoted(self._redaction(target))

    def _read_decision(self, *words: str) -> str:
        names = ("decision", "reason", "source", "cache", "detail")
        return self._words(zip(names, words, strict=True))

    def _read_client(self, user_agent: str, crawler: str | None) -> str:
        return self._words((("user_agent", user_agent), ("crawler", crawler or "")))

    def _rest(self, record: RequestRecord) -> str:
        """Fields that most requests do not have."""
        text = ""
        if record.error or record.trace_id:
            text = self._words((("error", record.error or ""), ("trace_id", record.trace_id)))
        if record.agent or record.agent_unverified:
            pairs = (("agent", record.agent), ("agent_unverified", record.agent_unverified))
            text += self._words(pairs)
        if record.origin_seconds is not None:
            text += self._pair % ("origin_ms", f"{record.origin_seconds * 1000:.2f}")
        if (timings := record.timings) is not None:
            for phase, seconds in timings.phases().items():
                text += self._pair % (f"{phase}_ms", f"{seconds * 1000:.2f}")
        return text

    def _words(self, pairs: Iterable[tuple[str, str]]) -> str:
        return "".join(self._pair % (name, _quoted(word)) for name, word in pairs if word)


_JSON = (
    '{"timestamp": "%s.%06dZ", "level": "info", "event": "request", "method": "%s", "target": %s, '
    '"status": %d, "ms": %.2f, "bytes": %d%s, "remote": "%s"%s%s}\n'
)


def _console(time: str, level: str, event: str, pair: str) -> tuple[str, str]:
    pairs = [
        pair % (name, value)
        for name, value in (
            ("method", "%s"), ("target", "%s"), ("status", "%d"), ("ms", "%.2f"), ("bytes", "%d"),
        )
    ]  # fmt: skip
    remote = pair % ("remote", '"%s"')
    head = f"{time % '%s.%06dZ'} [{level % 'info     '}] {event % 'request'.ljust(30)}"
    return f"{head}{''.join(pairs)}%s{remote}%s%s\n", pair


# Plain and coloured formats, with the colours of structlog's console.
_CONSOLE_FORMS = (
    _console("%s", "%s", "%s", " %s=%s"),
    _console(
        "\x1b[2m%s\x1b[0m",
        "\x1b[32m\x1b[1m%s\x1b[0m",
        "\x1b[1m%s\x1b[0m",
        " \x1b[36m%s\x1b[0m=\x1b[35m%s\x1b[0m",
    ),
)


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
