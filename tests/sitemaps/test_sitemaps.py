"""Sitemaps as found in practice: XML, indexes, compressed files and plain lists."""

import asyncio
import gzip
import itertools
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prerender.background import running
from prerender.errors import FetchFailed, SitemapError
from prerender.sitemaps.parsing import Listed, Parser, is_sitemap, parse
from prerender.sitemaps.reading import Chunks, read

SCHEMA = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def packed(data: bytes) -> bytes:
    """Deterministic, because pytest-xdist compares the names of parameters."""
    return gzip.compress(data, mtime=0)


@pytest.fixture
def another_time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XXX-5")
        time.tzset()
        yield
    time.tzset()


def urlset(*urls: str) -> bytes:
    entries = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    return f'<?xml version="1.0" encoding="UTF-8"?><urlset {SCHEMA}>{entries}</urlset>'.encode()


def index(*urls: str) -> bytes:
    entries = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return f"<sitemapindex {SCHEMA}>{entries}</sitemapindex>".encode()


@pytest.mark.parametrize(
    ("data", "urls"),
    [
        (urlset("http://a/#!/x", " http://a/ü\n"), ["http://a/#!/x", "http://a/ü"]),
        (packed(urlset("http://a/")), ["http://a/"]),
        (b"\xef\xbb\xbf\n" + urlset("http://a/"), ["http://a/"]),
        (urlset("http://a/?x=1&amp;y=2"), ["http://a/?x=1&y=2"]),
        # Not escaped, as many are.
        (urlset("http://a/?x=1&y=2&copy=3"), ["http://a/?x=1&y=2&copy=3"]),
        (b"<urlset><url><loc>http://a/</loc></url></urlset>", ["http://a/"]),
        (urlset("http://a/")[:-3], ["http://a/"]),
        (b"http://a/\r\nhttp://b/#!/c\n\n# and so on\n", ["http://a/", "http://b/#!/c"]),
        (urlset("<![CDATA[http://a/?x=1&y=2]]>"), ["http://a/?x=1&y=2"]),
        (packed(packed(urlset("http://a/"))), ["http://a/"]),
        (
            packed(urlset("http://a/")[:40]) + packed(urlset("http://a/")[40:]),
            ["http://a/"],
        ),
        (urlset(), []),
        (b"", []),
        (
            f"<urlset {SCHEMA} xmlns:i='i'><url><i:image><i:loc>no</i:loc></i:image>"
            "<loc>http://a/</loc></url><url><i:loc>no</i:loc></url></urlset>".encode(),
            ["http://a/"],
        ),
    ],
)
def test_what_is_listed(data: bytes, urls: list[str]) -> None:
    assert [entry.url for entry in parse(data, "x")] == urls


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<html><body>No", "is no sitemap"),
        (b"just words", "line 1: is no sitemap, and no absolute URL: 'just words'"),
        (packed(urlset("http://a/"))[:-9], "is cut short"),
        (b"\x1f\x8bnonsense", "is not gzip"),
        (packed(packed(packed(b"http://a/"))), "line 1: is no sitemap"),
        (
            urlset("http://a/") + urlset("http://b/"),
            "1 of 2 entries cannot be read: line 1",
        ),
    ],
)
def test_what_is_no_sitemap(data: bytes, said: str) -> None:
    with pytest.raises(SitemapError, match=f"^x: .*{said[:20]}"):
        list(parse(data, "x"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86400),
        ("1970", 0),
        ("1970-02", 31 * 86400),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:01Z", 1),
        ("1970-01-01T00:00:00.5Z", 0.5),
        ("1970-01-01T00:00:00,5Z", 0.5),
        ("Fri, 02 Jan 1970 01:00:00 +0100", 86400),
        ("Fri, 02 Jan 1970 00:00:00 -0000", 86400),
        ("Fri, 02 Jan 1970 00:00:00", 86400),
        ("Mon, 01 Jan 20240000000 00:00:00 GMT", None),
        ("Mon, 01 Jan 2024 00:00:00 +9999999999999", None),
        ("Mon, 99999999999999999999 Jan 2024 00:00:00 GMT", None),
        ("yesterday", None),
        ("", None),
    ],
)
@pytest.mark.usefixtures("another_time_zone")
def test_when_it_changed(text: str, seconds: float | None) -> None:
    data = f"<urlset><url><loc>http://a/</loc><lastmod>{text}</lastmod></url></urlset>"
    assert list(parse(data.encode(), "x")) == [Listed("http://a/", seconds)]


def test_entities_are_not_expanded() -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "http://a/"><!ENTITY b SYSTEM "file:///etc/passwd">]>'
    bomb += b"<urlset><url><loc>&b;</loc></url><url><loc>http://b/</loc></url></urlset>"
    assert [entry.url for entry in parse(bomb, "x")] == ["http://b/"]


@given(st.binary())
@example("<\u1000:".encode())
def test_nothing_breaks_it(data: bytes) -> None:
    for broken in (data, b"<urlset>" + data, b"\x1f\x8b" + data):
        with suppress(SitemapError):
            list(parse(broken, "x"))
        assert is_sitemap(broken) in (True, False)


