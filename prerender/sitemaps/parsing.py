"""Parses sitemaps (https://www.sitemaps.org/protocol.html) that arrive in parts. Pure.

No tree is built and no list is kept, so memory does not depend on the size of a sitemap.
"""

import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from lxml import etree

from prerender.errors import SitemapError

MOST_URLS = 50_000
MOST_BYTES = 50 * 1024**2
# Larger than real sitemaps, uncompressed. Without an entry for so long, it is none: an entry with the
# images and translations of a page is much shorter.
_LARGEST = 8 * MOST_BYTES
_LONGEST_WITHOUT_ENTRY = 16 * 1024**2
# Of a URL with its whitespace; the protocol allows 2,048 characters. Of a line, too.
_LONGEST_TEXT = 16 * 1024
# Of a comment or a tag, which the XML parser keeps until its end.
_LONGEST_MARKUP = 1024**2
_DECOMPRESSED_AT_ONCE = 64 * 1024
# A compressed file that a server compresses once more. There are files that contain themselves.
_MOST_LAYERS = 2
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
# The most common fault of sitemaps; in CDATA an ampersand stands for itself.
_BARE_AMPERSAND = re.compile(rb"(<!\[CDATA\[.*?(?:\]\]>|\Z))|&(?!#?\w{1,31};)", re.DOTALL)
# What the next part may complete: an entity, a tag, or CDATA.
_CUT = re.compile(rb"(?:&#?\w{0,31}|<[^>]{0,64}|<!\[CDATA\[(?:(?!\]\]>).){0,4096})\Z", re.DOTALL)
_LONGEST_CUT = 4096 + 64
_ENTRY = re.compile(rb"<(?:[\w.-]+:)?(?:url|sitemap|item|entry)[\s/>]")
# Of sitemaps and their indexes (sitemaps.org), and of feeds, which search engines accept, too.
_ROOTS = ("urlset", "sitemapindex", "rss", "feed")
_ENTRIES = ("url", "sitemap", "item", "entry")
_FIELDS = {
    "loc": "loc",
    "link": "loc",
    "lastmod": "lastmod",
    "updated": "lastmod",
    "pubDate": "lastmod",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry: its URL as written, and its last modification in Unix seconds, if given.

    ``is_sitemap``: an entry of a sitemap index.
    """

    url: str
    lastmod: float | None = None
    is_sitemap: bool = False


class Parser:
    """Parses a sitemap, an index or a list, also compressed; ``name`` is for messages.

    ``feed`` and ``close`` yield the entries, and raise SitemapError.
    """

    def __init__(self, name: str, layer: int = 0) -> None:
        self._name = name
        self._layer = layer
        self._head = b""
        self._size = 0
        self._format: _Gzip | _XML | _Lines | None = None

    def feed(self, data: bytes) -> Iterator[Listed]:
        """The entries that end in this part."""
        self._size += len(data)
        if self._size > _LARGEST:
            raise SitemapError(f"{self._name}: larger than {_LARGEST // 1024**2} MiB")
        if self._format is None:
            # Of the first three bytes, one can be read without a mark of the byte order.
            self._head = (self._head + data).removeprefix(_BOM).lstrip()
            if len(self._head) < len(_BOM):
                return
            data, self._head = self._head, b""
            self._format = self._format_of(data)
        yield from self._format.feed(data)

    def close(self) -> Iterator[Listed]:
        """The remaining entries, at the end of the data."""
        if self._format is None:
            if not self._head:
                return
            self._format = self._format_of(self._head)
            yield from self._format.feed(self._head)
        yield from self._format.close()

    def _format_of(self, data: bytes) -> "_Gzip | _XML | _Lines":
        if data.startswith(_GZIP) and self._layer < _MOST_LAYERS:
            return _Gzip(self._name, self._layer + 1)
        return (_XML if data.startswith(b"<") else _Lines)(self._name)


def parse(data: bytes, name: str) -> Iterator[Listed]:
    """The entries of a whole sitemap, index or list. Raises SitemapError."""
    parser = Parser(name)
    yield from parser.feed(data)
    yield from parser.close()


def is_sitemap(data: bytes) -> bool:
    """Whether data begins like an XML sitemap or index, possibly compressed."""
    if data.startswith(_GZIP):
        try:
            data = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data, 4096)
        except zlib.error:
            return False
    return any(f"<{root}".encode() in data[:4096] for root in _ROOTS)


class _Gzip:
    """Decompresses a little at a time (RFC 1952, also several members in a row)."""

    def __init__(self, name: str, layer: int) -> None:
        self._name = name
        self._inner = Parser(name, layer)
        self._decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Listed]:
        data, self._rest = self._rest + data, b""
        while data:
            if self._decoder.eof:
                if data == _GZIP[:1]:  # the next part may begin with the other byte
                    self._rest = data
                    return
                # Other data after the end is padding.
                if not data.startswith(_GZIP):
                    return
                self._decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
            yield from self._inner.feed(self._decompressed(data))
            data = self._decoder.unused_data or self._decoder.unconsumed_tail

    def _decompressed(self, data: bytes) -> bytes:
        try:
            return self._decoder.decompress(data, _DECOMPRESSED_AT_ONCE)
        except zlib.error as error:
            raise SitemapError(f"{self._name}: is not gzip: {error}") from error

    def close(self) -> Iterator[Listed]:
        yield from self._inner.close()
        if not self._decoder.eof:
            raise SitemapError(f"{self._name}: is cut short")


class _Lines:
    """A list with a URL on each line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._number = 0
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Listed]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from self._entry(line)
        if len(self._rest) > _LONGEST_TEXT:
            yield from self.close()

    def close(self) -> Iterator[Listed]:
        yield from self._entry(self._rest)
        self._rest = b""

    def _entry(self, line: bytes) -> Iterator[Listed]:
        self._number += 1
        url = line.decode("utf-8", "replace").strip()
        if not url or url.startswith("#"):
            return
        if not url.startswith(("http://", "https://")) or len(url) > _LONGEST_TEXT:
            raise SitemapError(
                f"{self._name}: line {self._number}: is no sitemap, and no absolute URL: {url[:60]!r}"
            )
        yield Listed(url)


