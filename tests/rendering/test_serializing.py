"""What a snapshot contains of its page, and in which form."""

import json
import re
from html import unescape
from urllib.parse import quote

import pytest
from aiohttp import web
from lxml import html

from tests.conftest import Overrides, StartOrigin, StartProxy, pages

SITE = "https://www.example.com"


async def _snapshot(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    page: str | web.Response,
    overrides: Overrides | None = None,
) -> str:
    origin = await pages(start_origin, {"/": page})
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}, **(overrides or {})})
    answer = await proxy.crawl("/#!state")
    assert answer.status == 200
    return answer.text


async def test_document(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    doctype = (
        '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" '
        '"http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">'
    )
    page = f"""{doctype}<html lang="de" class="a"><head><meta name="fragment" content="!">
      <noscript><link rel="stylesheet" href="/no.css"></noscript>
      <link rel="modulepreload" href="/m.js"><link rel="preload" as="script" href="/s.js">
      <link rel="preload" as="font" href="/f.woff2">
      <script type="application/ld+json">{{"name": "</b>"}}</script>
      <script type="Application/LD+JSON">{{"name": "also"}}</script>
      <script type="application/json" id="__DATA__">{{"state": "island"}}</script>
      <script type="application/vnd.api+json">{{"state": "island"}}</script>
      <script type="application/json" data-prerender-keep>{{"wanted": 1}}</script>
      <script type="importmap">{{}}</script><script type="text/x-template"><i></i></script>
      <script data-prerender-keep>/* kept */</script></head>
      <body onload="1"><noscript>please</noscript><template><p>held</p><script>1</script></template>
      <svg viewBox="0 0 1 1"><linearGradient id="g"/></svg><math><mi>x</mi></math>
      <p id="odd"></p><p onclick="go()">text</p>
      <script>odd.textContent = "a\\ud800b"; document.documentElement.dataset.late = "1";</script>
      </body></html>"""
    text = await _snapshot(start_origin, start_proxy, page)
    assert text.startswith(
        f'{doctype}<html lang="de" class="a" data-late="1"><head><meta charset="utf-8">'
    )
    for present in (
        '<script type="application/ld+json">{"name": "</b>"}</script>',
        '<script type="Application/LD+JSON">{"name": "also"}</script>',
        '<script type="application/json" data-prerender-keep="">{"wanted": 1}</script>',
        '<script data-prerender-keep="">/* kept */</script>',
        'as="font"',
        "<template><p>held</p></template>",
        '<svg viewBox="0 0 1 1"><linearGradient id="g"></linearGradient></svg>',
        "<math><mi>x</mi></math>",
        '<p id="odd">a\ufffdb</p>',
        'onclick="go()"',
    ):
        assert present in text
    for absent in (
        "noscript",
        "modulepreload",
        'as="script"',
        "importmap",
        "island",
        "x-template",
        'name="fragment"',
    ):
        assert absent not in text


async def test_documents_in_attributes(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    framed = (
        "<style id=s></style><p id=p>before</p><a href='/?_escaped_fragment_=a'>x</a>"
        "<script>p.textContent = 'after &amp; more'; s.sheet.insertRule('p { color: red }')</script>"
    ).replace('"', "&quot;")
    page = f"""<p>page</p><iframe id="open" srcdoc="{framed}"></iframe>
      <iframe id="nested" srcdoc="<iframe srcdoc='<script>1</script><i>deep</i>'></iframe>"></iframe>
      <iframe id="hidden" sandbox="allow-scripts" srcdoc="{framed}"></iframe>"""
    tree = html.fromstring(await _snapshot(start_origin, start_proxy, page))
    documents = {one.get("id"): one.get("srcdoc") for one in tree.iter("iframe")}
    assert '<p id="p">after &amp; more</p>' in documents["open"]
    assert "p { color: red; }" in documents["open"]
    assert '<p id="p">before</p>' in documents["hidden"]
    assert "<i>deep</i>" in unescape(documents["nested"])
    for document in documents.values():
        assert "script" not in document
        assert "_escaped_fragment_" not in document
    assert 'href="/#!a"' in documents["open"]
    assert 'href="/#!a"' in documents["hidden"]


async def test_styles_that_are_in_no_text(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = """<head><style id="empty"></style><style id="more">a { color: red }</style>
      <style id="own">p{color:RED}</style></head><body><p>styled</p><div id="host"></div><script>
      empty.sheet.insertRule(".inserted { color: blue }");
      more.sheet.insertRule(".added { color: blue }", 1);
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(".adopted { color: green }");
      document.adoptedStyleSheets = [sheet];
      host.attachShadow({mode: "open"}).adoptedStyleSheets = [sheet];
      </script></body>"""
    text = await _snapshot(start_origin, start_proxy, page)
    assert '<style id="empty">.inserted { color: blue; }</style>' in text
    assert ".added { color: blue; }" in text
    assert '<style id="own">p{color:RED}</style>' in text
    assert "<style>.adopted { color: green; }</style></head>" in text
    assert '<template shadowrootmode="open"><style>.adopted { color: green; }</style>' in text


SHADOW = """<x-card><b slot="title">light title</b> light text</x-card><x-safe></x-safe><script>
  customElements.define("x-card", class extends HTMLElement {
    constructor() {
      super().attachShadow({mode: "open"}).innerHTML =
        "<style>b { color: red }</style><h2><slot name=title>none</slot></h2><p><slot></slot></p>" +
        "<slot name=other>fallback</slot><svg><slot>no slot</slot></svg>";
      window.made = (window.made ?? 0) + 1;
    }
  });
  customElements.define("x-safe", class extends HTMLElement {
    connectedCallback() {
      const root = this.attachShadow({mode: "closed"});
      root.innerHTML = "<p>closed content</p>";
      document.title = `${this.shadowRoot} ${root.mode} ${window.made}`;
    }
  });
</script>"""


async def test_shadow_dom_is_declared(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    text = await _snapshot(start_origin, start_proxy, SHADOW)
    assert '<template shadowrootmode="open"><style>b { color: red }</style><h2><slot' in text
    assert '</template><b slot="title">light title</b> light text</x-card>' in text
    assert '<template shadowrootmode="open"><p>closed content</p></template></x-safe>' in text
    assert "<title>null closed 1</title>" in text


async def test_shadow_dom_can_be_flattened(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    overrides = {"snapshot": {"flatten_shadow_dom": True}}
    text = await _snapshot(start_origin, start_proxy, SHADOW, overrides)
    assert (
        '<x-card><h2><b slot="title">light title</b></h2><p> light text</p>fallback'
        "<svg><slot>no slot</slot></svg></x-card>"
        "<x-safe><p>closed content</p></x-safe>"
    ) in text


async def test_form_state(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    page = """<input id="a" value="old"><input id="b" type="checkbox">
      <input id="c" type="radio" checked><textarea id="d">old</textarea>
      <select id="e"><option selected>1<option>2</select>
      <input id="f" type="password"><script>
      a.value = 'new "&<'; b.checked = true; c.checked = false; d.value = "new"; e.selectedIndex = 1;
      f.value = "secret";</script>"""
    text = await _snapshot(start_origin, start_proxy, page)
    for present in (
        '<input id="a" value="new &quot;&amp;&lt;">',
        '<input id="b" type="checkbox" checked="">',
        '<input id="c" type="radio">',
        '<textarea id="d">new</textarea>',
        '<option>1</option><option selected="">2</option>',
    ):
        assert present in text
    assert "secret" not in text


async def test_urls_are_pretty_and_public(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    content: dict[str, str | web.Response] = {}
    origin = await pages(start_origin, content)
    escaped = origin.url.replace("/", "\\/")
    numbered = origin.url.replace("/", "\\u002F")
    shared = quote(origin.url, safe="")
    content["/"] = f"""<head><link rel="canonical" href="/p?_escaped_fragment_=a%2526b%20c">
      <meta property="og:url" content="{SITE}/p?x=1&amp;_escaped_fragment_=k">
      <meta http-equiv="refresh" content="600; url=/p?_escaped_fragment_=later">
      <script type="application/ld+json">{{"url": "{escaped}\\/p"}}</script>
      <script type="application/ld+json">{{"url": "{numbered}\\u002Fp"}}</script></head><body>
      <a href="?_escaped_fragment_=">1</a><a href="/p?_escaped_fragment_=a&amp;b=1">2</a>
      <a href="https://other.example/?_escaped_fragment_=x">3</a>
      <a href="{origin.url}/in">4</a><a href="https://other.example/?u={shared}%2Fp">5</a></body>"""
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}})
    text = (await proxy.crawl("/")).text
    for present in (
        'rel="canonical" href="/p#!a%26b%20c"',
        f'content="{SITE}/p?x=1#!k"',
        'content="600; url=/p#!later"',
        '<a href="/">1</a>',
        'href="/p?_escaped_fragment_=a&amp;b=1"',
        'href="https://other.example/?_escaped_fragment_=x"',
        f'href="{SITE}/in"',
        '{"url": "https:\\/\\/www.example.com\\/p"}',
        '{"url": "https:\\u002F\\u002Fwww.example.com\\u002Fp"}',
        'href="https://other.example/?u=https%3A%2F%2Fwww.example.com%2Fp"',
    ):
        assert present in text, present
    assert "127.0.0.1" not in text


UGLY = "/p?_escaped_fragment_=a%26b"
# Markup with {} for a URL, and whether the URL comes out pretty (docs/scheme.md says why).
URL_ATTRIBUTES = {
    '<a href="{}">x</a>': True,
    '<a ping="{} {}">x</a>': True,
    '<map><area href="{}"></map>': True,
    '<svg><a href="{}">x</a><a xlink:href="{}">x</a></svg>': True,
    '<blockquote cite="{}">x</blockquote><q cite="{}">x</q><del cite="{}">x</del>': True,
    '<form action="{}"><button formaction="{}">x</button><input formaction="{}"></form>': True,
    '<form action="{}" method="post">x</form>': True,
    '<iframe src="{}"></iframe><embed src="{}"><object data="{}"></object>': True,
    '<img src="{}" srcset="{} 1x, {} 2x" longdesc="{}"><video poster="{}" src="{}"></video>': True,
    '<link rel="alternate" href="{}"><link rel="next" href="{}">': True,
    '<div itemscope itemid="{}" about="{}" resource="{}">x</div>': True,
    '<p data-url="{}" data-src=" {} ">x</p>': True,
    '<meta property="og:url" content="{}"><meta name="twitter:url" content="{}">': True,
    '<meta http-equiv="refresh" content="600; url={}">': True,
    """<meta http-equiv="Refresh" content="600;URL='{}'">""": True,
    '<script type="application/ld+json">{{"@id": "{}", "a": ["{}", 1]}}</script>': True,
    '<template><a href="{}">x</a></template>': True,
    '<p title="{}" alt="{}" id="{}" class="{}">{}</p><input value="{}">': False,
    '<p data-text="see {} there" style="background: url({})">x</p>': False,
    '<meta name="description" content="see {} there">': False,
    '<script type="application/ld+json">{{"text": "see {} there"}}</script>': False,
    "<a href=\"javascript:go('{}')\">x</a>": False,
}


async def test_urls_are_pretty_in_every_url_attribute(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    markup = "".join(f"<div>{one.format(*[UGLY] * 6)}</div>" for one in URL_ATTRIBUTES)
    page = f"""{markup}<x-host></x-host><script>
      document.querySelector("x-host").attachShadow({{mode: "open"}}).innerHTML =
        '<a href="{UGLY}">in a shadow root</a>';
      </script>"""
    text = await _snapshot(start_origin, start_proxy, page)
    parts = text.replace("#!a&b", "#!a&amp;b").partition("<x-host>")[0].split("<div>")[1:]
    for (one, is_pretty), part in zip(URL_ATTRIBUTES.items(), parts, strict=True):
        expected, other = ("/p#!a&amp;b", UGLY) if is_pretty else (UGLY, "/p#!a")
        assert (part.count(expected), part.count(other)) == (one.count("{}"), 0), part
    assert '<a href="/p#!a&amp;b">in a shadow root</a>' in text


async def test_a_url_in_json_does_not_end_the_script(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = r"""<script type="application/ld+json">
      {"@id": "https:\/\/www.example.com\/p?_escaped_fragment_=x", "c": "\z",
      "a": "\/<\/script><b>out<\/b>?_escaped_fragment_=y", "b": "\/c?_escaped_fragment_=<!--"}
      </script><p>text</p>"""
    text = await _snapshot(start_origin, start_proxy, page)
    assert '{"@id": "https://www.example.com/p#!x"' in text
    assert r'"/\u003c/script>\u003cb>out\u003c/b>#!y"' in text
    assert '"/c#!%3C!--"' in text
    assert r'"c": "\z"' in text
    assert "<b>" not in text
    assert "<p>text</p>" in text


async def test_urls_of_the_internal_host_are_pretty_and_public(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    content: dict[str, str | web.Response] = {}
    origin = await pages(start_origin, content)
    content["/d/"] = web.Response(
        text=f"""<a href="{origin.url}{UGLY}">1</a><a href="?_escaped_fragment_=q">2</a>
          <a href="http://www.example.com:81{UGLY}#top">3</a>""",
        content_type="text/html",
        headers=[
            ("Link", f'<{UGLY}>; rel="canonical"'),
            ("Link", f'<{origin.url}{UGLY}>; rel="alternate", <?_escaped_fragment_=>; rel="up"'),
            ("X-Robots-Tag", "a: noindex"),
            ("X-Robots-Tag", "b: noindex"),
        ],
    )
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}})
    answer = await proxy.crawl("/d/?b=1#!state")
    for present in (
        f'<a href="{SITE}/p#!a&amp;b">1</a>',
        '<a href="/d/#!q">2</a>',
        '<a href="http://www.example.com:81/p#!a&amp;b">3</a>',
    ):
        assert present in answer.text, answer.text
    assert answer.headers.getall("Link") == [
        '</p#!a&b>; rel="canonical"',
        f'<{SITE}/p#!a&b>; rel="alternate", </d/>; rel="up"',
    ]
    assert answer.headers.getall("X-Robots-Tag") == ["a: noindex", "b: noindex"]


async def test_robots_tags_of_a_page_add_to_those_of_its_document(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    tags = ("otherbot: noindex", "noarchive", "max-snippet: 9")
    metas = (f'<meta name="prerender-header" content="X-Robots-Tag: {tag}">' for tag in tags)
    language = '<meta name="prerender-header" content="Content-Language: de">'
    document = web.Response(
        text=f"<head>{''.join(metas)}{language}</head><body>text",
        content_type="text/html",
        headers={"X-Robots-Tag": "nofollow", "Content-Language": "en"},
    )
    origin = await pages(start_origin, {"/": document})
    answer = await (await start_proxy(origin.url)).crawl("/")
    assert answer.headers.getall("X-Robots-Tag") == ["nofollow", *tags]
    assert answer.headers.getall("Content-Language") == ["de"]


async def test_what_settings_add(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    overrides = {"snapshot": {"add_canonical": True}}
    text = await _snapshot(start_origin, start_proxy, "<head><title>t</title></head>", overrides)
    assert f'<link rel="canonical" href="{SITE}/#!state">' in text


async def test_pages_that_replace_the_built_ins(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = """<p>the content</p><script>
      JSON.stringify = () => "evil";
      for (const name of ["map", "forEach", "join", "filter"]) Array.prototype[name] = () => "evil";
      Array.prototype.toJSON = Object.prototype.toJSON = () => "evil";
      Array.from = Object.keys = () => { throw new Error("evil"); };
      for (const name of ["outerHTML", "innerHTML", "shadowRoot", "localName"]) {
        Object.defineProperty(Element.prototype, name, {get() { return "evil"; }});
      }
      Object.defineProperty(document, "documentElement", {get() { return null; }});
      Object.defineProperty(document, "body", {get() { return null; }});
      document.querySelectorAll = Element.prototype.querySelectorAll = () => [];
      document.importNode = Document.prototype.importNode = () => null;
      String.prototype.toWellFormed = () => "evil";
      globalThis.setTimeout = globalThis.Date = globalThis.Promise = globalThis.Map = null;
    </script>"""
    text = await _snapshot(start_origin, start_proxy, page)
    assert "<p>the content</p>" in text
    assert "evil" not in text


async def test_pages_that_have_names_of_the_window_and_the_document(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """They hide none of the page's work: in a frame, in a timer, below the window, on scrolling."""
    names = ("baseURI", "documentElement", "querySelectorAll", "readyState", "styleSheets")
    page = f"""<meta http-equiv="refresh" content="600; url=/other"><style>p {{ color: red }}</style>
      <p id="late">waiting</p><p id="scrolled">waiting</p><iframe src="/frame"></iframe>
      {"".join(f"<img name={name}>" for name in names)}<div style="height: 5000px"></div>
      <img loading="lazy" src="/below" id="below"><form id="form"></form><script>
      addEventListener("scroll", () => {{ scrolled.textContent = "scrolled"; }});
      below.onload = below.onerror = () => {{ below.alt = "loaded"; }};
      setTimeout(() => {{ late.textContent = "in time"; }}, 5000);
      var length = 0;
      const URL = "https://api.example/", performance = {{}};
      let scrollY = -1, innerHeight = "high";
    </script>"""
    frame = """<p id="out">waiting</p><script>
      setTimeout(() => { parent.document.getElementById("late").title = "framed"; }, 6000)</script>"""
    origin = await pages(start_origin, {"/": page, "/frame": frame, "/below": ""})
    reply = await (await start_proxy(origin.url, {"site": {"url": SITE}})).crawl("/")
    for present in ('title="framed">in time<', ">scrolled<", 'alt="loaded"'):
        assert present in reply.text
    assert "ttl=3600" in reply.headers["Cache-Status"]


async def test_charsets_become_utf_8(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    page = (
        '<meta charset="windows-1251">'
        '<meta http-equiv="Content-Type" content="text/html; charset=x">'
    )
    response = web.Response(
        body=(page + "<p>Привет</p>").encode("windows-1251"),
        headers={"Content-Type": "text/html; charset=windows-1251"},
    )
    text = await _snapshot(start_origin, start_proxy, response)
    assert "<p>Привет</p>" in text
    assert "1251" not in text
    assert text.count("charset") == 1


async def test_large_pages(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    page = """<ul id="list"></ul><script>
      for (let i = 0; i < 2600; i++) {
        const item = document.createElement("li");
        item.textContent = `item ${i} ${"x".repeat(400)}`;
        item.title = "😀".repeat(20);
        list.append(item);
      }
    </script>"""
    origin = await pages(start_origin, {"/": page})
    proxy = await start_proxy(origin.url)
    answer = await proxy.crawl("/")
    assert answer.status == 200
    # Also where the text is cut to come in pieces.
    found = re.findall(r'<li title="😀{20}">item (\d+) x{400}</li>', answer.text)
    assert found == [str(i) for i in range(2_600)]
    assert len(answer.body) > 1_200_000

    small = await start_proxy(origin.url, {"render": {"max_bytes": "1MiB"}})
    assert (await small.crawl("/")).status == 503


@pytest.mark.ci_only
async def test_the_page_s_own_word(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    def page(*metas: tuple[str, str]) -> str:
        head = "".join(f'<meta name="{name}" content="{content}">' for name, content in metas)
        return f"<head>{head}</head><body>text"

    content: dict[str, str | web.Response] = {
        "/410": page(("prerender-status-code", "410")),
        "/render": page(("render:status_code", "404"), ("render:header", "X-Robots-Tag: noindex")),
        "/moved": page(
            ("prerender-status-code", "301"),
            ("prerender-header", "Location: /new?_escaped_fragment_=a"),
            ("prerender-header", "X-Robots-Tag: none"),
        ),
        "/away": page(
            ("prerender-status-code", "302"),
            ("prerender-header", "Location: https://evil.example/"),
        ),
        "/odd": page(
            ("prerender-header", "Set-Cookie: a=b"), ("prerender-header", "Content-Language: de")
        ),
    }
    for text in ("99", "1000", "200x", "101", "304", "204", "", " 404 x", "٤٠٤"):
        content[f"/status-{len(content)}"] = page(("prerender-status-code", text))
    origin = await pages(start_origin, content)
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}})

    assert (await proxy.crawl("/410")).status == 410
    render = await proxy.crawl("/render")
    assert (render.status, render.headers["X-Robots-Tag"]) == (404, "noindex")
    moved = await proxy.crawl("/moved")
    assert (moved.status, moved.headers["Location"]) == (301, f"{SITE}/new#!a")
    away = await proxy.crawl("/away")
    assert (away.status, away.headers.get("Location")) == (200, None)
    odd = await proxy.crawl("/odd")
    assert (odd.headers.get("Set-Cookie"), odd.headers["Content-Language"]) == (None, "de")
    for path, page_text in content.items():
        if path.startswith("/status-"):
            assert (await proxy.crawl(path)).status == 200, page_text


async def test_the_same_page_has_the_same_etag_in_every_process(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": SHADOW})
    first = await start_proxy(origin.url, {"site": {"url": SITE}})
    second = await start_proxy(origin.url, {"site": {"url": SITE}})
    tags = {(await proxy.crawl("/")).headers["ETag"] for proxy in (first, second)}
    assert len(tags) == 1


async def test_what_differs_on_every_load_can_be_left_out_of_the_etag(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = """<p data-token="" id="token">the same</p><script>
      token.dataset.token = crypto.randomUUID();</script>"""
    origin = await pages(start_origin, {"/": page})
    volatile = {"cache": {"ttl": 0}, "snapshot": {"volatile": ['data-token="[^"]*"']}}
    proxy = await start_proxy(origin.url, volatile)
    first = await proxy.crawl("/")
    second = await proxy.crawl("/", headers={"If-None-Match": first.headers["ETag"]})
    assert first.headers["ETag"].startswith('W/"')
    assert (second.status, second.headers["ETag"]) == (304, first.headers["ETag"])
    assert (await proxy.crawl("/")).body != first.body


ODD_CHARACTERS = """<!doctype html><html><head><title>t</title></head><body>
<p id="text"></p><pre id="pre"></pre><textarea id="area"></textarea><div id="host"></div>
<script>
  const odd = "a\\0b\\ufffec\\uffffd\\ufdd0e\\u{1fffe}f\\u{10ffff}g\\ud800h\\udfffi\\u{1f600}" +
    "j\\u0001k\\u0085l\\rm\\r\\nn";
  text.textContent = odd;
  text.title = odd;
  text.append(document.createComment(odd + "--><img src=x>"), document.createComment("><b>"));
  const template = text.appendChild(document.createElement("template"));
  template.content.append(odd);
  pre.append("", "\\n", "\\n" + odd);
  area.textContent = "\\nfirst";
  host.attachShadow({mode: "open"}).append(odd);
  const style = document.head.appendChild(document.createElement("style"));
  style.textContent = odd;
  const breaking = document.head.appendChild(document.createElement("style"));
  breaking.textContent = 'p::before { content: "<\\/style><script>alert(1)<\\/script>" }';
</script></body></html>"""


async def test_a_snapshot_is_parsed_to_the_dom_that_it_was_made_of(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": ODD_CHARACTERS})
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}})
    first = await proxy.crawl("/#!state")
    text = first.body.decode()  # strictly
    code_points = set(map(ord, text))
    assert not [c for c in code_points if c & 0xFFFE == 0xFFFE or 0xFDD0 <= c <= 0xFDEF or not c]
    odd = "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf\ufffdg\ufffdh\ufffdi\U0001f600j\x01k\x85l&#13;m&#13;\nn"
    assert f'title="{odd}">{odd}<!--' in text
    assert f"<template>{odd}</template>" in text
    assert f'<template shadowrootmode="open">{odd}</template>' in text
    assert f'<pre id="pre">\n\n\n{odd}</pre>' in text
    assert '<textarea id="area">\n\nfirst</textarea>' in text
    raw = odd.replace("&#13;\n", "\n").replace("&#13;", "\n")
    assert f"<style>{raw}</style>" in text
    assert 'content: "<\\/style><script>alert(1)</script>"' in text
    assert "--><img" not in text
    assert "<!--><b>" not in text
    # What the parser makes of it is the same again.
    again = await pages(start_origin, {"/": text})
    proxy = await start_proxy(again.url, {"site": {"url": SITE}})
    assert (await proxy.crawl("/#!state")).body.decode() == text


# Texts of scripts, as the parser and as scripts make them.
PARSED_SCRIPTS = (
    '{"a":"<!--<script></script>"}',
    '{"a":"<!-- <script> -->"}',
    '<!--\nwrite("<script><\\/script>") //-->',
)
MADE_SCRIPTS = {
    '{"a":"<!-- <script>"}': '{"a":"\\u003c!-- <script>"}',
    '{"a":"<!--<script></script></SCRIPT>"}': '{"a":"\\u003c!--<script><\\/script><\\/SCRIPT>"}',
    '{"a":"</script>"}': '{"a":"<\\/script>"}',
    '{"a":"<!--><script>"}': '{"a":"<!--><script>"}',
    '{"a":"<!-- <scripts>"}': '{"a":"<!-- <scripts>"}',
}


async def test_every_script_ends_where_it_ended(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    made = json.dumps(list(MADE_SCRIPTS)).replace("<", "\\u003c")
    opening = '<script type="application/ld+json" data-prerender-keep="">'
    parsed = "".join(f"{opening}{one}</script>" for one in PARSED_SCRIPTS)
    page = f"""<head>{parsed}</head><body><p id="last">last</p><script>
      for (const text of {made}) {{
        const script = document.createElement("script");
        script.type = "application/ld+json";
        script.textContent = text;
        last.before(script);
      }}</script>"""
    text = await _snapshot(start_origin, start_proxy, page)
    opening = '<script type="application/ld+json">'
    written = "".join(f"{opening}{one}</script>" for one in MADE_SCRIPTS.values())
    assert f'<head><meta charset="utf-8">{parsed}</head><body>{written}<p id="last">' in text
    for value, one in MADE_SCRIPTS.items():
        assert json.loads(one) == json.loads(value)


async def test_html_names_in_svg_and_mathml(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """There, a template has no content of its own, and a style no type."""
    policy = "<meta http-equiv='Content-Security-Policy' content=\"style-src 'none'\">"
    foreign = (
        '<svg><template><a href="/#!a">in SVG</a></template><link rel="stylesheet"></link></svg>'
        "<math><template><mi>in MathML</mi></template><style>x</style></math>"
    )
    page = f"{policy}<p>text</p>{foreign.replace('#!', '?_escaped_fragment_=')}"
    assert foreign in await _snapshot(start_origin, start_proxy, page)


async def test_fields_with_names_of_the_dom(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """A form has its fields as properties, before its own. So has a document its images."""
    names = ["attributes", "body", "checkVisibility", "data", "documentElement", "getAttribute"]
    names += ["hasAttribute", "head", "host", "id", "localName", "matches", "parentNode", "remove"]
    names += ["setAttribute", "shadowRoot", "style", "type"]
    forms = "".join(f"<form popover=manual><input name={name}></form>" for name in names)
    page = f"""<style>:popover-open {{ color: red }} :defined {{ margin: 0 }}</style>{forms}
      {"".join(f"<img name={name}><iframe name={name}></iframe>" for name in ("host", "body"))}
      <p class=loading><a type="application/ld+json" href="?_escaped_fragment_=a"><b>link</b></a></p>
      <ul aria-labelledby=""></ul><script>
      const forms = [...document.forms];
      for (const form of forms) {{
        HTMLElement.prototype.showPopover.call(form);
        Element.prototype.setAttribute.call(form, "class", "loading");
        const gone = form.cloneNode(true);
        Element.prototype.setAttribute.call(gone, "class", "gone loading");
        document.querySelector("p").append(gone);
      }}
      document.querySelector("ul").ariaLabelledByElements = forms;
      </script>"""
    text = await _snapshot(start_origin, start_proxy, page, {"snapshot": {"remove": [".gone"]}})
    for number, name in enumerate(names, 1):
        assert (
            f'<form popover="manual" class="loading" id="prerender-{number}" '
            'data-prerender-state=":popover-open" style="display: block !important;">'
            f'<input name="{name}"></form>'
        ) in text
    labels = " ".join(f"prerender-{number}" for number in range(1, len(names) + 1))
    assert f'aria-labelledby="{labels}"' in text
    assert '<a type="application/ld+json" href="/#!a"><b>link</b></a></p>' in text


async def test_text_in_cdata_sections(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    page = """<html xmlns="http://www.w3.org/1999/xhtml"><head><title>t</title>
      <script type="application/ld+json"><![CDATA[{"a": "&lt;"}]]></script>
      <style><![CDATA[p > b { color: red }]]></style></head><body><p>a <![CDATA[<b> & c]]></p>
      <script><![CDATA[document.body.append(document.createCDATASection("written"))]]></script>
      </body></html>"""
    response = web.Response(text=page, content_type="application/xhtml+xml")
    text = await _snapshot(start_origin, start_proxy, response)
    for present in (
        '<script type="application/ld+json">{"a": "&lt;"}</script>',
        "<style>p > b { color: red }</style>",
        "<p>a &lt;b&gt; &amp; c</p>",
        "written",
    ):
        assert present in text
    assert "CDATA" not in text


# What scripts have put into the head or before it, and the same at the start of the body.
MISPLACED = """<html><head><title>t</title><meta name="description" content="d"></head><body>text
  <script>
    const hidden = document.createElement("div");
    hidden.innerHTML = "<style>p { color: red }</style>hidden";
    document.head.prepend("stray", document.createComment("c"), "\\n", hidden,
      document.createElementNS("http://www.w3.org/2000/svg", "svg"));
    document.documentElement.prepend(Object.assign(document.createElement("p"), {id: "shown"}));
    document.adoptedStyleSheets = [new CSSStyleSheet()];
    document.adoptedStyleSheets[0].replaceSync("i { color: red }");
  </script></body></html>"""
HIDDEN = 'style="display: none !important;"'


async def test_the_head_ends_behind_its_metadata(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    add = {"snapshot": {"add_canonical": True}}
    text = await _snapshot(start_origin, start_proxy, MISPLACED, add)
    assert text.startswith(
        '<html><head><meta charset="utf-8"><!--c-->\n<title>t</title>'
        '<meta name="description" content="d"><style>i { color: red; }</style>'
        f'<link rel="canonical" href="{SITE}/#!state"></head><body><p id="shown"></p>'
        f"<div {HIDDEN}><style>p {{ color: red }}</style>hidden</div><svg {HIDDEN}></svg>text"
    )


async def test_heads_that_a_page_shows_or_a_frame_has(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = """<style>head { display: block }</style><iframe id="frame"></iframe><p>text</p><script>
      document.head.append("shown");
      frame.contentDocument.body.append("framed");
      frame.contentDocument.head.append("lost", frame.contentDocument.createElement("b"));
      </script>"""
    text = await _snapshot(start_origin, start_proxy, page)
    assert "</head><body>shown<iframe" in text
    assert f"<body><b {HIDDEN}></b>framed" in unescape(text)
    assert "lost" not in text


@pytest.mark.parametrize("href", ["", 'href=""', 'href=" "'])
async def test_a_canonical_link_without_a_url_is_none(
    start_origin: StartOrigin, start_proxy: StartProxy, href: str
) -> None:
    page = f'<link rel="canonical" {href}><p>text</p>'
    add = {"snapshot": {"add_canonical": True}}
    text = await _snapshot(start_origin, start_proxy, page, add)
    links = re.findall("<link[^>]*>", text)
    assert links == [f'<link rel="canonical" href="{SITE}/#!state">']


INERT = """<x-open></x-open><div id="d"></div><script>
  d.attachShadow({mode: "open"}).innerHTML = "<u><template shadowrootmode=open>in</template></u>";
  const open = document.querySelector("x-open");
  open.innerHTML = "<template shadowrootmode=open>unused</template>";
  d.innerHTML = "<b><template shadowrootmode=open>inert</template>light</b>";
</script>"""


async def test_a_template_that_is_no_shadow_root_does_not_become_one(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    text = await _snapshot(start_origin, start_proxy, INERT)
    assert "<x-open><template>unused</template></x-open>" in text
    declared = '<template shadowrootmode="open"><u><template>in</template></u></template>'
    assert f'<div id="d">{declared}<b><template>inert</template>light</b></div>' in text


NESTED_SLOTS = """<x-outer><b slot="title">title</b>body</x-outer><script>
  const define = (name, html) => customElements.define(name, class extends HTMLElement {
    constructor() { super().attachShadow({mode: "open"}).innerHTML = html; }
  });
  define("x-inner", "<h2><slot name=one>1</slot></h2><p><slot name=two>2</slot></p>");
  define("x-outer", "<x-inner><slot slot=two></slot><slot name=title slot=one></slot>" +
    "<i slot=none>never</i></x-inner>");
</script>"""


async def test_nested_slots_are_flattened(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    flat = {"snapshot": {"flatten_shadow_dom": True}}
    text = await _snapshot(start_origin, start_proxy, NESTED_SLOTS, flat)
    flattened = '<x-inner><h2><b slot="title">title</b></h2><p>body</p></x-inner>'
    assert f"<x-outer>{flattened}</x-outer>" in text


async def test_xhtml_is_parsed_as_html(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    page = """<html xmlns="http://www.w3.org/1999/xhtml"><head><title>t</title></head><body>
      <?php echo "a > b" ?><p>text</p></body></html>"""
    response = web.Response(text=page, content_type="application/xhtml+xml")
    text = await _snapshot(start_origin, start_proxy, response)
    assert text.startswith("<!DOCTYPE html><html ")
    assert "echo" not in text


@pytest.mark.parametrize(
    ("base", "prefix"), [("", ""), ("https://cdn.example/", SITE), (f"{SITE}/d/", "")]
)
async def test_urls_that_the_serializer_writes_are_resolved_at_the_base(
    start_origin: StartOrigin, start_proxy: StartProxy, base: str, prefix: str
) -> None:
    page = f"""<base href="{base}"><link id="sheet" rel="stylesheet" href="{SITE}/s.css">
      <iframe id="frame"></iframe><script>
      onload = () => {{
        sheet.sheet.insertRule("p {{ background: url(b.png) }}");
        frame.contentWindow.location = `${{location.origin}}/form`;
      }};</script>"""
    sheet = web.Response(text="p { color: red }", content_type="text/css")
    content: dict[str, str | web.Response] = {"/": page, "/s.css": sheet}
    content |= {"/form": "<p>form</p>", "/b.png": ""}
    proxy = await start_proxy((await pages(start_origin, content)).url, {"site": {"url": SITE}})
    text = (await proxy.crawl("/")).text
    assert f'<iframe id="frame" src="{prefix}/form">' in text
    assert f'url("{prefix}/b.png")' in text
