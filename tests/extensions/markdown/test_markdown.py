"""Snapshots as Markdown: the conversion, who gets it, and how long it is stored."""

import asyncio
import gzip
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import psutil
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from prerender.extensions.markdown import worker as worker_program
from prerender.extensions.markdown.convert import markdown_of
from prerender.extensions.markdown.worker import MarkdownWorker
from prerender.http.negotiation import prefers_markdown
from tests.conftest import Proxy, Site, StartOrigin, StartProxy, pages
from tests.extensions.markdown.converting import content_of
from tests.support import processes
from tests.support.redis_server import redis_server

URL = "https://www.example.com/shop/?a=1#!/lamps"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "markdown"),
    [
        ("text/markdown", True),
        ("Text/Markdown", True),
        ("text/markdown, text/html;q=0.9, */*;q=0.1", True),
        ("text/markdown, text/html, */*", True),
        ("text/html, text/markdown", True),
        ("text/markdown;variant=GFM;q=0.8, text/*;q=0.8", True),
        ("text/html;q=0.5, text/markdown;q=0.4", False),
        ("text/markdown;q=0.9, */*", False),
        ("text/markdown;q=0.9, text/html;q=0.5, */*", True),
        ("text/markdown;q=0", False),
        ("text/markdown;q=no", False),
        ("text/x-markdown, text/markdownish, application/markdown", False),
        ("text/*", False),
        ("*/*", False),
        (BROWSER, False),
        ("", False),
        ("text/markdown" + "," * 600, False),
    ],
)
def test_who_prefers_markdown(accept: str, markdown: bool) -> None:
    assert prefers_markdown(accept) is markdown


