"""Converts values to the models of the API. Pure."""

import base64
import json
from dataclasses import asdict
from typing import cast

from prerender.admin.models import ID_LENGTH
from prerender.admin.reasons import in_words, of_decision
from prerender.browser.pool import Pool
from prerender.browser.settling.reasons import SettleReason
from prerender.crawlers.published import PublishedRanges
from prerender.extensions.dashboard import models, snapshot_models
from prerender.extensions.dashboard.bots import Bot
from prerender.extensions.dashboard.crawlers import Tally
from prerender.extensions.dashboard.history import History, Render
from prerender.extensions.dashboard.list_rows import Row
from prerender.extensions.dashboard.models import MOST_TOP_PAGES
from prerender.extensions.dashboard.recent_activity import PageRenders
from prerender.http.encodings import IDENTITY
from prerender.snapshots.entry import Entry
from prerender.snapshots.snapshot import Facts, Timings, settle_value
from prerender.snapshots.stores.store import StoreState
from prerender.telemetry.config_notices import Notice
from prerender.telemetry.records import RequestRecord
from prerender.tools.page_metadata import Reading
from prerender.tools.text_comparison import compare, side_by_side
from prerender.urls.ajax_crawling import pretty_to_ugly

Place = tuple[float | str, str]

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


def of_pool(pool: Pool) -> models.Pool:
    """The browser's pages."""
    state = pool.state
    return {
        "size": state.size,
        "idle": state.idle,
        "busy": state.busy,
        "waiting": state.waiting,
        "queue_limit": state.queue_limit,
        "browsers_started": pool.browsers_started,
        "memory": pool.memory_bytes,
    }


def of_store(state: StoreState) -> models.Store:
    """The store."""
    return {
        "kind": state.kind,
        "available": state.available,
        "memory": state.memory_bytes,
        "in_memory": state.memory_entries,
        "faults": sum(state.faults.values()),
    }


def of_tally(name: str, tally: Tally, preset: str) -> models.CrawlerFigures:
    """The requests of a crawler. ``preset``: the smallest one that serves it, if there is one."""
    return {
        "name": name,
        "crawler": tally.crawler,
        "operator": tally.known.operator if tally.known else "",
        "docs": tally.known.docs if tally.known else "",
        "javascript": bool(tally.known and tally.known.javascript),
        "requests": tally.requests,
        "snapshots": tally.got["snapshots"],
        "forwarded": tally.got["forwarded"],
        "refused": tally.got["refused"],
        "errors": tally.got["errors"],
        "unverified": tally.unverified,
        "without_snapshot": tally.without_snapshot,
        "preset": preset,
        "median_seconds": round(tally.quantile(0.5), 6),
        "p95_seconds": round(tally.quantile(0.95), 6),
        "last": tally.last,
        "pages": [
            {"url": url, "id": key, "requests": count}
            for (url, key), count in tally.pages.most_common(MOST_TOP_PAGES)
        ],
    }


def of_bot(bot: Bot) -> models.BotFigures:
    """An unknown bot."""
    return {
        "name": bot.name,
        "user_agent": bot.user_agent,
        "why": bot.why,
        "requests": bot.got.total(),
        "pages": bot.pages,
        "files": bot.files,
        "robots": bot.robots,
        "languages": bot.languages,
        "snapshots": bot.got["snapshots"],
        "forwarded": bot.got["forwarded"],
        "refused": bot.got["refused"],
        "errors": bot.got["errors"],
        "missing": bot.missing,
        "last": bot.last,
    }


def of_ranges(published: PublishedRanges) -> models.AddressRanges:
    """A published list of addresses."""
    return {
        "url": published.url,
        "fetched": published.fetched,
        "networks": len(published.networks),
        "error": published.error,
    }


def of_row(row: Row, site: str, now: float) -> snapshot_models.SnapshotRow:
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
        "settled": settle_value(row.settled),
        "problems": row.problems,
    }


