"""Nothing gets past the gateway: a page that tries every way out, in a real browser."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from prerender.gateway.address_policy import Guard
from prerender.gateway.gateway import Gateway
from prerender.gateway.upstream import Upstream, open_session
from tests.conftest import Site, StartOrigin, StartProxy
from tests.support.canary import Canary
from tests.support.plain_client import PUBLIC
from tests.support.pools import launch_browser

ESCAPE = (Path(__file__).parent / "escape.html").read_text(encoding="utf-8")
# All ways of the page lead to the first, some to each of them.
HOSTS = [
    "127.0.0.1",
    "localhost",
    "[::1]",
    "2130706433",
    "0x7f.1",
    "0.0.0.0",
    "[::ffff:127.0.0.1]",
    "canary.localhost",
    "www.example.com",
    "other.example",
]


async def escaping(start_origin: StartOrigin, canary: Canary, hosts: list[str]) -> Site:
    """A site with a page that tries to reach the canary."""
    page = ESCAPE.replace("PORT", str(canary.port)).replace("HOSTS", json.dumps(hosts))
    application = web.Application()

    async def show(_: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    async def hold(_: web.Request) -> web.Response:
        await asyncio.sleep(1)
        return web.Response(text="held")

    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": request.query_string})

    async def policies(request: web.Request) -> web.Response:
        """A frame that breaks its policies, and whose failures are to be reported."""
        url = request.query_string
        headers = {
            "Content-Security-Policy": f"img-src 'none'; report-uri {url}",
            "Reporting-Endpoints": f'there="{url}", default="{url}"',
            "Report-To": json.dumps(
                {"group": "there", "max_age": 600, "endpoints": [{"url": url}]}
            ),
            "NEL": json.dumps({"report_to": "there", "max_age": 600, "success_fraction": 1.0}),
        }
        text = '<img src="/x.png"><script>document.write("<script src=x.js><\\/script>")</script>'
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def links(request: web.Request) -> web.Response:
        url = request.query_string
        kinds = ("preload; as=script", "preconnect", "dns-prefetch", "stylesheet", "prefetch")
        headers = {
            "Link": ", ".join(f"<{url}>; rel={kind}" for kind in kinds),
            "Refresh": f"0; url={url}",
            "SourceMap": url,
            "Speculation-NetworkRules": f'"{url}"',
        }
        return web.Response(text="links", content_type="text/html", headers=headers)

    async def styled(request: web.Request) -> web.Response:
        url = request.query_string
        text = f"""<?xml-stylesheet type="text/xsl" href="{url}"?>
            <!DOCTYPE a [<!ENTITY b SYSTEM "{url}">]><a>&b;</a>"""
        return web.Response(text=text, content_type="text/xml")

    async def worker(request: web.Request) -> web.Response:
        url = json.dumps(request.query_string)
        text = f"""oninstall = () => {{ fetch({url}, {{mode: "no-cors"}}); skipWaiting(); }};
            importScripts({url});"""
        return web.Response(text=text, content_type="text/javascript")

    routes = {
        "/": show,
        "/hold": hold,
        "/redirect": redirect,
        "/policies": policies,
        "/links": links,
        "/styled": styled,
        "/worker.js": worker,
    }
    application.add_routes([web.get(path, handler) for path, handler in routes.items()])
    return await start_origin(application)


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_no_page_reaches_this_machine(
    start_origin: StartOrigin, start_own_proxy: StartProxy, scheme: str
) -> None:
    async with Canary.open() as canary:
        origin = await escaping(start_origin, canary, HOSTS)
        proxy = await start_own_proxy(
            origin.url, {"site": {"url": f"{scheme}://www.example.com"}, "browser": {"pages": 1}}
        )
        answer = await proxy.crawl("/")
        assert '<p id="out">tried</p>' in answer.text
        # What is still under way comes to an end with the page.
        async with asyncio.timeout(15):
            while "1 idle" not in repr(proxy.running.pool):
                await asyncio.sleep(0.01)
        assert canary.touched == []


class Ungated(Gateway):
    """Leads nothing to itself."""

    @property
    def resolver_rules(self) -> str:
        return ""


async def test_without_the_gateway_it_would(start_origin: StartOrigin) -> None:
    """The page above does try: in a browser that has a network it reaches the canary."""
    async with Canary.open() as canary:
        origin = await escaping(start_origin, canary, ["127.0.0.1"])
        async with (
            open_session(Guard.only(URL(origin.url)), 1, 5) as session,
            Ungated.open(PUBLIC, Upstream(session, URL(origin.url)), session) as ungated,
        ):
            browser = await launch_browser(ungated)
            try:
                target = await browser.devtools.call("Target.createTarget", url=origin.url)
                page = await browser.devtools.attach(target["targetId"])
                async with asyncio.timeout(15):
                    while await page.evaluate("globalThis.out?.textContent") != "tried":
                        await asyncio.sleep(0.05)
            finally:
                await browser.close()
        touched = {match[1] for line in canary.touched if (match := re.search(r" /(\S+)", line))}
        assert len(touched) > 50, touched
        some = {"fetch", "img", "websocket", "worker-fetch", "beacon", "font", "service-worker"}
        assert some | {"policies", "early-links", "sign-in"} <= touched
        assert not any(line.startswith("UDP") for line in canary.touched)
