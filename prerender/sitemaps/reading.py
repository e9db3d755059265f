"""Reads sitemaps (https://www.sitemaps.org/protocol.html): XML, indexes, lists of URLs; also gzip.

``read`` accepts URLs of sitemaps, files, and ``-`` for standard input. It streams: memory does not
depend on the size of a sitemap, nor on the number of its entries.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from itertools import islice

from prerender.errors import FetchFailed, SitemapError
from prerender.sitemaps.parsing import Listed, Parser

# The protocol does not allow an index of indexes, but some sites have one.
_DEEPEST = 3
# Two full indexes of 50,000 sitemaps; their URLs are kept in memory.
_MOST_SITEMAPS = 100_000
_TRIES = 3
_READ_BYTES = 64 * 1024
_AT_ONCE = 1000
_LONGEST_SHOWN = 200

Chunks = AsyncIterator[bytes]
Open = Callable[[str], AbstractAsyncContextManager[Chunks]]


async def read(
    sources: list[str], open_url: Open, failed: Callable[[SitemapError], None] | None = None
) -> AsyncGenerator[Listed]:
    """All pages that the sources list, directly or through indexes; no sitemap is read twice.

    ``open_url`` opens the body of a URL; it raises FetchFailed or SitemapError. ``failed`` is called
    for a sitemap that cannot be read to its end; without it, the first one raises SitemapError. With
    it, a sitemap whose connection fails is read again, and its first pages come twice.
    """
    seen: set[str] = set()
    tries: Counter[str] = Counter()
    waiting = [(source, 0) for source in reversed(sources)]
    while waiting:
        source, depth = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        indexed: list[tuple[str, int]] = []
        try:
            async with aclosing(_entries(source, depth, open_url)) as entries:
                async for entry in entries:
                    if not entry.is_sitemap:
                        yield entry
                        continue
                    indexed.append((entry.url, depth + 1))
                    _check(source, depth, len(seen) + len(waiting) + len(indexed))
        except SitemapError as error:
            if failed is None:
                raise
            tries[source] += 1
            if isinstance(error.__cause__, FetchFailed) and tries[source] < _TRIES:
                seen.discard(source)
                indexed.insert(0, (source, depth))
            else:
                failed(error)
        waiting += reversed(indexed)


def _check(source: str, depth: int, sitemaps: int) -> None:
    """Limit the indexes of a site. Raises SitemapError."""
    if depth >= _DEEPEST:
        raise SitemapError(f"{source}: sitemap indexes within indexes, {_DEEPEST} deep")
    if sitemaps > _MOST_SITEMAPS:
        raise SitemapError(f"{source}: more than {_MOST_SITEMAPS} sitemaps")


async def _entries(source: str, depth: int, open_url: Open) -> AsyncGenerator[Listed]:
    is_url = source.startswith(("http://", "https://"))
    if depth and not is_url:  # a site must not name files of this machine
        raise SitemapError(f"{source[:_LONGEST_SHOWN]!r}: in an index, give absolute URLs")
    parser = Parser(source)
    try:
        async with open_url(source) if is_url else _opened(source) as body:
            async for part in body:
                async for entry in _parsed(parser.feed(part)):
                    yield entry
    except FetchFailed as error:
        raise SitemapError(str(error)) from error
    async for entry in _parsed(parser.close()):
        yield entry


async def _parsed(entries: Iterator[Listed]) -> AsyncIterator[Listed]:
    """The entries, parsed in another thread: 64 KiB of gzip may have 50,000."""
    while True:
        some, problem = await asyncio.to_thread(_some, entries)
        for entry in some:
            yield entry
        if problem is not None:
            raise problem
        if len(some) < _AT_ONCE:
            return


def _some(entries: Iterator[Listed]) -> tuple[list[Listed], SitemapError | None]:
    """The next entries, and what is wrong behind them."""
    listed: list[Listed] = []
    try:
        listed.extend(islice(entries, _AT_ONCE))
    except SitemapError as error:
        return listed, error
    return listed, None


@asynccontextmanager
async def _opened(source: str) -> AsyncIterator[Chunks]:
    """The bytes of a file or of standard input. Raises SitemapError."""
    try:
        if source == "-":
            yield _parts(lambda size: os.read(sys.stdin.fileno(), size))
            return
        with await asyncio.to_thread(open, source, "rb") as file:
            yield _parts(file.read)
    except OSError as error:
        raise SitemapError(f"{source}: cannot be read: {error.strerror}") from error


async def _parts(read_part: Callable[[int], bytes]) -> Chunks:
    while part := await asyncio.to_thread(read_part, _READ_BYTES):
        yield part
