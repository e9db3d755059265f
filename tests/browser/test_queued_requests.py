"""Requests of a page that are not at the gateway, because Chromium has no free connection for them.

HTTP/1.1: Chromium opens six connections to an origin and queues further requests.
"""

import asyncio

from aiohttp import web

from tests.conftest import StartOrigin, StartProxy

CONNECTIONS = 6
PATIENCE_SECONDS = 0.4
PAGE = f"""<!DOCTYPE html><p id="out">waiting</p><script>
  for (let i = 0; i < {CONNECTIONS}; i++) new Image().src = `/slow?${{i}}`;
  const show = (answer) => {{ out.textContent = `shows ${{answer}}`; }};
  DATA
</script>"""
FETCH = 'setTimeout(() => fetch("/data").then((answer) => answer.text()).then(show), 30);'
XHR = """setTimeout(() => {
  const request = new XMLHttpRequest();
  request.open("GET", "/data");
  request.onload = () => show(request.responseText);
  request.send();
}, 30);"""


async def test_queued_data_is_waited_for(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(10 * PATIENCE_SECONDS)
        return web.Response(body=b"", content_type="image/png")

    async def data(_: web.Request) -> web.Response:
        return web.Response(text="data")

    async def page(request: web.Request) -> web.Response:
        how = {"/fetch": FETCH, "/xhr": XHR}[request.path]
        return web.Response(text=PAGE.replace("DATA", how), content_type="text/html")

    application = web.Application()
    application.router.add_get("/slow", slow)
    application.router.add_get("/data", data)
    application.router.add_get("/fetch", page)
    application.router.add_get("/xhr", page)
    origin = await start_origin(application)
    proxy = await start_proxy(
        origin.url, {"render": {"patience": PATIENCE_SECONDS}, "browser": {"pages": 2}}
    )
    for answer in await asyncio.gather(proxy.crawl("/fetch"), proxy.crawl("/xhr")):
        assert '<p id="out">shows data</p>' in answer.text
