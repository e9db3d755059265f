"""JSON shapes of the API. Pure. Times are Unix seconds; durations are seconds, sizes bytes."""

import base64
import json
from dataclasses import asdict
from typing import Any

from prerender.admin.differences import Comparison
from prerender.admin.recent import PageRenders
from prerender.http.encodings import IDENTITY
from prerender.snapshots.entry import Entry
from prerender.snapshots.history import History, Render, Version
from prerender.snapshots.list_rows import Row
from prerender.snapshots.page_metadata import Reading
from prerender.snapshots.snapshot import Timings
from prerender.telemetry.config_notices import Notice
from prerender.telemetry.records import RequestRecord
from prerender.urls.ajax_crawling import pretty_to_ugly

Place = tuple[float | str, str]

ID_LENGTH = 32
_LONGEST_TEXT = 300
_MOST_URLS = 100


def cursor_of(place: Place | None) -> str | None:
    """The cursor of the next page of a list; None at the end."""
    if place is None:
        return None
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def place_of(cursor: str) -> Place | None:
    """Decode a cursor. Raises ValueError."""
    if not cursor:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        value, key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError):
        raise ValueError("cursor: invalid for this list") from None
    if not isinstance(key, str) or not isinstance(value, str | int | float):
        raise ValueError("cursor: invalid for this list")
    return value, key


def of_row(row: Row, site: str, now: float) -> dict[str, Any]:
    """A stored snapshot in a list."""
    return {
        # The key of Markdown begins with the key of its HTML snapshot.
        "id": row.key[:ID_LENGTH],
        "url": f"{site}{row.path}",
        "path": row.path,
        "device": row.device,
        "language": row.language,
        "format": row.form,
        "title": row.title,
        "status": row.status,
        "state": row.state(now),
        "age": round(max(0.0, now - row.stored), 1),
        "stored": row.stored,
        "expires": row.expires,
        "size": row.size,
        "seconds": row.seconds,
        "settled": row.settled,
        "problems": row.problems,
    }


def of_request(record: RequestRecord) -> dict[str, Any]:
    """A request of a crawler."""
    return {
        "time": record.time,
        "seconds": round(record.seconds, 6),
        "method": record.method,
        "target": record.target[:_LONGEST_TEXT],
        "url": record.snapshot_target.url[:_LONGEST_TEXT] if record.snapshot_target else "",
        "id": record.snapshot_target.key if record.snapshot_target else "",
        "device": record.snapshot_target.variant.device if record.snapshot_target else "",
        "language": record.snapshot_target.variant.language if record.snapshot_target else "",
        "remote": record.remote,
        "user_agent": record.user_agent[:_LONGEST_TEXT],
        "crawler": record.crawler or "",
        "decision": record.kind,
        "reason": record.reason,
        "source": record.source,
        "cache": record.cache,
        "detail": record.detail[:_LONGEST_TEXT],
        "status": record.status,
        "bytes": record.sent_bytes,
        "error": record.error,
        "trace_id": record.trace_id,
        "origin_seconds": record.origin_seconds,
        "phases": _phases(record.timings) if record.timings else None,
    }


def of_notice(notice: Notice) -> dict[str, Any]:
    """A configuration notice."""
    found = asdict(notice)
    del found["about"]
    return found


def of_problem(page: PageRenders) -> dict[str, Any]:
    """A page that is slow, fails or is cut off."""
    return {
        "id": page.key,
        "url": page.url,
        "renders": page.renders,
        "failed": page.failed,
        "cut_off": page.cut_off,
        "mean_seconds": round(page.seconds / page.renders, 4),
        "slowest_seconds": round(page.slowest_seconds, 4),
        "last": page.last,
        "last_problem": page.last_problem,
        "failing_since": page.failing_since,
        "reason": page.reason,
    }


def of_entry(key: str, entry: Entry, row: Row, site: str, now: float) -> dict[str, Any]:
    """A stored snapshot without its body."""
    snapshot = entry.snapshot
    shown = snapshot.best((IDENTITY,))
    lines = (shown.fields + shown.content_fields).decode("utf-8", "replace").split("\r\n")
    facts = asdict(snapshot.facts)
    for name, value in facts.items():
        if isinstance(value, tuple):
            facts[name] = [text[:_LONGEST_TEXT] for text in value[:_MOST_URLS]]
    return of_row(row, site, now) | {
        "ugly_url": f"{site}{pretty_to_ugly(entry.path, opted_in=True) or entry.path}",
        "etag": snapshot.etag,
        "last_modified": snapshot.last_modified,
        "headers": [list(line.partition(": ")[::2]) for line in lines if line],
        "encodings": [
            {"coding": coding, "size": len(body)}
            for coding, body in ((IDENTITY, snapshot.body), *snapshot.encoded)
        ],
        "tags": list(snapshot.tags),
        "refusals": entry.refusals,
        "facts": facts,
    }


def of_reading(reading: Reading) -> dict[str, Any]:
    """The metadata of a page."""
    found = asdict(reading)
    for name in ("headings", "alternates", "open_graph"):
        found[name] = [list(pair) for pair in found[name]]
    return found


def of_render(render: Render) -> dict[str, Any]:
    """The last render of a page."""
    timings = render.timings
    return {
        "time": render.time,
        "seconds": round(render.seconds, 4),
        "error": render.error,
        "reason": render.reason,
        "status": render.status,
        "verdict": render.facts.verdict,
        "why": render.facts.why,
        "settled": render.facts.settled,
        "virtual_seconds": render.facts.virtual_seconds,
        "phases": _phases(timings),
        "errors": [text[:500] for text in render.facts.errors[:50]],
        "fetches": [fetch._asdict() for fetch in timings.fetches],
    }


def _phases(timings: Timings) -> dict[str, float]:
    return {
        "queue": round(timings.queue, 4),
        "document": round(timings.document, 4),
        "settle": round(timings.settle, 4),
        "serialize": round(timings.serialize, 4),
    }


def of_history(history: History) -> list[dict[str, Any]]:
    """The versions of a page, the newest first, without their texts."""
    return [_of_version(version) for version in history.versions]


def _of_version(version: Version) -> dict[str, Any]:
    found = asdict(version)
    del found["text"]
    return found | {"characters": len(version.text)}


def of_comparison(comparison: Comparison) -> dict[str, Any]:
    """The differences between two texts."""
    return {
        "similarity": round(comparison.similarity, 4),
        "cut": comparison.cut,
        "passages": [asdict(passage) for passage in comparison.passages],
    }
