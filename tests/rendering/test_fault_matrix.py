"""If a site's own data is slow, fails or is missing, no incomplete page is stored as good.

Each page makes two requests, one of which fails. It is tested on a first render, and with a good
snapshot in the cache.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from prerender.gateway import needed_requests
from prerender.snapshots import repeated_faults, retries
from tests.conftest import Proxy, Reply, Site, StartOrigin, StartProxy
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from prerender.telemetry.records import RenderRecord

PUBLIC = "https://www.example.com"
PATIENCE_SECONDS = 0.3
PAGES = 3
# Renders that wait for what never comes end at the first limit, and all others before the second.
HANG_SECONDS = 5
LIMIT_SECONDS = 60
CONTENT = "content: first, second"
# What each kind of request does with what comes: ``show`` gets the second of two words.
_JSON = "(await answer.json()).word"
Case = tuple[str, str, str]
KINDS = {
    "fetch": f"""
      const get = async (url) => {{
        const answer = await fetch(url);
        if (!answer.ok) throw answer.status;
        return {_JSON};
      }};
      show(await get('/data/first'), await get(HOST + '/data/second'));""",
    "xhr": """
      const get = (url) => new Promise((resolve, reject) => { const request = new XMLHttpRequest();
        request.open('GET', url); request.onerror = reject;
        request.onload = () => request.status === 200 ? resolve(JSON.parse(request.responseText).word)
          : reject(request.status); request.send(); });
      show(await get('/data/first'), await get(HOST + '/data/second'));""",
    "graphql": f"""
      const ask = async (host, word) => {{ const answer = await fetch(host + '/data/' + word, {{
        method: 'POST', headers: {{ 'Content-Type': 'text/plain' }}, body: '{{ word }}' }});
        if (!answer.ok) throw answer.status; return {_JSON}; }};
      show(...await Promise.all([ask('', 'first'), ask(HOST, 'second')]));""",
    "import": """
      const get = async (url) => (await import(url)).word;
      show(await get('/program/first'), await get(HOST + '/program/second'));""",
    "script": """
      const get = (url) => new Promise((resolve, reject) => {
        const script = document.createElement('script');
        script.src = url; script.onload = () => resolve(window.word); script.onerror = reject;
        document.head.append(script); });
      show(await get('/script/first'), await get(HOST + '/script/second'));""",
    # As bundlers load the styles of a part of the application before the part.
    "style": """
      const get = (url) => new Promise((resolve, reject) => {
        const link = document.createElement('link');
        link.rel = 'stylesheet'; link.href = url; link.onerror = reject;
        link.onload = () => resolve(
          getComputedStyle(document.documentElement).getPropertyValue('--word').trim());
        document.head.append(link); });
      show(await get('/style/first'), await get(HOST + '/style/second'));""",
}
# The application's own retries: a request that fails is made again, twice.
PAGE = """<!DOCTYPE html><title>t</title><h1>Shop</h1><p id="out">Loading...</p>
<script type="module">
  const HOST = "%s";
  const show = (first, second) => { out.textContent = `content: ${first}, ${second}`; };
  const load = async () => { %s };
  for (let i = 0; ; i++) {
    try { await load(); break; } catch (error) {
      if (i === %d) { out.textContent = "Something went wrong"; break; }
    }
  }