@given(st.text(st.characters(max_codepoint=0xFF), max_size=600))
def test_any_accept_field_can_be_read(accept: str) -> None:
    assert prefers_markdown(accept) in (True, False)


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<main><h1>A</h1><p>b <b>c</b></p></main>", "# A\n\nb **c**"),
        # Links lead to where they did.
        ('<p><a href="#!/x">a</a>', "[a](https://www.example.com/shop/?a=1#!/x)"),
        ('<p><a href="../y?b">a</a>', "[a](https://www.example.com/y?b)"),
        ('<base href="/deep/er/"><p><a href="y">a</a>', "[a](https://www.example.com/deep/er/y)"),
        ('<base href="http://["><p><a href="/y">a</a>', "[a](https://www.example.com/y)"),
        ('<p><a href="//o.example/y">a</a>', "[a](https://o.example/y)"),
        ('<p><a href=" javascript:go()">a</a>', "a"),
        ('<p><a href="mailto:a@b.example">a</a>', "[a](mailto:a@b.example)"),
        ('<p><img src="/i.png" alt="pic">', "![pic](https://www.example.com/i.png)"),
        # Tables, also what would break them.
        (
            "<table><tr><th>A<th>B|C<tr><td>1<td>x | <a href=/t>t</a></table>",
            "| A | B\\|C |\n| --- | --- |\n| 1 | x \\| [t](https://www.example.com/t) |",
        ),
        # Code keeps its lines and its language; text does not become code or elements.
        (
            '<pre><code class="language-js">if (a &lt; 1) {\n  b*c*d\n}</code></pre>',
            "```js\nif (a < 1) {\n  b*c*d\n}\n```",
        ),
        *(
            (html.format("<pre><code>x</code></pre>"), "```py\nx\n```")
            for html in (
                "<div class='language-py highlighter-rouge'><div class=highlight>{}</div></div>",
                "<div class='highlight highlight-source-py'>{}</div>",
                "<div data-lang=py>{}</div>",
            )
        ),
        ("<pre class='brush: py'>x</pre>", "```py\nx\n```"),
        ("<pre><code class='hljs py'>x</code></pre>", "```py\nx\n```"),
        # Text stays text.
        (
            "<p>in __init__ of _x_, a_b, * and **kw",
            "in \\_\\_init\\_\\_ of \\_x\\_, a_b, * and \\*\\*kw",
        ),
        (
            "<p>[a](b), ![c](d), [e] `f` ~~g~~ ~5",
            "[a\\](b), ![c\\](d), [e] \\`f\\` \\~\\~g\\~\\~ ~5",
        ),
        ("<p><a href=/t>__t__</a>", "[\\_\\_t\\_\\_](https://www.example.com/t)"),
        ("<p>write &lt;script&gt;alert(1)&lt;/script&gt;", "write &lt;script>alert(1)&lt;/script>"),
        (
            "<p>write &amp;copy;, &amp;#169;, R&amp;D; &amp; b",
            "write \\&copy;, \\&#169;, R\\&D; & b",
        ),
        ("<p>write <code>&amp;lt;</code> *&lt;i", "write `&lt;` \\*&lt;i"),
        ("<p><a href=' /t\n/u\t '>t</a>", "[t](https://www.example.com/t/u)"),
        ("<p><img src='\n/t.png ' alt=t>", "![t](https://www.example.com/t.png)"),
        ("<p>write <code>&lt;b&gt;</code> if 1 &lt; 2", "write `<b>` if 1 < 2"),
        # Lists.
        ("<ul><li>a<ul><li>b</ul></ul>", "- a\n  * b"),
        # What is no content.
        ("<header>h</header><nav>n</nav><p>c</p><footer>f</footer>", "c"),
        ("<div role=navigation>n</div><p>c</p><div role=contentinfo>f</div>", "c"),
        ("<p>a</p><main><header>b</header><nav>n</nav><p>c</p></main>", "b\n\nc"),
        ("<main></main><p>content elsewhere</p>", "content elsewhere"),
        ("<main hidden>old</main><main>new</main>", "new"),
        ("<p>a</p><article><header>b</header>c</article>", "b\n\nc"),
        ("<article>a</article><article>b</article>", "a\n\nb"),
        ("<header>all of it is in here</header>", "all of it is in here"),
        ("<header><nav>a long menu</nav></header><p>c</p>", "c"),
        ("<p>a</p><p hidden>b</p><p style='display: none'>c</p><p aria-hidden=true>d</p>", "a"),
        ("<p>a</p><p hidden=until-found>b</p>", "a\n\nb"),
        ("<p>a<svg><path/></svg><style>b{}</style><!-- c -->", "a"),
        # Shadow trees are shown, with what belongs into their slots.
        (
            "<x-a><template shadowrootmode=open><p>1 <slot></slot> 3</p></template>2</x-a> 4",
            "1 2 3\n\n4",
        ),
        (
            "<x-a><template shadowrootmode=open><slot name=s>no</slot><slot>5</slot></template>"
            "<i slot=s>yes</i></x-a>",
            "*yes*5",
        ),
        (
            "<x-a><template shadowrootmode=open><x-b><template shadowrootmode=open>in</template>"
            "</x-b></template>out</x-a>",
            "in",
        ),
        (
            "<x-a><template shadowrootmode=open><slot></slot> 3 <slot>4</slot></template>"
            "Hello <b>brave</b> new <i>world</i>!</x-a>",
            "Hello **brave** new *world*! 3 4",
        ),
        (
            "<x-a><template shadowrootmode=open><slot name=s></slot>: <slot></slot></template>"
            "1 <i slot=s>s</i>2 <b>3</b> 4</x-a>",
            "*s*: 1 2 **3** 4",
        ),
        # The slots of the inner tree, filled or not, are not those of the outer one.
        (
            "<x-a><template shadowrootmode=open><x-b><template shadowrootmode=open><slot name=s>no"
            "</slot><slot></slot></template>1 <slot></slot> 3 <slot name=s></slot></x-b></template>"
            "2<i slot=s>4</i></x-a>",
            "no1 2 3 *4*",
        ),
        ("<template>never shown</template><p>a", "a"),
    ],
)
def test_what_becomes_of_a_page(html: str, markdown: str) -> None:
    assert content_of(html, URL) == markdown


def test_front_matter() -> None:
    html = """<title> A "b"\n &amp; <i>c</i> </title><meta name=description content="d: e">
      <link rel=canonical href="https://www.example.com/c"><p>x"""
    assert markdown_of(html.encode(), URL).decode().split("\n")[:5] == [
        "---",
        'title: "A \\"b\\" & <i>c</i>"',
        'description: "d: e"',
        'url: "https://www.example.com/c"',
        "---",
    ]


