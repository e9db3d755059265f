"""Verdicts of renders without failed requests: blank and moved pages, refreshes, leaks."""

import html
import itertools
import json
import re

import pytest
from aiohttp import web

from prerender.browser import page as page_of_the_browser
from prerender.gateway.exchange import Exchange
from prerender.rendering.moved import has_moved
from prerender.rendering.verdict import awaits_data, faults_of
from tests.conftest import Proxy, StartOrigin, StartProxy, pages

PUBLIC = "https://www.example.com"
SETTINGS: dict[str, dict[str, object]] = {"site": {"url": PUBLIC}}
NOW = 1_700_000_100
HEAD = "<!DOCTYPE html><title>t</title>"
POLL = """<script>
  const poll = async () => { await fetch('/job'); setTimeout(poll, 1000); };
  poll();
</script>"""


def _completed_when_visible(url: str, title: str) -> str:
    """A page with a part that completes its metadata and changes the URL when it is visible."""
    return f"""<p>text<section style="height: 2000px"></section><div id=part></div><script>
      document.title = "{title}";
      new IntersectionObserver(([entry]) => {{
        if (!entry.isIntersecting || document.querySelector("[name=description]")) return;
        history.replaceState(null, "", "{url}");
        document.title = "Product";
        const added = "<meta name=description content=added>";
        document.head.insertAdjacentHTML("beforeend", added);
      }}).observe(part);
      </script>"""


PAGES = {
    "/blank": '<div id="app"></div><script>1</script>',
    "/exception": '<div id="app"></div><script>throw new Error("boot")</script>',
    "/exception-below-a-header": "<h1>Shop</h1><p>wait</p><script>throw new Error('boot')</script>",
    "/exception-after-text": "<h1>Shop</h1><p id=o>wait</p>"
    "<script>o.textContent = 'the content'; throw new Error('late')</script>",
    "/exception-after-short-text": "<h1>Shop</h1><p id=o>please wait</p>"
    "<script>o.textContent = 'sold'; throw new Error('late')</script>",
    "/exception-after-picture": "<h1>Shop</h1>"
    "<script>document.body.append(document.createElement('canvas')); throw new Error('late')</script>",
    "/exception-in-a-long-page": f"<p>{'word ' * 300}</p><script>throw new Error('boot')</script>",
    "/blocked-script": "<meta http-equiv=Content-Security-Policy content=\"script-src 'self'\">"
    "<h1>Shop</h1><p id=o>wait</p><script>o.textContent = 'the content'</script>",
    # As an application's fallback to its index answers for files of the last release.
    "/gone": "<p>index",
    "/module-as-html": "<h1>Shop</h1><p>wait</p><script type=module src=/gone></script>",
    "/import-as-html": "<h1>Shop</h1><p>wait</p><script>import('/gone').catch(() => 0)</script>",
    "/script-as-html": "<h1>Shop</h1><p>wait</p><script src=/gone></script>",
    "/empty": "",
    "/picture": '<body><script>document.body.append(document.createElement("canvas"))</script>',
    "/moved": "<p>home</p><script>history.replaceState({}, '', '/home')</script>",
    "/moved-with-canonical": "<link rel=canonical href=/c><p>home</p>"
    "<script>history.pushState({}, '', '/home')</script>",
    "/spy": """<meta name=description content=first><section style="height: 2000px">first</section>
    <section id=second>second</section><script>
    navigation.onnavigate = (event) => event.intercept({ handler() { second.append("routed "); } });
    const follow = () => {
      if (second.getBoundingClientRect().top > innerHeight || location.pathname === "/second") return;
      history.replaceState({}, "", "/second");
      document.title = "second title";
      document.querySelector("meta[name=description]").content = "another";
      document.head.insertAdjacentHTML("beforeend", "<link rel=canonical href=/second>");
    };
    addEventListener("scroll", follow);
    </script>""",
    "/lazy-fragment": _completed_when_visible("#reviews", "t"),
    "/lazy-query": _completed_when_visible("?sku=1", "t"),
    "/lazy-app": _completed_when_visible("/product", "Loading…"),
    "/state": "<p>home</p><script>location.replace('#!/home')</script>",
    "/refresh": '<meta http-equiv="refresh" content="3; url=/there"><p>wait',
    "/late-refresh": '<meta http-equiv="refresh" content="600; url=/there"><p>content',
    "/polls": f"<p>text{POLL}",
    "/polls-for-its-content": f"<p class=spinner>Preparing your report{POLL}",
    "/polls-for-what-is-accepted": "<p>Preparing<script>fetch('/accepted')</script>",
    "/posts": "<p>text<script>fetch('/accepted', { method: 'POST', body: 'metrics' })</script>",
    "/reload": '<meta http-equiv="refresh" content="5"><p>content',
}


