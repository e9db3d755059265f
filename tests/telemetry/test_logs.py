"""What is written to standard error, whoever reads it or does not."""

import logging
import os

import pytest

from prerender.config.settings import Log
from prerender.telemetry import logs


def test_a_reader_who_has_stopped_costs_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is dropped, and nobody waits; what fitted is whole when it is read at last."""
    readable, writable = os.pipe()
    monkeypatch.setattr(logs, "_STANDARD_ERROR", writable)
    handlers = logging.getLogger().handlers
    monkeypatch.setattr(logging.getLogger(), "handlers", list(handlers))
    logs.configure(Log())
    line = "x" * 999_999 + "\n"
    try:
        for _ in range(100):
            logs.write(line)
        total = 0
        os.set_blocking(readable, True)
        most = 16 * 1024**2
        kept = most // len(line)
        while total < kept * len(line):
            part = os.read(readable, 1_000_000)
            assert set(part) <= {ord("x"), ord("\n")}
            total += len(part)
        assert total == kept * len(line)
        logs.write("at last\n")
        assert os.read(readable, 100) == b"at last\n"
    finally:
        logging.getLogger().handlers[0].flush()
        os.close(readable)
        os.close(writable)
