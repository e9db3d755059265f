"""/llms.txt and /llms-full.txt, served from stored snapshots."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import web

from prerender.extensions.markdown import live_llms
from prerender.extensions.markdown.llms import LlmsPage, llms_txt
from prerender.snapshots import snapshot_lists
from tests.conftest import Proxy, StartOrigin, StartProxy, pages

SITE = "https://www.example.com"
ON: dict[str, dict[str, object]] = {"site": {"url": SITE}, "markdown": {"enabled": True}}
SITEMAP = f"""<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
  <url><loc>{SITE}/lamps/arc</loc></url><url><loc>{SITE}/</loc></url><url><loc>{SITE}/lamps/</loc></url>
  <url><loc>{SITE}/hidden</loc></url><url><loc>{SITE}/header</loc></url><url><loc>{SITE}/new</loc></url>
  <url><loc>https://other.example/</loc></url></urlset>"""


def _page(title: str, text: str, description: str = "") -> str:
    return f"""<title>{title}</title><meta name=description content="{description}"><nav>menu</nav>
      <main><h1>{title}</h1><p id=out></main><script>out.textContent = "{text}"</script>"""


CONTENT: dict[str, str | web.Response] = {
    "/": _page("Lamps and more", "all of them", "Lamps of steel"),
    "/lamps/": _page("All lamps", "two"),
    "/lamps/arc": _page("Arc", "bends", "A [lamp]"),
    "/search": _page("Results", "for x"),
    "/hidden": f"<meta name=robots content=noindex>{_page('Hidden', 'secret')}",
    "/header": web.Response(
        text=_page("Header", "secret"),
        content_type="text/html",
        headers={"X-Robots-Tag": "noindex"},
    ),
    "/mine": web.Response(
        text=_page("Mine", "secret"), content_type="text/html", headers={"Cache-Control": "private"}
    ),
    "/new": _page("New", "not stored"),
}
STORED = ("/", "/lamps/", "/lamps/arc", "/search?q=x", "/hidden", "/header", "/mine")


async def _stored(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    stored: Sequence[str] = STORED,
    **more: str | web.Response,
) -> Proxy:
    origin = await pages(start_origin, CONTENT | {f"/{name}": it for name, it in more.items()})
    # What is private is left out, even if the owner stores it.
    proxy: Proxy = await start_proxy(origin.url, ON | {"cache": {"obey_origin": False}})
    for path in stored:
        await proxy.crawl(path)
    return proxy


