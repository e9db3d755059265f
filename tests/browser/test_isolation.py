"""The state of one render is invisible to the next.

Pages write every kind of state that outlives a page, at every possible moment
(isolation/writer.html). Another page then reports all that it can see, and what its requests
carried (isolation/observer.html). The report must equal that of a new browser, byte for byte.
"""

import asyncio
import html
import itertools
import json
import random
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web

from prerender.browser import page
from prerender.browser.browser_context import Context
from prerender.browser.devtools import DevTools
from prerender.browser.page import Page
from prerender.browser.settling import patience
from prerender.browser.tab import Tab
from prerender.gateway.context_proxy import ContextProxy
from prerender.gateway.visit import Visit
from prerender.http import caching
from tests.conftest import Proxy, StartOrigin, StartProxy, pages
from tests.support import processes
from tests.support.pools import SITE
from tests.support.sampling import sampled

_FOLDER = Path(__file__).parent / "isolation"
MOMENTS = (
    "load",
    "interval",
    "microtasks",
    "pagehide",
    "unload",
    "beforeunload",
    "visibilitychange",
    "freeze",
    "late",
    "many",
    "many-while-leaving",
    "worker",
    "busy-worker",
    "shared-worker",
    "service-worker",
    "late-service-worker",
    "password",
)
# Work that goes on without tasks and handlers, which closing a tab stops, and how it sends requests.
_GOING_ON = ("chain", "then", "generator", "stream", "body", "atomics")
_IN_WORKERS = ("worker", "nested-worker", "shared-worker", "service-worker")
_WAYS = ("plain", "keepalive", "beacon", "later")
SENDING = tuple(f"{how}-{way}" for how in (*_GOING_ON, *_IN_WORKERS) for way in _WAYS)
# One of each kind: tasks, handlers, late responses, workers, and what sends without end.
SOME = ("late", "service-worker", "password")
SOME_OTHERS = ("pagehide", "many-while-leaving", "nested-worker-later")
# Headers of requests by which a browser would tell that it has been here.
_TELLING = re.compile(
    r"cookie|authorization|if-.*|referer|sec-ch-.*|available-dictionary|dpr|device-memory|upgrade.*",
    re.IGNORECASE,
)
_COOKIES = (
    "sent=1",
    "hidden=1; HttpOnly",
    "secret=1; Secure; HttpOnly; SameSite=Strict",
    "everywhere=1; Secure; SameSite=None",
    "parted=1; Secure; SameSite=None; Partitioned",
    "__Host-sent=1; Secure; Path=/; HttpOnly",
    "kept=1; Max-Age=99999",
)
_REMEMBERED = {
    "Accept-CH": "Sec-CH-UA-Model, Sec-CH-UA-Arch, DPR, Device-Memory",
    "Critical-CH": "Sec-CH-UA-Model",
    "Strict-Transport-Security": "max-age=99999",
    "Reporting-Endpoints": 'default="/report"',
}
_WORKER = """
const write = () => {
  indexedDB.open("mark"); caches.open("mark"); cookieStore.set("from-the-worker", "1");
};
onfetch = () => {};
oninstall = (event) => { skipWaiting(); event.waitUntil(caches.open("mark")); };
onactivate = (event) => event.waitUntil(clients.claim());
write(); setInterval(write, 10); fetch("/set-cookies");"""


