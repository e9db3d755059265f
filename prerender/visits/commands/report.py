"""Print what crawlers got, from a running proxy.

Examples:
  prerender report --days 90 --by day,crawler --csv
  prerender report errors
  prerender report change --date 2026-03-31
  prerender report gap --sitemap https://www.example.com/sitemap.xml
  prerender report snapshots --finding noindex
"""

import argparse
import csv
import io

from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED
from prerender.errors import ConfigError

# By name: the table of the API, the query that it always has, and the options that it takes.
_TABLES: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "visits": ("visits", {}, ("days", "by", "crawler")),
    "errors": ("visits", {"only": "errors"}, ("days", "by", "crawler")),
    "change": ("change", {}, ("date", "days")),
    "pages": ("pages", {}, ("search", "unvisited-by", "limit")),
    "gap": ("gap", {}, ("sitemap", "limit")),
    "snapshots": ("snapshots", {}, ("finding", "thin", "limit")),
}
_OPTIONS = {
    "days": "the last days, with today; of change: the days before and after; default: 28, and 7",
    "by": 'crawler, day, folder, or several: "day,crawler"; default: crawler',
    "crawler": "only this crawler, for example Googlebot",
    "date": "the day of a deploy, for example 2026-03-31 (change)",
    "search": "only URLs with this text (pages)",
    "unvisited-by": 'only pages that none of these classes has visited: "search,ai_search" (pages)',
    "sitemap": "a sitemap of the site; default: /sitemap.xml (gap)",
    "finding": '"noindex", "title-missing", "title-duplicate", "canonical-elsewhere", "thin-text" or '
    '"status" (snapshots)',
    "thin": "pages with fewer characters of text are thin; default: 500 (snapshots)",
    "limit": "at most so many rows",
}
_WIDEST = 60


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "table",
        nargs="?",
        choices=list(_TABLES),
        default="visits",
        help="visits of crawlers (the default), errors (4xx and 5xx), change (before and after a "
        "date), pages and their last visits, gap (pages of the sitemap that no search engine and no AI "
        "crawler has fetched), or snapshots (noindex, titles, canonicals, thin pages)",
    )
    for name, help_text in _OPTIONS.items():
        parser.add_argument(f"--{name}", metavar=name.upper(), help=help_text)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print the table as CSV")
    form.add_argument("--json", action="store_true", help="print the result as JSON")
    common.add_admin(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a table. Raises AdminError, and ConfigError for an option that the table does not take."""
    table, query, takes = _TABLES[options.table]
    given = {
        name: value
        for name in _OPTIONS
        if (value := getattr(options, name.replace("-", "_"))) is not None
    }
    if wrong := [
        f"--{name}: {options.table} does not take it" for name in given if name not in takes
    ]:
        raise ConfigError(wrong)
    if options.table == "change" and "date" not in given:
        raise ConfigError(["change: give --date, for example --date 2026-03-31"])
    query = query | {name.replace("-", "_"): value for name, value in given.items()}
    form = "json" if options.json else "csv"
    text = common.admin_of(options).report(table, {**query, "format": form})
    if options.json or options.csv:
        written = terminal.write_data((text if text.endswith("\n") else f"{text}\n").encode())
    else:
        written = terminal.write(_aligned(text))
    return 0 if written else FAILED


def _aligned(text: str) -> str:
    """CSV in columns, without those that are empty or 0 in all rows."""
    head, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    if not rows:
        return "nothing\n"
    shown = [
        place
        for place in range(len(head))
        if any(row[place] not in ("", "0", "0.0") for row in rows)
    ]
    lines = [[line[place][:_WIDEST] for place in shown] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_number = [all(_is_number(row[place]) for row in rows) for place in shown]
    return "".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, is_number, strict=True)
        ).rstrip()
        + "\n"
        for line in lines
    )


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
