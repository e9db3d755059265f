"""What is known of a page, and the events that a render of it makes. Pure."""

import json
import zlib
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from prerender.admin.reasons import in_words
from prerender.content.content_changes import Content, changes
from prerender.errors import ErrorCode
from prerender.snapshots.strict_json import read
from prerender.telemetry.records import RenderOutcome, RenderRecord
from prerender.webhooks import timestamp

KINDS = ("snapshot.changed", "page.failed", "page.recovered", "page.not_found")
# As of histories (dashboard/history.py): Redis compares the first twelve bytes.
_MAGIC = b"PRE1" + bytes(8)
_MOST_UNPACKED_BYTES = 16 * 1024**2
_LONGEST_TEXT = 500
# A change that another replica has made before the last known one, and reports late. Clocks that differ
# by more hide nothing.
_LATE_SECONDS = 60.0
_MISSING_STATUSES = (404, 410)
# Errors that say nothing about the page.
_OF_THE_PROXY = (ErrorCode.POOL_BUSY, ErrorCode.SHUTTING_DOWN, ErrorCode.CANCELLED)

Event = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PageState:
    """A page as its last renders left it. ``at`` and ``failing_since``: Unix seconds, 0.0: not failing.

    ``status``: of the last response without a failure, 0 if there was none. ``etag`` and ``content``:
    of the snapshot that was stored last; "" and None if there was none.
    """

    at: float = 0.0
    failing_since: float = 0.0
    status: int = 0
    etag: str = ""
    content: Content | None = None


class RenderResult(NamedTuple):
    """What a render says about a page. ``status``: of the response, 0 without one. ``error`` and
    ``reason``: "" unless there is no usable snapshot."""

    at: float
    status: int
    error: str = ""
    reason: str = ""


def result_of(record: RenderRecord) -> RenderResult | None:
    """What a render says about its page; None if nothing."""
    outcome, at, facts = record.outcome, record.time + record.seconds, record.facts
    if outcome is RenderOutcome.CANCELLED or record.error in _OF_THE_PROXY:
        return None
    if outcome is RenderOutcome.NOT_A_PAGE and record.status not in _MISSING_STATUSES:
        if record.status < 500:
            return None  # a file, or the page is not for everyone
        return RenderResult(at, record.status, ErrorCode.ORIGIN_ERROR, f"status {record.status}")
    if outcome.is_unusable:
        reason = in_words(record.error, record.reason)
        if facts is not None:
            reason = f"{facts.verdict}: {facts.why}"
        return RenderResult(
            at, record.status, record.error or outcome.value, reason[:_LONGEST_TEXT]
        )
    if record.status >= 500:
        return RenderResult(at, record.status, ErrorCode.ORIGIN_ERROR, f"status {record.status}")
    return RenderResult(at, record.status)


def is_late(state: PageState, at: float) -> bool:
    """Whether a later render of the page is known already."""
    return 0 < state.at - at < _LATE_SECONDS


def after_render(state: PageState, result: RenderResult) -> tuple[PageState, list[Event]]:
    """The state after a render, and its events."""
    events: list[Event] = []
    if result.error:
        if not state.failing_since:
            named = {"status": result.status, "error": result.error, "reason": result.reason}
            events.append(("page.failed", named))
        return replace(state, at=result.at, failing_since=state.failing_since or result.at), events
    if since := state.failing_since:
        data = {"status": result.status, "failing_since": timestamp(since)}
        events.append(("page.recovered", data))
    if result.status in _MISSING_STATUSES and state.status not in _MISSING_STATUSES:
        data = {"status": result.status, "was_found_before": state.status > 0}
        events.append(("page.not_found", data))
    if since or result.status != state.status:
        state = replace(state, at=result.at, failing_since=0.0, status=result.status)
    return state, events


def after_storing(
    state: PageState, at: float, etag: str, content: Content
) -> tuple[PageState, list[Event]]:
    """The state after a snapshot was stored, and the event that it has changed."""
    changed = changes(state.content, content) if state.content else {}
    events: list[Event] = [("snapshot.changed", {"changes": changed})] if changed else []
    return replace(state, at=at, etag=etag, content=content), events


def encode(state: PageState) -> bytes:
    """The stored form."""
    return _MAGIC + zlib.compress(json.dumps(asdict(state)).encode(), zlib.Z_BEST_SPEED)


def decode(note: bytes | None) -> PageState:
    """Decode a note: an empty state if there is none, or one of another version."""
    try:
        decoder = zlib.decompressobj()
        if note is None or not note.startswith(_MAGIC):
            return PageState()
        return read(PageState, decoder.decompress(note[len(_MAGIC) :], _MOST_UNPACKED_BYTES))
    except (zlib.error, ValueError):
        return PageState()
