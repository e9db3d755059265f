"""Events of pages come at transitions only."""

import pytest

from prerender.content.content_changes import Content
from prerender.errors import ErrorCode
from prerender.extensions.page_events.page_state import (
    PageState,
    RenderResult,
    after_render,
    after_storing,
    decode,
    encode,
    is_late,
    result_of,
)
from prerender.snapshots.target import Target
from prerender.telemetry.records import RenderOutcome, RenderRecord
from tests.extensions.indexnow.test_indexnow import target

TARGET: Target = target("/a")
GOOD, GONE, FAILED = (200, ""), (404, ""), (0, "render_timeout")


def kinds(*renders: tuple[int, str]) -> list[str]:
    state, found = PageState(), []
    for number, (status, error) in enumerate(renders, 1):
        state, events = after_render(state, RenderResult(float(number), status, error))
        assert decode(encode(state)) == state
        found += [f"{number} {kind}" for kind, _ in events]
    return found


@pytest.mark.parametrize(
    ("renders", "events"),
    [
        ([GOOD, GOOD, GOOD], []),
        ([FAILED, FAILED, GOOD, GOOD], ["1 page.failed", "3 page.recovered"]),
        ([GOOD, FAILED, GOOD, FAILED], ["2 page.failed", "3 page.recovered", "4 page.failed"]),
        ([GONE, GONE], ["1 page.not_found"]),
        ([GOOD, GONE, GONE, GOOD, GONE], ["2 page.not_found", "5 page.not_found"]),
        # It fails in between.
        ([GONE, FAILED, GONE], ["1 page.not_found", "2 page.failed", "3 page.recovered"]),
        ([GOOD, FAILED, GONE], ["2 page.failed", "3 page.recovered", "3 page.not_found"]),
    ],
)
def test_transitions(renders: list[tuple[int, str]], events: list[str]) -> None:
    assert kinds(*renders) == events


def record(outcome: RenderOutcome, status: int = 0, error: ErrorCode | None = None) -> RenderRecord:
    return RenderRecord(1.0, 1.0, TARGET, outcome, error, "x", status, 0, None, None, None)


@pytest.mark.parametrize(
    ("one", "error"),
    [
        (record(RenderOutcome.COMPLETE, 200), ""),
        (record(RenderOutcome.COMPLETE, 500), "origin_error"),
        (record(RenderOutcome.CUT_OFF, 200), ""),
        (record(RenderOutcome.REDIRECT, 302), ""),
        (record(RenderOutcome.INCOMPLETE, 200), "incomplete"),
        (record(RenderOutcome.FAILED, 0, ErrorCode.ORIGIN_TIMEOUT), "origin_timeout"),
        (record(RenderOutcome.FAILED, 0, ErrorCode.POOL_BUSY), None),
        (record(RenderOutcome.FAILED, 0, ErrorCode.SHUTTING_DOWN), None),
        (record(RenderOutcome.CANCELLED, 0, ErrorCode.CANCELLED), None),
        (record(RenderOutcome.NOT_A_PAGE, 200, ErrorCode.NOT_RENDERABLE), None),
        (record(RenderOutcome.NOT_A_PAGE, 403, ErrorCode.NOT_RENDERABLE), None),
        (record(RenderOutcome.NOT_A_PAGE, 404, ErrorCode.NOT_RENDERABLE), ""),
        (record(RenderOutcome.NOT_A_PAGE, 503, ErrorCode.NOT_RENDERABLE), "origin_error"),
    ],
)
def test_what_a_render_says(one: RenderRecord, error: str | None) -> None:
    found = result_of(one)
    assert (None if found is None else found.error) == error


def test_what_another_replica_reports_late_is_not_a_change() -> None:
    one, two = (Content(200, "", (), (), text) for text in ("one", "two"))
    state, events = after_storing(PageState(), 100.0, '"1"', one)
    assert not events
    state, events = after_storing(state, 110.0, '"2"', two)
    assert [kind for kind, _ in events] == ["snapshot.changed"]
    assert is_late(state, 105.0)
    # Clocks that differ by minutes hide nothing.
    assert not is_late(state, 10.0)
    assert decode(encode(state)) == state


@pytest.mark.parametrize(
    "note", [None, b"", b"nonsense", encode(PageState())[:20], b"PRE1" + bytes(9)]
)
def test_a_bad_note_is_none(note: bytes | None) -> None:
    assert decode(note) == PageState()