@pytest.mark.parametrize(
    ("canonical", "url"),
    [
        (" c\n", "https://www.example.com/d/c"),
        ("//other.example/c", "https://other.example/c"),
        ("http://[", URL),
        ("", URL),
    ],
)
def test_the_url_in_front_matter_is_absolute(canonical: str, url: str) -> None:
    html = f"<base href=/d/><link rel=canonical href='{canonical}'><p>x"
    assert f'\nurl: "{url}"\n' in markdown_of(html.encode(), URL).decode()


@given(st.text())
def test_any_text_can_be_converted(text: str) -> None:
    html = f"<p>{text}".encode("utf-8", "surrogatepass")
    assert markdown_of(html, URL).decode().startswith("---\n")


@pytest.mark.parametrize("html", [b"", b" ", b"<!-- -->"])
def test_nothing_is_no_page(html: bytes) -> None:
    with pytest.raises(ValueError, match=r"https://www\.example\.com"):
        markdown_of(html, URL)


@pytest.mark.parametrize("tag", ["div", "p><div", "div><b", "table><tr><td", "span", "x-a"])
def test_nothing_is_lost_in_deep_pages(tag: str) -> None:
    html = "".join(f"<{tag}>word {i} " for i in range(300))
    words = content_of(f"<main>{html}", URL).split()
    assert [word for word in words if word.isdigit()] == [str(i) for i in range(300)]


def test_groups_stay_apart_in_deep_pages() -> None:
    deep = "<div>" * 250
    html = f"{deep}a<div>b <b>c</b></div>d<section style='display: none'><div>e</div></section>"
    assert content_of(html, URL) == "a\n\nb c\n\nd"


@pytest.mark.parametrize("depth", [400, 20_000])
@pytest.mark.parametrize("tag", ["blockquote", "ul><li", "code"])
def test_what_is_too_deep_is_refused(tag: str, depth: int) -> None:
    with pytest.raises(ValueError, match="is nested too deep"):
        markdown_of(f"<p>before</p>{f'<{tag}>x' * depth}deep".encode(), URL)


@pytest.mark.parametrize("tag", ["div", "table><tr><td", "template"])
def test_what_the_parser_gives_up_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="is nested too deep"):
        markdown_of(f"<nav>{f'<{tag}>' * 20_000}</nav><main>content".encode(), URL)


# ---- by way of the proxy

PAGE = """<!DOCTYPE html><title>Lamp</title><nav>menu</nav><main id=out></main><script>
  out.innerHTML = "<h1>Lamp</h1>" + "<p>It <a href='#!/more'>shines</a>.</p>".repeat(40);
</script>"""
MISSING = """<!DOCTYPE html><title>Gone</title><meta name="prerender-status-code" content="404">
  <main>No such lamp</main>"""
SETTINGS: dict[str, dict[str, object]] = {
    "site": {"url": "https://www.example.com"},
    "triggers": {"markdown": True, "ai_user": "markdown", "ai_training": "refuse"},
    "browser": {"pages": 1},
}
CLAUDE = "Mozilla/5.0 AppleWebKit/537.36 (compatible; Claude-User/1.0; +Claude-User@anthropic.com)"
MARKDOWN = {"Accept": "text/markdown, text/html;q=0.9"}


async def _both(
    start_origin: StartOrigin, start_proxy: StartProxy, **cache: object
) -> tuple[Site, Proxy]:
    content: dict[str, str | web.Response] = {
        "/": PAGE,
        "/missing": MISSING,
        "/moved": web.Response(status=301, headers={"Location": "/"}),
        "/data.bin": web.Response(body=b"\0", content_type="application/octet-stream"),
        "/private": web.Response(
            text=PAGE, content_type="text/html", headers={"Cache-Control": "private"}
        ),
    }
    origin = await pages(start_origin, content)
    return origin, await start_proxy(origin.url, SETTINGS | {"cache": cache})