def test_it_does_not_matter_how_a_sitemap_is_cut() -> None:
    data = urlset("http://a/?x=1&y=2", "<![CDATA[http://b/?x=1&y=2]]>", "http://c/&amp;d")
    data = data.replace(b"</url>", b"<lastmod>1970-01-01</lastmod></url>")
    whole = list(parse(data, "x"))
    assert len(whole) == 3
    for size in range(1, 40):
        assert read_by(size, data) == whole
        assert read_by(size, packed(data[:99]) + packed(data[99:])) == whole


def read_by(size: int, data: bytes) -> list[Listed]:
    parser = Parser("x")
    found = [e for i in range(0, len(data), size) for e in parser.feed(data[i : i + size])]
    return [*found, *parser.close()]


def read_in_parts(begin: bytes, part: bytes, count: int) -> None:
    parser = Parser("x")
    for data in (begin, *itertools.repeat(part, count)):
        list(parser.feed(data))


@pytest.mark.parametrize("begin", [b"<!--", b"<url ", b"<url a='"])
def test_markup_without_an_end(begin: bytes) -> None:
    with pytest.raises(SitemapError, match="is not XML: a tag or comment has no end"):
        read_in_parts(b"<urlset>" + begin, b"x" * 2**16, 20)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("part", "reason"),
    [
        pytest.param(b" " * 2**20, "there is no entry in 16 MiB", id="spaces"),
        pytest.param(
            b"<url><loc>http://a/</loc></url>" * 2**15,
            "larger than 400 MiB",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_decompression_bomb(part: bytes, reason: str) -> None:
    packer = zlib.compressobj(9, wbits=31)
    begin = packer.compress(b"<urlset>") + packer.flush(zlib.Z_SYNC_FLUSH)
    part = packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH)
    with pytest.raises(SitemapError, match=reason):
        read_in_parts(begin, part, 450)


async def listed(*sources: str, **content: bytes) -> list[str]:
    @asynccontextmanager
    async def open_url(url: str) -> AsyncIterator[Chunks]:
        name = url.removeprefix("http://h/")
        if name not in content:
            raise SitemapError(f"{url}: status 404")

        async def body() -> Chunks:
            for start in range(0, len(content[name]), 7):
                yield content[name][start : start + 7]

        yield body()

    return [entry.url async for entry in read(list(sources), open_url)]


async def test_indexes_are_followed_in_their_order_and_each_once(tmp_path: Path) -> None:
    file = tmp_path / "sitemap.xml.gz"
    file.write_bytes(packed(index("http://h/b", "http://h/a", "http://h/b")))
    content = {"a": urlset("http://s/a1", "http://s/a2"), "b": packed(urlset("http://s/b"))}
    assert await listed(str(file), "http://h/a", **content) == [
        "http://s/b",
        "http://s/a1",
        "http://s/a2",
    ]


async def test_what_cannot_be_had() -> None:
    with pytest.raises(SitemapError, match="status 404"):
        await listed("http://h/nothing")
    with pytest.raises(SitemapError, match="cannot be read: No such file"):
        await listed("/nonexistent/sitemap.xml")
    deep = {name: index(f"http://h/{name}x") for name in ("a", "ax", "axx", "axxx", "axxxx")}
    with pytest.raises(SitemapError, match="within indexes"):
        await listed("http://h/a", **deep)


@pytest.mark.parametrize("name", ["{}", "-", "file://{}", "/dev/stdin"])
async def test_an_index_names_no_files(tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root:x:0:0")
    with pytest.raises(SitemapError, match="in an index, give absolute URLs"):
        await listed("http://h/a", a=index(name.format(secret)))


@pytest.mark.heavy
async def test_others_run_while_a_sitemap_is_parsed() -> None:
    data = packed(urlset(*(f"http://s/{number}" for number in range(20_000))))
    turns = 0

    @asynccontextmanager
    async def open_url(_: str) -> AsyncIterator[Chunks]:
        async def body() -> Chunks:
            yield data

        yield body()

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with running(count(), "others"):
        assert len([entry async for entry in read(["http://h/a"], open_url)]) == 20_000
    assert turns > 10


async def test_an_index_of_itself_ends() -> None:
    assert await listed("http://h/a", a=index("http://h/a")) == []


async def iter_nothing() -> Chunks:
    yield b""


async def test_a_server_that_cannot_be_reached() -> None:
    tries: list[str] = []

    @asynccontextmanager
    async def open_url(url: str) -> AsyncIterator[Chunks]:
        tries.append(url)
        if url:
            raise FetchFailed(f"{url}: no connection")
        yield iter_nothing()

    with pytest.raises(SitemapError, match="http://h/a: no connection"):
        assert [entry async for entry in read(["http://h/a"], open_url)]
    errors: list[SitemapError] = []
    assert [entry async for entry in read(["http://h/a"], open_url, errors.append)] == []
    assert (len(errors), len(tries)) == (1, 1 + 3)