</script>"""
DATA = ("fetch", "xhr", "graphql")
PROGRAMS = ("import", "script")
# The last of the ordinary ones is as long as work in vain may take.
SLOW = {"0.1 s": 0.1, "1 s": 1.0, "3 s": 3.0}
SLOWER = {"6 s": 6.0, "15 s": 15.0}
VERDICTS: dict[str, str] = {
    **dict.fromkeys(SLOW, "complete"),
    "500": "failed",
    "reset": "failed",
    "hang": "incomplete",
    "two 500s first": "complete",
}
CASES = [
    *((kind, fault, verdict) for kind in KINDS for fault, verdict in VERDICTS.items()
      if kind not in PROGRAMS or fault != "two 500s first"),
    # An import that has failed fails again (HTML, the module map).
    *((kind, "404", "complete") for kind in (*DATA, "style")),
    *((kind, "404", "failed") for kind in PROGRAMS),
    *((kind, "wrong JSON", "failed") for kind in ("fetch", "xhr", "graphql")),
    *((kind, "CORS refused", "failed") for kind in (*DATA, "import")),
]  # fmt: skip


@dataclass
class Faults:
    """The faults of the second request, while ``on``."""

    on: bool = True
    asked: dict[str, int] = field(default_factory=dict)


def _body(kind: str, word: str) -> web.Response:
    if kind == "data":
        return web.json_response({"word": word})
    if kind == "style":
        return web.Response(text=f":root {{ --word: {word} }}", content_type="text/css")
    text = f"export const word = '{word}'" if kind == "program" else f"window.word = '{word}'"
    return web.Response(text=text, content_type="text/javascript")


async def _faulty(request: web.Request, fault: str, asked: int) -> web.StreamResponse | None:
    """The response with a fault; None for the good one."""
    match fault:
        case "404" | "500":
            return web.json_response({"error": fault}, status=int(fault))
        case "two 500s first":
            return web.Response(status=500) if asked <= 2 else None
        case "reset":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        case "hang":
            await asyncio.Event().wait()
        case "wrong JSON":
            return web.Response(text="<p>An error has occurred", content_type="application/json")
    await asyncio.sleep((SLOW | SLOWER).get(fault, 0))
    return None


def _site(faults: Faults, other: str) -> web.Application:
    """Pages at /KIND/FAULT, whose requests name them by their Referer."""
    application = web.Application()

    async def page(request: web.Request) -> web.Response:
        kind, fault = request.match_info["kind"], request.match_info["fault"]
        host = other if fault == "CORS refused" and faults.on else ""
        text = PAGE % (host, KINDS[kind], 2 if fault == "two 500s first" else 0)
        return web.Response(
            text=text, content_type="text/html", headers={"Referrer-Policy": "unsafe-url"}
        )

    async def asset(request: web.Request) -> web.StreamResponse:
        kind, word = request.match_info["kind"], request.match_info["word"]
        fault = request.headers.get("Referer", "").rpartition("/")[2].replace("%20", " ")
        if word == "second" and faults.on:
            page_url = request.headers.get("Referer", "")
            faults.asked[page_url] = asked = faults.asked.get(page_url, 0) + 1
            if (response := await _faulty(request, fault, asked)) is not None:
                return response
        return _body(kind, word)

    application.router.add_get("/page/{kind}/{fault}", page)
    application.router.add_route("*", "/{kind:data|program|script|style}/{word}", asset)
    return application


async def _start(
    start_origin: StartOrigin, start_proxy: StartProxy, count: int = PAGES, **render: object
) -> tuple[Faults, Site, Proxy]:
    faults = Faults()
    other = await start_origin(_site(Faults(on=False), ""))
    origin = await start_origin(_site(faults, other.url))
    settings = {
        "site": {"url": PUBLIC},
        "network": {"allow": [other.url]},
        "render": {"patience": PATIENCE_SECONDS} | render,
        "browser": {"pages": count},
        # What is stale is rendered again when somebody asks, and shown meanwhile if that fails.
        "cache": {"stale_if_error": "1h"},
    }
    return faults, origin, await start_proxy(origin.url, settings)


def _problem(answer: Reply, case: Case) -> str:
    """What is wrong with the response to a first render, or ''."""
    kind, fault, verdict = case
    status = answer.headers["Cache-Status"]
    if verdict == "complete":
        expected = "Something went wrong" if fault == "404" else CONTENT
        good = answer.status == 200 and expected in answer.text and "stored" in status
        return "" if good else f"{answer.status} {status} {answer.text[-400:]}"
    if fault == "404" or (kind == "style" and verdict == "failed"):
        # The site misses a program, for good, or only a style: what there is is shown for a while.
        short = status == "prerender; fwd=miss; stored; ttl=30; detail=failed"
        return "" if answer.status == 200 and short else f"{answer.status} {status}"
    good = answer.status == 503 and int(answer.headers["Retry-After"]) > 0
    # On a busy machine, a page may not respond in time when it has reached the limit.
    details = {verdict, "cut-off"} if fault == "hang" else {verdict}
    told = status.rpartition("detail=")[2] in details
    return "" if good and told else f"{answer.status} {status}"


async def _crawl(proxy: Proxy, cases: Iterable[Case]) -> dict[Case, Reply]:
    """The responses for all cases, as many at a time as there are pages.

    A busy machine can take long to replace a page, so a crawler that finds none comes again.
    """
    room = asyncio.Semaphore(PAGES)

    async def crawl(case: Case) -> tuple[Case, Reply]:
        async with room:
            kind, fault, _ = case
            while True:
                answer = await proxy.crawl(f"/page/{kind}/{fault.replace(' ', '%20')}")
                if not answer.headers["Cache-Status"].endswith("detail=busy"):
                    return case, answer

    return dict(await asyncio.gather(*map(crawl, cases)))


def cases_of(timeout: int, kinds: Collection[str], first: int) -> list[Case]:
    """Those of these kinds; of some kinds, every second one from the ``first``.

    So each fault is in one of the two tests.
    """
    cases = [
        case
        for case in CASES
        if (case[1] == "hang") == (timeout == HANG_SECONDS) and case[0] in kinds
    ]
    return cases if len(kinds) == len(KINDS) else cases[first::2]


def kinds_of_requests(*some: str) -> pytest.MarkDecorator:
    everything = pytest.param(tuple(KINDS), id="all", marks=pytest.mark.long)
    return pytest.mark.parametrize("kinds", [pytest.param(some, id="some"), everything])


@pytest.mark.ci_only
@pytest.mark.parametrize("timeout", [HANG_SECONDS, LIMIT_SECONDS])
@kinds_of_requests("fetch", "import")
async def test_first_renders(
    timeout: int, kinds: Collection[str], start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    _, _, proxy = await _start(start_origin, start_proxy, timeout=timeout)
    answers = await _crawl(proxy, cases_of(timeout, kinds, 1))
    problems = {case: _problem(answer, case) for case, answer in answers.items()}
    assert {case: problem for case, problem in problems.items() if problem} == {}


@pytest.mark.long
async def test_data_that_takes_long(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    """With limits for the render and for one response that a slow machine can keep."""
    _, _, proxy = await _start(start_origin, start_proxy, timeout=LIMIT_SECONDS)
    cases = [(kind, fault, "complete") for kind in KINDS for fault in SLOWER]
    answers = await _crawl(proxy, cases)
    problems = {case: _problem(answer, case) for case, answer in answers.items()}
    assert {case: problem for case, problem in problems.items() if problem} == {}


@pytest.mark.ci_only
@pytest.mark.parametrize("timeout", [HANG_SECONDS, LIMIT_SECONDS])
@kinds_of_requests("style")
async def test_good_snapshots_are_not_replaced(
    timeout: int, kinds: Collection[str], start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    faults, _, proxy = await _start(start_origin, start_proxy, timeout=timeout)
    cases = cases_of(timeout, kinds, 0)
    faults.on = False
    for answer in (await _crawl(proxy, cases)).values():
        assert CONTENT in answer.text
    faults.on = True
    purged = {"all": True, "soft": True}
    async with proxy.client.post(f"{proxy.admin_url}/api/v1/purge", json=purged) as response:
        assert response.status == 200
    wrong = {}
    for case, answer in (await _crawl(proxy, cases)).items():
        _, fault, verdict = case
        status = answer.headers["Cache-Status"]
        kept = verdict == "complete" or f"detail={verdict}" in status
        # Data that is gone is gone: the page says so.
        gone = fault == "404" and verdict == "complete"
        if not gone and not (CONTENT in answer.text and kept):
            wrong[case] = f"{answer.status} {status} {answer.text[-300:]}"
    assert wrong == {}


async def test_an_incomplete_page_is_served_where_the_owner_says_so(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    _, _, proxy = await _start(start_origin, start_proxy, incomplete="serve")
    answer = await proxy.crawl("/page/fetch/500")
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
    assert "Something went wrong" in answer.text
    assert answer.headers["Cache-Status"] == "prerender; fwd=miss; detail=failed"
    again = await proxy.crawl("/page/fetch/500")
    assert "hit" not in again.headers["Cache-Status"]


async def _start_beside_api(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    data: Callable[[web.Request], Awaitable[web.Response]],
    page: Callable[[web.Request, str], Awaitable[web.Response]],
) -> Proxy:
    """A proxy of a site whose pages use an API of another origin, which gives ``data``. ``page`` gets
    the API's URL."""
    api, application = web.Application(), web.Application()
    api.router.add_route("*", "/{path:.*}", data)
    other = await start_origin(api)

    async def respond(request: web.Request) -> web.Response:
        return await page(request, other.url)

    application.router.add_get("/{path:.*}", respond)
    site = await start_origin(application)
    settings = {"site": {"url": PUBLIC}, "network": {"allow": [other.url]}}
    return await start_proxy(site.url, settings)


