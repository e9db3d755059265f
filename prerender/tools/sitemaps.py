"""Reads sitemaps (https://www.sitemaps.org/protocol.html): XML, indexes, lists of URLs; also gzip.

``read`` accepts URLs of sitemaps, files, and ``-`` for standard input.
"""

import asyncio
import io
import re
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lxml import etree

from prerender.errors import FetchFailed, SitemapError

MOST_URLS = 50_000
MOST_BYTES = 50 * 1024**2
# The protocol does not allow an index of indexes, but some sites have one.
_DEEPEST = 3
_LARGEST = 4 * MOST_BYTES
# The most common fault of sitemaps.
_BARE_AMPERSAND = re.compile(rb"&(?!#?\w{1,31};)")
_GZIP = b"\x1f\x8b"

Fetch = Callable[[str], Coroutine[Any, Any, bytes]]


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry: its URL as written, and its last modification in Unix seconds, if given.

    ``is_sitemap``: an entry of a sitemap index.
    """

    url: str
    lastmod: float | None = None
    is_sitemap: bool = False


async def read(sources: list[str], fetch: Fetch) -> AsyncIterator[Listed]:
    """All pages that the sources list, directly or through indexes; no sitemap is read twice.

    ``fetch`` returns the body of a URL. Raises SitemapError.
    """
    seen: set[str] = set()
    waiting = [(source, 0) for source in reversed(sources)]
    while waiting:
        source, depth = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        found = await asyncio.to_thread(list, parse(await _load(source, fetch), source))
        indexed = [(entry.url, depth + 1) for entry in found if entry.is_sitemap]
        if indexed and depth >= _DEEPEST:
            raise SitemapError(f"{source}: sitemap indexes within indexes, {_DEEPEST} deep")
        waiting += reversed(indexed)
        for entry in found:
            if not entry.is_sitemap:
                yield entry


async def _load(source: str, fetch: Fetch) -> bytes:
    if source.startswith(("http://", "https://")):
        try:
            return await fetch(source)
        except FetchFailed as error:
            raise SitemapError(str(error)) from error
    try:
        if source == "-":
            return await asyncio.to_thread(sys.stdin.buffer.read)
        return await asyncio.to_thread(Path(source).read_bytes)
    except OSError as error:
        raise SitemapError(f"{source}: cannot be read: {error.strerror}") from error


def parse(data: bytes, name: str) -> Iterator[Listed]:
    """The entries of a sitemap, an index or a list; ``name`` is for messages. Raises SitemapError."""
    if data.startswith(_GZIP):
        data = _unpacked(data, name)
    text = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"<"):
        yield from _of_xml(text, name)
    else:
        yield from _of_lines(text, name)


def is_sitemap(data: bytes) -> bool:
    """Whether the data is an XML sitemap or index, possibly compressed."""
    if data.startswith(_GZIP):
        try:
            data = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data, 4096)
        except zlib.error:
            return False
    return b"<urlset" in data[:4096] or b"<sitemapindex" in data[:4096]


def _unpacked(data: bytes, name: str) -> bytes:
    decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        unpacked = decoder.decompress(data, _LARGEST)
    except zlib.error as error:
        raise SitemapError(f"{name}: is not gzip: {error}") from error
    if not decoder.eof:
        raise SitemapError(f"{name}: is cut short, or larger than {_LARGEST // 1024**2} MiB")
    return unpacked


def _of_lines(text: bytes, name: str) -> Iterator[Listed]:
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), start=1):
        url = line.strip()
        if not url or url.startswith("#"):
            continue
        if not url.startswith(("http://", "https://")):
            raise SitemapError(
                f"{name}: line {number}: is no sitemap, and no absolute URL: {url[:60]!r}"
            )
        yield Listed(url)


def _of_xml(text: bytes, name: str) -> Iterator[Listed]:
    # Malformed XML is read as far as possible.
    events = etree.iterparse(
        io.BytesIO(_BARE_AMPERSAND.sub(b"&amp;", text)),
        events=("end",),
        recover=True,
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
    )
    try:
        kind = ""
        for _, element in events:
            _, tag = _name(element)
            if tag in ("url", "sitemap"):
                if entry := _entry(element, is_sitemap=tag == "sitemap"):
                    yield entry
                element.clear(keep_tail=False)
            elif tag in ("urlset", "sitemapindex"):
                kind = tag
    except etree.XMLSyntaxError as error:
        raise SitemapError(f"{name}: is not XML: {error}") from error
    if not kind:
        raise SitemapError(f"{name}: is no sitemap: there is neither urlset nor sitemapindex in it")


def _entry(element: Any, *, is_sitemap: bool) -> Listed | None:
    own, _ = _name(element)
    found = {}
    for child in element:
        namespace, name = _name(child)
        if name and namespace == own:
            found[name] = (child.text or "").strip()
    if not found.get("loc"):
        return None
    return Listed(found["loc"], _seconds(found.get("lastmod", "")), is_sitemap)


def _name(element: Any) -> tuple[str, str]:
    """The namespace and the local name; both are empty for a comment.

    Without etree.QName, which raises for names that the recovering parser accepts.
    """
    if not isinstance(element.tag, str):
        return "", ""
    namespace, _, name = element.tag.rpartition("}")
    return namespace, name


def _seconds(text: str) -> float | None:
    """A W3C date and time (https://www.w3.org/TR/NOTE-datetime) in Unix seconds."""
    if len(text) in (4, 7):
        text += "-01-01"[: 10 - len(text)]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
