"""A static export: files at the paths of ordinary URLs (``/a`` is ``a/index.html``), with an index.

Only files of an earlier export are replaced: the folder may be that of an application, whose own
index.html is what visitors need.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from prerender.errors import ArchiveError
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.target import Target

INDEX = "prerender-static.json"
# Of ext4 and most others.
_LONGEST_NAME = 255
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]|(?:^|/)\.")
_HAS_EXTENSION = re.compile(r"\.html?$", re.IGNORECASE)


class StaticFiles:
    """The files of the ``site`` in ``folder``. Each file is replaced at once, when it is added."""

    def __init__(self, folder: Path, site: str, before: frozenset[str]) -> None:
        self.site = site
        self._folder = folder
        self._before = before
        self._files: set[str] = set()
        self._page_of: dict[str, str] = {}

    @classmethod
    def create(cls, folder: Path, site: str) -> "StaticFiles":
        """Begin an export, which replaces an earlier one. Raises ArchiveError."""
        index = folder / INDEX
        before: object = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if index.exists():
                before = json.loads(index.read_text("utf-8"))["files"]
        except OSError as error:
            raise ArchiveError(f"{folder}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"{index}: is not the index of a static export") from error
        if not isinstance(before, list) or not all(_is_file(name) for name in before):
            raise ArchiveError(f"{index}: is not the index of a static export")
        return cls(folder, site, frozenset(before))

    def add(self, target: Target, snapshot: Snapshot, _made: float) -> None:
        """Write a page. Raises ValueError if it has no file, and ArchiveError."""
        if "#!" in target.path:
            raise ValueError("a #! state has no path of its own: export it without --static")
        if "?" in target.path:
            raise ValueError("a file cannot depend on the query")
        if snapshot.status != 200:
            raise ValueError(f"status {snapshot.status}: a file would have status 200")
        name = file_of(target.path)
        if name is None:
            raise ValueError("the path is not that of a file")
        # Before the file is written: another thread may be writing it.
        if (other := self._page_of.setdefault(name, target.path)) != target.path:
            raise ValueError(f"{other} has the same file, {name}")
        file = self._folder / name
        if file.is_dir():
            raise ValueError(f"{file} is a folder")
        if name not in self._before and file.exists():
            raise ValueError(f"{file} exists, and is not of an export")
        temporary = file.with_name(f".{file.name}.new"[-_LONGEST_NAME:])
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(snapshot.body)
            os.utime(temporary, (snapshot.last_modified, snapshot.last_modified))
            temporary.replace(file)
        except (FileExistsError, NotADirectoryError) as error:
            raise ValueError(f"a part of {file.parent} is a file") from error
        except OSError as error:
            raise ArchiveError(f"{file}: cannot write: {error.strerror}") from error
        self._files.add(name)

    def keep(self, path: str) -> bool:
        """Keep the file of the last export. Returns whether there is one."""
        name = file_of(path)
        if name is None or name not in self._before:
            return False
        self._files.add(name)
        return True

    def keep_all(self) -> None:
        """Keep all files of the last export."""
        self._files |= self._before

    def finish(self, more: Mapping[str, str]) -> None:
        """Write the index and ``more`` files, and remove what is not exported any more."""
        for name in self._before - self._files:
            with suppress(OSError):
                (self._folder / name).unlink()
            with suppress(OSError):
                (self._folder / name).parent.rmdir()  # only if it is empty
        index = json.dumps({"format": 1, "site": self.site, "files": sorted(self._files)}, indent=1)
        try:
            for name, text in {INDEX: f"{index}\n", **more}.items():
                (self._folder / name).write_text(text, "utf-8")
        except OSError as error:
            raise ArchiveError(f"{self._folder}: cannot write: {error.strerror}") from error


def file_of(path: str) -> str | None:
    """The file of a page, relative to the folder; None if a file system cannot have it."""
    name = unquote(urlsplit(f"http://x{path}").path, errors="surrogateescape").removeprefix("/")
    if not name or name.endswith("/"):
        name += "index.html"
    elif not _HAS_EXTENSION.search(name):
        name += "/index.html"
    return name if _is_file(name) else None


def _is_file(name: object) -> bool:
    return (
        isinstance(name, str)
        and name.endswith((".html", ".htm"))
        and not _UNSAFE.search(name)
        and "//" not in name
        and not name.startswith("/")
        and all(len(os.fsencode(part)) <= _LONGEST_NAME for part in name.split("/"))
    )
