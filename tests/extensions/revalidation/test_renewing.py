"""Expired snapshots are renewed without rendering, and rendered when there is any doubt."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from prerender.snapshots.entry import Entry, decode, encode
from prerender.snapshots.purges import Purge
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import Proxy, Reply, StartOrigin, StartProxy
from tests.support import programs
from tests.support.renders import PUBLIC, until

SETTINGS = {
    "site": {"url": "https://www.example.com"},
    "cache": {"revalidate": True, "stale": 0},
}
PAGE = """<!doctype html><title>Shop</title><p id=p></p><script>
fetch('/data', OPTIONS).then(r => r.text()).then(text => p.textContent = text)</script>"""


class Shop:
    """A site of one page, which shows ``data``. ``requests``: how often each path was requested."""

    def __init__(self) -> None:
        self.data = "data 1"
        self.options = "{}"
        self.down = False
        self.requests: Counter[str] = Counter()
        self.bodies: list[str] = []
        # Responses with data wait for it.
        self.gate = asyncio.Event()
        self.gate.set()
        self.proxy: Proxy

    async def answer(self, request: web.Request) -> web.Response:
        self.requests[request.path] += 1
        if self.down:
            return web.Response(status=503)
        if request.path == "/":
            return web.Response(
                text=PAGE.replace("OPTIONS", self.options), content_type="text/html"
            )
        if request.method == "POST":
            self.bodies.append((await request.read()).decode("latin-1"))
        await self.gate.wait()
        return web.Response(text=self.data, headers={"ETag": f'"{self.data}"'})

    async def expire(self, *, soft: bool = True) -> None:
        await self.proxy.running.store.purges.purge(Purge("all", soft=soft))

    async def crawl(self) -> Reply:
        """The page, after its snapshot has expired."""
        await self.expire()
        return await self.proxy.crawl("/")

    async def trusted(self) -> Reply:
        """The page, after its first renewals have been checked by rendering."""
        for _ in range(3):
            reply = await self.crawl()
            assert "fwd=miss; stored" in reply.headers["Cache-Status"]
        return reply

    async def explained(self) -> dict[str, object]:
        url = f"{self.proxy.admin_url}/api/v1/explain?url=/?_escaped_fragment_="
        async with self.proxy.client.get(url) as response:
            found: dict[str, object] = (await response.json())["snapshot"]
        return found

    async def renewal(self) -> object:
        """What the dashboard says."""
        key = Target.of(PUBLIC, PrettyURL("/", "")).key
        async with self.proxy.client.get(f"{self.proxy.admin_url}/api/v1/snapshots/{key}") as reply:
            snapshot = (await reply.json())["snapshot"]
        assert snapshot["rendered"] <= snapshot["stored"]
        return snapshot["renewal"]

    async def entry(self) -> Entry:
        entry = await self.proxy.running.store.get(Target.of(PUBLIC, PrettyURL("/", "")).key)
        assert entry is not None
        return entry


@pytest.fixture
async def shop(start_origin: StartOrigin, start_proxy: StartProxy) -> Shop:
    shop = Shop()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", shop.answer)
    shop.proxy = await start_proxy((await start_origin(application)).url, SETTINGS)
    return shop


def is_renewed(reply: Reply) -> bool:
    return "detail=revalidated" in reply.headers["Cache-Status"]


async def test_a_page_whose_inputs_are_the_same_is_not_rendered(shop: Shop) -> None:
    rendered = await shop.trusted()
    records: list[Any] = []
    shop.proxy.running.telemetry.requests.subscribe(records.append)
    reply = await shop.crawl()
    assert (
        reply.headers["Cache-Status"]
        == "prerender; fwd=stale; stored; ttl=3600; detail=revalidated; age=0"
    )
    assert "Server-Timing" not in reply.headers
    await until(lambda: bool(records))
    assert (records[0].cache, records[0].timings) == ("revalidated", None)
    async with shop.proxy.client.get(f"{shop.proxy.admin_url}/api/v1/summary") as response:
        points = (await response.json())["points"]
    assert sum(point.get("hits", 0) for point in points) == 1
    assert reply.body == rendered.body
    for name in ("ETag", "Last-Modified"):
        assert reply.headers[name] == rendered.headers[name]
    again = await shop.proxy.crawl("/")
    assert "hit; ttl=3" in again.headers["Cache-Status"]
    assert not is_renewed(again)
    # One in four is checked by rendering.
    assert [is_renewed(await shop.crawl()) for _ in range(4)] == [True, True, False, True]


async def test_a_change_is_rendered(shop: Shop) -> None:
    await shop.trusted()
    before = shop.requests.copy()
    shop.data = "data 2"
    reply = await shop.crawl()
    assert "fwd=miss; stored" in reply.headers["Cache-Status"]
    assert '<p id="p">data 2</p>' in reply.text
    # The render has the document already.
    assert shop.requests["/"] - before["/"] == 1
    # The page is still trusted.
    assert is_renewed(await shop.crawl())


async def test_a_check_requests_what_a_render_requests(shop: Shop) -> None:
    await shop.crawl()
    first = shop.requests.copy()
    await shop.crawl()
    assert shop.requests - first == first


async def test_a_failing_site_leaves_the_old_snapshot(shop: Shop) -> None:
    rendered = await shop.trusted()
    shop.down = True
    reply = await shop.crawl()
    assert reply.body == rendered.body
    assert reply.headers["Cache-Status"] == "prerender; fwd=stale; detail=failed"
    shop.down = False


async def test_a_hard_purge_is_followed_by_a_render(shop: Shop) -> None:
    await shop.trusted()
    await shop.expire(soft=False)
    assert "fwd=miss; stored" in (await shop.proxy.crawl("/")).headers["Cache-Status"]


@pytest.mark.parametrize("soft", [False, True])
async def test_a_purge_while_the_inputs_are_asked_for_wins(shop: Shop, soft: bool) -> None:
    await shop.trusted()
    shop.gate.clear()
    before = shop.requests["/data"]
    crawl = asyncio.create_task(shop.crawl())
    await until(lambda: shop.requests["/data"] > before)
    await shop.expire(soft=soft)
    shop.data = "data 2"
    shop.gate.set()
    await crawl
    assert "data 2" in (await shop.proxy.crawl("/")).text


async def test_a_page_that_posts_is_always_rendered(shop: Shop) -> None:
    shop.options = "{method: 'POST'}"
    for _ in range(5):
        assert not is_renewed(await shop.crawl())
    explained = await shop.explained()
    assert explained["renewed_without_rendering"] == 0
    assert explained["always_rendered_because"] == (
        "it sends a request other than GET that [cache] revalidate_post does not list: "
        "https://www.example.com/data"
    )
    assert await shop.renewal() == {
        "count": 0,
        "always_rendered_because": explained["always_rendered_because"],
    }


@pytest.fixture
async def searching(start_origin: StartOrigin, start_proxy: StartProxy) -> Shop:
    """A shop whose POST requests for data are listed."""
    shop = Shop()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", shop.answer)
    settings = SETTINGS | {"cache": {"revalidate": True, "revalidate_post": ["/d*"]}}
    shop.proxy = await start_proxy((await start_origin(application)).url, settings)
    return shop


async def test_a_listed_post_is_repeated_with_its_body(searching: Shop) -> None:
    shop = searching
    shop.options = "{method: 'POST', body: '{birds(first: 3) {name}}'}"
    await shop.trusted()
    shop.bodies.clear()
    assert is_renewed(await shop.crawl())
    assert shop.bodies == ["{birds(first: 3) {name}}"]
    shop.data = "data 2"
    assert "data 2" in (await shop.crawl()).text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("'x'.repeat(16385)", "the body of its POST request is over 16 KiB, or no text: {}"),
        ("new Uint8Array([255])", "the body of its POST request is over 16 KiB, or no text: {}"),
        ("`{birds} ${Date.now()}`", "a request contains the current time: {}"),
    ],
)
async def test_a_listed_post_that_cannot_be_repeated(searching: Shop, body: str, why: str) -> None:
    shop = searching
    shop.options = f"{{method: 'POST', body: {body}}}"
    assert "data 1" in (await shop.crawl()).text
    assert len(shop.bodies[0]) in (16385, 1, 21)
    explained = await shop.explained()
    assert explained["always_rendered_because"] == why.format("https://www.example.com/data")


async def test_it_is_rendered_at_the_latest_after_max_age(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    shop = Shop()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", shop.answer)
    url = (await start_origin(application)).url
    settings = SETTINGS | {"cache": {"revalidate": True, "max_age_without_render": "10m"}}
    shop.proxy = await start_proxy(url, settings)
    await shop.trusted()
    assert is_renewed(await shop.crawl())
    explained = await shop.explained()
    assert explained["renewed_without_rendering"] == 1
    assert explained["always_rendered_because"] == ""
    assert await shop.renewal() == {"count": 1, "always_rendered_because": ""}
    said = await programs.run("explain", "/?_escaped_fragment_=", "--admin", shop.proxy.admin_url)
    assert f"renewed 1 time without rendering since {explained['rendered']}" in said.out.decode()
    entry = await shop.entry()
    assert entry.renewals is not None
    assert entry.renewals.count == 1
    assert entry.expires == pytest.approx(entry.rendered + 600, abs=1)
    assert entry.rendered < entry.stored


async def test_an_entry_without_a_manifest_is_one_of_an_older_release(shop: Shop) -> None:
    await shop.trusted()
    entry = await shop.entry()
    data = encode(entry)
    assert decode(data) == entry
    assert decode(data).snapshot.manifest == entry.snapshot.manifest != b""
    old = replace(entry, snapshot=replace(entry.snapshot, manifest=b""), renewals=None)
    written = encode(old)
    assert not any(name in written for name in (b"manifest_bytes", b"unrenewable", b"renewals"))
    assert decode(written) == old