async def _start(start_origin: StartOrigin, start_proxy: StartProxy, **snapshot: object) -> Proxy:
    content: dict[str, str | web.Response] = {path: HEAD + text for path, text in PAGES.items()}
    content["/accepted"] = web.Response(status=202, text="{}")
    origin = await pages(start_origin, content)
    return await start_proxy(origin.url, SETTINGS | {"snapshot": snapshot})


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/blank", 503, "detail=blank"),
        ("/exception", 503, "detail=failed"),
        ("/exception-below-a-header", 200, "stored; ttl=30; detail=failed"),
        ("/exception-after-text", 200, "stored; ttl=3600"),
        ("/exception-after-short-text", 200, "stored; ttl=3600"),
        ("/exception-after-picture", 200, "stored; ttl=3600"),
        ("/exception-in-a-long-page", 200, "stored; ttl=3600"),
        ("/blocked-script", 200, "stored; ttl=30; detail=failed"),
        ("/module-as-html", 200, "stored; ttl=30; detail=failed"),
        ("/import-as-html", 200, "stored; ttl=30; detail=failed"),
        ("/script-as-html", 200, "stored; ttl=30; detail=failed"),
        ("/empty", 200, "stored; ttl=3600"),
        ("/picture", 200, "stored; ttl=3600"),
        ("/late-refresh", 200, "stored; ttl=3600"),
        ("/reload", 200, "stored; ttl=3600"),
        ("/polls", 200, "stored; ttl=3600"),
        ("/polls-for-its-content", 200, "stored; ttl=30"),
        ("/polls-for-what-is-accepted", 200, "stored; ttl=30"),
        ("/posts", 200, "stored; ttl=3600"),
    ],
)
async def test_blank_pages(
    path: str, status: int, detail: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    proxy = await _start(start_origin, start_proxy)
    answer = await proxy.crawl(path)
    assert answer.status == status
    assert answer.headers["Cache-Status"].endswith(detail)
    assert ("Retry-After" in answer.headers) == (status == 503)


async def test_a_refresh_to_another_page_is_a_redirect(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    proxy = await _start(start_origin, start_proxy)
    answer = await proxy.crawl("/refresh")
    assert (answer.status, answer.headers["Location"]) == (302, f"{PUBLIC}/there")


@pytest.mark.parametrize("path", ["/moved", "/state#!/items/1"])
async def test_moved_pages(path: str, start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    new = f"{PUBLIC}/home" if path == "/moved" else f"{PUBLIC}/state#!/home"
    proxy = await _start(start_origin, start_proxy)
    answer = await proxy.crawl(path)
    assert f'<link rel="canonical" href="{new}">' in answer.text
    assert answer.headers["Cache-Status"].endswith("stored; ttl=3600; detail=moved")
    kept = await _start(start_origin, start_proxy, moved="keep")
    assert "canonical" not in (await kept.crawl(path)).text
    redirecting = await _start(start_origin, start_proxy, moved="redirect")
    answer = await redirecting.crawl(path)
    assert (answer.status, answer.headers["Location"]) == (302, new)


@pytest.mark.parametrize("moved", ["canonical", "redirect"])
async def test_a_page_that_moves_when_it_is_scrolled_stays_where_it_was(
    moved: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    proxy = await _start(start_origin, start_proxy, moved=moved)
    answer = await proxy.crawl("/spy")
    assert (answer.status, answer.headers["Cache-Status"][-16:]) == (200, "stored; ttl=3600")
    assert "<title>t</title>" in answer.text
    assert '<meta name="description" content="first">' in answer.text
    assert "canonical" not in answer.text
    # Its router followed its own change, not that of the proxy.
    assert answer.text.count("routed") == 1


@pytest.mark.parametrize(
    ("path", "canonical"),
    [("/lazy-fragment", []), ("/lazy-query", []), ("/lazy-app", ["/product"])],
)
async def test_metadata_that_a_part_adds_when_it_is_visible(
    path: str, canonical: list[str], start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    proxy = await _start(start_origin, start_proxy)
    text = (await proxy.crawl(path)).text
    assert "<title>Product</title>" in text
    assert '<meta name="description" content="added">' in text
    assert re.findall(f'canonical" href="{PUBLIC}([^"]*)', text) == canonical


async def test_a_canonical_of_the_page_is_kept(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    proxy = await _start(start_origin, start_proxy)
    text = (await proxy.crawl("/moved-with-canonical")).text
    assert text.count("canonical") == 1


async def test_soft_404s(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    page = "<p id=out></p><script>fetch('/api').then(() => { out.textContent = 'none' })</script>"
    said = f'<meta name="prerender-status-code" content="200">{page}'
    origin = await pages(start_origin, {"/item": HEAD + page, "/said": HEAD + said})
    proxy = await start_proxy(origin.url, SETTINGS)
    answer = await proxy.crawl("/item")
    assert (answer.status, "stored; ttl=3600" in answer.headers["Cache-Status"]) == (200, True)
    strict = await start_proxy(origin.url, SETTINGS | {"snapshot": {"soft_404": True}})
    answer = await strict.crawl("/item")
    assert (answer.status, ">none<" in answer.text) == (404, True)
    assert "stored; ttl=60" in answer.headers["Cache-Status"]
    # The page's own word counts.
    assert (await strict.crawl("/said")).status == 200


@pytest.mark.parametrize(
    ("asked", "now", "moved"),
    [
        ("/a", "/a", False),
        ("/a", "/a/", False),
        ("/a?x=1", "/a", False),
        ("/a", "/a#!/", False),
        ("/a%20b", "/a b", False),
        ("/a#!x", "/a#!x/", False),
        ("/a#!x", "/a#!y", True),
        ("/a#!/x", "/a#!/x?page=1", False),
        ("/a#!/x?sid=1", "/a#!/x?sid=2", False),
        ("/a#!/x", "/a#!/x#top", False),
        ("/a#!/x/?page=1", "/a#!/x", False),
        ("/a#!/x%3F1", "/a#!/x%3F2", True),
        ("/a#!/x?page=1", "/a#!/y?page=1", True),
        ("/a#!?page=1", "/a#!?page=2", True),
        ("/a#!?page=1", "/a#!/x?page=1", True),
        ("/a#!x", "/x", True),
        ("/a", "/b", True),
    ],
)
def test_what_counts_as_moved(asked: str, now: str, moved: bool) -> None:
    assert has_moved(f"{PUBLIC}{asked}", f"{PUBLIC}{now}") == moved


@pytest.mark.parametrize(
    ("failed", "later", "is_recovered"),
    [
        ("/data", "/data", True),
        ("/data", "/data?_=1700000000000", True),
        ("/data?a=1", "/data?1700000000&a=1", True),
        ("/data?_=1700000000000&a=1", "/data?_=1700000000999&a=1", True),
        ("/data?id=1000000001", "/data?id=1000000002", False),
        ("/data?id=1000000000001", "/data?id=1000000000002", False),
        ("/data?_=1700000000&id=1000000001", "/data?_=1700000001&id=1000000001", True),
        ("/data?from=1699000000", "/data?from=1700000000", False),
        ("/data", "/data?featured=1", False),
        ("/data?page=1", "/data?page=2", False),
        ("/data?id=10000000000000001", "/data?id=10000000000000002", False),
        (
            "/data?since=1700000000&until=1700003600",
            "/data?since=1700003600&until=1700007200",
            False,
        ),
        ("/chunk.js", "/chunk.js?t=1", True),
        ("/chunk.js?v=2", "/chunk.js?v=2&t=1", True),
        ("/chunk.js?t=1", "/chunk.js?t=2", True),
        ("/chunk.js?v=2", "/chunk.js?v=2&cache-bust=true&retry-attempt=1", True),
        ("/chunk.js", "/chunk.js?v=1700000000000", True),
        ("/load.js", "/load.js?module=1", False),
        ("/load.js", "/load.js?t=main", False),
        ("/load.js?module=1", "/load.js?module=2", False),
        ("/chunk.js", "/other.js", False),
        ("/socket?transport=websocket", "/socket?transport=polling", True),
        ("/socket?transport=websocket", "/socket?transport=longPolling&id=1", True),
        ("/socket?id=a&transport=websocket", "/socket?id=b&_=1700000000000", True),
        ("/socket?transport=websocket", "/socket?q=menu", False),
        ("/socket?transport=websocket", "/socket", False),
        ("/socket?transport=websocket", "/data", False),
        ("/socket?transport=websocket", "/socket?again&transport=websocket", True),
        ("/data?a=1", "/data?transport=websocket", False),
    ],
)
def test_what_counts_as_recovered(failed: str, later: str, is_recovered: bool) -> None:
    # An open WebSocket has no status yet.
    requests = [_request(failed, 503), _request(later, 0 if "websocket" in later else 200)]
    assert [one.url for one in faults_of(requests, NOW)] == [failed] * (not is_recovered)
    # What was there before cannot make up for it.
    assert [one.url for one in faults_of(reversed(requests), NOW)] == [failed]
    requests[1] = _request(later, 500)
    assert [one.url for one in faults_of(requests, NOW)][:1] == [failed]


def test_data_that_is_not_ready_yet() -> None:
    pending, ready = _request("/data?_=1700000000000", 202), _request("/data", 200)
    assert awaits_data([pending], NOW)
    assert awaits_data([ready, pending], NOW)
    assert not awaits_data([pending, ready], NOW)


@pytest.mark.parametrize("later", [200, 500])
async def test_a_response_that_the_page_does_not_get_makes_up_for_no_failure(
    later: int, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    scripts = {
        "/image": "new Image().src = '/data'",
        "/no-cors": "fetch('/data', { mode: 'no-cors' })",
        "/prefetch": "document.head.innerHTML += '<link rel=prefetch href=/data>'",
        "/beacon": "navigator.sendBeacon('/data', 'failed')",
    }

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/data":
            return web.Response(
                status=500 if request.headers["Sec-Fetch-Mode"] == "cors" else later
            )
        method = "POST" if request.path == "/beacon" else "GET"
        text = f"""{HEAD}<p>text<script>fetch("/data", {{ method: "{method}" }}).then(() => {{
          {scripts[request.path]}; }})</script>"""
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    site = await start_origin(application)
    proxy = await start_proxy(site.url, SETTINGS)
    assert {path: (await proxy.crawl(path)).status for path in scripts} == dict.fromkeys(
        scripts, 503
    )


def _request(url: str, status: int) -> Exchange:
    kind = "script" if ".js" in url else "websocket" if "=websocket" in url else "empty"
    request = Exchange("GET", url, kind, 0, 0, status, 100, judged=True, finished=True)
    if kind == "websocket":
        request.expect_no_end()
    return request


async def test_the_origins_host_is_taken_out(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    async def page(request: web.Request) -> web.Response:
        host = request.url.authority if "Host" not in request.headers else origin_host
        text = f'{HEAD}<a href="//{host}/x">1</a><a href="http://{host}/y">2</a><p>//{host}/z'
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.router.add_get("/", page)
    origin = await start_origin(application)
    origin_host = origin.url.removeprefix("http://")
    proxy = await start_proxy(origin.url, SETTINGS)
    text = (await proxy.crawl("/")).text
    assert origin_host not in text
    assert f'href="{PUBLIC}/x"' in text


async def test_a_canonical_link_behind_a_user_agent(
    start_origin: StartOrigin, start_own_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker knows the agent with the number of the page: it is shorter in the snapshot."""
    monkeypatch.setattr(page_of_the_browser, "_numbers", itertools.count(1234))
    script = """const told = URL.createObjectURL(new Blob(["postMessage(navigator.userAgent)"]));
      new Worker(told).onmessage = ({ data }) => {
        document.documentElement.dataset.agent = data;
        history.replaceState({}, "", "/home");
      };"""
    origin = await pages(start_origin, {"/": f"<title>t</title><p>home<script>{script}</script>"})
    proxy = await start_own_proxy(origin.url, SETTINGS | {"browser": {"pages": 1}})
    text = (await proxy.crawl("/")).text
    assert "0.0.0 " in text
    assert f'<head><link rel="canonical" href="{PUBLIC}/home"><meta charset' in text


AGENTS = """<p id=out></p><script>
const own = ({navigator}) => [
  navigator.userAgent, navigator.appVersion, navigator.userAgent.match(/Chrome.([\\d.]+)/)[1]];
const frame = document.createElement("iframe");
document.body.append(frame);
const { get } = Object.getOwnPropertyDescriptor(Navigator.prototype, "userAgent");
let thrown;
try { get.call({}); } catch (error) { thrown = error; }
const shown = [own(window), own(frame.contentWindow), get.call(frame.contentWindow.navigator),
  get.name, get.length, Function.prototype.toString.call(get).includes("[native code]"),
  "prototype" in get, `${thrown}`];
const fetched = (...more) => fetch(`/data?${encodeURIComponent(JSON.stringify(more))}`);
navigator.userAgentData.getHighEntropyValues(["uaFullVersion", "fullVersionList"])
  .then((data) => fetched(data))
  .then(() => fetched(shown))
  .then(() => { out.textContent = JSON.stringify(shown); });
</script>"""


async def test_a_page_that_shows_its_user_agent_is_the_same_each_time(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """It is the user agent of an ordinary Chrome, also in frames and in what the page requests."""
    origin = await pages(start_origin, {"/": HEAD + AGENTS, "/data": web.Response(text="{}")})
    proxy = await start_proxy(origin.url, SETTINGS | {"cache": {"ttl": 0}})
    first = await proxy.crawl("/")
    requested = {request.raw_path for request in origin.requests}
    assert len(requested) == 3
    second = await proxy.crawl("/")
    assert requested == {request.raw_path for request in origin.requests}
    assert first.headers["ETag"] == second.headers["ETag"]
    shown = json.loads(html.unescape(first.text.partition('<p id="out">')[2].partition("</p>")[0]))
    agent, version, number = shown[0]
    assert number.endswith(".0.0.0")
    assert agent == f"Mozilla/{version}"
    illegal = "TypeError: Illegal invocation"
    assert shown[1:] == [shown[0], agent, "get userAgent", 0, True, False, illegal]
