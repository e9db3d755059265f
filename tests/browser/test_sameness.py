"""A page is the same alone and eight at once beside busy CPUs: what its parser and scripts observe, its
snapshot, and the requests that it makes, in their order."""

import asyncio
import html
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from aiohttp import web

from tests.conftest import StartOrigin, StartProxy
from tests.support.processes import busy_loops

AT_ONCE = 8
ALONE = "n999"
PAGE = (Path(__file__).parent / "isolation" / "observables.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("frame", "renders"),
    [
        (True, 4),
        pytest.param(True, 40, marks=pytest.mark.long),
        pytest.param(False, 40, marks=pytest.mark.long),
    ],
)
async def test_a_page_under_load_is_the_same(
    start_origin: StartOrigin, start_proxy: StartProxy, frame: bool, renders: int
) -> None:
    page = PAGE if frame else re.sub("<iframe.*?</iframe>", "", PAGE, flags=re.DOTALL)
    asked: dict[str, list[str]] = defaultdict(list)

    async def answer(request: web.Request) -> web.Response:
        number = request.query_string.partition("=")[0]
        asked[number].append(request.path)
        kinds = {"js": "text/javascript", "css": "text/css"}
        kind = kinds.get(request.path.rpartition(".")[2], "text/html")
        first = "globalThis.seen = [];" if request.path == "/first.js" else ""
        text = page.replace("?N", f"?{number}") if request.path == "/page" else first
        return web.Response(
            text=text or f"/* {request.path} */",
            content_type=kind,
            headers={"Cache-Control": "no-store"},
        )

    application = web.Application()
    application.router.add_get("/{path}", answer)
    site = await start_origin(application)
    proxy = await start_proxy(
        site.url,
        {"browser": {"pages": min(4, renders // 2)}, "site": {"url": "https://www.example.com"}},
    )

    async def render(number: str) -> str:
        reply = await proxy.crawl(f"/page?{number}")
        assert reply.status == 200, reply.text
        return reply.text.replace(number, "N")

    alone = await render(ALONE)
    async with busy_loops(2):
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> str:
            async with gate:
                return await render(f"n{number:03}")

        others = await asyncio.gather(*(one(number) for number in range(renders)))
    assert {alone} == set(others)
    first = asked.pop(ALONE)
    assert first[0] == "/page"
    assert {"/pixel", "/no.css", "/without-scripts"}.isdisjoint(first)
    # The network gives parallel requests no order.
    assert {tuple(sorted(paths)) for paths in asked.values()} == {tuple(sorted(first))}
    found = re.search(r'<p id="out">(.*?)</p>', alone)
    assert found
    noscripts, *more = json.loads(html.unescape(found[1]))
    # As text, but for SVG's, which is no noscript of HTML; the frame's is its own.
    assert all(children == 0 for children, _, _ in noscripts)
    assert [with_tags for _, with_tags, _ in noscripts].count(True) == len(noscripts) - 1
    assert more[:2] == [True, "rgb(0, 0, 0)"]
