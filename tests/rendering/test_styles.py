"""A snapshot looks like its page, however scripts have set the styles."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from prerender.browser.devtools import Session
from prerender.urls.ajax_crawling import pretty_to_ugly
from tests.conftest import Proxy, StartOrigin, StartProxy, pages, proxied
from tests.support.plain_browser import plain_browser

SECONDS = 30.0
SHEET = "p { color: blue } @media screen { .in { color: blue } } @keyframes k { to { top: 1px } }"
STYLE = f"<style id=s>{SHEET}</style>"
LINK = "<link id=l rel=stylesheet href=/d/a.css>"
BESIDE = "<link id=l rel='alternate stylesheet' title=other href=/d/a.css>"
# What a script does to the page's style sheet; every one makes the two paragraphs look otherwise.
CHANGES = {
    "inserted": "sheet.insertRule('p { color: red !important }', 0)",
    "appended": "sheet.insertRule('p { color: red }', sheet.cssRules.length)",
    "added": "sheet.addRule('p', 'color: red !important')",
    "deleted": "sheet.deleteRule(0)",
    "emptied": "while (sheet.cssRules.length) sheet.deleteRule(0)",
    "replaced": "sheet.deleteRule(0); sheet.insertRule('p { color: red }', 0)",
    "set": "sheet.cssRules[0].style.setProperty('color', 'red')",
    "assigned": "sheet.cssRules[0].style.color = 'red'",
    "attribute map": "sheet.cssRules[0].styleMap.set('color', 'red')",
    "selector": "sheet.cssRules[0].selectorText = 'b'",
    "within a group": "sheet.cssRules[1].insertRule('p { color: red !important }', 0)",
    "group emptied": "sheet.cssRules[1].deleteRule(0)",
    "group's media": "sheet.cssRules[1].media.mediaText = 'print'",
    "disabled": "sheet.disabled = true",
    "media": "sheet.media.mediaText = 'print'",
    "a string that ends": "sheet.insertRule('p::after { content: \"</style><i>\"; color: red }', 0);"
    "sheet.insertRule('p { color: red !important }', 0)",
    "a file beside it": "sheet.insertRule('p { background: url(b.png); color: red !important }', 0)",
}
OTHERS = {
    "style of a script": "<script>const s = document.head.appendChild(document.createElement('style'));"
    "for (const c of ['red', 'lime']) s.sheet.insertRule(`p { color: ${c} }`);</script>",
    "adopted": "<script>const s = new CSSStyleSheet(); s.replaceSync('p { color: red }');"
    "document.adoptedStyleSheets = [s]</script>",
    "adopted and disabled": f"{STYLE}<script>const s = new CSSStyleSheet({{disabled: true}});"
    "s.replaceSync('p { color: red }'); document.adoptedStyleSheets = [s]</script>",
    "adopted for print": f"{STYLE}<script>const s = new CSSStyleSheet({{media: 'print'}});"
    "s.replaceSync('p { color: red }'); document.adoptedStyleSheets = [s]</script>",
    "an alternative left alone": BESIDE,
    "an alternative switched on": f"{BESIDE}<script>onload = () => {{"
    "l.disabled = true; l.disabled = false; }</script>",
    "one of two alternatives": "<link rel='alternate stylesheet' title=a href=/d/a.css>"
    "<link id=l rel='alternate stylesheet' title=b href='data:text/css,p%7Bcolor:red%7D'>"
    "<link rel=stylesheet title=c href='data:text/css,p%7Bcolor:lime%7D'>"
    "<script>onload = () => { l.disabled = true; l.disabled = false; }</script>",
    "a link switched off": f"{LINK}<script>onload = () => {{ l.disabled = true; }}</script>",
    "a changed link switched off": f"{LINK}<script>onload = () => {{ const {{sheet}} = l;"
    "sheet.insertRule('b { color: red }'); sheet.disabled = true; }</script>",
    "a changed link with URLs": "<link id=l rel=stylesheet href=/d/b.css>"
    "<script>onload = () => l.sheet.insertRule('p { color: red }')</script>",
    "for print": f"<style media=print>{SHEET}</style>",
    "imported": "<style>@import '/d/a.css'; p { margin: 1px }</style>",
    "imported no more": "<style id=s>@import '/d/a.css'; p { margin: 1px }</style>"
    "<script>onload = () => s.sheet.deleteRule(0)</script>",
}
# A declaration sets a part of what another has set with a variable. Chromium has no text for the rest.
PARTS = """p { --a: 7px; padding: var(--a); padding-left: 0 }
@media screen { p { border: var(--a) solid; border-left: none } }"""
VARIABLES = {
    "variables: inserted": "<style id=s></style><script>"
    "s.sheet.insertRule('p { padding: var(--a); padding-left: 0 }');"
    "s.sheet.insertRule('p { --a: 7px }');</script>",
    "variables: of a changed element": f"<style>/* }} */ {PARTS}</style>"
    "<script>document.styleSheets[0].insertRule('p { color: red }')</script>",
    "variables: adopted": f"<script>const s = new CSSStyleSheet(); s.replaceSync(`{PARTS}`);"
    "document.adoptedStyleSheets = [s]</script>",
}
ATTRIBUTES = {
    "variables: of attributes": "<style>p { --a: 7px }</style><script>onload = () => {"
    "const [one, two] = document.querySelectorAll('p'); one.style.padding = 'var(--a)';"
    "one.style.paddingLeft = 0; one.style.setProperty('--b', '');"
    "two.setAttribute('style', 'border: var(--a) solid !important; border-left: 0 !important');"
    "two.style.color = 'red'; }</script>",
}
BODY = "<p>one</p><p class=in>two</p>"
LOOK = """Array.from(document.querySelectorAll("p"), (p) => {
  const { color, backgroundImage, borderWidth, padding } = getComputedStyle(p);
  return [color, backgroundImage, borderWidth, padding, getComputedStyle(p, "::after").content];
})"""


def _page(head: str) -> str:
    return f"<!DOCTYPE html><head>{head}</head><body>{BODY}"


def _changed(by: str, change: str) -> str:
    element = "s" if by == STYLE else "l"
    return f"{by}<script>onload = () => {{ const {{sheet}} = {element}; {change}; }}</script>"


PAGES = {
    **{f"style: {name}": _page(_changed(STYLE, change)) for name, change in CHANGES.items()},
    **{f"link: {name}": _page(_changed(LINK, change)) for name, change in CHANGES.items()},
    **{name: _page(head) for name, head in {**OTHERS, **VARIABLES, **ATTRIBUTES}.items()},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    application = web.Application()
    listed = list(PAGES.values())

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=listed[int(request.match_info["n"])], content_type="text/html")

    async def sheet(_: web.Request) -> web.Response:
        return web.Response(text=SHEET, content_type="text/css")

    async def files(_: web.Request) -> web.Response:
        text = "p { --u: url(c.png); background: var(--u), url('d.png') }"
        return web.Response(text=text, content_type="text/css")

    application.add_routes([web.get("/d/a.css", sheet), web.get("/d/b.css", files)])
    application.add_routes([web.get(r"/{n:\d+}", page)])
    async with proxied(application, {"browser": {"pages": 1}}) as proxy:
        yield proxy


# By turns of a style element and of a file.
SOME = [f"{('style', 'link')[n % 2]}: {[*CHANGES][n]}" for n in range(0, len(CHANGES), 5)]
SOME += [*OTHERS][::4]
SOME += [*VARIABLES, *ATTRIBUTES, "a changed link switched off", "a changed link with URLs"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "names",
    [pytest.param(SOME, id="some"), pytest.param([*PAGES], id="all", marks=pytest.mark.long)],
)
async def test_a_snapshot_looks_as_its_page(proxy: Proxy, names: list[str]) -> None:
    failed = {}
    async with plain_browser() as browser:
        target = await browser.call("Target.createTarget", url="about:blank")
        tab = await browser.attach(target["targetId"])
        await tab.call("Page.enable")
        for name in names:
            number = [*PAGES].index(name)
            ugly = pretty_to_ugly(f"/{number}", opted_in=True)
            live = await _look(tab, f"{proxy.url}/{number}", scripts=True)
            shown = await _look(tab, f"{proxy.url}{ugly}", scripts=False)
            if live != shown:
                failed[name] = (live, shown)
    assert not failed, failed


async def _look(tab: Session, url: str, *, scripts: bool) -> object:
    await tab.call("Emulation.setScriptExecutionDisabled", value=not scripts)
    loaded = tab.expect("Page.loadEventFired")
    await tab.call("Page.navigate", url=url)
    async with asyncio.timeout(SECONDS):
        await loaded
    return await tab.evaluate(LOOK)


@pytest.mark.asyncio(loop_scope="module")
async def test_what_no_script_has_changed_stays_as_it_was_written(proxy: Proxy) -> None:
    number = list(PAGES).index("for print")
    assert f'<style media="print">{SHEET}</style>' in (await proxy.crawl(f"/{number}")).text
    number = list(PAGES).index("an alternative left alone")
    assert (
        '<link id="l" rel="alternate stylesheet" title="other" href="/d/a.css">'
        in (await proxy.crawl(f"/{number}")).text
    )


HOSTILE = {
    "no array": "({})",
    "odd entries": "[5, [0], ['x'], ['/', 1], null, {}, true, 99, 0.5, -1, 'x', '}{']",
    "other rules": "[0, 'p { color: red; } </style><b>mine</b>']",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_pages_that_speak_for_the_probe(
    name: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """Such a page changes only its own snapshot, and nothing breaks."""
    page = f"""{STYLE}<p>text</p><script>
      s.sheet.insertRule("p {{ color: red }}", 0);
      globalThis[Symbol.for("prerender.probe")].sheets = () => {HOSTILE[name]};</script>"""
    origin = await pages(start_origin, {"/": page})
    proxy = await start_proxy(origin.url)
    answer = await proxy.crawl("/")
    assert answer.status == 200
    assert "<p>text</p>" in answer.text
    assert "<b>" not in answer.text