async def test_a_request_is_missing_if_its_preflight_fails(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    cors = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "x-key"}
    statuses = {"/works": 204, "/missing": 404, "/fails": 500}

    async def data(request: web.Request) -> web.Response:
        if request.method == "OPTIONS":
            return web.Response(status=statuses[request.path], headers=cors)
        return web.json_response({"word": "data"}, headers=cors)

    async def page(request: web.Request, api: str) -> web.Response:
        script = f"""fetch('{api}{request.path}', {{ headers: {{ 'X-Key': '1' }} }})
          .then((answer) => answer.json()).then(({{ word }}) => {{ out.textContent = word; }})
          .catch(() => {{ out.textContent = 'wrong'; }})"""
        text = f"<!DOCTYPE html><title>t</title><p id=out></p><script>{script}</script>"
        return web.Response(text=text, content_type="text/html")

    proxy = await _start_beside_api(start_origin, start_proxy, data, page)
    replies = {path: await proxy.crawl(path) for path in statuses}
    assert {path: reply.status for path, reply in replies.items()} == {
        "/works": 200,
        "/missing": 200,
        "/fails": 503,
    }
    assert "data</p>" in replies["/works"].text
    # As for every visitor.
    assert "wrong</p>" in replies["/missing"].text
    assert replies["/fails"].headers["Cache-Status"].endswith("detail=failed")


