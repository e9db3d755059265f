"""What the browser or the proxy refuses, and what scripts throw, is on record with its cause."""

from typing import TYPE_CHECKING

from aiohttp import web

from prerender.snapshots.snapshot import Facts, Fetch
from tests.conftest import Proxy, StartOrigin, StartProxy

if TYPE_CHECKING:
    from prerender.telemetry.records import RenderRecord

PUBLIC = "https://www.example.com"
_POLICY = '<meta http-equiv="Content-Security-Policy" content="{}">'
PAGES = {
    "/mixed": f"<script>fetch('{PUBLIC.replace('https', 'http')}/data').catch(() => 0)</script>",
    "/inline": _POLICY.format("script-src 'self'") + "<script>document.title = 'booted'</script>",
    "/connect": _POLICY.format("connect-src 'none'")
    + "<script>fetch('/x').catch(() => 0)</script>",
    "/exception": "<script src='/boot.js'></script>",
    "/logs": "<script>console.error('Malformed JSON: /data')</script>",
    # As libraries do it: what is no JSON stays a text.
    "/tries": """<script>
      const tried = (text) => { try { return JSON.parse(text); } catch { return text; } };
      fetch("/picture.svg").then((response) => response.text()).then(tried);
      const request = new XMLHttpRequest();
      request.open("GET", "/picture.svg");
      request.onload = () => tried(request.responseText);
      request.send();
    </script>""",
    "/fallback": "<script>fetch('/logs').then((x) => x.text()).then(JSON.parse)"
    ".catch(() => 0)</script>",
    "/comments": "<script>fetch('/commented').then((x) => x.text()).then(JSON.parse)"
    ".catch(() => 0)</script>",
    "/left-out": "<script>fetch('https://www.google-analytics.com/x').then((x) => x.json())"
    ".catch(() => 0)</script>",
    "/empty": "<script>fetch('/nothing').then((x) => x.json()).catch(() => 0)</script>",
    # As a probe of the session of a visitor who has none.
    "/session": "<script>fetch('/length-0').then((x) => x.json()).catch(() => 0)</script>",
    "/session-as-xhr": """<script>
      const request = new XMLHttpRequest();
      request.open("GET", "/length-0");
      request.responseType = "json";
      request.onload = () => { document.title = request.response; };
      request.send();
    </script>""",
    "/session-is-null": """<script>
      const request = new XMLHttpRequest();
      request.open("GET", "/null");
      request.responseType = "json";
      request.onload = () => { document.title = request.response; };
      request.send();
    </script>""",
    # A redirect to the login is what a 401 is.
    "/guest": "<script>fetch('/to-login').then((x) => x.json()).catch(() => 0)</script>",
    "/guest-as-xhr": """<script>
      const request = new XMLHttpRequest();
      request.open("GET", "/to-login#fragment");
      request.onload = () => { try { JSON.parse(request.responseText); } catch {} };
      request.send();
    </script>""",
    "/plain-post": """<script>fetch("/text/ok", { method: "POST", body: "x" })
      .then((x) => x.json()).catch(() => 0)</script>""",
    **{
        f"/as-{kind}/{text}": f"<script>fetch('/text/{text}?json').then((x) => x.{kind}())"
        f".then((x) => JSON.parse(x)).catch(() => 0)</script>"
        for kind in ("text", "json")
        for text in ("ok", "blank", "undefined", "hijacking")
    },
    # As with axios, which tries to parse all texts as JSON.
    **{
        f"/used-by-{name}": f"""<script type=module>
          const text = await (await fetch("/logs")).text();
          try {{ JSON.parse(text); }} catch {{}}
          {use};
        </script>"""
        for name, use in {
            "parser": "new DOMParser().parseFromString(text, 'text/html')",
            "element": "document.createElement('div').innerHTML = text",
            "fragment": "document.createRange().createContextualFragment(text)",
        }.items()
    },
    "/cut-short": "<script>fetch('/text/cut').then((x) => x.json()).catch(() => 0)</script>",
    "/cut-short-text": "<script>fetch('/text/cut?json').then((x) => x.text()).then(JSON.parse)"
    ".catch(() => 0)</script>",
    "/redirected-cut-short": "<script>fetch('/to-cut').then((x) => x.json())"
    ".catch(() => 0)</script>",
    "/login": "<script>fetch('/logs').then((x) => x.json()).catch(() => 0)</script>",
    "/third": "<script>fetch('https://api.example.net/x').catch(() => 0)</script>",
}


TEXTS = {
    "/text/ok": "Everything is OK",
    "/text/blank": " \n   \n",
    "/text/undefined": "undefined",
    "/text/hijacking": ")]}',\n{}",
    "/text/cut": '{"word": "some text th',
}
# Each is no JSON, but not for lack of data.
NO_FAULTS = [
    "/tries", "/left-out", "/empty", "/session", "/session-as-xhr", "/session-is-null",
    "/guest", "/guest-as-xhr", "/plain-post",
    *(path for path in PAGES if path.startswith(("/as-", "/used-by-"))),
]  # fmt: skip


