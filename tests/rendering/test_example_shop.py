"""The example in examples/hashbang behind the proxy, as a crawler sees it."""

import html
import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from prerender.urls.ajax_crawling import pretty_to_ugly
from tests.conftest import Proxy, Reply, StartOrigin, StartProxy, proxied
from tests.support import example

SITE_URL = "https://shop.example"
OPT_IN = '<meta name="fragment" content="!">'


@pytest_asyncio.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with proxied(example.shop(), {"site": {"url": SITE_URL}}) as proxy:
        yield proxy


def _checked(reply: Reply, *, status: int = 200, title: str) -> str:
    """The text of a snapshot that is correct, complete, and free of internal URLs."""
    assert reply.status == status
    assert f"<title>{html.escape(title, quote=False)}</title>" in reply.text
    assert '<script type="module"' not in reply.text
    assert "Loading" not in reply.text
    assert 'name="fragment"' not in reply.text
    assert "prerender-status-code" not in reply.text
    assert "127.0.0.1" not in reply.text + str(reply.headers)
    return reply.text


def _head(snapshot: str) -> dict[str, str]:
    """Canonical, description and Open Graph contents of a snapshot."""
    found = re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)"', snapshot)
    found += re.findall(r'<link rel="(canonical)" href="([^"]*)"', snapshot)
    return {name: html.unescape(content) for name, content in found}


def _links(snapshot: str) -> list[str]:
    """The href of every link, without repetitions, in order."""
    found = re.findall(r'<a [^>]*?href="([^"]*)"', snapshot)
    return list(dict.fromkeys(html.unescape(href) for href in found))


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


