"""The tags of snapshots in a CDN, and which of them a purge means. Pure.

Each snapshot has a tag of its page and of each folder of its path with its ``#!`` state:
``page:www.example.com/shop/lamps``, ``folder:www.example.com/shop/``, ``folder:www.example.com/``. Then
come those of the page itself. Tags are found whatever the CDN's cache key is, unlike URLs.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from prerender.snapshots.purges import Purge
from prerender.urls.patterns import comparable

TagHeader = Literal["Cache-Tag", "Surrogate-Key"]
# Fastly and Cloudflare ignore what is longer. Cloudflare takes 1000 tags: there are no more than
# MOST_TAGS of the page, and MOST_FOLDERS.
MOST_BYTES = 16_384
MOST_FOLDERS = 8
# A tag may have 1024 bytes, but long ones would make the header of each deep page long. What is cut off
# only makes purges wider.
_LONGEST = 200
_MOST_REMEMBERED = 1024


class Tags:
    """The tags of the pages of ``host``."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.remembered_line = lru_cache(_MOST_REMEMBERED)(self.line)

    def line(self, header: TagHeader, path: str, own: tuple[str, ...]) -> bytes:
        """The header line of the page at ``path`` with its ``own`` tags."""
        return f"{header}: {self.value(header, path, own)}\r\n".encode("ascii")

    def value(self, header: TagHeader, path: str, own: Iterable[str]) -> str:
        """The value of a header for the page at ``path`` with its ``own`` tags."""
        separator = "," if header == "Cache-Tag" else " "
        tags = dict.fromkeys((self.page(path), *map(self.folder, _folders(path)), *own))
        value = separator.join(tags)
        if len(value) > MOST_BYTES:
            value = value[: value.rindex(separator, 0, MOST_BYTES + 1)]
        return value

    def page(self, path: str) -> str:
        """The tag of a page."""
        return self._tag("page", path)

    def folder(self, path: str) -> str:
        """The tag of a folder, a path with a slash at its end."""
        return self._tag("folder", path)

    @property
    def everything(self) -> str:
        """The tag of all pages."""
        return self.folder("/")

    def of(self, purge: Purge) -> str:
        """The tag of everything that a purge means; of more, if there is none for that exactly."""
        match purge.kind:
            case "url":
                return self.page(purge.value)
            case "tag":
                return purge.value
            case "prefix":
                return self.folder(_folders(purge.value)[-1])
            case "pattern":
                return self.folder(_folders(purge.value.partition("*")[0])[-1])
        return self.everything

    def _tag(self, kind: str, path: str) -> str:
        name = comparable(path).replace(",", "%2C")
        return f"{kind}:{self._host}{name}"[:_LONGEST]


def _folders(path: str) -> list[str]:
    """The folders that a path or the beginning of one is in, the outermost first."""
    parts = path.split("/")[:-1][:MOST_FOLDERS]
    return ["/".join(parts[:end]) + "/" for end in range(1, len(parts) + 1)] or ["/"]
