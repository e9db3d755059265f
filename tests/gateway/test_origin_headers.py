"""``[origin] headers``: the origin gets them with every request of the proxy itself, nobody else."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from urllib.parse import quote

import pytest
from aiohttp import ClientSession, web

from tests.conftest import Site, StartOrigin, StartProxy
from tests.support.programs import run
from tests.support.serve_command import StartCommand

STAGING = "Basic c3RhZ2luZzpzM2NyZXQtcGFzc3dvcmQ="
TOKEN = "s3cret-token"
UGLY = "/?_escaped_fragment_="
HEADERS = [f"Authorization: {STAGING}", f"X-WAF-Token: {TOKEN}", "User-Agent: Staging/1"]
SECRETS = (STAGING.removeprefix("Basic "), "s3cret")
PAGE = """<!DOCTYPE html><title>Staging</title><ul id=list></ul><img src="/picture.svg">
<script src="/app.js"></script>"""
PLAIN = """<!DOCTYPE html><title>Plain</title><p id=out></p><script>
  fetch("/data").then((response) => response.text()).then((text) => { out.textContent = text; });
</script>"""
# Everything by which a page makes requests, and everything in which it could see headers.
SCRIPT = """
const say = (text) => list.append(Object.assign(document.createElement("li"), { textContent: text }));
const words = (headers) => JSON.stringify([...headers]);
const worker = new Worker(URL.createObjectURL(new Blob([
  `fetch("${location.origin}/of-a-worker").then((r) => r.text()).then(postMessage)`])));