def of_request(record: RequestRecord) -> models.Request:
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
        "agent": record.agent,
        "decision": record.kind,
        "reason": record.reason.value,
        "reason_text": of_decision(record.reason, record.crawler),
        "source": record.source,
        "cache": record.cache or "",
        "cache_text": record.cache.text if record.cache else "",
        "detail": record.detail[:_LONGEST_TEXT],
        "status": record.status,
        "bytes": record.sent_bytes,
        "error": record.error or "",
        "error_text": record.error.text if record.error else "",
        "trace_id": record.trace_id,
        "origin_seconds": record.origin_seconds,
        "phases": _phases(record.timings) if record.timings else None,
    }


def of_notice(notice: Notice) -> models.Notice:
    """A configuration notice."""
    return {
        "name": notice.name,
        "seen": notice.seen,
        "consequence": notice.consequence,
        "remedy": notice.remedy,
    }


def of_problem(page: PageRenders) -> models.PageRenders:
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


def of_entry(entry: Entry, row: Row, site: str, now: float) -> snapshot_models.Snapshot:
    """A stored snapshot without its body."""
    snapshot = entry.snapshot
    shown = snapshot.best((IDENTITY,))
    lines = (shown.fields + shown.content_fields).decode("utf-8", "replace").split("\r\n")
    return {
        **of_row(row, site, now),
        "ugly_url": f"{site}{pretty_to_ugly(entry.path, opted_in=True) or entry.path}",
        "etag": snapshot.etag,
        "last_modified": snapshot.last_modified,
        "headers": [_header(line) for line in lines if line],
        "encodings": [
            {"coding": coding, "size": len(body)}
            for coding, body in ((IDENTITY, snapshot.body), *snapshot.encoded)
        ],
        "tags": list(snapshot.tags),
        "refusals": entry.refusals,
        "facts": _facts(snapshot.facts),
    }


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(": ")
    return name, value


def _facts(facts: Facts) -> snapshot_models.Facts:
    found = facts.described()
    for name, value in found.items():
        if isinstance(value, tuple):
            found[name] = [text[:_LONGEST_TEXT] for text in value[:_MOST_URLS]]
    return cast("snapshot_models.Facts", found)


def of_reading(reading: Reading) -> snapshot_models.Reading:
    """The metadata of a page."""
    return cast("snapshot_models.Reading", asdict(reading))


def of_render(render: Render) -> snapshot_models.Render:
    """The last render of a page."""
    timings = render.timings
    return {
        "time": render.time,
        "seconds": round(render.seconds, 4),
        "error": render.error,
        "reason": in_words(render.error, render.reason),
        "status": render.status,
        "verdict": render.facts.verdict,
        "why": render.facts.why,
        "settled": render.facts.settled,
        "settled_text": SettleReason.text_of(render.facts.settled),
        "virtual_seconds": render.facts.virtual_seconds,
        "phases": _phases(timings),
        "errors": [text[:500] for text in render.facts.errors[:50]],
        "fetches": [cast("snapshot_models.Fetch", fetch._asdict()) for fetch in timings.fetches],
    }


def _phases(timings: Timings) -> snapshot_models.Phases:
    phases = {phase.value: round(seconds, 4) for phase, seconds in timings.phases().items()}
    return cast("snapshot_models.Phases", phases)


def of_history(history: History) -> list[snapshot_models.Version]:
    """The versions of a page, the newest first, without their texts."""
    return [
        {
            "time": version.time,
            "status": version.status,
            "etag": version.etag,
            "size": version.size,
            "title": version.title,
            "characters": len(version.text),
        }
        for version in history.versions
    ]


def of_texts(left: str, right: str) -> snapshot_models.Differences:
    """The differences between two texts. Slow for long ones."""
    passages, cut = side_by_side(left, right)
    return {
        "similarity": round(compare([left], [right]).similarity, 4),
        "cut": cut,
        "passages": [{"kind": one.kind, "left": one.left, "right": one.right} for one in passages],
    }
