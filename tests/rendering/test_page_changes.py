"""``[snapshot] remove`` and ``add``: what crawlers get instead, and who is told."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import html

from prerender.config.page_changes import problem_of_selector, tags_of
from prerender.snapshots.page_changes import NAME, NO_CHANGES, Changes, changes_of
from tests.conftest import Proxy, StartOrigin, StartProxy, pages
from tests.support.programs import run
from tests.support.tab import browsing, persons_browser

META = '<meta name="robots" content="noarchive">'
JSON_LD = '<script type="application/ld+json">{"name": "</b>", "a": "<!--"}</script>'


async def snapshot(
    start_origin: StartOrigin, start_proxy: StartProxy, page: str, **settings: object
) -> tuple[str, Changes]:
    origin = await pages(start_origin, {"/": page})
    proxy = await start_proxy(origin.url, {"snapshot": settings})
    answer = await proxy.crawl("/")
    assert answer.status == 200, answer.text
    return answer.text, changes_of(answer.headers.items())


BANNER = """<!DOCTYPE html><html class="modal"><head><title>Page</title>
<style id="sheet">p { color: red }</style></head><body class="modal">
<p>the page's own text</p><div id="banner" class="modal">We use cookies <button>Accept</button></div>
<x-chat></x-chat><script>
  customElements.define("x-chat", class extends HTMLElement {
    connectedCallback() {
      this.attachShadow({ mode: "closed" }).innerHTML = "<b>hello</b><i class=chat>How can we help?</i>";
    }
    disconnectedCallback() { document.body.append("removed on the page"); }
  });
  // A banner that its script shows again.
  new MutationObserver(() => {
    if (!document.getElementById("banner")) document.body.insertAdjacentHTML("beforeend", "<div id=banner>again</div>");
  }).observe(document.body, { childList: true });
  setTimeout(() => document.getElementById("banner").remove(), 100);