worker.onmessage = ({ data }) => say(data);
(async () => {
  const request = new Request("/data", { headers: { "X-Own": "1" } });
  const response = await fetch(request);
  say(await response.text() + words(request.headers) + words(response.headers));
  const bearer = { headers: { Authorization: "Bearer of-the-script" } };
  say(await (await fetch("/bearer", bearer)).text());
  const urls = ["/leave", "/leave?again", "ELSEWHERE/direct"];
  for (const url of urls) say(await (await fetch(url)).text());
  const late = new XMLHttpRequest();
  late.open("GET", "/by-xhr");
  late.onload = () => say(late.responseText + late.getAllResponseHeaders());
  late.send();
  const socket = new WebSocket(`ws://${location.host}/socket`);
  socket.onmessage = ({ data }) => { say(data); socket.close(); };
  new WebSocket(`ws://${location.host}/leave-by-socket`).onerror = () => say("socket refused");
  say(document.cookie + JSON.stringify(performance.getEntries()));
})();
"""


def refused(request: web.BaseRequest) -> web.Response | None:
    """The response of a staging server to a client without its password or its token."""
    own = request.headers.get("Authorization") in (STAGING, "Bearer of-the-script")
    if own and request.headers.get("X-WAF-Token") == TOKEN:
        return None
    return web.Response(status=401, headers={"WWW-Authenticate": "Basic realm=staging"})


async def third_party(start_origin: StartOrigin) -> Site:
    """A server of somebody else."""
    application = web.Application()

    async def anything(_: web.Request) -> web.Response:
        return web.Response(text="elsewhere", headers={"Access-Control-Allow-Origin": "*"})

    application.router.add_get("/{path:.*}", anything)
    return await start_origin(application)


async def staging(start_origin: StartOrigin, elsewhere: Site) -> Site:
    """A site behind a password, whose page asks everybody for everything."""
    application = web.Application()
    texts = {
        "/": (PAGE, "text/html"),
        "/plain": (PLAIN, "text/html"),
        "/app.js": (SCRIPT.replace("ELSEWHERE", elsewhere.url), "text/javascript"),
        "/picture.svg": ("<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
        "/robots.txt": ("User-agent: *\nAllow: /\n", "text/plain"),
        "/sitemap.xml": ("<urlset><url><loc>SITE/</loc></url></urlset>", "application/xml"),
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        if no := refused(request):
            return no
        if request.path.startswith("/leave"):
            return web.Response(status=302, headers={"Location": f"{elsewhere.url}/led"})
        if request.path == "/socket":
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.send_str("by socket")
            await socket.close()
            return socket
        site = f"{request.scheme}://{request.headers['Host']}"
        text, kind = texts.get(request.path, (f"data of {request.path}", "text/plain"))
        return web.Response(text=text.replace("SITE", site), content_type=kind)

    application.router.add_get("/{path:.*}", answer)
    return await start_origin(application)


async def test_renders_of_a_site_behind_a_password(
    start_origin: StartOrigin, start_own_proxy: StartProxy
) -> None:
    elsewhere = await third_party(start_origin)
    origin = await staging(start_origin, elsewhere)
    proxy = await start_own_proxy(
        origin.url,
        {
            "origin": {"headers": HEADERS},
            "site": {"url": "http://staging.example:8080"},
            "network": {"allow": [elsewhere.url]},
            "triggers": {"robots_opt_out": True},
        },
    )
    reply = await proxy.crawl("/")
    assert reply.status == 200, reply.text
    for text in (
        "of /data",
        "of /by-xhr",
        "of /of-a-worker",
        "of /bearer",
        "by socket",
        "socket refused",
    ):
        assert text in reply.text, text
    assert reply.text.count("elsewhere") >= 3

    paths = {request.path for request in origin.requests}
    assert {"/", "/app.js", "/picture.svg", "/of-a-worker", "/socket", "/robots.txt"} <= paths
    for request in origin.requests:
        assert refused(request) is None, request.path
        assert request.headers["User-Agent"] == "Staging/1"
    # As in a visitor's browser, a script's own password takes precedence.
    (bearer,) = [one for one in origin.requests if one.path == "/bearer"]
    assert bearer.headers["Authorization"] == "Bearer of-the-script"

    # Redirects led there twice, and a script once. A WebSocket follows none.
    assert sorted(request.path for request in elsewhere.requests) == ["/direct", "/led", "/led"]
    for request in elsewhere.requests:
        assert not any(secret in str(request.headers) for secret in SECRETS)
        assert "Staging" not in request.headers["User-Agent"]

    explain = f"/api/v1/explain?url={quote(UGLY)}"
    async with proxy.client.get(f"{proxy.admin_url}{explain}") as answer:
        key = (await answer.json())["page"]["key"]
    pages = [f"/api/v1/snapshots/{key}{part}" for part in ("", "/html", "/comparison")]
    told = [reply.text, str(reply.headers)]
    others = ("/api/v1/overview", "/api/v1/requests", "/metrics")
    for path in (*pages, explain, *others):
        async with proxy.client.get(f"{proxy.admin_url}{path}") as answer:
            told.append(await answer.text())
    assert not any(secret in text for secret in SECRETS for text in told)


async def test_visitors_need_the_password_themselves(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await staging(start_origin, await third_party(start_origin))
    proxy = await start_proxy(origin.url, {"origin": {"headers": HEADERS}})
    assert (await proxy.get("/data")).status == 401
    own = {"Authorization": STAGING, "X-WAF-Token": TOKEN}
    assert (await proxy.get("/data", headers=own)).status == 200


@pytest.mark.ci_only
async def test_the_log_does_not_have_them(
    start_origin: StartOrigin, start_command: StartCommand, client: ClientSession
) -> None:
    elsewhere = await third_party(start_origin)
    origin = await staging(start_origin, elsewhere)
    command = await start_command(
        origin.url,
        NETWORK_ALLOW=elsewhere.url,
        ORIGIN_HEADERS=json.dumps(HEADERS),
        LOG_LEVEL="debug",
    )
    await command.ready(client)
    async with client.get(f"{command.url}{UGLY}") as answer:
        assert answer.status == 200
    command.process.terminate()
    log = await command.rest()
    assert "rendered" in log
    assert not any(secret in log for secret in SECRETS)


Arguments = Callable[[str], list[str]]


@pytest.mark.ci_only
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (lambda url: ["check", f"{url}/plain", "--json", "--concurrency", "1"], '"status": 200'),
        (lambda url: ["sitemap", f"{url}/"], "<loc>"),
        (lambda url: ["render", f"{url}/plain"], "data of /data"),
        (lambda url: ["doctor"], "200"),
    ],
    ids=["check", "sitemap", "render", "doctor"],
)
async def test_commands_know_the_password(
    arguments: Arguments, said: str, start_origin: StartOrigin
) -> None:
    elsewhere = await third_party(start_origin)
    origin = await staging(start_origin, elsewhere)
    environ = {
        "PRERENDER_ORIGIN_URL": origin.url,
        "PRERENDER_ORIGIN_HEADERS": json.dumps(HEADERS),
        "PRERENDER_NETWORK_ALLOW": elsewhere.url,
    }
    ended = await run(*arguments(origin.url), environ=environ)
    assert said in ended.out.decode(), ended.err
    assert all(refused(request) is None for request in origin.requests)
    assert not any(secret in ended.out.decode() + ended.err for secret in SECRETS)


async def test_commands_do_not_tell_other_sites(start_origin: StartOrigin) -> None:
    elsewhere = await third_party(start_origin)
    origin = await staging(start_origin, elsewhere)
    environ = {
        "PRERENDER_ORIGIN_URL": origin.url,
        "PRERENDER_ORIGIN_HEADERS": json.dumps(HEADERS),
    }
    led = run("warm", f"{origin.url}/leave", environ=environ)
    others = [run(name, f"{elsewhere.url}/", environ=environ) for name in ("check", "sitemap")]
    # Without an origin in the settings, nothing says whose the headers are.
    del environ["PRERENDER_ORIGIN_URL"]
    others.append(run("render", f"{elsewhere.url}/", environ=environ))
    waiting: list[Awaitable[object]] = [led, *others]
    await asyncio.gather(*waiting)
    assert len(elsewhere.requests) >= 4
    for request in elsewhere.requests:
        assert not any(secret in str(request.headers) for secret in SECRETS)
