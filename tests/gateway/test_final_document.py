"""A snapshot shows the document from the origin, or one that the page reloaded from there.

It never shows an error of the origin or the gateway, a page of the browser, or another page.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from prerender.proxy.decision import LONGEST_PAGE
from tests.conftest import Proxy, proxied
from tests.support.sampling import sampled

pytestmark = pytest.mark.asyncio(loop_scope="module")
SITE = "https://www.example.com"
AGAIN = "if (!sessionStorage.again) { sessionStorage.again = 1; location.reload(); }"
COOKIES = "for (let n = 0; n < 150; n++) document.cookie = `c${n}=${'x'.repeat(4000)}`;"
SERVICE_WORKER = """oninstall = () => skipWaiting();
onactivate = (event) => event.waitUntil(clients.claim());
onfetch = (event) => event.respondWith(RESPONSE);"""
REGISTER = """navigator.serviceWorker.register("/worker.js?%s")
  .then(() => navigator.serviceWorker.ready).then(() => { AGAIN });""".replace("AGAIN", AGAIN)
WORKERS = {
    "error": "Response.error()",
    "status": "new Response('foreign', {status: 500})",
}


def page(script: str = "") -> web.Response:
    return web.Response(text=f"<p>mine</p><script>{script}</script>", content_type="text/html")


def application() -> web.Application:
    """``/NAME`` reloads itself once; the second document is as the name says."""
    asked: set[str] = set()
    reloaded = {
        "/400": web.Response(status=400, text="foreign"),
        "/404": web.Response(status=404, text="<p>gone</p>", content_type="text/html"),
        "/500": web.Response(status=500, text="<p>foreign</p>", content_type="text/html"),
        "/text": web.Response(text="foreign"),
        "/json": web.json_response("foreign"),
        "/elsewhere": web.Response(status=302, headers={"Location": "/other"}),
        "/abroad": web.Response(status=302, headers={"Location": "http://other.example/x"}),
        "/bounce": web.Response(status=302, headers={"Location": "/bounce"}),
        "/empty": web.Response(status=204),
    }
    plain = {
        "/other": page(),
        "/cookies": page(COOKIES + AGAIN),
        "/data": page("location.href = 'data:text/html,foreign'"),
        "/blob": page("location.href = URL.createObjectURL(new Blob(['foreign']))"),
        "/blank": page("location.href = 'about:blank'"),
        "/push": page("history.pushState(null, '', '/other')"),
        "/worker-error": page(REGISTER % "error"),
        "/worker-status": page(REGISTER % "status"),
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == "/worker.js":
            script = SERVICE_WORKER.replace("RESPONSE", WORKERS[request.query_string])
            return web.Response(text=script, content_type="text/javascript")
        again = path in asked
        asked.symmetric_difference_update({path})
        if again and path == "/cut":
            response = web.StreamResponse(headers={"Content-Type": "text/html"})
            response.content_length = 1000
            await response.prepare(request)
            await response.write(b"<p>foreign</p>")
            assert request.transport is not None
            request.transport.abort()
            return response
        found = plain.get(path) or (reloaded[path] if again and path in reloaded else page(AGAIN))
        # Each answer is sent once only.
        return web.Response(status=found.status, headers=found.headers, body=found.body)

    made = web.Application()
    made.router.add_get("/{path:.*}", answer)
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with proxied(application(), {"site": {"url": SITE}, "browser": {"pages": 1}}) as started:
        yield started


@pytest.mark.parametrize(
    "path",
    sampled(
        [
            *("/400", "/500", "/text", "/json", "/cut", "/blob", "/blank"),
            *("/worker-error", "/worker-status"),
        ],
        2,
    ),
)
async def test_what_is_not_the_page_is_no_snapshot(proxy: Proxy, path: str) -> None:
    answer = await proxy.crawl(path)
    assert answer.status == 503
    assert "foreign" not in answer.text


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/bounce", 200, "mine"),
        ("/cookies", 200, "mine"),
        ("/data", 200, "mine"),
        ("/empty", 200, "mine"),
        ("/push", 200, "mine"),
        ("/404", 404, "gone"),
    ],
)
async def test_the_page_itself(proxy: Proxy, path: str, status: int, text: str) -> None:
    answer = await proxy.crawl(path)
    assert (answer.status, f"<p>{text}</p>" in answer.text) == (status, True)


@pytest.mark.parametrize(
    ("path", "location"),
    [("/elsewhere", f"{SITE}/other"), ("/abroad", "http://other.example/x")],
)
async def test_a_reload_that_is_redirected(proxy: Proxy, path: str, location: str) -> None:
    answer = await proxy.crawl(path)
    assert (answer.status, answer.headers["Location"]) == (302, location)


@pytest.mark.parametrize("character", ['"', "<", "a"])
async def test_long_urls(proxy: Proxy, character: str) -> None:
    """As long as those of pages may be. The browser writes %22 for a quotation mark."""
    query = character * (LONGEST_PAGE - 100)
    for target in (f"/other?{query}&_escaped_fragment_=", f"/other?_escaped_fragment_={query}"):
        answer = await proxy.get(target)
        assert (answer.status, "<p>mine</p>" in answer.text) == (200, True)