class _XML:
    """Reads malformed XML as far as possible."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rest = b""
        self._unparsed = 0
        self._without_entry = 0
        self._entries = 0
        self._events = _Events()
        self._parser = etree.XMLParser(
            target=self._events,
            recover=True,
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
        )

    def feed(self, data: bytes) -> Iterator[Listed]:
        data = self._rest + data
        cut = _CUT.search(data, max(0, len(data) - _LONGEST_CUT))
        end = cut.start() if cut else len(data)
        data, self._rest = data[:end], data[end:]
        yield from self._parsed(data)

    def close(self) -> Iterator[Listed]:
        yield from self._parsed(self._rest)
        with suppress(etree.LxmlError):  # it is in the log
            self._parser.close()
        yield from self._events.taken()
        if not self._events.is_sitemap:
            raise SitemapError(
                f"{self._name}: is no sitemap: there is no urlset, sitemapindex, rss or feed in it"
            )
        if (lost := self._entries - self._events.entries) > 0 and self._parser.feed_error_log:
            first = self._parser.feed_error_log[0]
            raise SitemapError(
                f"{self._name}: {lost} of {self._entries} entries cannot be read: line {first.line}: "
                f"{first.message}"
            )

    def _parsed(self, data: bytes) -> Iterator[Listed]:
        if not data:
            return
        before = self._events.count
        self._without_entry += len(data)
        self._entries += len(_ENTRY.findall(data))
        try:
            self._parser.feed(_BARE_AMPERSAND.sub(lambda match: match[1] or b"&amp;", data))
        except etree.LxmlError as error:
            raise SitemapError(f"{self._name}: is not XML: {error}") from error
        if entries := self._events.taken():
            self._without_entry = 0
        yield from entries
        self._unparsed = self._unparsed + len(data) if before == self._events.count else 0
        if self._unparsed > _LONGEST_MARKUP:
            raise SitemapError(f"{self._name}: is not XML: a tag or comment has no end")
        if self._without_entry > _LONGEST_WITHOUT_ENTRY:
            size = _LONGEST_WITHOUT_ENTRY // 1024**2
            raise SitemapError(f"{self._name}: is no sitemap: there is no entry in {size} MiB")


class _Events:
    """A parser target (https://lxml.de/parsing.html#the-target-parser-interface).

    ``count``: how many events there were, ``entries``: how many entries.
    """

    def __init__(self) -> None:
        self.is_sitemap = False
        self.count = 0
        self.entries = 0
        self._new: list[Listed] = []
        self._depth = 0
        self._entry: dict[str, str] | None = None
        self._entry_tag = ("", "")
        self._entry_depth = 0
        self._field = ""
        self._text = ""

    def taken(self) -> list[Listed]:
        """The entries since the last call."""
        new, self._new = self._new, []
        return new

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        self.count += 1
        self._depth += 1
        namespace, name = _name(tag)
        if self._entry is None:
            if name in _ENTRIES:
                self._entry, self._entry_tag = {}, (namespace, name)
                self._entry_depth = self._depth
            elif name in _ROOTS:
                self.is_sitemap = True
        elif self._depth == self._entry_depth + 1 and namespace == self._entry_tag[0]:
            self._field, self._text = _FIELDS.get(name, ""), ""
            if "href" in attributes and attributes.get("rel", "alternate") == "alternate":
                self._entry.setdefault("loc", attributes["href"])  # RFC 4287 section 4.2.7
        else:
            self._field = ""

    def data(self, text: str) -> None:
        """Take some of the text of an element."""
        self.count += 1
        if self._field and len(self._text) < _LONGEST_TEXT:
            self._text += text

    def end(self, _: str) -> None:
        """End an element."""
        self.count += 1
        if self._entry is not None:
            if self._depth == self._entry_depth:
                self._finish(self._entry)
                self._entry = None
            elif self._depth == self._entry_depth + 1 and self._field and self._text.strip():
                self._entry[self._field] = self._text.strip()
        self._field = ""
        self._depth -= 1

    def close(self) -> None:
        """End the document."""

    def _finish(self, entry: dict[str, str]) -> None:
        url = entry.get("loc")
        if url and len(url) <= _LONGEST_TEXT:
            self.entries += 1
            lastmod = _seconds(entry.get("lastmod", ""))
            self._new.append(Listed(url, lastmod, self._entry_tag[1] == "sitemap"))


def _name(tag: str) -> tuple[str, str]:
    """The namespace and the local name.

    Without etree.QName, which raises for names that the recovering parser accepts.
    """
    namespace, _, name = tag.rpartition("}")
    return namespace, name


def _seconds(text: str) -> float | None:
    """A W3C date and time (https://www.w3.org/TR/NOTE-datetime) or that of RSS, in Unix seconds."""
    if "," in text:
        with suppress(ValueError, OverflowError):  # the latter of numbers with many digits
            return _timestamp(parsedate_to_datetime(text))
    if len(text) in (4, 7):
        text += "-01-01"[: 10 - len(text)]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _timestamp(moment)


def _timestamp(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