async def _start(start_origin: StartOrigin, start_proxy: StartProxy, public: str = "") -> Proxy:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/boot.js":
            return web.Response(text="\n\n  missing.thing();", content_type="text/javascript")
        if request.path == "/picture.svg":
            return web.Response(text="<svg/>", content_type="image/svg+xml")
        if request.path == "/commented":
            text = "<!-- a --> <!-- b>\n--><!doctype html><title>t</title>"
            return web.Response(text=text, content_type="text/html")
        if request.path == "/nothing":
            return web.Response(status=204)
        if request.path == "/length-0":
            return web.Response(content_type="application/json")
        if request.path == "/null":
            return web.json_response(None)
        if request.path.startswith("/to-"):
            raise web.HTTPFound({"/to-login": "/logs", "/to-cut": "/text/cut"}[request.path])
        if request.path in TEXTS:
            media_type = "application/json" if "json" in request.query else "text/plain"
            return web.Response(text=TEXTS[request.path], content_type=media_type)
        if request.path == "/port":
            script = f"<script>fetch('{other.url}/data').catch(() => 0)</script>"
            return web.Response(text=f"<p>text{script}", content_type="text/html")
        text = f"<!DOCTYPE html><title>t</title>{PAGES[request.path]}<p>text"
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    other = await start_origin(web.Application())
    site = await start_origin(application)
    return await start_proxy(site.url, {"site": {"url": public}} if public else {})


async def test_errors_name_their_cause(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    proxy = await _start(start_origin, start_proxy, PUBLIC)
    for path, causes in {
        "/mixed": ("Mixed Content", "http://www.example.com/data"),
        "/inline": ("Content Security Policy", "inline script"),
        "/connect": ("Content Security Policy", f"connect-src blocks {PUBLIC}/x"),
        "/exception": ("missing is not defined", f"{PUBLIC}/boot.js:3:3"),
    }.items():
        facts, fetches = await _rendered(proxy, path)
        text = "\n".join(facts.errors)
        assert all(cause in text for cause in causes), (path, text)
        if path == "/mixed":
            (refused,) = [one for one in fetches if one.url.endswith("/data")]
            assert refused.verdict == "aborted"
            assert "Mixed Content" in refused.reason


async def test_what_a_page_logs_does_not_decide_its_verdict(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    proxy = await _start(start_origin, start_proxy)
    facts, _ = await _rendered(proxy, "/logs")
    assert facts.errors == ("Malformed JSON: /data",)
    assert facts.verdict == "complete"


async def test_malformed_data_is_data_of_the_site(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    proxy = await _start(start_origin, start_proxy, PUBLIC)
    for path in NO_FAULTS:
        facts, _ = await _rendered(proxy, path)
        assert (facts.verdict, facts.errors) == ("complete", ()), path
    for path, data in {
        "/login": "/logs",
        "/fallback": "/logs",
        "/comments": "/commented",
        "/cut-short": "/text/cut",
        "/cut-short-text": "/text/cut?json",
        "/redirected-cut-short": "/text/cut",
    }.items():
        facts, _ = await _rendered(proxy, path)
        assert (facts.verdict, facts.why) == ("failed", f"Malformed JSON: {PUBLIC}{data}"), path


async def test_failed_data_of_third_parties_is_reported(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    proxy = await _start(start_origin, start_proxy, PUBLIC)
    reply = await proxy.crawl("/third")
    assert (reply.status, reply.headers["Cache-Status"]) == (
        200,
        "prerender; fwd=miss; stored; ttl=30",
    )
    facts, _ = await _rendered(proxy, "/third")
    assert facts.failed_requests == ("https://api.example.net/x",)


async def test_a_refused_port_of_the_sites_host_names_the_setting(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """Visitors reach it, so the page is not what they see, however often it is the same."""
    proxy = await _start(start_origin, start_proxy)
    reply = await proxy.crawl("/port")
    assert reply.status == 503
    explained = f"{proxy.admin_url}/api/v1/problems"
    async with proxy.client.get(explained) as response:
        assert "[network] allow" in await response.text()


async def _rendered(proxy: Proxy, path: str) -> tuple[Facts, tuple[Fetch, ...]]:
    renders: list[RenderRecord] = []
    stop = proxy.running.telemetry.renders.subscribe(renders.append)
    try:
        await proxy.crawl(f"{path}?again")
    finally:
        stop()
    (record,) = renders
    assert record.facts is not None
    assert record.timings is not None
    return record.facts, record.timings.fetches
