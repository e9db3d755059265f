"""The tables of the report, from days, pages and lists of snapshots. Pure."""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prerender.admin.page_urls import Site
from prerender.admin.parameters import cursor_of, place_of
from prerender.snapshots.list_rows import Row
from prerender.urls.addresses import searched
from prerender.visits import models
from prerender.visits.figures import FACTS, Cell, LastVisits, VisitOutcome
from prerender.visits.parameters import (
    FINDERS,
    PagesQuery,
    SnapshotFindingsQuery,
    VisitsQuery,
    day_of,
    time_of,
)
from prerender.visits.storage import Days, Pages

_LONGEST_DETAIL = 200


def visits(days: Days, query: VisitsQuery) -> list[models.Visits]:
    """Requests by what the query names: by day in order, otherwise most requests first."""
    by = query.by.split(",")
    groups: defaultdict[tuple[str, str, str, str], dict[VisitOutcome, Cell]] = defaultdict(dict)
    for day, cells in sorted(days.items()):
        at = day_of(day) if "day" in by else ""
        for key, cell in cells.items():
            if key.kind == FACTS or (query.crawler and key.crawler != query.crawler):
                continue
            named = (key.crawler, key.kind) if "crawler" in by else ("", "")
            group = groups[(at, *named, key.section if "folder" in by else "")]
            group.setdefault(key.outcome, Cell()).add(cell)
    rows = [_row(group, cells) for group, cells in groups.items()]
    if query.only == "errors":
        rows = [row for row in rows if _errors(row)]
        return sorted(rows, key=lambda row: -_errors(row))
    return sorted(
        rows, key=lambda row: (row["day"], -row["requests"], row["crawler"], row["folder"])
    )


def _row(group: tuple[str, str, str, str], cells: Mapping[VisitOutcome, Cell]) -> models.Visits:
    total = Cell()
    for cell in cells.values():
        total.add(cell)

    def got(outcome: VisitOutcome) -> int:
        return cells[outcome].requests if outcome in cells else 0

    day, crawler, kind, folder = group
    return {
        "day": day,
        "crawler": crawler,
        "kind": kind,
        "folder": folder,
        "requests": total.requests,
        "fresh": got("fresh"),
        "stale": got("stale"),
        "rendered": got("rendered"),
        "forwarded": got("forwarded"),
        "file": got("file"),
        "not_found": got("404"),
        "client_errors": got("4xx"),
        "unavailable": got("503"),
        "server_errors": got("5xx"),
        "refused": got("refused"),
        "left": got("left"),
        "bytes": total.bytes,
        "median_seconds": round(total.quantile(0.5), 4),
        "p95_seconds": round(total.quantile(0.95), 4),
    }


def _errors(row: models.Visits) -> int:
    return row["not_found"] + row["client_errors"] + row["unavailable"] + row["server_errors"]


def changes(before: Days, after: Days) -> list[models.Change]:
    """Each crawler in both periods, those with most requests first."""
    old, new = (
        {(row["crawler"], row["kind"]): row for row in visits(days, VisitsQuery())}
        for days in (before, after)
    )
    nothing = _row(("", "", "", ""), {})
    rows: list[models.Change] = []
    for crawler, kind in old.keys() | new.keys():
        was, now = old.get((crawler, kind), nothing), new.get((crawler, kind), nothing)
        rows.append(
            {
                "crawler": crawler,
                "kind": kind,
                "requests_before": was["requests"],
                "requests_after": now["requests"],
                "errors_before": _errors(was),
                "errors_after": _errors(now),
                "median_before": was["median_seconds"],
                "median_after": now["median_seconds"],
            }
        )
    return sorted(
        rows, key=lambda one: (-max(one["requests_before"], one["requests_after"]), one["crawler"])
    )


def pages(known: Pages, site: Site, query: PagesQuery) -> models.PageVisitList:
    """Pages and their last visits, the longest unvisited first."""
    terms = searched(site.without_host(query.search))
    without = set(filter(None, query.unvisited_by.split(",")))
    visited = [
        _visited(f"{site.url}{path}", page)
        for path, page in known.items()
        if any(term in path.casefold() for term in terms) and not without & page.keys()
    ]
    count = len(visited)
    if after := place_of(query.cursor):
        if isinstance(after[0], str):
            raise ValueError("cursor: invalid for this list")
        visited = [one for one in visited if _place(one) > after]
    visited.sort(key=_place)
    more = len(visited) > query.limit
    return {
        "count": count,
        "known": len(known),
        "items": visited[: query.limit],
        "next": cursor_of(_place(visited[query.limit - 1])) if more else None,
    }


