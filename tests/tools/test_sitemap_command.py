"""``prerender sitemap``: what a crawl finds, as a sitemap that crawlers and the other commands read."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from prerender.sitemaps.parsing import Listed, parse
from prerender.sitemaps.writing import index, sitemaps
from tests.conftest import Site, StartOrigin, StartProxy, pages
from tests.support.programs import run

CHANGED = "Sun, 06 Nov 1994 08:49:37 GMT"
PRINTABLE = st.text(st.characters(min_codepoint=0x21, exclude_categories=["C", "Z"]))


def page(*links: str, head: str = "") -> web.Response:
    anchors = "".join(f'<a href="{link}">{link}</a>' for link in links)
    return web.Response(
        text=f"<!DOCTYPE html><title>Page</title>{head}{anchors}",
        content_type="text/html",
        headers={"Last-Modified": CHANGED},
    )


CONTENT: dict[str, str | web.Response] = {
    "/": page(
        "/b", "/b#part", "?x=1&y=2", "/missing", "/moved", "/noindex", "/forbidden", "/copy",
        "/file.pdf", "http://other.example/", "mailto:me@example.com", "http://[",
        "/?_escaped_fragment_=",
    ),
    "/b": page("/"),
    "/moved": web.Response(status=301, headers={"Location": "/after"}),
    "/after": page(),
    "/noindex": page("/behind", head='<meta name="robots" content="NOINDEX">'),
    "/behind": page(),
    "/forbidden": page(),
    "/copy": page(head='<link rel="canonical" href="/original">'),
    "/original": page(head='<link rel="canonical" href="/original">'),
    "/file.pdf": web.Response(body=b"%PDF", content_type="application/pdf"),
    "/robots.txt": web.Response(text="User-agent: *\nDisallow: /forbidden\n"),
}  # fmt: skip


@pytest.fixture
async def site(start_origin: StartOrigin) -> Site:
    return await pages(start_origin, CONTENT)


async def test_what_crawlers_keep_is_listed(site: Site) -> None:
    ended = await run("sitemap", f"{site.url}/")
    assert ended.status == 0
    assert ended.err.endswith("6 pages listed, 7 skipped\n")
    ugly = f"{site.url}/?_escaped_fragment_="
    assert f"skipped: {ugly}: an ugly URL: crawlers do not follow it\n" in ended.err
    assert f"skipped: {site.url}/copy: its canonical is {site.url}/original\n" in ended.err
    listed = list(parse(ended.out, "x"))
    assert [entry.url.removeprefix(site.url) for entry in listed] == [
        "/", "/?x=1&y=2", "/after", "/b", "/behind", "/original",
    ]  # fmt: skip
    assert {entry.lastmod for entry in listed} == {784111777}
    ElementTree.fromstring(ended.out)


async def test_a_url_without_a_scheme(site: Site) -> None:
    ended = await run("sitemap", site.url.removeprefix("http://"))
    assert (ended.status, ended.err.splitlines()[-1]) == (0, "6 pages listed, 7 skipped")


async def test_an_internationalized_host_in_both_forms(start_origin: StartOrigin) -> None:
    given, ascii_form = "https://münchen.de", "https://xn--mnchen-3ya.de"
    head = f'<link rel="canonical" href="{given}/a">'
    content = {"/": page(f"{given}/a", f"{ascii_form}/b"), "/a": page(head=head), "/b": page()}
    origin = await pages(start_origin, content)
    for site in (given, ascii_form):
        ended = await run("sitemap", f"{site}/", "--via", origin.url)
        assert (ended.status, ended.err.splitlines()[-1]) == (0, "3 pages listed, 0 skipped")
        listed = [entry.url for entry in parse(ended.out, "x")]
        assert listed == [f"{ascii_form}/", f"{ascii_form}/a", f"{ascii_form}/b"]


async def test_pages_without_ugly_urls_by_robots_txt(start_origin: StartOrigin) -> None:
    """They are crawled at their own URLs; states have no other than the ugly ones."""
    opted_in = '<meta name="fragment" content="!">'
    robots = "User-agent: *\nDisallow: /*_escaped_fragment_\nDisallow: /forbidden\n"
    content: dict[str, str | web.Response] = {
        "/": page("/b", "/b#!state", "/forbidden", head=opted_in),
        "/b": page(head=opted_in),
        "/forbidden": page(head=opted_in),
        "/robots.txt": web.Response(text=robots),
    }
    site = await pages(start_origin, content)
    ended = await run("sitemap", f"{site.url}/")
    listed = [entry.url.removeprefix(site.url) for entry in parse(ended.out, "x")]
    assert listed == ["/", "/b"]


@pytest.mark.ci_only
async def test_states_with_the_dates_of_their_snapshots(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    text = """<!DOCTYPE html><title>Page</title><meta name="fragment" content="!"><body><h1>Page</h1>
      <script>if (location.hash.length < 5) for (const next of "ab") document.body.insertAdjacentHTML(
        "beforeend", `<a href="${location.hash || "#!"}${next}">more</a>`);</script>"""
    origin = await pages(start_origin, {"/": text})
    proxy = await start_proxy(origin.url)
    ended = await run("sitemap", f"{origin.url}/", "--via", proxy.url, "--json")
    told: dict[str, Any] = json.loads(ended.out)
    states = [
        "",
        *(a + b + c for a in "ab" for b in ("", *"ab") for c in ("", *"ab") if b or not c),
    ]
    expected = {f"{origin.url}/#!{state}" if state else f"{origin.url}/" for state in states}
    assert {entry["url"] for entry in told["pages"]} == expected
    for entry in told["pages"]:
        reply = await proxy.crawl(entry["url"].removeprefix(origin.url))
        (listed,) = parse(sitemaps([Listed(entry["url"], None)])[0], "x")
        assert listed.url == entry["url"]
        assert entry["lastmod"]
        assert reply.headers["Last-Modified"]


async def test_into_a_folder(site: Site, tmp_path: Path) -> None:
    ended = await run("sitemap", f"{site.url}/", "--to", str(tmp_path / "maps"))
    assert (ended.status, ended.out) == (0, b"")
    data = (tmp_path / "maps" / "sitemap.xml").read_bytes()
    assert len(list(parse(data, "x"))) == 6


async def test_nothing_to_list(site: Site) -> None:
    ended = await run("sitemap", f"{site.url}/missing")
    assert (ended.status, ended.out) == (1, b"")
    assert f"prerender: {site.url}/missing: no indexable page: status 404" in ended.err


@given(st.lists(PRINTABLE.map(lambda text: f"http://a/{text}"), max_size=20), st.integers(1, 7))
def test_what_is_written_is_read_again(urls: list[str], most: int) -> None:
    entries = [Listed(url, float(number)) for number, url in enumerate(urls)]
    parts = sitemaps(entries, most_urls=most)
    assert len(parts) == max(1, -(-len(urls) // most))
    assert [entry for part in parts for entry in parse(part, "x")] == entries


def test_no_sitemap_is_too_large() -> None:
    entries = [Listed(f"http://a/{'x' * 50}{number}") for number in range(100)]
    parts = sitemaps(entries, most_bytes=1000)
    assert all(len(part) <= 1000 for part in parts)
    assert [entry for part in parts for entry in parse(part, "x")] == entries


def test_an_index_lists_sitemaps() -> None:
    assert list(parse(index(["http://a/1.xml"], 86400.0), "x")) == [
        Listed("http://a/1.xml", 86400.0, is_sitemap=True)
    ]


@pytest.mark.heavy
def test_50001_pages_take_two(tmp_path: Path) -> None:
    parts = sitemaps(Listed(f"http://a/{number}") for number in range(50_001))
    assert [len(list(parse(part, "x"))) for part in parts] == [50_000, 1]
