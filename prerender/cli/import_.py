"""``prerender import DIR``: imports an export into a running proxy."""

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from prerender.admin import client
from prerender.cli import common, terminal
from prerender.config import load
from prerender.errors import ArchiveError
from prerender.snapshots.archive import Archive

# Limits of one request, so that progress is visible and the proxy stays responsive.
_MOST_PAGES = 50
_MOST_BYTES = 4 * 1024**2


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of an export")
    parser.add_argument("--fresh", action="store_true", help="count the snapshots as rendered now")
    common.add_json(parser)
    common.add_config(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Import. Raises ArchiveError and AdminError."""
    settings = load(options.config)
    archive = Archive.open(options.folder)
    if archive.site != str(settings.public_url.origin()):
        raise ArchiveError(
            f"{options.folder}: this export is of {archive.site}, but [site] url is "
            f"{settings.public_url.origin()}"
        )
    counts: Counter[str] = Counter({"kept": 0, "newer": 0, "not kept": 0})
    with terminal.progress("page") as progress:
        progress.found(len(archive.pages))
        for pages in _batches(archive):
            counts.update(client.import_pages(settings, pages, fresh=options.fresh))
            for _ in pages:
                progress.done()
    if options.json:
        terminal.write_json(counts)
    else:
        terminal.write(
            f"{terminal.counted(counts['kept'], 'snapshot')} imported, {counts['newer']} skipped "
            f"because the proxy has newer ones, {counts['not kept']} not stored by its settings\n"
        )
    return 0


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
    if batch:
        yield batch