</script></body></html>"""  # noqa: E501 (a page)


@pytest.mark.parametrize("flatten", [False, True])
async def test_elements_are_removed_and_tags_added(
    start_origin: StartOrigin, start_proxy: StartProxy, flatten: bool
) -> None:
    remove = ["#banner", ".chat", ".modal", "html", ":root", "body:not(.other)", "head", "#nothing"]
    text, changes = await snapshot(
        start_origin,
        start_proxy,
        BANNER,
        remove=remove,
        add=[META, JSON_LD],
        flatten_shadow_dom=flatten,
    )
    for gone in ("cookies", "again", "How can we help", "removed on the page", "banner"):
        assert gone not in text, gone
    for there in ("the page's own text", "<b>hello</b>", '<html class="modal">', "color: red"):
        assert there in text, there
    assert f"{META}{JSON_LD}</head>" in text
    assert changes == (tuple(remove), (META, JSON_LD))


async def test_the_order_of_selectors_does_not_matter(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = """<ul><li class=a>one<li>two<li>three<li>four</ul><p>text<span class=b></span></p>
      <section><div><em>in both</em></div></section>"""
    selectors = ["li:nth-child(2)", ".a", "p:has(.b) > .b", "section div", "section", "li:empty"]
    texts = set()
    for remove in (selectors, selectors[::-1]):
        text, _ = await snapshot(start_origin, start_proxy, page, remove=remove)
        texts.add(text)
    (text,) = texts
    assert [item.text for item in html.fromstring(text).iter("li")] == ["three", "four"]
    assert "in both" not in text


async def test_many_elements_and_modified_styles(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = """<!DOCTYPE html><title>x</title><link id=linked rel=stylesheet href="data:text/css,p{}">
      <p>kept</p><div id=many></div><select><option>a<option selected>b</select><script>
      many.innerHTML = "<span class=ad>ad <span class=ad>in an ad</span></span>".repeat(10000);
      linked.onload = () => linked.sheet.insertRule("p { color: green }");
      const slots = document.body.appendChild(document.createElement("div"));
      slots.innerHTML = "<u>slotted</u>";
      slots.attachShadow({ mode: "open" }).innerHTML = "<slot class=ad></slot><s>in the shadow</s>";
      </script>"""
    text, _ = await snapshot(
        start_origin, start_proxy, page, remove=[".ad", "#linked"], flatten_shadow_dom=True
    )
    for gone in ("in an ad", "color: green", "slotted"):
        assert gone not in text, gone
    assert "<p>kept</p>" in text
    assert "<s>in the shadow</s>" in text
    assert '<option selected="">b</option>' in text


async def test_a_page_of_which_nothing_remains_is_no_page(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = "<div class=banner>only a banner <img src=/x.png></div><script>1</script>"
    origin = await pages(start_origin, {"/": page})
    proxy = await start_proxy(origin.url, {"snapshot": {"remove": [".banner"], "add": [META]}})
    assert (await proxy.crawl("/")).status == 503


async def told(proxy: Proxy, path: str) -> dict[str, Any]:
    async with proxy.client.get(f"{proxy.admin_url}/api/v1/{path}") as answer:
        assert answer.status == 200, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


@pytest.mark.ci_only
async def test_whoever_compares_is_told(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    """The dashboard, explain and check say what was changed, and count it as no fault."""
    body = "Here is what this page is about, in a few words of its own. " * 5
    banner = "We and our 842 partners store cookies on your device, do you agree?"
    page = f"""<!DOCTYPE html><title>Page</title><meta name=description content=x>
      <meta name=fragment content="!"><h1>Page</h1><div id=app></div><script>
      app.innerHTML = "<p>{body}</p><aside id=banner>{banner}<button>I agree to all</button></aside>";
      </script>"""
    origin = await pages(start_origin, {"/": page})
    settings = {"remove": ["#banner", ".chat"], "add": [META]}
    proxy = await start_proxy(origin.url, {"snapshot": settings})
    await proxy.crawl("/")
    explained = await told(proxy, f"explain?url={quote('/?_escaped_fragment_=')}")
    stored, page_ = explained["snapshot"], explained["page"]
    assert isinstance(stored, dict)
    assert isinstance(page_, dict)
    assert (stored["removed"], stored["added"]) == (settings["remove"], settings["add"])
    compared = await told(proxy, f"snapshots/{page_['key']}/comparison")
    removed: dict[str, str]
    (removed,) = compared["removed"]
    assert removed["selector"] == "#banner"
    assert removed["text"].startswith("We and our 842 partners")
    assert (compared["not_found"], compared["added"]) == ([".chat"], [META])
    assert any(banner in passage["left"] for passage in compared["passages"])

    # It has no settings, and reads what the snapshot says.
    ended = await run("check", f"{origin.url}/", "--via", proxy.url, "--json", "--concurrency", "1")
    (report,) = json.loads(ended.out)["pages"]
    findings = {finding["code"]: finding["text"] for finding in report["findings"]}
    assert "changed" in findings, findings
    assert not {"incomplete", "cloaked", "accessibility"} & findings.keys(), findings
    changed = [one["text"] for one in report["findings"] if one["code"] == "changed"]
    assert changed[0].startswith(
        "[snapshot] remove takes 1 element from crawlers (#banner): “We and"
    )
    assert changed[1] == f"[snapshot] add gives crawlers: {META}"


SELECTORS = [
    "#a", ".b", "*", "div", "a.b#c", "[data-x]", "[x=y]", "[x = 'y' i]", '[x^="a,b"]',
    "a > b", "a b", "a+b", "a ~ b", "a, b", ":is(a, .b) c", ":not(:has(> img))", ":where(a)",
    "li:nth-child(2n + 1)", "p:nth-last-of-type(odd)", "dialog:modal", "[popover]:popover-open",
    ".md\\:flex", "#\\31 23", "ünïcode", "p:lang(de)", "--x", "a:empty:not([b])", " a ",
]  # fmt: skip


@pytest.mark.parametrize("selector", SELECTORS)
def test_selectors(selector: str) -> None:
    assert problem_of_selector(selector) == ""


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        ("", "it ends early"),
        ("a,", "it ends early"),
        ("a >", "it ends early"),
        ("> a", "'> a' is not understood"),
        ("a[b", "'[b' is not understood"),
        ("a[b='c]", '"[b=\'c]" is not understood'),
        (":is(a", ":is( is not closed"),
        (":has(:has(a))", ":has() cannot be within :has()"),
        ("[a=b s]", "'[a=b s]' is not understood"),
        ("a::before", "'::before' is not understood"),
        ("a:hover", "':hover' is not understood"),
        ("#1", "'#1' is not understood"),
        (".", "'.' is not understood"),
        ("a /* b", "'/* b' is not understood"),
        ("a{}", "'{}' is not understood"),
        ("a)", "')' is not understood"),
        (":not(" * 9 + "a" + ")" * 9, "nested too deeply"),
    ],
)
def test_other_selectors(selector: str, problem: str) -> None:
    assert problem_of_selector(selector) == problem


PARTS = st.sampled_from(
    [*"abn#.[]()*>+~,:=\"'\\ -_|^$1i", ":is(", ":not(", ":has(", ":nth-child(", ":empty", "2n+1",
     "\\31 ", "é", "--"]
)  # fmt: skip


async def test_chromium_understands_what_the_settings_accept() -> None:
    accepted = set(SELECTORS)

    @given(st.lists(PARTS, max_size=12).map("".join))
    def collect(selector: str) -> None:
        if not problem_of_selector(selector):
            accepted.add(selector)

    collect()
    script = """((all) => all.filter((one) => {
      try { document.querySelector(one); return false; } catch { return true; }
    }))"""
    async with asyncio.timeout(60), persons_browser() as browser, browsing(browser) as tab:
        assert await tab.run(f"{script}({json.dumps(sorted(accepted))})") == []
    assert len(accepted) > len(SELECTORS)


def test_tags() -> None:
    assert tags_of('<META Name=a content="x &amp; y"><link rel=alternate href="/a">') == (
        ("meta", (("name", "a"), ("content", "x & y")), ""),
        ("link", (("rel", "alternate"), ("href", "/a")), ""),
    )
    (script,) = tags_of(JSON_LD)
    assert script.text == '{"name": "</b>", "a": "<!--"}'


@pytest.mark.parametrize(
    ("fragment", "problem"),
    [
        ("", "it has no tag"),
        ("text", "'text' is not a complete tag"),
        ('<meta name="a"', "'<' is not a complete tag"),
        (
            "<script>alert(1)</script>",
            "the only scripts of snapshots are of type application/ld+json",
        ),
        ('<script type="application/ld+json">{}', "<script> is not closed"),
        ('<script type="application/ld+json">{a}</script>', "not JSON: "),
        ('<script type="application/ld+json" src=a />', "<script> is not closed"),
        ("<style>p {", "<style> is not closed"),
        ("</head>", "</head> closes nothing"),
        ("<title></title>", "</title> closes nothing"),
        ("<div>", "<div>: give only meta, link, style, and JSON-LD scripts"),
        ("<base href=/x>", "<base>: give only meta, link, style, and JSON-LD scripts"),
        ("<link rel=stylesheet href=a onload=b>", "<link> must not have the attribute 'onload'"),
        ("<link rel=modulepreload href=a>", "a <link> must have a rel, and must not load scripts"),
        (
            "<link rel=preload as=Script href=a>",
            "a <link> must have a rel, and must not load scripts",
        ),
        ("<meta http-equiv=refresh content=0>", "a <meta> must have a name or property"),
        ("<meta charset=latin1>", "a <meta> must have a name or property"),
        ("<meta name=prerender-status-code content=404>", "a <meta> must have a name or property"),
        ("<meta name=a name=b>", "an attribute of <meta> is given twice"),
        ("<!-- a -->", "comments are not allowed"),
        ("<?a?>", "comments are not allowed"),
        ("<![CDATA[a]]>", "comments are not allowed"),
    ],
)
def test_other_tags(fragment: str, problem: str) -> None:
    with pytest.raises(
        ValueError, match="^" + problem.translate({ord(c): f"\\{c}" for c in "()[]+"})
    ):
        tags_of(fragment)


@given(st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3))
def test_the_header_says_what_was_changed(remove: list[str], add: list[str]) -> None:
    changes = Changes(tuple(remove), tuple(add))
    headers = changes.headers()
    assert all(value.isascii() and value.isprintable() for _, value in headers)
    assert changes_of(headers) == changes


def test_what_other_servers_say() -> None:
    assert changes_of([(NAME, "[[], [1]]")]) == NO_CHANGES
    assert changes_of([(NAME, "{")]) == NO_CHANGES
    long = Changes(("#a",) * 10, ("x" * 3000,))
    assert changes_of(long.headers()) == (long.remove, ("...",))
    assert changes_of(Changes(("#a",) * 1000).headers()) == (("...",), ("...",))
