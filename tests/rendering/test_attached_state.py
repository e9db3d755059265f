"""What scripts attach to elements without an attribute is in the snapshot.

A screen reader announces the same in the snapshot, opened without scripts, as in the page of a visitor,
and the same texts are visible.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from prerender.browser.devtools import Session
from prerender.content.accessibility import announced
from tests.conftest import StartOrigin, StartProxy, pages
from tests.support.plain_browser import plain_browser

DEFINE = """
  const define = (name, setUp, css = "") => customElements.define(name, class extends HTMLElement {
    constructor() {
      super();
      this.internals = this.attachInternals();
      const root = this.attachShadow({ mode: "open" });
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(css);
      root.adoptedStyleSheets = [sheet];
      setUp(this.internals, root, this);
    }
  });"""
CASES = {
    "role": (
        "<x-tab>Home</x-tab><x-tab>News</x-tab>",
        "define('x-tab', (internals, root) => { internals.role = 'button';"
        " internals.ariaPressed = 'true'; root.innerHTML = '<slot></slot>'; })",
    ),
    "own-attributes-win": (
        "<x-box role=checkbox aria-checked=false>Agree</x-box>",
        "define('x-box', (internals, root) => { internals.role = 'button';"
        " internals.ariaChecked = 'true'; root.innerHTML = '<slot></slot>'; })",
    ),
    "within-roots": (
        "<p>before</p><x-outer></x-outer><x-item>Third</x-item>",
        "define('x-outer', (internals, root) => { internals.role = 'list';"
        " root.innerHTML = '<b>x</b><x-item>First</x-item><x-item>Second</x-item>'; });"
        "define('x-item', (internals, root) => { internals.role = 'listitem';"
        " internals.ariaLabel = 'item'; root.innerHTML = '<slot></slot>'; })",
    ),
    "closed-root": (
        "<x-outer></x-outer><x-item>Last</x-item>",
        "customElements.define('x-outer', class extends HTMLElement { constructor() { super();"
        " this.attachShadow({ mode: 'closed' }).innerHTML = '<i>a</i><x-item>Inner</x-item>'; } });"
        "define('x-item', (internals, root) => { internals.role = 'button';"
        " internals.ariaExpanded = 'true'; root.innerHTML = '<slot></slot>'; })",
    ),
    "beside-a-frame": (
        "<iframe srcdoc='<p>in<p>a<p>frame'></iframe><x-item>Name</x-item>",
        "define('x-item', (internals, root) => { internals.role = 'button';"
        " root.innerHTML = '<slot></slot>'; })",
    ),
    "states": (
        "<x-panel id=one>open</x-panel><x-panel>closed</x-panel>",
        "define('x-panel', (internals, root) => { root.innerHTML = '<p>content</p><slot></slot>'; },"
        " ':host(:not(:state(open))) p { display: none }'); one.internals.states.add('open')",
    ),
    "manual-slots": (
        "<x-tabs><p>first</p><p>second</p><p>third</p></x-tabs>",
        "customElements.define('x-tabs', class extends HTMLElement { connectedCallback() {"
        " const root = this.attachShadow({ mode: 'open', slotAssignment: 'manual' });"
        " root.innerHTML = '<h2><slot id=a></slot></h2><svg><slot /></svg><slot id=b></slot>';"
        " root.getElementById('a').assign(this.children[1]);"
        " root.getElementById('b').assign(this.children[2], this.children[0]); } })",
    ),
    "references": (
        "<p>label one</p><p id=two>label two</p><button>x</button><input>",
        "document.querySelector('button').ariaLabelledByElements = [...document.querySelectorAll('p')];"
        "document.querySelector('input').ariaDescribedByElements = [two]",
    ),
}
LOOK = """(() => {
  const texts = [];
  const walk = (root) => {
    for (const element of root.querySelectorAll("p, h2")) {
      if (element.checkVisibility()) texts.push(element.textContent);
    }
    for (const element of root.querySelectorAll("*")) if (element.shadowRoot) walk(element.shadowRoot);
  };
  walk(document);
  return texts.sort();
})()"""


@pytest_asyncio.fixture(scope="module")
async def page() -> AsyncIterator[Session]:
    """A page of a reader."""
    async with plain_browser() as browser:
        target = await browser.call("Target.createTarget", url="about:blank")
        page = await browser.attach(target["targetId"])
        await page.call("Page.enable")
        yield page


async def seen(page: Session, url: str, *, scripts: bool) -> tuple[list[str], list[str]]:
    """What a screen reader announces, and the visible texts."""
    await page.call("Emulation.setScriptExecutionDisabled", value=not scripts)
    loaded = page.expect("Page.loadEventFired")
    await page.call("Page.navigate", url=url)
    await loaded
    tree = announced((await page.call("Accessibility.getFullAXTree"))["nodes"])
    return sorted(map(str, tree)), await page.evaluate(LOOK)


@pytest.mark.parametrize(
    ("flat", "names"),
    [
        pytest.param(False, [*CASES], id="declarative", marks=pytest.mark.ci_only),
        pytest.param(True, [*CASES][::4], id="flattened"),
        pytest.param(True, [*CASES], id="all flattened", marks=pytest.mark.long),
    ],
)
async def test_it_is_the_same_for_readers_without_scripts(
    flat: bool,
    names: list[str],
    page: Session,
    start_origin: StartOrigin,
    start_proxy: StartProxy,
) -> None:
    content = {
        f"/{name}": f"<!DOCTYPE html><title>t</title>{html}<script>{DEFINE}{script}</script>"
        for name, (html, script) in CASES.items()
    }
    origin = await pages(start_origin, content)
    proxy = await start_proxy(origin.url, {"snapshot": {"flatten_shadow_dom": flat}})
    wrong = {}
    for name in names:
        live = await seen(page, f"{origin.url}/{name}", scripts=True)
        url = f"http://127.0.0.1:{proxy.running.public_port}/{name}?_escaped_fragment_="
        snapshot = await seen(page, url, scripts=False)
        # Without shadow roots, their styles would apply to the whole page.
        if live[0] != snapshot[0] or (live[1] != snapshot[1] and not flat):
            wrong[name] = live, snapshot
    assert not wrong
