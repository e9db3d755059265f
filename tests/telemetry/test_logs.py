"""Logs on standard error, also if nobody reads them."""

import json
import logging
import os
from collections.abc import Iterator

import pytest
import structlog

from prerender.config.settings import LogSettings
from prerender.telemetry import logs


@pytest.mark.heavy
def test_a_reader_who_has_stopped_costs_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is dropped, and nothing waits. The rest is complete when it is read at last."""
    readable, writable = os.pipe()
    monkeypatch.setattr(logs, "_STANDARD_ERROR", writable)
    handlers = logging.getLogger().handlers
    monkeypatch.setattr(logging.getLogger(), "handlers", list(handlers))
    logs.configure(LogSettings())
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


@pytest.fixture
def standard_error(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A pipe with what the test's own handlers log."""
    readable, writable = os.pipe()
    monkeypatch.setattr(logs, "_STANDARD_ERROR", writable)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    yield readable
    logging.getLogger().handlers[0].flush()
    os.close(readable)
    os.close(writable)


@pytest.mark.parametrize("length", [2000, 2001, 65_536])
def test_long_values_are_shortened(standard_error: int, length: int) -> None:
    logs.configure(LogSettings(format="json"))
    structlog.get_logger().info("rendered", url="x" * length, bytes=length)
    logs.flush()
    line = json.loads(os.read(standard_error, 100_000))
    shown = "x" * 2000 + ("" if length == 2000 else f"... ({length} characters)")
    assert (line["url"], line["bytes"]) == (shown, length)


def test_exceptions_are_whole(standard_error: int) -> None:
    logs.configure(LogSettings(format="json"))
    try:
        raise ValueError("x" * 3000)
    except ValueError:
        structlog.get_logger().exception("failed")
    logs.flush()
    assert f"ValueError: {'x' * 3000}" in json.loads(os.read(standard_error, 100_000))["exception"]


def test_what_was_collected_comes_before_the_next_line(standard_error: int) -> None:
    logs.configure(LogSettings(format="json"))
    collected = ["first\n"]

    def write_collected() -> None:
        while collected:
            logs.write(collected.pop())

    with logs.preceded_by(write_collected):
        structlog.get_logger().warning("second")
        collected.append("third\n")
    structlog.get_logger().warning("fourth")
    logging.getLogger().handlers[0].flush()
    lines = os.read(standard_error, 65536).decode().splitlines()
    assert [line if line[0] != "{" else json.loads(line)["event"] for line in lines] == [
        "first", "second", "third", "fourth",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("is_terminal", "no_color", "coloured"),
    [(True, None, True), (True, "", True), (True, "1", False), (False, None, False)],
)
def test_colours(
    is_terminal: bool, no_color: str | None, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    side, terminal = os.openpty()
    file = os.dup(terminal) if is_terminal else os.open(os.devnull, os.O_WRONLY)
    with os.fdopen(file, "w") as stream:
        assert logs.is_coloured(stream) is coloured
    os.close(side)
    os.close(terminal)
