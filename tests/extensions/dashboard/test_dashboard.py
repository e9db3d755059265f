"""The dashboard in a real browser, on the example shop: the four questions that it answers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from yarl import URL

from prerender.snapshots.entry import Entry
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import Proxy, StartOrigin, StartProxy, pages, proxied
from tests.support import example
from tests.support.tab import Tab, browsing, persons_browser

SITE = "https://shop.example"
SETTINGS = {"triggers": {"search": "render"}, "cache": {"stale": "1h"}}
GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
# Marks in a chart or its legend that have no colour.
UNCOLOURED = """[...document.querySelectorAll(".swatch, svg .bar")].filter((one) => {
  const { fill, backgroundColor } = getComputedStyle(one);
  const shown = one.closest("svg") ? fill : backgroundColor;
  return ["rgb(0, 0, 0)", "rgba(0, 0, 0, 0)"].includes(shown);
}).map((one) => one.getAttribute("class"))"""
AXE = (files("axe_core_python") / "axe.min.js").read_text("utf-8")
# Of axe-core: what keeps people out. Lesser impacts are "minor" and "moderate".
_GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
async def window() -> AsyncIterator[Tab]:
    async with persons_browser() as devtools, browsing(devtools) as one:
        yield one


@pytest.fixture
async def tab(window: Tab) -> Tab:
    """The same for all tests: each proxy has its own port, and so its own storage."""
    await window.go("about:blank")
    await window.session.call("Network.clearBrowserCookies")
    await window.shape(1280, 900)
    window.complaints.clear()
    window.asked.clear()
    return window


@pytest.fixture
async def proxy(start_origin: StartOrigin, start_proxy: StartProxy) -> Proxy:
    """A proxy in front of the shop that crawlers have used."""
    shop = await start_origin(example.shop())
    proxy = await start_proxy(shop.url, SETTINGS)
    await use(proxy)
    return proxy


@pytest.fixture(scope="module")
def requests_to_read() -> list[str]:
    """The paths that the shop to read was asked for."""
    return []


@pytest.fixture(scope="module")
async def proxy_to_read(requests_to_read: list[str]) -> AsyncIterator[Proxy]:
    """The same for tests that change nothing but add a snapshot."""
    shop = example.shop()

    async def record(request: web.Request, _: web.StreamResponse) -> None:
        requests_to_read.append(request.path)

    shop.on_response_prepare.append(record)
    async with proxied(shop, SETTINGS | {"site": {"url": SITE}}) as proxy:
        await use(proxy)
        yield proxy


async def use(proxy: Proxy) -> None:
    for _ in range(2):
        for page in ("/#!/items/3", "/#!/items/999", "/#!/items"):
            await proxy.crawl(page)
    await proxy.get("/contact", headers={"User-Agent": GOOGLEBOT})


async def store(proxy: Proxy, path: str) -> None:
    """A snapshot that was not rendered."""
    target = Target.of(URL(SITE), PrettyURL(path, ""))
    snapshot = Snapshot(200, (), path.encode(), f'"{path}"', int(time.time()))
    now = time.time()
    await proxy.running.store.set(Entry(target.key, target.path, snapshot, now, now + 100), 100)


async def look(tab: Tab, proxy: Proxy, place: str) -> None:
    await tab.go(f"{proxy.admin_url}/#/{place}")


@asynccontextmanager
async def offline(tab: Tab) -> AsyncIterator[None]:
    limits = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    await tab.session.call("Network.emulateNetworkConditions", offline=True, **limits)
    try:
        yield
    finally:
        await tab.session.call("Network.emulateNetworkConditions", offline=False, **limits)
        tab.complaints.clear()


@asynccontextmanager
async def held(tab: Tab, pattern: str) -> AsyncIterator[asyncio.Future[dict[str, Any]]]:
    """The first request whose URL has a pattern; it is sent at the end."""
    first: asyncio.Future[dict[str, Any]] = tab.session.future("a request to hold")

    def paused(found: dict[str, Any]) -> None:
        if not first.done():
            first.set_result(found)

    tab.session.on("Fetch.requestPaused", paused)
    await tab.session.call("Fetch.enable", patterns=[{"urlPattern": pattern}])
    try:
        yield first
    finally:
        await tab.session.call("Fetch.disable")
        tab.session.remove_listener("Fetch.requestPaused", paused)


def asked_elsewhere(tab: Tab, proxy: Proxy) -> list[str]:
    host = urlsplit(proxy.admin_url).netloc
    return [url for url in tab.asked if urlsplit(url).netloc != host and url[:5] != "blob:"]


async def begin_job(proxy: Proxy) -> None:
    """A job that renders a page now, and the next one in a minute."""
    body = {"url": ["/#!/items/1", "https://other.example/", "/#!/items/2"], "rate": 0.01}
    async with proxy.client.post(f"{proxy.admin_url}/api/v1/jobs", json=body) as response:
        assert response.status == 200


async def test_is_it_well_and_what_does_it_do(proxy: Proxy, tab: Tab) -> None:
    await look(tab, proxy, "")
    await tab.sees("Healthy")
    await tab.sees("42.9 %")  # 3 of 7
    await tab.sees("3 of 7 snapshots")
    await tab.click("summary", "Figures")
    await tab.sees("Old snapshot kept", "figure table")
    await tab.sees("/contact", ".latest")
    await tab.sees("Googlebot", "#crawlers")
    await tab.click("#crawlers button", "Since start")
    await tab.sees("Unknown clients (ugly URLs)", "#crawlers")
    assert await tab.run("document.querySelector('.jobs')") is None  # until there are any
    # Live: what comes now is seen without a click.
    await tab.run("document.querySelector('.latest footer a').focus()")
    await proxy.get("/contact", headers={"User-Agent": "Mozilla/5.0 (compatible; bingbot/2.0)"})
    await proxy.get("/contact", headers={"User-Agent": "FancyBot/1.0"})
    await proxy.crawl("/#!/about")
    await begin_job(proxy)
    await tab.sees("/#!/about", ".latest")
    await tab.sees("bingbot", "#crawlers")
    await tab.sees("FancyBot", "#bots")
    assert await tab.run("document.activeElement.textContent") == "All requests"
    opened = "[...document.querySelectorAll('details[open]')].map((one) => one.className)"
    assert await tab.run(opened) == ["figures"]
    await tab.sees("3 pages", ".jobs")
    await tab.sees("1 rendered", ".jobs")
    await tab.sees("1 invalid", ".jobs")
    await tab.sees("Kept in memory", ".jobs")
    await tab.click(".jobs button", "Cancel")
    await tab.click("dialog button", "Cancel the job")
    await tab.sees("Cancelled", ".jobs")
    assert tab.complaints == []
    assert asked_elsewhere(tab, proxy) == []


@pytest.mark.ci_only
async def test_what_have_crawlers_asked_for(proxy: Proxy, tab: Tab) -> None:
    await look(tab, proxy, "")
    await tab.click("nav a", "Requests")
    await tab.sees("7 in total")
    await tab.sees("Googlebot")
    await tab.click("#filter-search")
    await tab.type("googlebot")
    await tab.sees("1 in total")
    await tab.click("button.open")
    await tab.sees(GOOGLEBOT, ".opened")
    await tab.sees("a crawler by its User-Agent", ".opened")
    await tab.click("#live")
    await tab.sees("Live (paused while rows are in use)")
    await tab.sees(GOOGLEBOT, ".opened")
    assert "search=googlebot" in await tab.run("location.hash")
    await tab.click("tbody a", "/contact")
    await tab.sees("Contact", "h1")

    await tab.click("nav a", "Snapshots")
    await tab.sees("4 in total")
    await tab.click("th button", "Page")
    await tab.until("document.querySelector('[aria-sort=ascending]').textContent === 'Page'")
    pages_ = await tab.run(
        "[...document.querySelectorAll('tbody .path')].map((e) => e.textContent)"
    )
    assert pages_ == ["/#!/items", "/#!/items/3", "/#!/items/999", "/contact"]
    await tab.run("document.getElementById('filter-status').value = '404'")
    await tab.run("document.getElementById('filter-status').dispatchEvent(new Event('change'))")
    await tab.sees("1 in total")
    await tab.click("tbody input[type=checkbox]")
    await tab.sees("1 selected")
    await tab.click("button", "Mark stale")
    await tab.sees("1 snapshot marked stale")
    await tab.sees("Stale", "tbody .pill")
    await tab.click("tbody input[type=checkbox]")
    await tab.click("button", "Render now")
    await tab.sees("Rendering: 1 done")
    await tab.sees("Fresh", "tbody .pill")
    await tab.click("tbody input[type=checkbox]")
    await tab.click("button.danger", "Purge")
    await tab.sees("will be removed", "dialog")
    await tab.click("#ask-yes")
    await tab.sees("1 snapshot purged")
    await tab.sees("0 in total")
    miss = await proxy.crawl("/#!/items/999")
    assert "fwd=miss" in miss.headers["Cache-Status"]
    assert tab.complaints == []


async def test_what_is_chosen_stays_so_when_more_is_shown(
    start_origin: StartOrigin, start_proxy: StartProxy, tab: Tab
) -> None:
    proxy = await start_proxy(
        (await start_origin(example.shop())).url, SETTINGS | {"site": {"url": SITE}}
    )
    for number in range(60):
        await store(proxy, f"/{number}")
    await look(tab, proxy, "snapshots")
    await tab.sees("50 of 60")
    await tab.click("thead input[type=checkbox]")
    await tab.sees("50 selected")
    async with offline(tab):
        await tab.click("button", "Show more")
        await tab.sees("The proxy does not respond.", ".count")
    await tab.click("button", "Show more")
    await tab.sees("60 in total")
    await tab.sees("50 selected")
    await tab.click("thead input[type=checkbox]")
    await tab.sees("60 selected")
    await tab.click("tbody input[type=checkbox]")
    await tab.sees("59 selected")
    await tab.click("button.danger", "Purge")
    await tab.click("#ask-yes")
    await tab.sees("59 snapshots purged")
    await tab.sees("1 in total")
    assert not await tab.run("document.querySelector('input:checked')")
    # A late response to an older search.
    search = "document.getElementById('filter-search')"
    async with asyncio.timeout(10), held(tab, "*search=late*") as request:
        for text in ("late", ""):
            await tab.run(f"{search}.value = '{text}'")
            await tab.run(f"{search}.dispatchEvent(new Event('input'))")
            await (request if text else tab.until("!location.hash.includes('late')"))
        await tab.sees("1 in total")
        await tab.click("tbody input[type=checkbox]")
        await tab.sees("1 selected")
    ended = "performance.getEntriesByType('resource').some((one) => one.name.includes('=late'))"
    await tab.until(ended)
    await tab.sees("1 selected")
    # While they are rendered, nothing else is done with them.
    async with asyncio.timeout(10), held(tab, "*/render") as request:
        await tab.click("button", "Render now")
        await request
        enabled = "document.querySelectorAll('.bar .actions button:enabled').length"
        assert await tab.run(enabled) == 0
        await tab.click("thead input[type=checkbox]")
        assert await tab.run(enabled) == 0
    await tab.sees("Rendering: 1 done")
    assert tab.complaints == []


async def test_what_is_more_and_what_is_not_there(
    start_origin: StartOrigin, start_proxy: StartProxy, tab: Tab
) -> None:
    proxy = await start_proxy((await start_origin(example.shop())).url)
    for number in range(25):
        await proxy.get(f"/{number}", headers={"User-Agent": GOOGLEBOT})
    await look(tab, proxy, "report")
    rows = "[...document.querySelectorAll('section:has(#pages-search) tbody th')]"
    await tab.until(f"{rows}.length === 20")
    async with offline(tab):
        await tab.click("section:has(#pages-search) .more")
        await tab.sees("The proxy does not respond.", "section:has(#pages-search)")
        assert await tab.run(f"{rows}.length") == 20
    await tab.run(
        "(() => { const more = document.querySelector('section:has(#pages-search) .more');"
        " more.focus(); more.click(); more.click() })()"
    )
    await tab.until(f"{rows}.length > 20 && document.activeElement === {rows}[20].firstChild")
    assert await tab.run(f"new Set({rows}.map((one) => one.textContent)).size") == 25
    assert await tab.run(f"{rows}.length") == 25
    for width in (861, 1100, 1287, 1301):
        await tab.shape(width, 900)
        sticking_out = "document.documentElement.scrollWidth > innerWidth"
        assert not await tab.run(sticking_out), width
    await look(tab, proxy, "requests")
    await tab.until("document.querySelector('button.open[aria-label=\"Details of /24\"]')")
    await look(tab, proxy, f"page/{'0' * 32}")
    await tab.sees("This link is not valid", "h1")
    await tab.sees("unknown page", "main")


async def test_what_did_the_crawler_see(
    proxy_to_read: Proxy, requests_to_read: list[str], tab: Tab
) -> None:
    await look(tab, proxy_to_read, "")
    await tab.sees("Healthy")
    await tab.click("#open-url")
    await tab.type("#!/items/3")
    await tab.press("Enter")
    await tab.sees("Arc Desk Lamp", "h1")
    both = "[...document.querySelectorAll('.pair img')].filter((one) => one.naturalWidth === 1280)"
    await tab.until(f"{both}.length === 2")
    await tab.sees("100 % of the text is the same")
    await tab.sees("The texts are identical.")
    await tab.click("button.fold")
    await tab.sees("Powder-coated steel", ".text")
    await tab.click("button", "Difference")
    await tab.sees("The screenshots are identical", ".overlay")
    assert "null" not in await tab.run("document.body.innerText")
    for text in (
        "A steel arc that brings warm light",
        f"{SITE}/#!/items/3",
        "BreadcrumbList",
        "/api/items/3",
        "nothing was pending",
        "Content-Type",
        f"{SITE}/?_escaped_fragment_=/items/3",
        "No errors.",
        "one version so far",
    ):
        await tab.sees(text, "main")
    requests_to_read.clear()
    await tab.click("button.primary", "Render now")
    await tab.sees("and stored")
    await tab.until("document.activeElement.textContent === 'Render now'")
    assert "/" in requests_to_read
    html = await tab.run("document.querySelector('a[href$=\"/html\"]').href")
    await tab.go(html)
    await tab.sees("<h1>Arc Desk Lamp</h1>")
    assert tab.complaints == []
    assert asked_elsewhere(tab, proxy_to_read) == []


@pytest.mark.ci_only
async def test_what_have_crawlers_got_over_months(proxy_to_read: Proxy, tab: Tab) -> None:
    await look(tab, proxy_to_read, "")
    await tab.sees("figures since 20", "#since")
    await tab.click("nav a", "Report")
    await tab.sees("kept in memory, until this process ends")
    await tab.sees("Googlebot", ".view.report")
    await tab.sees("#!/items/", ".view.report")
    await tab.click("summary", "Figures")
    await tab.sees("Fresh snapshots", ".figures table")
    await tab.click("button", "Compare")
    await tab.sees("of 16 pages", ".gap")
    await tab.sees("never", ".gap")
    await tab.click("button", "90 days")
    await tab.until("document.querySelectorAll('.report-days .column').length === 90")
    assert await tab.run(UNCOLOURED) == []
    assert tab.complaints == []
    assert asked_elsewhere(tab, proxy_to_read) == []


@pytest.mark.ci_only
async def test_who_gets_it_even_if_it_is_not_kept(proxy_to_read: Proxy, tab: Tab) -> None:
    """Search crawlers get snapshots; visitors and other crawlers get the page itself."""
    await look(tab, proxy_to_read, "snapshots")
    await tab.click("tbody a", "/contact")
    await tab.sees("the fresh snapshot", "#decisions")
    rows = "[...document.querySelectorAll('#decisions tbody tr')]"
    told = await tab.run(f"{rows}.map((row) => [...row.cells].map((cell) => cell.textContent))")
    assert [(who, gets) for who, gets, *_ in told] == [
        ("Any client, ugly URL", "Snapshot"),
        ("A visitor", "Page of the origin"),
        ("Google Search", "Snapshot"),
        ("OpenAI training crawler", "Page of the origin"),
        ("A link preview", "Page of the origin"),
    ]
    assert all(why for _, _, why, _ in told)
    await look(tab, proxy_to_read, "snapshots")
    await tab.click("tbody a", "/#!/items/3")
    await tab.sees("Any client, ugly URL", "#decisions")
    assert await tab.run(f"{rows}.length") == 1
    assert tab.complaints == []
    await tab.click("#open-url")
    await tab.type("/nobody-asked-for-this")
    await tab.press("Enter")
    await tab.sees("No snapshot of this page is stored")
    for word in ("null", "undefined", "[object"):
        assert word not in await tab.run("document.body.innerText")


@pytest.mark.ci_only
async def test_what_differs_or_is_refused_is_shown_and_versions_too(
    start_origin: StartOrigin, start_proxy: StartProxy, tab: Tab
) -> None:
    tracker = "https://www.google-analytics.com/a.js"
    content = {
        "/": f"<title>Lamps</title><h1>Lamps</h1><p>cost 20 euros<script src={tracker}></script>"
    }
    site = await pages(start_origin, content)
    proxy = await start_proxy(site.url)
    await proxy.crawl("/")
    await look(tab, proxy, "snapshots")
    await tab.click("tbody a")
    await tab.sees("one version so far")
    await tab.sees("The texts are identical", ".looks")
    await tab.sees("announces the same", ".looks")
    await tab.sees("The proxy refuses these requests, in both pictures.", ".looks")
    await tab.sees(f"{tracker}: a tracker", ".looks .refused li")
    content["/"] = "<title>Lamps</title><h1>Lamps</h1><p>cost 25 euros"
    await proxy.client.post(f"{proxy.admin_url}/api/v1/purge", json={"url": "/", "soft": True})
    # What a person saw is remembered for a while, with this version of the snapshot.
    await tab.reload()
    await tab.sees("The texts are identical", ".looks")
    await tab.sees("announces the same", ".looks")
    # Not by the button, which would have the page look again before the site has changed.
    await proxy.client.post(f"{proxy.admin_url}/api/v1/render", json={"url": "/"})
    content["/"] = (
        "<title>Lamps</title><h1>Lamps</h1><p>cost 30 euros</p><button aria-label=Buy></button>"
    )
    await tab.reload()
    await tab.sees("1 passage differs", ".looks")
    await tab.sees("30", ".looks .text del")
    await tab.sees("25", ".looks .text ins")
    await tab.sees("button “Buy”", ".looks li")
    await tab.until("document.querySelectorAll('.versions li').length === 2")
    await tab.sees("20", "#history .text del")
    await tab.sees("25", "#history .text ins")


@pytest.mark.ci_only
async def test_what_is_slow_or_wrong(
    start_origin: StartOrigin, start_proxy: StartProxy, tab: Tab
) -> None:
    slow = "<p id=t>0<script>setInterval(() => { t.textContent++ }, 5)</script>"
    content = {
        "/empty": "<script>document.documentElement.remove()</script>",
        "/noisy": "<p>noisy<script>nonsense()</script>",
        "/slow": slow,
        "/fine": "<p>fine",
    }
    site = await pages(start_origin, content)
    proxy = await start_proxy(site.url)
    for page in content:
        await proxy.crawl(page)
    await look(tab, proxy, "")
    await tab.sees("failed", ".banner.bad")
    await tab.click("nav a", "Problems")
    await tab.sees("/empty", ".listing:nth-of-type(1)")
    await tab.sees("failing since", ".listing:nth-of-type(1)")
    await tab.sees("script error", ".listing:nth-of-type(3)")
    await tab.sees("/slow", ".listing:nth-of-type(4)")
    await tab.click("a", "/noisy")
    await tab.sees("nonsense is not defined", "#render .errors")
    # Rendered again without a problem.
    content["/empty"] = "<p>no longer empty"
    await proxy.client.post(f"{proxy.admin_url}/api/v1/render", json={"url": "/empty"})
    await tab.click("nav a", "Problems")
    await tab.sees("rendered again", ".listing:nth-of-type(1)")
    # A render that fails while nothing is stored, and while an old snapshot is.
    await tab.click("a", "/empty")
    await tab.sees("Fresh", ".page-heading")
    content["/empty"] = "<script>document.documentElement.remove()</script>"
    await tab.click("button.primary", "Render now")
    await tab.sees("the old snapshot is kept", "#toasts")
    assert "EmptyPage" not in await tab.run("document.body.innerText")


async def test_renders_that_fail_have_their_times(
    start_origin: StartOrigin, start_proxy: StartProxy, tab: Tab
) -> None:
    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/file":
            return web.Response(body=b"%PDF", content_type="application/pdf")
        page = "<p>Lamps<script>fetch('/data').then((found) => found.json())</script>"
        status = 200 if request.path == "/a" else 500
        return web.Response(text=page, content_type="text/html", status=status)

    app.router.add_get("/{path:.*}", answer)
    proxy = await start_proxy((await start_origin(app)).url)
    await proxy.crawl("/a")
    await proxy.crawl("/file")
    await look(tab, proxy, "")
    await tab.sees("s each", ".tile:nth-child(4)")
    await tab.sees("Not a page", ".charts .card:nth-child(2) .legend")
    assert await tab.run(UNCOLOURED) == []


@pytest.mark.ci_only
async def test_why_is_a_page_not_rendered(
    start_origin: StartOrigin, start_proxy: StartProxy, tab: Tab
) -> None:
    """By default, crawlers are forwarded at ordinary URLs. The dashboard says so, and names the
    setting.
    """
    site = await pages(start_origin, {"/a": "<p>a"})
    proxy = await start_proxy(site.url)
    await proxy.get("/a", headers={"User-Agent": GOOGLEBOT})
    await look(tab, proxy, "")
    await tab.sees("1 of 1 request of known crawlers got the page without a snapshot")
    await tab.sees(
        "forwards them: Googlebot. To serve them snapshots, set PRERENDER_TRIGGERS_PRESET=search"
    )
    await tab.click(".banner a", "without a snapshot")
    await tab.sees("1 in total")
    await tab.click("tbody a", "/a")
    await tab.sees("Googlebot", "#visits")
    await tab.sees("PRERENDER_TRIGGERS_SEARCH=render", "#visits")
    await tab.sees("Page of the origin", "#decisions")
    await look(tab, proxy, "page/?url=/b")
    await tab.sees("No crawler has requested this page", "#visits")
    assert [one for one in tab.complaints if "404" not in one] == []


@pytest.mark.ci_only
async def test_unknown_bots(start_origin: StartOrigin, start_proxy: StartProxy, tab: Tab) -> None:
    """They are listed with the line that puts them into a class, and without markup of their own."""
    site = await pages(start_origin, {"/a": "<p>a"})
    more = [{"class": "feed", "name": "OwnBot"}]
    proxy = await start_proxy(site.url, {"triggers": {"more": more}})
    await look(tab, proxy, "")
    await tab.sees("No crawlers in the last hour of this process.")
    assert await tab.run("document.querySelector('#bots')") is None
    for user_agent in (
        "FancyBot/1.0",
        "FancyBot/1.0",
        "OwnBot/1.0",
        "<img src=x onerror=pwned=1> crawler",
    ):
        await proxy.get("/a", headers={"User-Agent": user_agent})
    await look(tab, proxy, "requests")
    await look(tab, proxy, "overview")
    await tab.sees("2 clients that look automated", "#bots")
    await tab.click("#bots summary", "Setting")
    line = 'more = [{ class = "feed", name = "OwnBot" }, { class = "seo_tool", name = "FancyBot" }]'
    await tab.sees(line, "#bots")
    assert await tab.run("typeof pwned") == "undefined"
    assert tab.complaints == []


HOSTILE = """<!doctype html><title></textarea><img src=x onerror=pwned=1></title>
<script>parent.pwned = 1</script>
<meta name=description content='</textarea><script>window.pwned = 1</script>'>
<meta property='og:title' content='"><img src=x onerror=pwned=1>'>
<meta property='og:image' content='javascript:pwned=1'>
<link rel=canonical href='javascript:pwned=1'>
<script type='application/ld+json'>{"@type": "<img src=x onerror=pwned=1>"}</script>
<h1>&lt;script&gt;pwned = 1&lt;/script&gt;</h1><h1>&lt;/textarea&gt;</h1>
<iframe srcdoc="<script>top.pwned = 1</script>"></iframe><svg onload=pwned=1></svg>
<p>&lt;img src=x onerror=pwned=1&gt;<pre id=long></pre>
<script>throw Error('</textarea><img src=x onerror=pwned=1>')</script>"""


async def test_hostile_snapshots_cannot_act(
    start_origin: StartOrigin, start_proxy: StartProxy, tab: Tab
) -> None:
    path = "/%3Cimg%20src=x%20onerror=pwned=1%3E"
    # With markup in its path, in the page, and in who requests it; and long.
    title = f"{'x' * 300}</title>"
    page = f"{HOSTILE}<p>{'word ' * 1_000}".replace("</title>", title, 1)
    site = await pages(start_origin, {"/<img src=x onerror=pwned=1>": page})
    proxy = await start_proxy(site.url)
    agent = "<img src=x onerror=pwned=1> Googlebot"
    assert (await proxy.crawl(path, headers={"User-Agent": agent})).status == 200
    for place in ("", "report", "requests", "snapshots", "problems"):
        await look(tab, proxy, place)
        await tab.sees("img", "main")
        assert (
            await tab.run("document.querySelectorAll('main img, main iframe, main script').length")
            == 0
        )
    await look(tab, proxy, "snapshots")
    await tab.click("tbody a", "img")
    await tab.until("document.querySelector('.looks .text')")
    await tab.sees("</textarea>", "main")
    assert not await tab.run("document.documentElement.scrollWidth > innerWidth")
    kinds = await tab.run(
        "[...document.querySelectorAll('main img')].every((one) => one.src.startsWith('blob:'))"
    )
    assert kinds
    assert (
        await tab.run(
            "document.querySelectorAll('main iframe, main script, main svg[onload]').length"
        )
        == 0
    )
    links = await tab.run("[...document.querySelectorAll('main a')].map((one) => one.protocol)")
    assert set(links) == {"http:"}
    assert await tab.run("window.pwned") is None
    await tab.go(await tab.run("document.querySelector('a[href$=\"/html\"]').href"))
    await tab.sees("<h1>")
    assert await tab.run("document.contentType") == "text/plain"
    assert await tab.run("window.pwned") is None
    assert [one for one in tab.complaints if "Security Policy" in one or "pwned" in one] == []


async def test_the_way_in(start_origin: StartOrigin, start_proxy: StartProxy, tab: Tab) -> None:
    token = "a-token-of-enough-length"
    site = await pages(start_origin, {"/": "<p>x"})
    proxy = await start_proxy(site.url, {"admin": {"token": token}})
    await look(tab, proxy, "snapshots")
    await tab.sees("Log in", "h1")
    await tab.type("wrong")
    await tab.press("Enter")
    await tab.sees("the token is wrong")
    await tab.type(token)
    await tab.press("Enter")
    await tab.sees("Snapshots", "h1")
    await tab.sees("0 in total")
    await tab.reload()
    await tab.sees("Snapshots", "h1")
    assert await tab.run("document.cookie") == ""
    await tab.click("#leave")
    await tab.sees("Log in", "h1")


@pytest.mark.ci_only
@pytest.mark.parametrize(
    ("shapes", "some"),
    [
        pytest.param([(1440, False), (390, True)], True, id="one by turns"),
        pytest.param(
            [(1440, False), (390, True), (1440, True), (390, False)],
            False,
            id="all",
            marks=pytest.mark.long,
        ),
    ],
)
async def test_nobody_is_kept_out(
    proxy_to_read: Proxy, tab: Tab, shapes: list[tuple[int, bool]], some: bool
) -> None:
    """axe-core finds nothing serious, in light and dark mode, and nothing overflows a phone."""
    asked = await proxy_to_read.client.get(
        f"{proxy_to_read.admin_url}/api/v1/pages?url=/%23!/items/3"
    )
    key = (await asked.json())["id"]
    await begin_job(proxy_to_read)
    places = [
        ("overview", "Healthy"),
        ("requests", "in total"),
        ("snapshots", "in total"),
        ("problems", "Slowest"),
        ("report", "By folder"),
        (f"page/{key}", "of the text is the same"),
    ]
    # Two of them are lists like that of the snapshots.
    if some:
        del places[1], places[2]
    for number, (place, shown) in enumerate(places):
        await look(tab, proxy_to_read, place)
        await tab.sees(shown, "main")
        # axe-core takes up to two seconds of CPU time for each: of the first and last only.
        is_checked = not some or number in (0, len(places) - 1)
        if is_checked:
            await tab.run(AXE)
        for width, dark in shapes[number % 2 :: 2] if some else shapes:
            await tab.shape(width, 844, dark=dark)
            sticking_out = "document.documentElement.scrollWidth > innerWidth"
            assert not await tab.run(sticking_out), (place, width)
            assert await tab.run(UNCOLOURED) == [], (place, width, dark)
            if not is_checked:
                continue
            found: dict[str, Any] = await tab.run("axe.run({ resultTypes: ['violations'] })")
            grave = {
                one["id"]: [node["html"][:150] for node in one["nodes"]]
                for one in found["violations"]
                if one["impact"] in _GRAVE
            }
            assert grave == {}, (place, width, dark)


@pytest.mark.ci_only
async def test_by_keyboard_alone(proxy_to_read: Proxy, tab: Tab) -> None:
    await look(tab, proxy_to_read, "overview")
    await tab.sees("Healthy")
    await tab.run("document.body.focus()")
    await tab.press("Tab")
    assert await tab.run("document.activeElement.textContent") == "Skip to content"
    for _ in range(20):
        await tab.press("Tab")
        if await tab.run("document.activeElement.textContent") == "Snapshots":
            break
    await tab.press("Enter")
    await tab.sees("in total")
    for _ in range(40):
        await tab.press("Tab")
        if await tab.run("document.activeElement.matches('tbody a')"):
            break
    await tab.press("Enter")
    await tab.sees("Comparison")
    assert await tab.run("document.activeElement.id") == "main"
