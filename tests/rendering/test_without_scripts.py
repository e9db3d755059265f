"""A snapshot, opened without scripts, shows what the rendered page shows (shown.js): nothing visible is
gone, nothing hidden has appeared, and a screen reader announces the same.

Page and snapshot are compared at the moment of serialization, on all pages of the corpora, and on small
pages with state that only scripts hold.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from multidict import CIMultiDict
from yarl import URL

from prerender.browser.accessibility import lost
from prerender.browser.page import Page
from prerender.browser.page_results import Rendered, SerializeOptions
from prerender.errors import BrowserGone, NeedsNewContext
from prerender.gateway import document
from prerender.gateway.visit import Document
from prerender.rendering.from_settings import Rendering, rendering
from prerender.rendering.snapshot_builder import SnapshotBuilder
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import Overrides, settings_for
from tests.sites.corpus import origin as corpus
from tests.sites.frameworks import origin as frameworks
from tests.sites.frameworks.routes import ROUTES

SITE = URL("https://www.example.com")
SHOWN = (Path(corpus.__file__).parent.parent / "shown.js").read_text("utf-8")
LIMITS: dict[str, Any] = {"timeout": 60.0, "budget": 10.0, "patience": 5.0}
MAX_BYTES = 10**8
HTML = CIMultiDict({"Content-Type": "text/html; charset=utf-8"})
PAGES = 3
# Its snapshot loads more pictures than a page may.
MANY_PICTURES = "lazy-images-4000"
# Their drawings change in each frame, so they are not in the snapshot.
MOVING = ("canvas-off-screen", "endless-animation-loop-that-draws")

BLOBS = """
  const svg = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><rect width="40" ' +
    'height="30"/></svg>';
  const blob = (text, type) => URL.createObjectURL(new Blob([text], { type }));
  const picture = () => blob(svg, "image/svg+xml");