async def test_by_the_sitemap(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    xml = web.Response(text=SITEMAP, content_type="application/xml")
    robots = web.Response(text=f"Sitemap: {SITE}/map.xml\n")
    files = {"map.xml": xml, "robots.txt": robots}
    proxy = await _stored(start_origin, start_proxy, STORED, **files)
    answer = await proxy.get("/llms.txt")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Cache-Control"].startswith("max-age=")
    assert answer.text == (
        "# Lamps and more\n\n> Lamps of steel\n\n## Pages\n\n"
        f"- [Lamps and more]({SITE}/index.md): Lamps of steel\n\n## All lamps\n\n"
        f"- [Arc]({SITE}/lamps/arc.md): A [lamp]\n- [All lamps]({SITE}/lamps/index.md)\n"
    )
    again = await proxy.get("/llms.txt", headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status == 304
    full = (await proxy.get("/llms-full.txt")).text
    assert full.startswith(
        f"Source: {SITE}/lamps/arc\n\n# Arc\n\nbends\n\nSource: {SITE}/\n\n# Lamps"
    )
    assert "two" in full
    assert not {"secret", "menu", "for x", "not stored"} & set(full.split())
    describes = '</llms.txt>; rel="describedby"; type="text/plain"'
    for path in ("/lamps/", "/lamps/index.md", "/lamps/?_escaped_fragment_="):
        assert describes in (await proxy.get(path)).headers["Link"]


async def test_without_a_sitemap(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    proxy = await _stored(start_origin, start_proxy)
    text = (await proxy.get("/llms.txt")).text
    assert [line.partition("]")[0] for line in text.splitlines() if line.startswith("-")] == [
        "- [Lamps and more", "- [All lamps", "- [Arc"
    ]  # fmt: skip


async def test_the_files_are_bounded(
    start_origin: StartOrigin, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_llms, "MOST_FULL_BYTES", 100)
    monkeypatch.setattr(live_llms, "MOST_PAGES", 2)
    proxy = await _stored(start_origin, start_proxy, STORED[:3])
    assert (await proxy.get("/llms.txt")).text.count("\n- ") == 2
    full = (await proxy.get("/llms-full.txt")).text
    assert full.count("Source: ") == 1
    assert full.endswith(f"More pages are listed in {SITE}/llms.txt\n")


async def test_the_origins_own_file_wins(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    own = web.Response(text="# Own", content_type="text/plain")
    app = web.Response(text="<p>app", content_type="text/html")
    files = {"llms.txt": own, "llms-full.txt": app}
    proxy = await _stored(start_origin, start_proxy, STORED[:1], **files)
    assert (await proxy.get("/llms.txt")).text == "# Own"
    assert (await proxy.get("/llms-full.txt")).text.startswith("Source: ")
    assert (await proxy.get("/llms-full.txt", headers={"Host": "other.example"})).text == "<p>app"


async def test_no_pages_no_file(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(start_origin, CONTENT)
    proxy = await start_proxy(origin.url, ON)
    assert (await proxy.get("/llms.txt")).status == 404
    await proxy.crawl("/")
    assert (await proxy.get("/llms.txt")).status == 200


async def test_a_store_that_cannot_be_listed_is_left_alone_for_a_while(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    origin = await pages(start_origin, CONTENT)
    proxy = await start_proxy(origin.url, ON | {"cache": {"url": f"file://{tmp_path}"}})
    await proxy.crawl("/")
    with monkeypatch.context() as patch:
        patch.setattr(snapshot_lists, "_SECONDS", -1)
        assert (await proxy.get("/llms.txt")).status == 404
    assert (await proxy.get("/llms.txt")).status == 404
    monkeypatch.setattr(live_llms, "_RETRY_SECONDS", 0)
    with monkeypatch.context() as patch:
        patch.setattr(snapshot_lists, "_SECONDS", -1)
        proxy = await start_proxy(origin.url, ON | {"cache": {"url": f"file://{tmp_path}"}})
        assert (await proxy.get("/llms.txt")).status == 404
    assert (await proxy.get("/llms.txt")).status == 200


async def test_a_page_is_listed_at_its_canonical_url(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    def page(canonical: str) -> str:
        return f"<link rel=canonical href='{canonical}'>{_page('Copy', 'text')}"

    # Two that name each other are both listed, and one whose canonical is not.
    more = {"a": page("/lamps/"), "b": page("c"), "c": page("b"), "d": page("/new")}
    proxy = await _stored(start_origin, start_proxy, ["/lamps/", *map("/{}".format, more)], **more)
    text = (await proxy.get("/llms.txt")).text
    listed = [name for name in ("lamps/index", *more) if f"({SITE}/{name}.md)" in text]
    assert listed == ["lamps/index", "b", "c", "d"]


def test_sections() -> None:
    paths = ("/about", "/docs/a-b", "/docs/c", "/blog/one", "/#!/x/1", "/#!/x/2", "/how%20to/a",
             "/how%20to/b")  # fmt: skip
    text = llms_txt(LlmsPage(f"{SITE}{path}", path, "", "") for path in paths)
    lines = [line.removeprefix("- ").partition("(")[0] for line in text.splitlines() if line]
    assert lines == [
        "# /about", "## Pages", "[/about]", "[/blog/one]", "## Docs", "[/docs/a-b]", "[/docs/c]",
        "## X", "[/#!/x/1]", "[/#!/x/2]", "## How to", "[/how%20to/a]", "[/how%20to/b]",
    ]  # fmt: skip