async def test_the_snapshot_as_markdown(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin, proxy = await _both(start_origin, start_proxy)
    html = await proxy.crawl("/")
    answer = await proxy.get("/", headers=MARKDOWN)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/markdown; charset=utf-8"
    assert answer.text.startswith('---\ntitle: "Lamp"\nurl: "https://www.example.com/"\n---\n')
    assert "# Lamp\n\nIt [shines](https://www.example.com/#!/more)." in answer.text
    assert "menu" not in answer.text
    vary = ", ".join(answer.headers.getall("Vary"))
    assert vary == "Accept-Encoding, User-Agent, Accept"
    # It is made of the snapshot that is there, and follows it.
    assert origin.count("/") == 1
    assert answer.headers["Cache-Status"].startswith("prerender; hit; ttl=")
    assert answer.headers["Last-Modified"] == html.headers["Last-Modified"]
    assert answer.headers["ETag"] != html.headers["ETag"]
    again = await proxy.get("/", headers=MARKDOWN | {"If-None-Match": answer.headers["ETag"]})
    assert again.status == 304
    other = await proxy.get("/", headers=MARKDOWN | {"If-None-Match": html.headers["ETag"]})
    assert other.status == 200
    packed = await proxy.get("/", headers=MARKDOWN | {"Accept-Encoding": "gzip"})
    assert gzip.decompress(packed.body) == answer.body
    assert packed.headers["ETag"] != answer.headers["ETag"]
    head = await proxy.request("HEAD", "/", headers=MARKDOWN)
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(answer.body))