def _place(page: models.PageVisits) -> tuple[float, str]:
    return page["last"], page["url"]


def gap(paths: Sequence[str], known: Pages, site: str, most: int) -> models.PageVisitList:
    """The pages of a sitemap that no search engine and no AI crawler has fetched, in its order."""
    unvisited = [
        _visited(f"{site}{path}", known.get(path, {}))
        for path in paths
        if not any(kind in known.get(path, ()) for kind in FINDERS)
    ]
    return {"count": len(unvisited), "known": len(paths), "items": unvisited[:most], "next": None}


def _visited(url: str, page: LastVisits) -> models.PageVisits:
    kinds = {
        kind: (int(at), int(status)) for kind, (at, status, *_) in page.items() if kind != FACTS
    }
    last, status = max(kinds.values(), default=(0, 0))
    return {
        "url": url,
        "last": last,
        "status": status,
        "kinds": {kind: at for kind, (at, _) in sorted(kinds.items())},
    }


def findings(
    rows: Iterable[Row], known: Pages, site: str, query: SnapshotFindingsQuery
) -> models.FindingList:
    """What is wrong with stored snapshots, of each page the first one."""
    of_pages: dict[str, Row] = {}
    for row in rows:
        if row.form == "html":
            of_pages.setdefault(row.path, row)
    titles: defaultdict[str, list[str]] = defaultdict(list)
    for path, row in of_pages.items():
        _, _, canonical, _ = known.get(path, {}).get(FACTS, (0, 0, "", 0))
        if row.title and row.status == 200 and not canonical:
            titles[row.title].append(path)
    items: list[models.SnapshotFinding] = []
    read = 0
    for path, row in sorted(of_pages.items()):
        facts = known.get(path, {}).get(FACTS)
        read += facts is not None
        for finding, detail in _findings_of(row, facts, titles, query.thin):
            if query.finding in ("", finding):
                url = f"{site}{path}"
                items.append({"url": url, "finding": finding, "detail": detail[:_LONGEST_DETAIL]})
    return {
        "snapshots": len(of_pages), "read": read, "count": len(items), "items": items[: query.limit]
    }  # fmt: skip


def _findings_of(
    row: Row,
    facts: tuple[int | str, ...] | None,
    titles: Mapping[str, Sequence[str]],
    thin: int,
) -> Iterable[tuple[models.Finding, str]]:
    if row.status != 200:
        if row.status >= 400:
            yield "status", str(row.status)
        return
    if not row.title:
        yield "title-missing", ""
    elif len(others := titles.get(row.title, ())) > 1 and row.path in others:
        yield "title-duplicate", f"{len(others)} pages: {row.title}"
    if facts is None:
        return
    _, noindex, canonical, characters = facts
    if noindex:
        yield "noindex", ""
    if canonical:
        yield "canonical-elsewhere", str(canonical)
    if int(characters) < thin:
        yield "thin-text", f"{characters} characters of text"


def as_json(content: Mapping[str, Any]) -> str:
    """Content with items as JSON. Item by item: other threads would have to wait for a single call."""
    fields = json.dumps({name: value for name, value in content.items() if name != "items"})
    return f'{fields[:-1]}, "items": [{", ".join(map(json.dumps, content["items"]))}]}}'


def as_csv(items: Sequence[Mapping[str, Any]]) -> str:
    """Items as CSV (RFC 4180). Values that a spreadsheet would take for a formula get an apostrophe."""
    text = io.StringIO()
    if items:
        table = csv.DictWriter(text, list(items[0]))
        table.writeheader()
        table.writerows(
            {name: _value(name, value) for name, value in item.items()} for item in items
        )
    return text.getvalue()


def _value(column: str, value: Any) -> object:
    if column == "last":
        return time_of(value)
    if column == "kinds":
        return " ".join(f"{name}={time_of(at)}" for name, at in value.items())
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
