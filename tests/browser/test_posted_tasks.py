"""Tasks that a page has posted run while a request is pending, as in a browser.

Otherwise an application that renders in tasks would send its requests one after the other.
"""

import asyncio
from http import HTTPStatus

import pytest
from aiohttp import web

from tests.conftest import StartOrigin, StartProxy
from tests.support.sampling import sampled

# After this, the clock does not wait for the first response.
PATIENCE_SECONDS = 14
_CHANNEL = "const { port1, port2 } = new MessageChannel(); port1.onmessage = load;"
_GIF = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
POSTING = {
    "a message": f"{_CHANNEL} port2.postMessage(0)",
    "a message after a response": f"{_CHANNEL} fetch('/other').then(() => port2.postMessage(0))",
    "a message after messages": f"""{_CHANNEL} let left = 50;
      port1.onmessage = () => left-- ? port2.postMessage(0) : load(); port2.postMessage(0)""",
    "a message of the window": "onmessage = load; postMessage(0)",
    "an immediate timer": "setTimeout(load)",
    "a task of the scheduler": "scheduler.postTask(load)",
    "yielding": "scheduler.yield().then(load)",
    "an image": f"const image = new Image(); image.onload = load; image.src = '{_GIF}'",
    "endless messages": f"""{_CHANNEL} load();
      port1.onmessage = () => port2.postMessage(0); port2.postMessage(0)""",
}
PAGE = """<!DOCTYPE html><title>Tasks</title><p id="first"></p><p id="second"></p><script>
  const text = async (path) => (await fetch(path)).text();
  text("/first").then((found) => { first.textContent = found; });
  const load = () => text("/second").then((found) => { second.textContent = found; });
  POST
</script>"""


@pytest.mark.parametrize("how", sampled([*POSTING], 4))
async def test_a_request_from_a_task_does_not_wait_for_others(
    start_origin: StartOrigin, start_proxy: StartProxy, how: str
) -> None:
    """The first response is sent when the second request arrives."""
    asked = asyncio.Event()

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=PAGE.replace("POST", POSTING[how]), content_type="text/html")

    async def first(_: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS / 2):
                await asked.wait()
        except TimeoutError:
            return web.Response(text="nothing else came", status=HTTPStatus.GATEWAY_TIMEOUT)
        return web.Response(text="one")

    async def second(_: web.Request) -> web.Response:
        asked.set()
        return web.Response(text="two")

    async def other(_: web.Request) -> web.Response:
        return web.Response()

    application = web.Application()
    application.router.add_get("/", page)
    application.router.add_get("/first", first)
    application.router.add_get("/second", second)
    application.router.add_get("/other", other)
    origin = await start_origin(application)
    settings: dict[str, dict[str, object]] = {
        "site": {"url": "https://www.example.com"},
        "render": {"patience": f"{PATIENCE_SECONDS}s"},
    }
    proxy = await start_proxy(origin.url, settings)
    reply = await proxy.crawl("/")
    assert '<p id="first">one</p><p id="second">two</p>' in reply.text