async def test_the_readme_tells_the_truth(proxy: Proxy) -> None:
    """Each row of its table: a state, its pretty URL, and the ugly URL of its snapshot."""
    readme = (example.FOLDER / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| `([^`|]+)` \| `([^`|]+)` \|$", readme, re.MULTILINE)
    assert len(rows) == 8
    for state, pretty, ugly in rows:
        assert pretty_to_ugly(pretty, opted_in=True) == ugly
        reply = await proxy.get(ugly)
        assert reply.status == (404 if "404" in state else 200)
        assert "Hashbang Goods</title>" in reply.text


async def test_the_landing_page_opts_in(proxy: Proxy) -> None:
    page = await proxy.get("/")
    assert OPT_IN in page.text
    assert "Favourites" not in page.text
    ugly = pretty_to_ugly("/", opted_in=OPT_IN in page.text)
    assert ugly == "/?_escaped_fragment_="
    snapshot = _checked(await proxy.get(ugly), title="Hashbang Goods")
    assert _head(snapshot)["canonical"] == f"{SITE_URL}/"
    assert "<h1>Things made to be kept</h1>" in snapshot
    favourites = sorted(example.ITEMS, key=lambda item: -item["rating"])[:4]
    for item in favourites:
        assert f">{_escaped(item['name'])}</a>" in snapshot


async def test_every_item_is_found_by_following_links(proxy: Proxy) -> None:
    """As a crawler of the scheme does: the list, its links, and the ugly URL of each."""
    snapshot = _checked(await proxy.crawl("/#!/items"), title="All items · Hashbang Goods")
    assert "<h1>All items</h1>" in snapshot
    assert _head(snapshot)["canonical"] == f"{SITE_URL}/#!/items"
    links = [link for link in _links(snapshot) if link.startswith("/#!/items/")]
    assert links == [f"/#!/items/{item['id']}" for item in example.ITEMS]
    for link, item in [*zip(links, example.ITEMS, strict=True)][::4]:
        ugly = pretty_to_ugly(link)
        assert ugly == f"/?_escaped_fragment_=/items/{item['id']}"
        page = _checked(await proxy.get(ugly), title=f"{item['name']} · Hashbang Goods")
        assert f"<h1>{_escaped(item['name'])}</h1>" in page
        assert _escaped(item["description"]) in page
        assert f"€{item['price_cents'] / 100:,.2f}" in page
        for fact in item["facts"].items():
            assert "<dt>{}</dt><dd>{}</dd>".format(*map(_escaped, fact)) in page
        assert ("In stock" if item["in_stock"] else "Sold out") in page
        head = _head(page)
        assert head["canonical"] == head["og:url"] == f"{SITE_URL}{link}"
        assert head["description"] == head["og:description"] == item["summary"]


async def test_structured_content_stays(proxy: Proxy) -> None:
    """JSON-LD for search engines is a script element that does not run."""
    page = _checked(await proxy.crawl("/#!/items/3"), title="Arc Desk Lamp · Hashbang Goods")
    [text] = re.findall(r'<script type="application/ld\+json"[^>]*>(.*?)</script>', page)
    product, trail = json.loads(text)["@graph"]
    assert product["name"] == "Arc Desk Lamp"
    assert product["offers"]["url"] == f"{SITE_URL}/#!/items/3"
    assert product["image"] == f"{SITE_URL}/art.svg#item-3"
    assert trail["itemListElement"][0]["item"] == f"{SITE_URL}/"


@pytest.mark.parametrize("state", ["/items/999", "/nowhere"])
async def test_what_is_missing_is_a_404(proxy: Proxy, state: str) -> None:
    reply = await proxy.crawl(f"/#!{state}")
    page = _checked(reply, status=404, title="Not found · Hashbang Goods")
    assert "<h1>Not found</h1>" in page
    assert _head(page)["robots"] == "noindex"


async def test_search(proxy: Proxy) -> None:
    page = _checked(await proxy.crawl("/#!/search"), title="Search · Hashbang Goods")
    assert "What are you looking for?" in page

    page = _checked(await proxy.crawl("/#!/search?q=lamp"), title="Search: lamp · Hashbang Goods")
    names = [item["name"] for item in example.ITEMS if "lamp" in item["name"].lower()]
    assert names
    for name in names:
        assert f">{name}</a>" in page
    assert re.search(r'<input [^>]*value="lamp"', page)


async def test_search_with_escapes_in_the_fragment(proxy: Proxy) -> None:
    pretty = "/#!/search?q=salt%20%26%20pepper&sort=price"
    ugly = "/?_escaped_fragment_=/search?q=salt%2520%2526%2520pepper%26sort=price"
    assert pretty_to_ugly(pretty) == ugly
    page = _checked(await proxy.get(ugly), title="Search: salt & pepper · Hashbang Goods")
    assert "1 result for “salt &amp; pepper”" in page
    assert "Salt &amp; Pepper Mills" in page
    assert _head(page)["canonical"] == f"{SITE_URL}{pretty}"
    assert '<option value="price" selected="">' in page


async def test_about_needs_nothing_from_the_origin(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    shop = await start_origin(example.shop())
    proxy = await start_proxy(shop.url, {"site": {"url": SITE_URL}})
    page = _checked(await proxy.crawl("/#!/about"), title="About · Hashbang Goods")
    assert "We sell twelve things" in page
    assert not [request for request in shop.requests if request.path.startswith("/api/")]


async def test_contact_has_its_late_hours(proxy: Proxy) -> None:
    page = await proxy.get("/contact")
    assert OPT_IN in page.text
    assert "Saturday" not in page.text
    reply = await proxy.get("/contact?_escaped_fragment_=")
    snapshot = _checked(reply, title="Contact · Hashbang Goods")
    assert '<th scope="row">Saturday</th><td>10:00 to 16:00</td>' in snapshot
    assert _head(snapshot)["canonical"] == f"{SITE_URL}/contact"


async def test_people_get_the_origins_pages(proxy: Proxy) -> None:
    site = example.FOLDER / "site"
    assert (await proxy.get("/")).body == (site / "index.html").read_bytes()
    assert (await proxy.get("/app.js")).body == (site / "app.js").read_bytes()
    answer = await proxy.get("/api/items/3")
    assert json.loads(answer.text)["name"] == "Arc Desk Lamp"
    missing = await proxy.get("/no/such/page")
    assert missing.status == 404
    assert "There is no page at this address." in missing.text


async def test_the_sitemap_has_the_pretty_urls_of_all_states(proxy: Proxy) -> None:
    headers = {"Host": "shop.example", "X-Forwarded-Proto": "https"}
    sitemap = (await proxy.get("/sitemap.xml", headers=headers)).text
    urls = [html.unescape(url) for url in re.findall("<loc>(.*?)</loc>", sitemap)]
    items = [f"/#!/items/{item['id']}" for item in example.ITEMS]
    states = ["/", "/#!/items", *items, "/#!/about", "/contact"]
    assert urls == [f"{SITE_URL}{state}" for state in states]
