"""Converts values to the models of the API. Pure."""

from collections import Counter
from dataclasses import asdict
from typing import Any, TypeVar, cast, get_args

from prerender.admin.models import ID_LENGTH
from prerender.admin.reasons import in_words, of_decision
from prerender.browser.pool import Pool
from prerender.browser.settling.reasons import SettleReason
from prerender.content.page_metadata import PageMetadata
from prerender.content.text_comparison import compare, side_by_side
from prerender.crawlers.published import PublishedRanges
from prerender.extensions.dashboard import models, snapshot_models
from prerender.extensions.dashboard.bots import Bot
from prerender.extensions.dashboard.crawlers import RequestOutcome, Tally
from prerender.extensions.dashboard.history import History, RenderSummary
from prerender.extensions.dashboard.models import MOST_TOP_PAGES
from prerender.extensions.dashboard.recent_activity import PageRenders
from prerender.http.encodings import IDENTITY
from prerender.snapshots.entry import Entry
from prerender.snapshots.list_rows import Row
from prerender.snapshots.snapshot import Facts, Timings, settle_value
from prerender.snapshots.stores.store import StoreState
from prerender.telemetry.config_notices import Notice
from prerender.telemetry.records import RequestRecord
from prerender.urls.ajax_crawling import pretty_to_ugly

M = TypeVar("M")

_LONGEST_TEXT = 300
_MOST_URLS = 100


def _picked(model: type[M], source: object, **others: Any) -> M:
    """A model with ``others``, and for the rest with the attributes of ``source`` of the same names."""
    values = {
        name: others[name] if name in others else getattr(source, name)
        for name in model.__annotations__
    }
    return cast("M", values)


def _by_outcome(got: Counter[RequestOutcome]) -> dict[str, int]:
    outcomes: tuple[RequestOutcome, ...] = get_args(RequestOutcome)
    return {outcome: got[outcome] for outcome in outcomes}


def of_pool(pool: Pool) -> models.Pool:
    """The browser's pages."""
    state = pool.state
    return _picked(
        models.Pool,
        state,
        browsers_started=pool.browsers_started,
        memory=pool.memory_bytes,
    )


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
    return _picked(
        models.CrawlerFigures,
        tally,
        name=name,
        operator=tally.known.operator if tally.known else "",
        docs=tally.known.docs if tally.known else "",
        javascript=bool(tally.known and tally.known.javascript),
        preset=preset,
        median_seconds=round(tally.quantile(0.5), 6),
        p95_seconds=round(tally.quantile(0.95), 6),
        pages=[
            {"url": url, "id": key, "requests": count}
            for (url, key), count in tally.pages.most_common(MOST_TOP_PAGES)
        ],
        **_by_outcome(tally.got),
    )


def of_bot(bot: Bot) -> models.BotFigures:
    """An unknown bot."""
    return _picked(
        models.BotFigures,
        bot,
        requests=bot.got.total(),
        **_by_outcome(bot.got),
    )


def of_ranges(published: PublishedRanges) -> models.AddressRanges:
    """A published list of addresses."""
    return _picked(
        models.AddressRanges,
        published,
        networks=len(published.networks),
    )


def of_row(row: Row, site: str, now: float) -> snapshot_models.SnapshotRow:
    """A stored snapshot in a list."""
    return _picked(
        snapshot_models.SnapshotRow,
        row,
        # The key of Markdown begins with the key of its HTML snapshot.
        id=row.key[:ID_LENGTH],
        url=f"{site}{row.path}",
        format=row.form,
        state=row.state(now),
        age=round(max(0.0, now - row.stored), 1),
        settled=settle_value(row.settled),
    )


def of_request(record: RequestRecord) -> models.Request:
    """A request of a crawler."""
    return _picked(
        models.Request,
        record,
        seconds=round(record.seconds, 6),
        target=record.target[:_LONGEST_TEXT],
        url=record.snapshot_target.url[:_LONGEST_TEXT] if record.snapshot_target else "",
        id=record.snapshot_target.key if record.snapshot_target else "",
        device=record.snapshot_target.variant.device if record.snapshot_target else "",
        language=record.snapshot_target.variant.language if record.snapshot_target else "",
        user_agent=record.user_agent[:_LONGEST_TEXT],
        crawler=record.crawler or "",
        decision=record.kind,
        reason=record.reason.value,
        reason_text=of_decision(record.reason, record.crawler),
        cache=record.cache or "",
        cache_text=record.cache.text if record.cache else "",
        detail=record.detail[:_LONGEST_TEXT],
        bytes=record.sent_bytes,
        error=record.error or "",
        error_text=record.error.text if record.error else "",
        phases=_phases(record.timings) if record.timings else None,
    )


def of_notice(notice: Notice) -> models.Notice:
    """A configuration notice."""
    return _picked(
        models.Notice,
        notice,
    )


def of_problem(page: PageRenders) -> models.PageRenders:
    """A page that is slow, fails or is cut off."""
    return _picked(
        models.PageRenders,
        page,
        id=page.key,
        mean_seconds=round(page.seconds / page.renders, 4),
        slowest_seconds=round(page.slowest_seconds, 4),
    )


def of_entry(
    entry: Entry, row: Row, site: str, now: float, why_rendered: str | None
) -> snapshot_models.Snapshot:
    """A stored snapshot without its body. ``why_rendered``: why it is not renewed; None
    if none is."""
    snapshot = entry.snapshot
    shown = snapshot.best((IDENTITY,))
    lines = (shown.fields + shown.content_fields).decode("utf-8", "replace").split("\r\n")
    return {
        **of_row(row, site, now),
        "rendered": entry.rendered,
        "renewal": None
        if why_rendered is None
        else {
            "count": 0 if entry.renewals is None else entry.renewals.count,
            "always_rendered_because": why_rendered,
        },
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
    fields = facts.described()
    for name, value in fields.items():
        if isinstance(value, tuple):
            fields[name] = [text[:_LONGEST_TEXT] for text in value[:_MOST_URLS]]
    return cast("snapshot_models.Facts", fields)


def of_reading(reading: PageMetadata) -> snapshot_models.Reading:
    """The metadata of a page."""
    return cast("snapshot_models.Reading", asdict(reading))


def of_render(render: RenderSummary) -> snapshot_models.Render:
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