class Origin:
    """The site: its observer, its writer, and their subresources. ``leave``: late responses arrive
    now.
    """

    def __init__(self) -> None:
        self.leave = asyncio.Event()
        self.blob = "blob:https://www.example.com/none"
        self.third_party = ""

    def application(self) -> web.Application:
        application = web.Application()
        for name in ("observer", "writer", "frame"):
            application.router.add_get(f"/{name}", self._page)
        for path, answer in {
            "/set-cookies": self._set_cookies,
            "/late": self._late,
            "/late-worker.js": self._late_worker,
            "/worker.js": self._worker,
            "/sending-worker.js": self._sending_worker,
            "/pieces": self._pieces,
            "/blob": self._blob,
            "/cached": self._cached,
            "/tagged": self._tagged,
            "/private": self._private,
            "/echo": self._echo,
        }.items():
            application.router.add_route("*", path, answer)
        return application

    async def _page(self, request: web.Request) -> web.Response:
        text = (_FOLDER / f"{request.path[1:]}.html").read_text("utf-8")
        text = text.replace("THIRD_PARTY", self.third_party)
        headers = _REMEMBERED if request.path == "/writer" else {}
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def _set_cookies(self, _: web.Request) -> web.Response:
        response = web.Response(text="x", headers=_REMEMBERED)
        for cookie in _COOKIES:
            response.headers.add("Set-Cookie", cookie)
        return response

    async def _late(self, request: web.Request) -> web.Response:
        await self.leave.wait()
        return await self._set_cookies(request)

    async def _late_worker(self, request: web.Request) -> web.Response:
        await self.leave.wait()
        return await self._worker(request)

    async def _worker(self, _: web.Request) -> web.Response:
        return web.Response(text=_WORKER, content_type="text/javascript")

    async def _sending_worker(self, request: web.Request) -> web.Response:
        return web.Response(text=unquote(request.query_string), content_type="text/javascript")

    async def _pieces(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(b"piece")
                await asyncio.sleep(0.01)
        return response

    async def _blob(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            self.blob = await request.json()
        return web.json_response(self.blob)

    async def _cached(self, _: web.Request) -> web.Response:
        return web.Response(
            text="x", content_type="text/css", headers={"Cache-Control": "public, max-age=600"}
        )

    async def _tagged(self, request: web.Request) -> web.Response:
        return web.Response(text="x", headers={"ETag": '"mark"'})

    async def _private(self, request: web.Request) -> web.Response:
        if "Authorization" in request.headers:
            return web.Response(text="x")
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})

    async def _echo(self, request: web.Request) -> web.Response:
        found = sorted(
            (name.lower(), value)
            for name, value in request.headers.items()
            # The address of the observer is its own, and tells nothing of another page.
            if _TELLING.fullmatch(name) and name.lower() != "referer"
        )
        return web.json_response(found)


class Pair:
    """Pages that write, and a page that looks for what they wrote, behind one proxy."""

    def __init__(self, proxy: Proxy, origin: Origin) -> None:
        self.proxy = proxy
        self.origin = origin
        self._numbers = itertools.count()

    async def see(self) -> str:
        """The observer's report."""
        seen = "looking"
        while (
            seen == "looking"
        ):  # on a busy machine, also without a page; the test has a time limit
            reply = await self.proxy.crawl(f"/observer#!{next(self._numbers)}")
            if reply.status != 503:
                found = re.search(r'<pre id="out">(.*?)</pre>', reply.text, re.DOTALL)
                assert found, reply.text
                seen = html.unescape(found[1])
        return seen

    async def write(self, moment: str) -> None:
        """Render a page that writes. Late responses arrive after its render."""
        self.origin.leave.clear()
        reply = await self.proxy.crawl(f"/writer?{moment}#!{next(self._numbers)}")
        # On a busy machine, one that sends without end may exceed the limit of requests.
        assert "written" in reply.text or reply.status == 503, reply.text
        self.origin.leave.set()

    async def write_and_see(self, moment: str, *, waiting: bool) -> str:
        """The observer's report after such a page. ``waiting``: it waits for the page's end."""
        if not waiting:
            await self.write(moment)
            return await self.see()
        writing = asyncio.create_task(self.write(moment))
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            while not self.proxy.running.pool.state.busy:
                await asyncio.sleep(0.001)
        seen = await self.see()
        await writing
        return seen


