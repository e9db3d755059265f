"""Pages that get their content late, while other requests hang or never end."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from prerender.browser.settling.patience import UNPRODUCTIVE_SECONDS
from tests.conftest import Proxy, StartOrigin, StartProxy

# HTTP/1.1: Chromium opens six connections to an origin and queues further requests.
CONNECTIONS = 6
PATIENCE_SECONDS = 0.4
LATE_MS = 1000 * UNPRODUCTIVE_SECONDS + 500
PAGE = """<!DOCTYPE html><p id="out">waiting</p><script>
  const show = (answer) => { out.textContent = `shows ${answer}`; };
  const load = () => fetch("/data").then((answer) => answer.text()).then(show);
</script>"""
SLOW_IMAGES = f"for (let i = 0; i < {CONNECTIONS}; i++) new Image().src = `/slow?${{i}}`;"
PAGES = {
    "/queued/fetch": f"{SLOW_IMAGES} setTimeout(load, 30);",
    "/queued/xhr": f"""{SLOW_IMAGES} setTimeout(() => {{
      const request = new XMLHttpRequest();
      request.open("GET", "/data");
      request.onload = () => show(request.responseText);
      request.send();
    }}, 30);""",
    "/late/video": f"""document.createElement("video").src = "/hang";
      setTimeout(load, {LATE_MS});""",
    "/late/stream": f"""new EventSource("/hang"); setTimeout(load, {LATE_MS});""",
    "/late/events": f"""new EventSource("/events").onmessage = () => {{}};
      setTimeout(load, {LATE_MS});""",
    "/late/poll": f"""(async () => {{ for (;;) await fetch("/polling"); }})();
      setTimeout(load, {LATE_MS});""",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def _page(request: web.Request) -> web.Response:
    script = PAGES[request.path]
    return web.Response(text=f"{PAGE}<script>{script}</script>", content_type="text/html")


async def _data(_: web.Request) -> web.Response:
    await asyncio.sleep(PATIENCE_SECONDS / 2)
    return web.Response(text="data")


async def _slow(_: web.Request) -> web.Response:
    await asyncio.sleep(10 * PATIENCE_SECONDS)
    return web.Response(body=b"", content_type="image/png")


async def _hang(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def _events(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    while True:
        await answer.write(b"data: nothing new\n\n")
        await asyncio.sleep(PATIENCE_SECONDS / 2)


async def _polling(_: web.Request) -> web.Response:
    await asyncio.sleep(2 * PATIENCE_SECONDS)
    return web.Response(text="nothing new")


async def _proxy(start_origin: StartOrigin, start_proxy: StartProxy, count: int) -> Proxy:
    application = web.Application()
    handlers: dict[str, Handler] = {
        **dict.fromkeys(PAGES, _page),
        "/data": _data,
        "/slow": _slow,
        "/hang": _hang,
        "/events": _events,
        "/polling": _polling,
    }
    for path, handler in handlers.items():
        application.router.add_get(path, handler)
    origin = await start_origin(application)
    return await start_proxy(
        origin.url,
        {"render": {"patience": PATIENCE_SECONDS}, "browser": {"pages": count}},
    )


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param([*PAGES][::4], id="some"),
        pytest.param([*PAGES], id="all", marks=pytest.mark.long),
    ],
)
async def test_late_content_is_waited_for(
    start_origin: StartOrigin, start_proxy: StartProxy, paths: list[str]
) -> None:
    proxy = await _proxy(start_origin, start_proxy, len(paths))
    answers = await asyncio.gather(*map(proxy.crawl, paths))
    shown = {path: "shows data" in answer.text for path, answer in zip(paths, answers, strict=True)}
    assert all(shown.values()), shown