async def test_who_gets_markdown(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin, proxy = await _both(start_origin, start_proxy)

    async def kind(path: str = "/", **headers: str) -> str:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return (await proxy.get(path, headers=named)).headers["Content-Type"].partition(";")[0]

    assert await kind(Accept="text/markdown") == "text/markdown"
    assert await kind("/?_escaped_fragment_=", Accept="text/markdown") == "text/markdown"
    assert await kind(User_Agent=CLAUDE) == "text/markdown"
    assert await kind("/?_escaped_fragment_=", User_Agent=CLAUDE) == "text/markdown"
    assert await kind("/?_escaped_fragment_=") == "text/html"
    # Visitors get the page itself, and Vary tells caches that crawlers do not.
    for headers in ({}, {"Accept": BROWSER}):
        answer = await proxy.get("/", headers=headers)
        assert "<nav>" in answer.text
        assert "<script" in answer.text
        assert answer.headers.getall("Vary") == ["User-Agent, Accept"]
    # What is no page, what a renderer asks for, and what is no reading, is forwarded.
    assert await kind("/data.bin", Accept="text/markdown") == "application/octet-stream"
    assert await kind(Accept="text/markdown", X_Prerender="1") == "text/html"
    posted = await proxy.request("POST", "/", headers=MARKDOWN)
    assert posted.headers["Content-Type"].startswith("text/html")
    refused = await proxy.get("/", headers=MARKDOWN | {"User-Agent": "GPTBot/1.3"})
    assert refused.status == 403
    moved = await proxy.get("/moved", headers=MARKDOWN)
    assert (moved.status, moved.headers["Location"]) == (301, "/")
    assert origin.count("/moved") == 1


async def test_without_the_setting_nothing_is_changed(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    proxy = await start_proxy(origin.url)
    answer = await proxy.get("/", headers=MARKDOWN)
    assert "<script" in answer.text
    assert "Vary" not in answer.headers
    ugly = await proxy.get("/?_escaped_fragment_=", headers=MARKDOWN)
    assert ugly.headers["Content-Type"].startswith("text/html")
    assert ugly.headers.getall("Vary") == ["Accept-Encoding"]


async def test_missing_pages_keep_their_status(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    _, proxy = await _both(start_origin, start_proxy)
    for _ in range(2):
        answer = await proxy.get("/missing", headers=MARKDOWN)
        assert answer.status == 404
        assert answer.headers["Content-Type"] == "text/markdown; charset=utf-8"
        assert "No such lamp" in answer.text


async def test_what_may_not_be_kept_is_not(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin, proxy = await _both(start_origin, start_proxy)
    for count in (1, 2):
        answer = await proxy.get("/private", headers=MARKDOWN)
        assert "# Lamp" in answer.text
        assert origin.count("/private") == count
    assert proxy.running.store.state().memory_entries == 0


async def test_many_at_once_are_one_render(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin, proxy = await _both(start_origin, start_proxy)
    answers = await asyncio.gather(*(proxy.get("/", headers=MARKDOWN) for _ in range(20)))
    assert len({answer.body for answer in answers}) == 1
    assert {answer.status for answer in answers} == {200}
    assert origin.count("/") == 1
    assert proxy.running.store.state().memory_entries == 2


async def test_purges_mean_both_forms(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    token = "0123456789abcdef"
    origin = await pages(start_origin, {"/": PAGE})
    proxy = await start_proxy(origin.url, SETTINGS | {"admin": {"token": token}})
    await proxy.get("/", headers=MARKDOWN)
    async with proxy.client.post(
        f"{proxy.admin_url}/api/v1/purge",
        json={"url": "/"},
        headers={"Authorization": f"Bearer {token}"},
    ) as response:
        assert response.status == 200
    answer = await proxy.get("/", headers=MARKDOWN)
    assert answer.headers["Cache-Status"].startswith("prerender; fwd=miss")
    assert origin.count("/") == 2


@pytest.mark.parametrize("kind", ["redis", "file"])
async def test_markdown_is_kept_in_stores(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path, kind: str
) -> None:
    async with AsyncExitStack() as stack:
        url = f"file://{tmp_path}/snapshots"
        if kind == "redis":
            url = (await stack.enter_async_context(redis_server(tmp_path))).url
        origin, first = await _both(start_origin, start_proxy, url=url)
        made = await first.get("/", headers=MARKDOWN)
        nothing_to_render = {"browser": {"path": "/nonexistent"}, "cache": {"url": url}}
        replica = await start_proxy(origin.url, SETTINGS | nothing_to_render)
        answer = await replica.get("/", headers=MARKDOWN)
        assert answer.body == made.body
        assert answer.headers["Content-Type"] == made.headers["Content-Type"]
        assert answer.headers["ETag"] == made.headers["ETag"]
        assert origin.count("/") == 1


# ---- the process that makes it


def _children() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if worker_program.__name__ in processes.command(child)
    ]


@pytest.mark.ci_only
async def test_the_loop_goes_on_while_markdown_is_made() -> None:
    worker = MarkdownWorker()
    html = b"<main>" + b"<p>words <b>and</b> <a href=x>more</a></p>" * 20_000
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before)

    try:
        await worker.markdown_of(b"<p>a", URL)
        watching = asyncio.create_task(watch())
        began = time.perf_counter()
        assert b"**and**" in await worker.markdown_of(html, URL)
        took = time.perf_counter() - began
        watching.cancel()
        assert longest < took / 2
    finally:
        await worker.close()
    assert not _children()


async def test_a_process_that_dies_is_replaced() -> None:
    worker = MarkdownWorker()
    try:
        assert b"one" in await worker.markdown_of(b"<p>one", URL)
        (process,) = _children()
        process.kill()
        with suppress(ValueError):  # it may not be known yet that it is dead
            await worker.markdown_of(b"<p>two", URL)
        assert b"three" in await worker.markdown_of(b"<p>three", URL)
        with pytest.raises(ValueError, match="empty"):
            await worker.markdown_of(b"", URL)
        assert b"four" in await worker.markdown_of(b"<p>four", URL)
        assert len(_children()) == 1
        # A caller that gives up in the middle leaves nothing behind for the next one.
        (process,) = _children()
        process.suspend()
        waiting = asyncio.create_task(worker.markdown_of(b"<p>five" * 100_000, URL))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert b"six" in await worker.markdown_of(b"<p>six", URL)
    finally:
        await worker.close()
    assert not _children()


async def test_what_cannot_be_made_is_shown_in_html(
    start_origin: StartOrigin, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, proxy = await _both(start_origin, start_proxy)
    assert (await proxy.crawl("/")).status == 200
    # The browser is there; the process that makes Markdown ends at once.
    monkeypatch.setattr("sys.executable", "/bin/false")
    answer = await proxy.get("/", headers=MARKDOWN)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<h1>Lamp</h1>" in answer.text
    assert "Accept" in ", ".join(answer.headers.getall("Vary"))
