"""An export: a folder with ``index.json``, and a file and its gzip form for each page.

The index has ``format`` 1, ``site``, and ``pages``: objects with ``path`` (path, query and ``#!``
fragment), ``file``, ``status``, ``headers``, ``etag``, ``last_modified`` and ``made`` (Unix seconds),
``ttl``, ``tags``, ``asset_fingerprint`` and ``text_length``.
The modification time of each file is when its content last changed, for Last-Modified.
"""

import gzip
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from prerender.errors import ArchiveError
from prerender.snapshots.entry import LATEST, LONGEST_SECONDS
from prerender.snapshots.snapshot import Facts, Header, Snapshot
from prerender.snapshots.strict_json import builder
from prerender.snapshots.target import Target

FORMAT = 1
INDEX = "index.json"
PAGES = "pages"
# Compressing smaller files saves no time.
_LEAST_COMPRESSED_BYTES = 512
_FILE = re.compile(r"pages/[0-9a-f]{2}/[0-9a-f]{32}\.html", re.ASCII)


@dataclass(frozen=True, slots=True)
class Archived:
    """A page in the index. ``made``: when it was rendered (Unix seconds)."""

    path: str
    file: str
    status: int
    headers: tuple[Header, ...]
    etag: str
    last_modified: int
    made: float
    ttl: float | None
    tags: tuple[str, ...]
    asset_fingerprint: str
    text_length: int

    @classmethod
    def of(cls, target: Target, snapshot: Snapshot, made: float) -> "Archived":
        """The entry of a snapshot."""
        return cls(
            path=target.path,
            file=f"{PAGES}/{target.key[:2]}/{target.key}.html",
            status=snapshot.status,
            headers=snapshot.headers,
            etag=snapshot.etag,
            last_modified=snapshot.last_modified,
            made=made,
            ttl=snapshot.ttl,
            tags=snapshot.tags,
            asset_fingerprint=snapshot.asset_fingerprint,
            text_length=snapshot.facts.text_length,
        )

    @classmethod
    def read(cls, listing: Any) -> "Archived":
        """Parse an entry from JSON. Raises ValueError."""
        try:
            entry = cast("Archived", builder(Archived)(listing))
        except ValueError as error:
            raise ValueError(f"an entry of the index is invalid: {error}") from None
        if not _FILE.fullmatch(entry.file):
            raise ValueError(f"{entry.file!r} is not a file name of an export")
        if not entry.path.startswith("/"):
            raise ValueError(f"{entry.path!r} is not a path")
        if not re.fullmatch(r'(W/)?"[0-9a-f]{32}"', entry.etag, re.ASCII):
            raise ValueError(f"{entry.path}: {entry.etag!r} is not the ETag of a snapshot")
        if not all(0 <= time <= LATEST for time in (entry.made, entry.last_modified)):
            raise ValueError(f"{entry.path}: invalid time")
        if not 0 <= (entry.ttl or 0) <= LONGEST_SECONDS:
            raise ValueError(f"{entry.path}: invalid TTL: {entry.ttl:g} s")
        return entry

    def snapshot(self, body: bytes) -> Snapshot:
        """The snapshot, with the content of its file."""
        return Snapshot(
            status=self.status,
            headers=self.headers,
            body=body,
            etag=self.etag,
            last_modified=self.last_modified,
            facts=Facts(settled="imported", text_length=self.text_length),
            ttl=self.ttl,
            tags=self.tags,
            asset_fingerprint=self.asset_fingerprint,
        )


class Archive:
    """A folder with the snapshots of one ``site`` (scheme and host)."""

    def __init__(self, folder: Path, site: str, pages: Mapping[str, Archived]) -> None:
        self.folder = folder
        self.site = site
        self.pages = dict(pages)
        self._before: Mapping[str, Archived] = {}

    @classmethod
    def create(cls, folder: Path, site: str) -> "Archive":
        """Create an export in a new or empty folder, or in one with a previous export.

        The previous export stays until ``finish``. Raises ArchiveError.
        """
        archive = cls(folder, site, {})
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()) and not (folder / INDEX).exists():
                raise ArchiveError(f"{folder}: is neither empty nor a previous export")
        except OSError as error:
            raise ArchiveError(f"{folder}: {error.strerror}") from error
        if (folder / INDEX).exists():
            before = cls.open(folder)
            if before.site != site:
                raise ArchiveError(f"{folder}: is an export of {before.site}")
            archive._before = before.pages
        return archive

    @classmethod
    def open(cls, folder: Path) -> "Archive":
        """Open an existing export. Raises ArchiveError."""
        try:
            listing = json.loads((folder / INDEX).read_text("utf-8"))
            if listing["format"] != FORMAT:
                raise ArchiveError(f"{folder}: is an export of another version")
            pages = [Archived.read(entry) for entry in listing["pages"]]
            return cls(folder, str(listing["site"]), {entry.path: entry for entry in pages})
        except OSError as error:
            raise ArchiveError(f"{folder / INDEX}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise ArchiveError(f"{folder / INDEX}: not the index of an export: {error}") from error

    def add(self, target: Target, snapshot: Snapshot, made: float) -> None:
        """Write a snapshot. Raises ArchiveError."""
        entry = Archived.of(target, snapshot, made)
        file = self.folder / entry.file
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            _write(file, snapshot.body, entry.last_modified)
            compressed = gzip.compress(snapshot.body, mtime=0)
            packed = file.with_name(f"{file.name}.gz")
            if len(snapshot.body) >= _LEAST_COMPRESSED_BYTES:
                _write(packed, compressed, entry.last_modified)
            else:
                packed.unlink(missing_ok=True)
        except OSError as error:
            raise ArchiveError(f"{file}: {error.strerror}") from error
        self.pages[entry.path] = entry

    def keep(self, path: str) -> bool:
        """Keep a page from the previous export. Returns False if it has none."""
        if path in self._before:
            self.pages.setdefault(path, self._before[path])
        return path in self.pages

    def keep_all(self) -> None:
        """Keep all other pages from the previous export."""
        self.pages = {**self._before, **self.pages}

    def body(self, entry: Archived) -> bytes:
        """The content of a page's file. Raises ArchiveError."""
        try:
            return (self.folder / entry.file).read_bytes()
        except OSError as error:
            raise ArchiveError(f"{self.folder / entry.file}: {error.strerror}") from error

    def finish(self, files: Mapping[str, str]) -> None:
        """Write the index and ``files`` (by name), then remove files that are no longer in it."""
        ordered = [self.pages[path] for path in sorted(self.pages)]
        index = {"format": FORMAT, "site": self.site, "pages": [asdict(entry) for entry in ordered]}
        try:
            for name, text in files.items():
                _write(self.folder / name, text.encode())
            _write(self.folder / INDEX, json.dumps(index, indent=1, ensure_ascii=False).encode())
            self._remove({entry.file for entry in ordered})
        except OSError as error:
            raise ArchiveError(f"{self.folder}: {error.strerror}") from error

    def _remove(self, remaining: set[str]) -> None:
        for file in self._files():
            if file.relative_to(self.folder).as_posix().removesuffix(".gz") not in remaining:
                file.unlink()
                with suppress(OSError):  # not empty
                    file.parent.rmdir()

    def _files(self) -> Iterator[Path]:
        yield from list((self.folder / PAGES).glob("??/*.html"))
        yield from list((self.folder / PAGES).glob("??/*.html.gz"))


def _write(file: Path, data: bytes, changed: int | None = None) -> None:
    """Replace a file atomically."""
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(data)
    if changed is not None:
        os.utime(new, (changed, changed))
    new.replace(file)
