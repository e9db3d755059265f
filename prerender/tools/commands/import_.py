"""Load exported snapshots into a running proxy.

Examples:
  prerender import /srv/snapshots --admin http://127.0.0.1:8081
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from prerender.cli import common, terminal
from prerender.cli.terminal import FAILED
from prerender.tools.export.archive import Archive
from prerender.tools.export.imports import OUTCOMES

# Limits of one request, so that progress is visible and the proxy stays responsive.
_MOST_PAGES = 50
_MOST_BYTES = 4 * 1024**2
_WORDS = {
    "expired": "of them already expired (--fresh counts them as rendered now)",
    "newer": "skipped because the proxy has newer ones",
    "purged": "skipped because they were purged after the export",
    "not_stored": "not stored by its settings",
}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of an export")
    parser.add_argument("--fresh", action="store_true", help="count the snapshots as rendered now")
    common.add_json(parser)
    common.add_admin(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Import. Raises ArchiveError and AdminError."""
    client = common.admin_of(options)
    archive = Archive.open(options.folder)
    counts: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
    with terminal.progress("page") as progress:
        progress.add_to_total(len(archive.pages))
        for pages in _batches(archive):
            counts.update(client.import_pages(archive.site, pages, fresh=options.fresh))
            for _ in pages:
                progress.done()
    written = terminal.write_json(counts) if options.json else terminal.write(_summary(counts))
    return 0 if written else FAILED


def _summary(counts: Counter[str]) -> str:
    stored = counts["stored"] + counts["expired"]
    line = f"{terminal.counted(stored, 'snapshot')} imported"
    parts = [f"{counts[outcome]} {words}" for outcome, words in _WORDS.items() if counts[outcome]]
    return "".join([", ".join([line, *parts]), "\n"])


def _batches(archive: Archive) -> Iterator[list[dict[str, object]]]:
    batch: list[dict[str, object]] = []
    size = 0
    for entry in archive.pages.values():
        body = archive.body(entry)
        if batch and (len(batch) >= _MOST_PAGES or size + len(body) > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append({**asdict(entry), "body": body.decode("utf-8", "replace")})
        size += len(body)
    yield batch  # of an empty export, too: the proxy says whether it is of its site