@pytest.fixture
def start_pair(
    start_origin: StartOrigin, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> "StartPair":
    # Most of the pages work without end: all that they write is written in the first moments.
    monkeypatch.setattr(patience, "UNPRODUCTIVE_SECONDS", 0.4)
    monkeypatch.setattr(patience, "WORK_PATIENCE_SECONDS", 0.4)
    monkeypatch.setattr(page, "_RENEW_CPU_SECONDS", 0.3)

    async def start(pages: int = 1) -> Pair:
        origin = Origin()
        site = await start_origin(origin.application())
        origin.third_party = site.url
        proxy = await start_proxy(
            site.url,
            {
                "browser": {"pages": pages},
                "site": {"url": "https://www.example.com"},
                "network": {"allow": [site.url]},
                # What is answered only after the render need not be waited for.
                "render": {
                    "patience": "0.5s",
                    "budget": "1s",
                    "optional": ["/late*", "/set-cookies", "/echo", "/pieces"],
                },
            },
        )
        return Pair(proxy, origin)

    return start


StartPair = Callable[..., Awaitable[Pair]]


@pytest.mark.parametrize(
    ("moments", "waiting"),
    [
        pytest.param(SOME, False, id="some"),
        pytest.param(SOME_OTHERS, True, id="some, by one that waits", marks=pytest.mark.ci_only),
        *(
            pytest.param(
                MOMENTS + SENDING,
                waiting,
                id=f"all-{waiting}",
                marks=[pytest.mark.long, pytest.mark.timeout(600)],
            )
            for waiting in (False, True)
        ),
    ],
)
async def test_the_next_render_is_that_of_a_new_browser(
    start_pair: StartPair, moments: tuple[str, ...], waiting: bool
) -> None:
    """Also if it waits for the page. The browser itself has no more tabs, contexts or sessions than
    before."""
    pair = await start_pair()
    new = await pair.see()
    before = await _contents(pair)
    leaks = {}
    for moment in moments:
        if (seen := await pair.write_and_see(moment, waiting=waiting)) != new:
            leaks[moment] = _difference(new, seen)
    await _nothing_more_than(before, pair)
    assert not leaks, leaks


@pytest.mark.parametrize(
    "moments",
    [("shared-worker",), pytest.param(("interval", "service-worker"), marks=pytest.mark.long)],
)
async def test_renders_at_the_same_time_see_nothing_of_each_other(
    start_pair: StartPair, moments: tuple[str, ...]
) -> None:
    pair = await start_pair(pages=2)
    new = await pair.see()
    for moment in moments:
        _, seen = await asyncio.gather(pair.write(moment), pair.see())
        assert seen == new, _difference(new, seen)


# What the observer sees when nothing is cleared. Handlers of "beforeunload" and "freeze" do not run
# when a tab is closed, and a busy worker keeps all others from the tab's process.
_SEEN_UNCLEARED = {
    "load": "cookies cookieStore localStorage indexedDB caches opfs buckets usage sent "
    "sentOverTheFrame",
    "interval": "cookies cookieStore localStorage indexedDB caches opfs buckets usage sent",
    "microtasks": "cookies cookieStore sent",
    "pagehide": "cookies cookieStore localStorage caches buckets sent",
    "unload": "cookies cookieStore localStorage caches buckets sent",
    "visibilitychange": "cookies cookieStore localStorage caches buckets sent",
    "late": "cookies cookieStore sent",
    "many": "cookies cookieStore sent",
    "many-while-leaving": "cookies cookieStore sent",
    "worker": "cookies cookieStore indexedDB caches opfs usage sent",
    "shared-worker": "cookies cookieStore indexedDB caches opfs usage sent",
    "service-worker": "cookies cookieStore indexedDB caches usage sent serviceWorkers",
    "late-service-worker": "cookies cookieStore indexedDB caches usage sent serviceWorkers",
    "password": "sent",
}
_ORDINARY_CONTROLS = ("pagehide", "shared-worker")


@pytest.mark.ci_only
@pytest.mark.parametrize(
    "moment",
    [
        moment if moment in _ORDINARY_CONTROLS else pytest.param(moment, marks=pytest.mark.long)
        for moment in _SEEN_UNCLEARED
    ],
)
async def test_without_clearing_it_would_be_seen(
    start_pair: StartPair, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The test can fail: without cleaning, the observer finds what pages wrote."""
    _stop_clearing(monkeypatch)
    pair = await start_pair()
    new = await pair.see()
    await pair.write(moment)
    missing = set(_SEEN_UNCLEARED[moment].split())
    async with asyncio.timeout(40):
        while missing := missing - _difference(new, await pair.see()).keys():
            await asyncio.sleep(0.05)


def _stop_clearing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(tab: Tab) -> None:
        await tab._context.devtools.call("Target.closeTarget", targetId=tab.target_id)
        await tab.session.ended.wait()

    async def clear(_: Context) -> None: ...

    async def check(_: Context, origin: str) -> None: ...

    def visit_of(proxy: ContextProxy, number: int | None) -> Visit:
        return found(proxy, number) or Visit(SITE, None)

    found = ContextProxy.visit_of
    monkeypatch.setattr(Tab, "close", close)
    monkeypatch.setattr(Context, "clear", clear)
    monkeypatch.setattr(Context, "check_empty", check)
    monkeypatch.setattr(Visit, "end", lambda _: None)
    monkeypatch.setattr(Visit, "need_own_context", lambda _: None)
    monkeypatch.setattr(caching, "asks_for_password", lambda *_: False)
    monkeypatch.setattr(ContextProxy, "visit_of", visit_of)


@pytest.mark.parametrize("write", ["indexedDB.open('mark')", "document.cookie = 'mark=1'"])
async def test_what_remains_after_clearing_is_noticed(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
    write: str,
) -> None:
    """The next page gets another browser context."""

    async def clear(_: Context) -> None: ...

    monkeypatch.setattr(Context, "clear", clear)
    written = f"<p id=out></p><script>{write}; out.textContent = 'written'</script>"
    origin = await pages(start_origin, {"/": "<p>nothing", "/writes": written})
    proxy = await start_proxy(origin.url, {"browser": {"pages": 1}})
    first = (await _idle_page(proxy)).context
    replies = [proxy.crawl("/writes"), proxy.crawl("/")]
    assert {reply.status for reply in await asyncio.gather(*replies)} == {200}
    assert (await _idle_page(proxy)).context is not first


@pytest.mark.ci_only
async def test_a_page_that_goes_on_is_not_waited_for(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After its tab is closed, its requests fail at once, in an endless loop. Its CPU time tells."""
    monkeypatch.setattr(page, "_RENEW_SECONDS", 600.0)
    # On a busy machine, a second of CPU time takes longer than a command may.
    monkeypatch.setattr(DevTools.call, "__defaults__", (600.0,))
    monkeypatch.setattr(patience, "UNPRODUCTIVE_SECONDS", 0.4)
    monkeypatch.setattr(patience, "WORK_PATIENCE_SECONDS", 0.4)
    loop = "(async () => { for (;;) await fetch('/data').catch(() => 0); })();"
    sends = f"<p>a page<script>{loop}</script>"
    origin = await pages(start_origin, {"/": "<p>nothing", "/sends": sends, "/data": "1"})
    settings = {"browser": {"pages": 1}, "render": {"timeout": "110s", "budget": "1s"}}
    proxy = await start_proxy(origin.url, settings)
    assert "a page" in (await proxy.crawl("/sends")).text
    assert "nothing" in (await proxy.crawl("/")).text
    # Commands that are not responded to have a limit, too, which is named.
    assert "the context cannot be used again: TimeoutError()" in caplog.text


# What a document can bring with it, and what it finds of the last one.
_REPORT = """<p id=out></p><script>
  const [arrival] = performance.getEntriesByType("navigation");
  out.textContent = JSON.stringify([
    location.href, history.length, name, document.referrer, document.cookie, crossOriginIsolated,
    navigation.activation.from, arrival.type, arrival.responseStatus, Math.abs(Date.now() - NOW) < 60e3,
    sessionStorage.length, localStorage.length, originAgentCluster,
  ]);
  addEventListener("storage", () => { out.textContent += "storage has changed"; });
  name = "left"; sessionStorage.mark = localStorage.mark = "1"; history.pushState(1, "", "#pushed");
</script>"""
_KINDS = {
    "/plain": {},
    "/isolated": {
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Embedder-Policy": "require-corp",
    },
    "/shared-cluster": {"Origin-Agent-Cluster": "?0"},
    "/own-cluster": {"Origin-Agent-Cluster": "?1"},
    "/cookie": {"Set-Cookie": "sent=1"},
    "/later": {"Refresh": "30; url=/elsewhere"},
    "/missing": {},
}


def _each_after_each(names: list[str]) -> list[str]:
    """The shortest sequence in which each name follows each, also itself."""
    left = {name: [*names] for name in names}
    found, stack = [], names[:1]
    while stack:
        if left[stack[-1]]:
            stack.append(left[stack[-1]].pop())
        else:
            found.append(stack.pop())
    return found[::-1]


def _each_after_some(names: list[str]) -> list[str]:
    """A sequence in which each second name follows itself and one other."""
    names = names[1::2]
    return [*itertools.chain.from_iterable(zip(names, names, strict=True)), names[0]]


@pytest.mark.ci_only
@pytest.mark.parametrize(
    "sequence", [_each_after_some, pytest.param(_each_after_each, marks=pytest.mark.long)]
)
async def test_a_page_after_another_one_is_the_same(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    sequence: Callable[[list[str]], list[str]],
) -> None:
    """Each kind of document follows others, also with the same path."""

    async def respond(request: web.Request) -> web.Response:
        text = _REPORT.replace("NOW", str(time.time() * 1000))
        status = 404 if request.path == "/missing" else 200
        headers = _KINDS[request.path]
        return web.Response(text=text, status=status, headers=headers, content_type="text/html")

    async def report(path: str, number: int) -> str:
        reply = await proxy.crawl(f"{path}#!{number}")
        return reply.text.replace(f"#!{number}", "")

    application = web.Application()
    for path in _KINDS:
        application.router.add_get(path, respond)
    origin = await start_origin(application)
    proxy = await start_proxy(
        origin.url, {"browser": {"pages": 1}, "site": {"url": "https://www.example.com"}}
    )
    follow = sequence([*_KINDS])
    alone = {path: await report(path, 0) for path in {*follow}}
    found = await asyncio.gather(*(report(path, number) for number, path in enumerate(follow, 1)))
    assert found == [alone[path] for path in follow]


@pytest.mark.parametrize("call", sampled(["back()", "go(-1)", "go(-2)", "forward()", "go(1)"], 3))
async def test_the_history_leads_nowhere(
    start_origin: StartOrigin, start_proxy: StartProxy, call: str
) -> None:
    """The history is that of a direct visit. It used to lead to the last rendered page."""
    goes = f"<p id=out></p><script>history.{call}; out.textContent = history.length</script>"
    origin = await pages(start_origin, {"/": "<p>another page", "/goes": goes})
    proxy = await start_proxy(
        origin.url, {"browser": {"pages": 1}, "site": {"url": "https://www.example.com"}}
    )
    for number in range(2):
        assert "another page" in (await proxy.crawl(f"/#!{number}")).text
        reply = await proxy.crawl(f"/goes#!{number}")
        assert (reply.status, '<p id="out">1</p>' in reply.text) == (200, True), reply.text


_FORGED = """<p id=out></p><script>
  const headers = {"User-Agent": "forged"};
  const echo = async (options) => (await fetch("/echo", {headers, ...options})).text();
  const code = `fetch("${location.origin}/echo", {headers: {"User-Agent": "forged"}})
    .then((answer) => answer.text()).then(postMessage)`;
  const request = new XMLHttpRequest();
  request.open("GET", "/echo");
  request.setRequestHeader("User-Agent", "forged");
  request.send();
  Promise.all([
    echo(), echo({method: "POST", keepalive: true}),
    new Promise((done) => { request.onload = () => done(request.responseText); }),
    new Promise((done) => {
      new Worker(URL.createObjectURL(new Blob([code]))).onmessage = ({data}) => done(data);
    }),
  ]).then((agents) => { out.textContent = agents.join(); });
</script>"""


async def test_a_page_cannot_change_its_number(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """The gateway knows a page by its user agent."""

    async def echo(request: web.Request) -> web.Response:
        return web.Response(text=str("forged" in request.headers["User-Agent"]))

    async def respond(_: web.Request) -> web.Response:
        return web.Response(text=_FORGED, content_type="text/html")

    application = web.Application()
    application.add_routes([web.get("/", respond), web.route("*", "/echo", echo)])
    proxy = await start_proxy((await start_origin(application)).url, {})
    assert '<p id="out">False,False,False,False</p>' in (await proxy.crawl("/")).text


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_nothing_accumulates_over_a_thousand_renders(start_pair: StartPair) -> None:
    pair = await start_pair()
    await pair.see()
    before = await _contents(pair)
    for number in range(1000):
        await pair.write(MOMENTS[number % len(MOMENTS)])
    await _nothing_more_than(before, pair)


async def _idle_page(proxy: Proxy) -> Page:
    """The idle page of the pool, when there is one."""
    pool = proxy.running.pool
    async with asyncio.timeout(20):
        while not pool.state.idle:
            await asyncio.sleep(0.01)
    assert pool._stock is not None
    return pool._stock.idle[0]


async def _connection(pair: Pair) -> DevTools:
    return (await _idle_page(pair.proxy)).devtools


async def _contents(pair: Pair) -> tuple[int, ...]:
    """The browser's tabs, contexts and sessions, and the connection's listeners."""
    devtools = await _connection(pair)
    targets = await devtools.call("Target.getTargets")
    contexts = await devtools.call("Target.getBrowserContexts")
    return (
        # Chromium lists a service worker forever whose script arrives while its context is disposed of.
        # It has no process.
        sum(target["type"] != "service_worker" for target in targets["targetInfos"]),
        len(contexts["browserContextIds"]),
        len(devtools._sessions),
        len(devtools.listeners("Target.targetCreated")),
        len(devtools._callbacks),
    )


async def _nothing_more_than(before: tuple[int, ...], pair: Pair) -> None:
    # Chromium still lists the tabs of a disposed context for a moment.
    try:
        async with asyncio.timeout(20):
            while (after := await _contents(pair)) != before:
                await asyncio.sleep(0.05)
    except TimeoutError:
        targets = await (await _connection(pair)).call("Target.getTargets")
        pytest.fail(f"{after}, at first {before}; {targets}")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("beside", [0, 8])
async def test_a_thousand_pairs(start_pair: StartPair, beside: int, part: int) -> None:
    """One at a time, and eight at once in four pages with busy CPUs; at least 250 in each part."""
    pair = await start_pair(pages=max(1, beside // 2))
    new = await pair.see()
    chance = random.Random(part)
    leaks: list[dict[str, Any]] = []

    async def work(count: int) -> None:
        for _ in range(count):
            await pair.write(chance.choice((*MOMENTS, *SENDING)))
            if (seen := await pair.see()) != new:
                leaks.append(_difference(new, seen))

    workers = beside or 1
    async with processes.busy_loops(2 if beside else 0):
        await asyncio.gather(*(work(-(-250 // workers)) for _ in range(workers)))
    assert not leaks, (len(leaks), leaks[:3])


def _difference(new: str, seen: str) -> dict[str, Any]:
    one, other = _sights(new), _sights(seen)
    return {
        name: (one.get(name), other.get(name))
        for name in one | other
        if one.get(name) != other.get(name)
    }


def _sights(report: str) -> dict[str, Any]:
    """What was seen, by name; properties by their path."""
    found: dict[str, Any] = json.loads(report)
    properties: dict[str, str] = found.pop("everything")
    return found | properties