@pytest.mark.parametrize(
    "script",
    [
        "navigator.sendBeacon(url, new Blob(['{}'], { type: 'application/json' }))",
        """fetchLater(url, { method: 'POST', body: '{}', activateAfter: 0,
          headers: { 'Content-Type': 'application/json' } })""",
    ],
    ids=["beacon", "later"],
)
async def test_the_preflight_of_a_beacon_may_fail(
    script: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    asked = asyncio.Event()

    async def refuse(_request: web.Request) -> web.Response:
        asked.set()
        return web.Response(status=500)

    async def page(request: web.Request, api: str) -> web.Response:
        if request.path == "/asked":
            await asked.wait()
        text = f"""<!DOCTYPE html><title>t</title><p>text<script>
          const url = "{api}/metrics"; {script}; fetch("/asked");</script>"""
        return web.Response(text=text, content_type="text/html")

    proxy = await _start_beside_api(start_origin, start_proxy, refuse, page)
    assert (await proxy.crawl("/")).status == 200


@pytest.mark.parametrize("fault", sampled(["500", "hang", "reset"], 3))
async def test_optional_requests_may_fail(
    fault: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    _, _, proxy = await _start(start_origin, start_proxy, 1, optional=["/data/second*"])
    answer = await proxy.crawl(f"/page/fetch/{fault}")
    assert answer.status == 200
    assert "stored; ttl=3600" in answer.headers["Cache-Status"]


_POST = "{ method: 'POST', keepalive: true, body: 'x' }"
_PRELOAD = "</script><link rel=preload as=fetch crossorigin href=/faulty><script>"
_REGISTERED = """navigator.serviceWorker.register('/worker.js?%s');
  while (!navigator.serviceWorker.controller) await new Promise((done) => { setTimeout(done, 10); });
"""
_WORKERS = {
    "precaches": "addEventListener('install', () => caches.open('a').then((a) => a.add('/faulty')));",
    "passes-on": """addEventListener("fetch", (event) => {
      if (event.request.url.endsWith("/faulty")) event.respondWith(fetch(event.request.url)); });""",
}
_BESIDE_A_WORKER = """const worker = new Worker(URL.createObjectURL(new Blob([`
  onmessage = () => fetch("${location.origin}/faulty", { method: "POST", body: "x" })
    .then(() => postMessage(1))`])));
  worker.postMessage(1);"""
_UNUSED = {
    "preloaded": _PRELOAD,
    "sent": f"fetch('/faulty', {_POST})",
    "sent-with-catch": f"fetch('/faulty', {_POST}).catch(() => 0)",
    "as-request": f"fetch(new Request('/faulty', {_POST})).catch(() => 0)",
    "sent-by-a-frame": f"""</script>
      <iframe srcdoc="<script>fetch('/faulty', {_POST})</script>"></iframe><script>""",
    "precached-by-a-service-worker": "</script><script type=module>" + _REGISTERED % "precaches",
}
_USED = {
    "read": f"fetch('/faulty', {_POST}).then((answer) => answer.text()).catch(() => 0)",
    "cloned": f"fetch('/faulty', {_POST}).then((answer) => answer.clone().text())",
    "checked": f"fetch('/faulty', {_POST}).then((answer) => {{ if (!answer.ok) alert(1); }})",
    "preloaded-and-fetched": _PRELOAD + "fetch('/faulty')",
    "preloaded-and-fetched-by-xhr": f"""{_PRELOAD}
      const request = new XMLHttpRequest(); request.open('GET', '/faulty'); request.send()""",
    # The worker's request is another one.
    "preloaded-and-fetched-in-a-worker": f"""{_PRELOAD}new Worker(URL.createObjectURL(
      new Blob([`fetch("${{location.origin}}/faulty").then(() => postMessage(1))`])))""",
    "passed-on-by-a-service-worker": "</script><script type=module>"
    + _REGISTERED % "passes-on"
    + "fetch('/faulty').catch(() => 0)",
    "sent-and-posted-by-a-worker": f"navigator.sendBeacon('/faulty', 'x'); {_BESIDE_A_WORKER}",
    "sent-and-fetched": f"fetch('/faulty', {_POST}); fetch('/faulty').catch(() => 0)",
}


@pytest.mark.parametrize("fault", ["500", "hang"])
async def test_the_content_does_not_depend_on_a_response_that_the_page_does_not_use(
    fault: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/faulty":
            if fault == "hang":
                await asyncio.Event().wait()
            return web.Response(status=500)
        if request.path == "/worker.js":
            take_over = """addEventListener("install", () => skipWaiting());
              addEventListener("activate", (event) => event.waitUntil(clients.claim()));"""
            text = take_over + _WORKERS[request.query_string]
            return web.Response(text=text, content_type="text/javascript")
        script = (_UNUSED | _USED)[request.path.removeprefix("/page/")]
        text = f"<!DOCTYPE html><title>t</title><p>text<script>{script}</script>"
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    site = await start_origin(application)
    # The limit is reached only by pages that depend on what hangs.
    timeout = "60s" if fault == "hang" else "10s"
    settings = {"site": {"url": PUBLIC}, "render": {"patience": "0.3s", "timeout": timeout}}
    proxy = await start_proxy(site.url, settings)
    used = {} if fault == "hang" else _USED
    replies = {name: await proxy.crawl(f"/page/{name}") for name in (*_UNUSED, *used)}
    assert {name for name, reply in replies.items() if reply.status == 200} == set(_UNUSED)
    for name in _UNUSED:
        assert replies[name].headers["Cache-Status"].endswith("stored; ttl=3600"), name


_SHOW = "(answer) => answer.text()).then((text) => { out.textContent = text; })"


@pytest.mark.parametrize(
    "script",
    [
        f"fetch('/slow', {_POST}).then({_SHOW}",
        f"fetch('/slow', {_POST}).catch(() => new Response('wrong')).then({_SHOW}",
        f"Promise.all([fetch('/slow', {_POST})]).then(([answer]) => answer).then({_SHOW}",
        f"(async () => fetch('/slow', {_POST}))().then({_SHOW}",
        f"(async () => {{ out.textContent = await (await fetch('/slow', {_POST})).text(); }})()",
        # The frame's request waits in the HTTP cache for that of the preload.
        """</script><link rel=preload as=fetch crossorigin href=/slow>
          <iframe srcdoc="<script>fetch('/slow').then((answer) => answer.text())
            .then((text) => { parent.out.textContent = text; })</script>"></iframe><script>""",
    ],
    ids=["then", "catch", "all", "async", "await", "preloaded-for-a-frame"],
)
async def test_a_slow_response_that_the_page_uses_is_waited_for(
    script: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/slow":
            await asyncio.sleep(0.8)
            return web.Response(text="data", headers={"Cache-Control": "max-age=600"})
        text = f"<!DOCTYPE html><title>t</title><p>text<p id=out></p><script>{script}</script>"
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    site = await start_origin(application)
    settings = {"site": {"url": PUBLIC}, "render": {"patience": "0.2s"}}
    proxy = await start_proxy(site.url, settings)
    assert "data</p>" in (await proxy.crawl("/")).text


@pytest.mark.parametrize("status", [429, 503])
async def test_a_page_retries_when_the_server_asks_for_it(
    status: int, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """Its clock would be there long before the server's."""
    refused: list[float] = []

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/data":
            now = asyncio.get_running_loop().time()
            if not refused or now < refused[0] + 1:
                refused.append(now)
                return web.Response(status=status, headers={"Retry-After": "1"})
            return web.Response(text="data")
        script = """const get = async () => {
          const answer = await fetch("/data");
          if (answer.ok) return answer.text();
          await new Promise((done) => setTimeout(done, 1000 * answer.headers.get("Retry-After")));
          return (await fetch("/data")).text();
        };
        get().then((text) => document.body.append(text));"""
        text = f"<!DOCTYPE html><title>t</title><p>text<script>{script}</script>"
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    site = await start_origin(application)
    proxy = await start_proxy(site.url, {"site": {"url": PUBLIC}})
    reply = await proxy.crawl("/page")
    assert "data</body>" in reply.text
    assert reply.headers["Cache-Status"].endswith("stored; ttl=3600")
    assert len(refused) == 1


_CONTENT = "<p>" + " ".join(f"word{number}" for number in range(100))
_EVERY_VISITOR_SEES = {
    "hanging": "fetch('/hang').catch(() => 0)",
    "failing": "fetch('/fails').catch(() => 0)",
    "raced": "Promise.race([fetch('/hang'), new Promise((done) => setTimeout(done, 50))])",
    "forbidden": f"fetch('{PUBLIC.replace('www', 'api')}/probe').catch(() => 0)",
}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["raced"], id="some"),
        pytest.param([*_EVERY_VISITOR_SEES], id="all", marks=pytest.mark.long),
    ],
)
async def test_a_fault_that_every_visitor_sees_is_the_page(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
) -> None:
    """Renders of the proxy's own confirm it. A page that shows that it is loading is not confirmed."""
    monkeypatch.setattr(repeated_faults, "LEAST_SECONDS", 0.5)
    monkeypatch.setattr(retries, "FIRST_SECONDS", 0.3)

    async def answer(request: web.Request) -> web.Response:
        name = request.path.removeprefix("/page/")
        if request.path == "/hang":
            await asyncio.Event().wait()
        if request.path == "/fails":
            return web.Response(status=500)
        if request.path == "/probe":
            return web.Response(text="no CORS")
        loading = '<p aria-busy="true">more' if name == "loading" else ""
        script = _EVERY_VISITOR_SEES.get(name, "fetch('/fails')")
        text = f"<!DOCTYPE html><title>t</title>{_CONTENT}{loading}<script>{script}</script>"
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    site = await start_origin(application)
    settings = {
        "site": {"url": PUBLIC},
        "network": {"allow": ["api.example.com"]},
        "render": {"patience": "0.3s", "timeout": "3s"},
    }
    proxy = await start_proxy(site.url, settings)
    first = {name: await proxy.crawl(f"/page/{name}") for name in [*names, "loading"]}
    assert {reply.status for reply in first.values()} == {503}
    for name in names:
        async with asyncio.timeout(60):
            while (reply := await proxy.crawl(f"/page/{name}")).status != 200:
                await asyncio.sleep(0.2)
        assert "word99" in reply.text
        assert re.search(r"ttl=(30|[1-2]?\d)\b|ttl=300|hit", reply.headers["Cache-Status"])
    assert (await proxy.crawl("/page/loading")).status == 503


async def test_a_request_that_hangs_on_several_pages_is_not_waited_for(
    start_origin: StartOrigin, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But the pages are not complete without it. A response ends that."""
    monkeypatch.setattr(needed_requests, "_HANGS_AFTER_SECONDS", 0.5)
    hanging = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/data":
            await hanging.wait()
            return web.Response(text="data")
        script = "fetch('/data').then((a) => a.text()).then((text) => document.body.append(text))"
        return web.Response(text=f"{_CONTENT}<script>{script}</script>", content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    site = await start_origin(application)
    settings = {"site": {"url": PUBLIC}, "render": {"timeout": "6s"}, "cache": {"ttl": 0}}
    settings["browser"] = {"pages": 3}
    proxy = await start_proxy(site.url, settings)
    waited = await _settled(proxy, "/1", "/2", "/3")
    later = await _settled(proxy, "/4", "/5")
    assert {verdict for verdict, _ in waited + later} == {"incomplete"}
    # The first three waited until the limit.
    assert [seconds < 3 for _, seconds in waited + later] == [False] * 3 + [True] * 2, waited
    hanging.set()
    async with asyncio.timeout(30):
        while "data" not in (await proxy.crawl("/again")).text:
            pass
    assert (await proxy.crawl("/more")).status == 200


async def _settled(proxy: Proxy, *paths: str) -> list[tuple[str, float]]:
    """The verdicts about pages that are rendered at once, and how long each was waited for."""
    await proxy.all_pages_idle()  # a page that was cut off is replaced
    renders: list[RenderRecord] = []
    stop = proxy.running.telemetry.renders.subscribe(renders.append)
    try:
        await asyncio.gather(*(proxy.crawl(path) for path in paths))
    finally:
        stop()
    assert len(renders) == len(paths)
    return [
        (record.facts.verdict, record.facts.real_seconds)
        for record in renders
        if record.facts is not None
    ]