"""
SHADOW = "const root = document.querySelector('x-a').attachShadow({ mode: 'open' });"
FORWARDS = "{ duration: 500, fill: 'forwards' }"
UNDEFINED = "body:has(x-a:not(:defined)) p { display: none }"
DEFINED = """<x-a></x-a><p>shown</p>
  <script>customElements.define('x-a', class extends HTMLElement {});</script>"""
BY_SCRIPT = {
    "animation-that-reveals": f"""<p id="a" style="opacity: 0">revealed</p>
      <script>a.animate([{{ opacity: 0 }}, {{ opacity: 1 }}], {FORWARDS});</script>""",
    "animation-that-hides": f"""<p id="a">goes away</p>
      <script>a.animate([{{ opacity: 1 }}, {{ opacity: 0 }}], {FORWARDS});</script>""",
    "animation-of-visibility": f"""<p id="a" style="visibility: hidden">revealed</p><script>
      a.animate([{{ visibility: 'hidden' }}, {{ visibility: 'visible' }}], {FORWARDS});</script>""",
    "animation-in-a-shadow": f"""<x-a></x-a><script>{SHADOW}
      root.innerHTML = '<p style="opacity: 0">revealed</p>';
      root.firstChild.animate([{{ opacity: 0 }}, {{ opacity: 1 }}], {FORWARDS});</script>""",
    "smil": """<svg><text y="20" display="none">revealed
      <set id="a" attributeName="display" to="inline" begin="indefinite" fill="freeze"/></text></svg>
      <script>a.beginElement();</script>""",
    "rules-for-open-popovers": """
      <style>#n { display: none } #n:popover-open { display: block }</style>
      <div id="n" popover="manual">news</div><script>n.showPopover();</script>""",
    "rules-for-closed-popovers": """
      <style>#n:not(:popover-open) { opacity: 0 }</style>
      <div id="n" popover="manual">news</div><script>n.showPopover();</script>""",
    "rules-for-modal-dialogs": """
      <style>dialog { display: none } dialog:modal { display: block }</style>
      <dialog id="d">news</dialog><script>d.showModal();</script>""",
    "rules-for-mixed-checkboxes": """
      <style>p { display: none } :indeterminate ~ p { display: block }</style>
      <input type="checkbox" id="c" aria-hidden="true"><p>some</p>
      <script>c.indeterminate = true;</script>""",
    "rules-for-defined-elements": f"<style>{UNDEFINED}</style>{DEFINED}",
    "linked-rules-for-defined-elements": f'<link rel="stylesheet" href="/defined.css">{DEFINED}',
    "rules-of-a-host-that-is-defined": """<x-a></x-a><script>
      customElements.define('x-a', class extends HTMLElement { constructor() { super();
        this.attachShadow({ mode: 'open' }).innerHTML =
          '<style>p { display: none } :host(:defined) p { display: block }</style><p>shown</p>'; } });
      </script>""",
    "rules-for-states-of-a-host": """<x-a></x-a><script>
      customElements.define('x-a', class extends HTMLElement { constructor() { super();
        this.attachInternals().states.add('on'); this.attachShadow({ mode: 'open' }).innerHTML =
          '<style>p { display: none } :host(:state(on)) p { display: block }</style><p>shown</p>'; } });
      </script>""",
    "frame-written": """<iframe id="f"></iframe><script>
      const inside = f.contentDocument; inside.open(); inside.write('<p>written'); inside.close();
      </script>""",
    "frame-with-adopted-styles": """<iframe id="f"></iframe><script>
      const inside = f.contentDocument; inside.body.innerHTML = '<p>hidden</p>rest';
      const sheet = new f.contentWindow.CSSStyleSheet(); sheet.replaceSync('p { display: none }');
      inside.adoptedStyleSheets = [sheet];</script>""",
    "frame-with-a-blob": f"""<iframe id="f"></iframe>
      <script>{BLOBS} f.src = blob('<p>within', 'text/html');</script>""",
    "frame-of-a-script": """<iframe src="javascript:'<p>of a script'"></iframe>""",
    "frame-that-a-script-navigates": """<iframe id="f"></iframe>
      <script>f.contentWindow.location = '/inner';</script>""",
    "frame-with-drawings-and-values": """<iframe id="f"></iframe><script>
      const inside = f.contentDocument;
      inside.body.innerHTML = '<canvas width="30" height="20"></canvas><input>';
      inside.querySelector('canvas').getContext('2d').fillRect(0, 0, 9, 9);
      inside.querySelector('input').value = 'typed';</script>""",
    "select-without-a-choice": """<select id="s"><option>A<option>B</select>
      <script>s.selectedIndex = -1;</script>""",
    "select-with-choices": """<select id="s" multiple><option>A<option>B<option>C</select>
      <script>s.options[1].selected = s.options[2].selected = true;</script>""",
    "canvas": """<canvas id="c" width="60" height="40" style="width: 30px">no canvas</canvas>
      <script>c.getContext('2d').fillRect(0, 0, 9, 9);</script>""",
    "canvas-of-a-bitmap": """<canvas id="c" width="60" height="40"></canvas><script>
      const off = new OffscreenCanvas(60, 40); off.getContext('2d').fillRect(0, 0, 9, 9);
      c.getContext('bitmaprenderer').transferFromImageBitmap(off.transferToImageBitmap());</script>""",
    "canvas-in-a-shadow": f"""<x-a></x-a><script>{SHADOW}
      root.innerHTML = '<canvas width="30" height="20">';
      root.firstChild.getContext('2d').fillRect(0, 0, 9, 9);</script>""",
    "canvas-under-a-policy": """<meta http-equiv="Content-Security-Policy"
      content="default-src 'self' 'unsafe-inline'"><canvas id="c" width="60" height="40"></canvas>
      <script>c.getContext('2d').fillRect(0, 0, 9, 9);</script>""",
    "blob-under-a-policy": f"""<meta http-equiv="Content-Security-Policy"
      content="default-src 'self' 'unsafe-inline'; img-src blob:"><img id="i">
      <script>{BLOBS} i.src = picture();</script>""",
    "blob-that-is-revoked": f"""<img id="i"><script>{BLOBS}
      const url = picture(); i.onload = () => URL.revokeObjectURL(url); i.src = url;</script>""",
    "blob-in-srcset": f'<img id="i"><script>{BLOBS} i.srcset = `${{picture()}} 1x`;</script>',
    "blob-in-a-picture": f"""<picture><source id="s"><img id="i"></picture>
      <script>{BLOBS} s.srcset = i.src = picture();</script>""",
    "blob-in-a-style": f"""<p id="p">hidden</p>rest<script>{BLOBS}
      const style = document.createElement('style');
      style.textContent = `@import url(${{blob('#p {{ display: none }}', 'text/css')}})`;
      document.head.append(style);</script>""",
    "blob-of-styles": f"""<p id="p">hidden</p>rest<script>{BLOBS}
      const link = Object.assign(document.createElement('link'), {{ rel: 'stylesheet' }});
      link.href = blob('#p {{ display: none }}', 'text/css'); document.head.append(link);</script>""",
    "blob-in-a-background": f"""<p id="p">text</p>
      <script>{BLOBS} p.style.backgroundImage = `url(${{picture()}})`;</script>""",
    "blob-of-a-poster": f"""<video id="v" width="40" height="30"></video>
      <script>{BLOBS} v.poster = picture();</script>""",
    "blob-in-svg": f"""<svg><image id="i" width="40" height="30"/></svg>
      <script>{BLOBS} i.setAttribute('href', picture());</script>""",
}


def small_pages() -> web.Application:
    """The origin of the small pages."""

    async def page(request: web.Request) -> web.Response:
        name = request.path[1:].removesuffix(".html")
        if name == "defined.css":
            return web.Response(text=UNDEFINED, content_type="text/css")
        body = "<p>within a frame" if name == "inner" else BY_SCRIPT[name]
        html = f"<!DOCTYPE html><title>{name}</title><h1>Top</h1>{body}"
        return web.Response(text=html, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{name}", page)
    return application


class _Comparison:
    """Renders pages, and compares each with its snapshot."""

    def __init__(self, parts: Rendering) -> None:
        self._parts = parts
        self._builder = SnapshotBuilder(SITE, parts.upstream.base, MAX_BYTES, (), "canonical")
        self._room = asyncio.Semaphore(PAGES)

    @classmethod
    @asynccontextmanager
    async def of(cls, application: web.Application) -> AsyncIterator["_Comparison"]:
        server = TestServer(application)
        await server.start_server()
        overrides: Overrides = {"site": {"url": str(SITE)}, "browser": {"pages": PAGES}}
        try:
            async with rendering(settings_for(str(server.make_url("")), overrides)) as parts:
                yield cls(parts)
        finally:
            await server.close()

    async def problems(self, paths: Iterable[str]) -> str:
        return "\n".join(filter(None, await asyncio.gather(*map(self._problem, paths))))

    async def _problem(self, path: str) -> str:
        async with self._room:
            try:
                return await self._compared(path, first=False)
            except (NeedsNewContext, BrowserGone):
                return await self._compared(path, first=True)

    async def _compared(self, path: str, *, first: bool) -> str:
        """What differs, or ''."""
        plain, _, state = path.partition("#!")
        target = Target.of(SITE, PrettyURL(plain, state))
        navigation = self._parts.gateway.navigation
        await navigation.known(LIMITS["timeout"])
        headers = navigation.headers(target.variant)
        upstream = self._parts.upstream
        found = await document.fetch(upstream, SITE, target.request_target, MAX_BYTES, headers)
        async with self._page(first=first) as page:
            with page.visit(found) as visit:
                rendered = await page.render(
                    target.url, visit, options=SerializeOptions(), **LIMITS
                )
                assert isinstance(rendered, Rendered), path
                seen, said = await shown(page), await page.announced()
        snapshot = self._builder.build(target, found, visit, rendered, time.time())
        async with self._page(first=True) as page:
            with page.visit(Document(200, HTML, snapshot.body)) as visit:
                announced = await page.listen(target.url, visit, **LIMITS)
                ours = await shown(page)
        if ours != seen:
            return f"{path}: {ours} instead of {seen}"
        if missing := lost(said, announced):
            return f"{path}: a screen reader misses {missing}"
        return f"{path}: a blob: URL" if b"blob:http" in snapshot.body else ""

    @asynccontextmanager
    async def _page(self, *, first: bool) -> AsyncIterator[Page]:
        pool = self._parts.pool
        async with pool.place() as place, pool.page(place, LIMITS["timeout"], first=first) as page:
            yield page


async def shown(page: Page) -> Any:
    """The visible content of an open page."""
    session, frame_id = page._tab.session, page._tab.target_id
    world = await session.call("Page.createIsolatedWorld", frameId=frame_id, worldName="test")
    return await session.evaluate(SHOWN, contextId=world["executionContextId"])


async def test_state_that_only_scripts_hold() -> None:
    async with _Comparison.of(small_pages()) as comparison:
        problems = await comparison.problems(f"/{name}.html" for name in BY_SCRIPT)
    assert not problems, problems


@pytest.mark.parametrize(
    "every", [13, pytest.param(1, marks=pytest.mark.long)], ids=["a few", "all"]
)
async def test_corpus(every: int) -> None:
    names = [name for name in corpus.page_names() if name not in (MANY_PICTURES, *MOVING)]
    async with _Comparison.of(corpus.application()) as comparison:
        problems = await comparison.problems(f"/{name}.html" for name in names[::every])
    assert not problems, problems


@pytest.mark.parametrize(
    "every", [13, pytest.param(1, marks=pytest.mark.long)], ids=["a few", "all"]
)
async def test_frameworks(every: int) -> None:
    async with _Comparison.of(frameworks.application()) as comparison:
        problems = await comparison.problems(route.path for route in ROUTES[::every])
    assert not problems, problems
