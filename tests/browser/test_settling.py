"""Snapshots are complete: every page of the corpus, one at a time and eight at once.

A page of the corpus (tests/sites/corpus) finishes by one mechanism of the web platform. Pages that
are slow, endless or hostile and need other settings are tested at the end.
"""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import pytest
import pytest_asyncio
from aiohttp import web

from prerender.browser.settling.lazy_content import HIGHEST_WINDOW
from prerender.browser.settling.patience import UNPRODUCTIVE_SECONDS
from tests.conftest import Proxy, Reply, StartOrigin, StartProxy, pages, proxied
from tests.sites.corpus import origin as corpus
from tests.support import processes
from tests.support.sampling import sampled

SITE: dict[str, dict[str, object]] = {"site": {"url": "https://www.example.com"}}
# No page of the corpus takes longer than this, unless it says so.
AT_MOST_SECONDS = 10.0
AT_ONCE = 8
ENDLESS_SECONDS = 3
ENDLESS_LOOPS = {
    "script": "while (true);",
    "microtasks": "(function next() { Promise.resolve().then(next); })();",
}
# A page of the pool for each, so that the next renders need the same pages again.
ENDLESS: dict[str, dict[str, object]] = {
    **SITE,
    "browser": {"pages": len(ENDLESS_LOOPS)},
    "render": {"timeout": ENDLESS_SECONDS},
}
NEXT_PAGE = {"/next": "<p>the next page"}


# Other tests run at the same time. A page that is waited for in vain takes longer still.
SLACK = 3


@dataclass(frozen=True)
class Case:
    """A page of the corpus and its metadata."""

    name: str
    expected: str
    at_most_seconds: float

    @classmethod
    def read(cls, name: str) -> "Case":
        meta = dict(
            re.findall(
                r'<meta name="([a-z-]+)" content="([^"]*)">',
                (corpus.FOLDER / f"{name}.html").read_text(encoding="utf-8"),
            )
        )
        return cls(name, meta["expected"], float(meta.get("at-most-seconds", AT_MOST_SECONDS)))

    def problem(self, answer: Reply, waited_seconds: float = math.inf) -> str:
        """What is wrong with the answer for this page, or ''.

        ``waited_seconds``: how much of the time others had the CPUs, which the page cannot help.
        """
        out = re.search(r'<p id="out">(.*?)</p>', answer.text)
        said = out[1] if out else answer.text[:200]
        status = answer.headers.get("Cache-Status", "")
        if answer.status != 200:
            return f"status {answer.status}, {status}"
        if said != self.expected or "waiting" in answer.text:
            return f"the snapshot says {said!r}, {status}"
        if "stored" not in status or "cut-off" in status:
            return f"not stored as a whole: {status}"
        took = settle_seconds(answer) - waited_seconds
        if took > self.at_most_seconds * SLACK:
            return f"settled in {took:.1f} s, at most {self.at_most_seconds:g} s"
        return ""


CASES = [Case.read(name) for name in corpus.page_names()]


def settle_seconds(answer: Reply) -> float:
    """The time that the page took to settle, from Server-Timing."""
    found = re.search(r"settle;dur=([\d.]+)", answer.headers["Server-Timing"])
    assert found
    return float(found[1]) / 1000


@pytest_asyncio.fixture(scope="module")
async def one_proxy() -> AsyncIterator[Proxy]:
    """One proxy for the whole corpus: a start for each page would take most of the time."""
    async with proxied(corpus.application(), SITE) as proxy:
        yield proxy


@pytest.mark.parametrize("case", sampled(CASES, 22), ids=lambda case: case.name)
async def test_alone(case: Case, one_proxy: Proxy) -> None:
    wait = processes.CpuWait()
    answer = await one_proxy.crawl(f"/{case.name}.html")
    problem = case.problem(answer, wait.seconds)
    assert not problem, problem


@pytest.mark.ci_only
@pytest.mark.parametrize(
    "cases",
    [pytest.param(CASES[3::52], id="some"), pytest.param(CASES, id="all", marks=pytest.mark.long)],
)
async def test_eight_at_once(
    cases: list[Case], start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await start_origin(corpus.application())
    proxy = await start_proxy(origin.url, SITE | {"browser": {"pages": 4}})
    room = asyncio.Semaphore(AT_ONCE)

    async def problem(case: Case) -> str:
        async with room:
            return case.problem(await proxy.crawl(f"/{case.name}.html"))

    problems = await asyncio.gather(*(problem(case) for case in cases))
    failed = {case.name: text for case, text in zip(cases, problems, strict=True) if text}
    assert not failed, failed


async def test_service_workers_do_not_outlive_their_page(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await start_origin(corpus.application())
    proxy = await start_proxy(origin.url, SITE | {"browser": {"pages": 1}})
    registered = await proxy.crawl("/service-worker-ready.html")
    assert "done: activated" in registered.text
    text = (await proxy.crawl("/parts/controlled.html")).text
    assert '<p id="out">done: controlled by null, from the origin</p>' in text


async def test_windows_and_downloads_leave_the_page_usable(
    start_origin: StartOrigin, start_own_proxy: StartProxy
) -> None:
    """Whatever a page opens, prints, downloads or closes, the next render is unaffected."""
    origin = await start_origin(corpus.application())
    proxy = await start_own_proxy(origin.url, SITE | {"browser": {"pages": 1}})
    for number, name in enumerate(["open-20-windows", "close", "print", "download-link"]):
        answer = await proxy.crawl(f"/{name}.html#!/{number}")
        problem = Case.read(name).problem(answer)
        assert not problem, f"{name}: {problem}"
    assert proxy.running.pool.browsers_started == 1
    assert proxy.running.pool.ready


async def test_lazy_images_are_asked_for(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    image = '<img loading="lazy" src="/image.svg" width="30" height="30" alt="">'
    page = f'<h1>Top</h1><div style="height: 5000px"></div>{image}'
    svg = web.Response(
        body=b'<svg xmlns="http://www.w3.org/2000/svg"/>', content_type="image/svg+xml"
    )
    origin = await pages(start_origin, {"/": page, "/image.svg": svg})
    proxy = await start_proxy(origin.url, SITE)
    await proxy.crawl("/")
    assert origin.count("/image.svg") == 1


@pytest.mark.parametrize(
    ("batches", "batch_px", "expected"),
    [
        pytest.param(14, 300, 14, id="ends"),
        # The highest window ends in the last batch.
        pytest.param(math.inf, 2100, math.ceil(HIGHEST_WINDOW / 2100), id="endless"),
    ],
)
async def test_lists_that_load_when_scrolled_are_followed(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    batches: float,
    batch_px: int,
    expected: int,
) -> None:
    page = f"""<!DOCTYPE html><title>t</title><body style="margin: 0">
      <div id="end" style="height: 1px"></div><script>
      let batches = 0;
      const observer = new IntersectionObserver(async ([{{ isIntersecting }}]) => {{
        if (!isIntersecting) return;
        observer.unobserve(end);
        const text = await (await fetch("/batch")).text();
        end.insertAdjacentHTML("beforebegin", `<p style="margin: 0; height: {batch_px}px">${{text}}`);
        if (++batches < {"Infinity" if batches == math.inf else batches}) observer.observe(end);
      }});
      observer.observe(end);</script>"""
    origin = await pages(start_origin, {"/": page, "/batch": web.Response(text="a batch")})
    proxy = await start_proxy(origin.url, SITE)
    assert (await proxy.crawl("/")).text.count("a batch") == expected


async def test_a_blocked_database_is_waited_for(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """Its upgrade is long enough to be missed."""
    page = """<!DOCTYPE html><title>t</title><p id="out">waiting</p><script>
      const first = indexedDB.open("news", 1);
      first.onsuccess = () => {
        const second = indexedDB.open("news", 2);
        second.onblocked = () => setTimeout(() => first.result.close(), 50);
        second.onupgradeneeded = () => {
          const store = second.result.createObjectStore("news", { autoIncrement: true });
          for (let count = 0; count < 5000; count++) store.add("news");
        };
        second.onsuccess = () => { out.textContent = "done"; };
      };</script>"""
    proxy = await start_proxy((await pages(start_origin, {"/": page})).url, SITE)
    assert ">done<" in (await proxy.crawl("/")).text


async def test_a_database_that_stays_blocked_is_not_waited_for(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = """<!DOCTYPE html><title>t</title><p id="out">waiting</p><script>
      indexedDB.open("news", 1).onsuccess = (event) => {
        globalThis.first = event.target.result;
        indexedDB.deleteDatabase("news").onblocked = () => {
          const { working } = globalThis[Symbol.for("prerender.probe")]();
          out.textContent = `${working} waited for`;
        };
      };</script>"""
    proxy = await start_proxy((await pages(start_origin, {"/": page})).url, SITE)
    assert ">0 waited for<" in (await proxy.crawl("/")).text


@pytest.mark.parametrize(("effect", "acknowledged"), [("", 3), ("out.textContent = answers;", 10)])
async def test_answers_to_heartbeats_are_no_acknowledgements(
    effect: str, acknowledged: int, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """Those that change nothing, after the first few. After the others, more may follow."""
    page = f"""<p id="out">waiting</p><script>
      const work = URL.createObjectURL(new Blob(["onmessage = () => postMessage(1)"]));
      const worker = new Worker(work);
      let answers = 0;
      worker.onmessage = () => {{
        if (++answers < 10) {{
          {effect}
          worker.postMessage(1);
        }} else {{
          const {{ acknowledged }} = globalThis[Symbol.for("prerender.probe")]();
          out.textContent = `${{acknowledged}} acknowledged`;
        }}
      }};
      worker.postMessage(1);</script>"""
    proxy = await start_proxy((await pages(start_origin, {"/": page})).url, SITE)
    assert f">{acknowledged} acknowledged<" in (await proxy.crawl("/")).text


async def test_own_data_is_waited_for_longer_than_the_patience(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await start_origin(corpus.application())
    proxy = await start_proxy(origin.url, SITE | {"render": {"patience": "0.5s"}})
    answer = await proxy.crawl("/parts/slow-interface.html")
    assert '<p id="out">done: answered</p>' in answer.text


STALLING = """<script>
  fetch("/stalls?KIND").then(async (answer) => {
    const reader = answer.body.getReader();
    while (!(await reader.read()).done);
    out.textContent = "done";
  });
</script>"""
# Chromium holds the response back until it knows its type, which takes 1 KiB of it, or its end.
HELD_BACK = """<script>
  const request = new XMLHttpRequest();
  request.open("GET", "/stalls?KIND");
  request.onload = () => { out.textContent = "done"; };
  request.send();
</script>"""


@pytest.mark.parametrize(
    ("script", "kind", "expected"),
    [
        (STALLING, "length", "done"),
        pytest.param(STALLING, "application/json", "done", marks=pytest.mark.long),
        (STALLING, "text/plain", "waiting"),
        (HELD_BACK, "text/plain", "waiting"),
    ],
)
async def test_a_response_with_an_end_is_waited_for_until_then(
    script: str, kind: str, expected: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """But not one that may be a stream."""
    ended = asyncio.Event()

    async def stalls(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        if kind == "length":
            answer.content_length = 4
        else:
            answer.content_type = kind
        await answer.prepare(request)
        await answer.write(b"[1")
        with suppress(TimeoutError):
            seconds = 20 if expected == "waiting" else PATIENCE_SECONDS + 3.5
            await asyncio.wait_for(ended.wait(), seconds)
        await answer.write(b"2]")
        return answer

    application = web.Application()
    application.router.add_get("/", _page(script.replace("KIND", kind)))
    application.router.add_get("/stalls", stalls)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, SITE | {"render": {"patience": PATIENCE_SECONDS}})
    answer = await proxy.crawl("/")
    ended.set()
    assert f'<p id="out">{expected}</p>' in answer.text


OUT = '<!DOCTYPE html><p id="out">waiting</p>'
DONE = "out.textContent = 'done'"
PATIENCE_SECONDS = 0.4
# "//cdn" is another host.
SLOW_PROGRAMS = {
    "/for-the-parser": '<script src="/program?1"></script>',
    "/of-another-host": '<script src="//cdn/program"></script>',
    "/deferred": '<script defer src="/program?2"></script>',
    "/module": '<script type="module" src="/program?3"></script>',
    "/imported": '<script type="module">await import("/program?4");</script>',
    "/beside-the-page": '<script async src="/program?5"></script>',
    "/behind-a-style": f'<link rel="stylesheet" href="/style"><script>{DONE}</script>',
}


def _page(text: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text=OUT + text, content_type="text/html")

    return page


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param([*SLOW_PROGRAMS][::3], id="a third"),
        pytest.param([*SLOW_PROGRAMS], id="all", marks=pytest.mark.long),
    ],
)
async def test_programs_are_waited_for_however_slow(
    start_origin: StartOrigin, start_proxy: StartProxy, paths: list[str]
) -> None:
    """Scripts that the content comes from, or that block it, may be silent for longer than the
    patience.
    """
    seconds = PATIENCE_SECONDS + UNPRODUCTIVE_SECONDS + 0.5

    async def slow(request: web.Request) -> web.Response:
        await asyncio.sleep(seconds)
        if request.path == "/style":
            return web.Response(content_type="text/css")
        return web.Response(text=DONE, content_type="text/javascript")

    elsewhere = web.Application()
    elsewhere.router.add_get("/program", slow)
    cdn = await start_origin(elsewhere)
    application = web.Application()
    for path, text in SLOW_PROGRAMS.items():
        page = _page(f"{text.replace('//cdn', cdn.url)}<p>the rest")
        application.router.add_get(path, page)
    application.router.add_get("/program", slow)
    application.router.add_get("/style", slow)
    origin = await start_origin(application)
    proxy = await start_proxy(
        origin.url,
        SITE
        | {
            "render": {"patience": PATIENCE_SECONDS},
            "browser": {"pages": len(paths)},
            "network": {"allow": [cdn.url]},
        },
    )
    answers = await asyncio.gather(*map(proxy.crawl, paths))
    for path, answer in zip(paths, answers, strict=True):
        assert '<p id="out">done</p>' in answer.text, path
        assert "the rest" in answer.text, path
        assert answer.headers["Cache-Status"].endswith("stored; ttl=3600"), path


LARGE_BYTES = 8_000_000
LATER_THAN_PATIENCE = {
    "a slow program": '<script src="/held?ms=3200&large=1"></script>',
    "beside what hangs": """<script type="module">
      fetch("/long-polling");
      let said;
      for (let i = 0; i < 3; i++) said = await (await fetch(`/held?ms=200&large=${+(i === 2)}`)).text();
      eval(said);
    </script>""",
    "beside what hangs, with one URL": """<script type="module">
      fetch("/long-polling");
      let said;
      for (let i = 0; i < 3; i++) said = await (await fetch("/held?ms=200&large=3")).text();
      eval(said);
    </script>""",
}


@pytest.mark.parametrize("name", sampled([*LATER_THAN_PATIENCE][::-1], 3))
async def test_answers_on_their_way_are_waited_for(
    name: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """A page whose clock no longer waits for the network still gets the responses that were sent to
    it.
    """

    asked = 0

    async def held(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        await asyncio.sleep(int(request.query["ms"]) / 1000)
        # As on a busy machine: the proxy has sent the answer long before all of it is in the page.
        is_large = request.query["large"] in ("1", str(asked))
        padding = f"/*{LARGE_BYTES * 'x'}*/" if is_large else ""
        return web.Response(text=padding + DONE, content_type="text/javascript")

    async def hanging(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    application = web.Application()
    application.router.add_get("/", _page(LATER_THAN_PATIENCE[name]))
    application.router.add_get("/held", held)
    application.router.add_get("/long-polling", hanging)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, SITE | {"render": {"patience": PATIENCE_SECONDS}})
    answer = await proxy.crawl("/")
    assert '<p id="out">done</p>' in answer.text, answer.headers


REQUESTS_ON_THEIR_WAY = """<script>
  let answers = 0;
  const count = () => { if (++answers === 2) setTimeout(() => { out.textContent = "done"; }, 100); };
  // Chromium sends only the first one, until that has its response.
  fetch("/held");
  fetch("/held").then(count);
  const other = new XMLHttpRequest();
  other.onload = count;
  other.open("GET", "/held");
  other.send();
</script>"""


async def test_requests_on_their_way_are_waited_for(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """A page that floods the network delays the requests of others before they reach the gateway."""
    asked = 0

    async def held(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if asked == 1:
            await asyncio.sleep(PATIENCE_SECONDS + 1)
        return web.Response(text="data")

    application = web.Application()
    application.router.add_get("/", _page(REQUESTS_ON_THEIR_WAY))
    application.router.add_get("/held", held)
    origin = await start_origin(application)
    render = {"patience": PATIENCE_SECONDS, "optional": ["/held"]}
    proxy = await start_proxy(origin.url, SITE | {"render": render})
    answer = await proxy.crawl("/")
    assert ">done</p>" in answer.text, answer.headers


@pytest.mark.ci_only
async def test_the_clock_is_right(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    """Even on a page that was used for minutes of virtual time."""
    page = """<p id="out">waiting</p><script>
      const write = () => {
        const times = [
          Date.now(), +new Date(), Date.parse(Date()), performance.timeOrigin + performance.now(),
        ];
        if (Math.max(...times) - Math.min(...times) < 1500) out.textContent = `done: ${Date.now()}`;
      };
      if (location.hash === "#!/now") write(); else setTimeout(write, 8000);
    </script>"""
    origin = await pages(start_origin, {"/": page})
    proxy = await start_proxy(origin.url, SITE | {"browser": {"pages": 1}, "cache": {"ttl": 0}})
    for number in range(6):
        now = await _date_of(proxy, "/#!/now")
        assert abs(now - time.time()) < 2, f"after {number} renders of 8 s"
        later = await _date_of(proxy, f"/#!/later/{number}")
        assert later - now >= 7.9


async def _date_of(proxy: Proxy, pretty: str) -> float:
    """The Unix time that the page shows."""
    text = (await proxy.crawl(pretty)).text
    found = re.search(r"done: (\d+)", text)
    assert found, text
    return int(found[1]) / 1000


@pytest.mark.ci_only
@pytest.mark.parametrize(
    ("before", "after"),
    [("script", "microtasks"), pytest.param("microtasks", "script", marks=pytest.mark.long)],
)
async def test_endless_scripts(
    start_origin: StartOrigin, start_proxy: StartProxy, before: str, after: str
) -> None:
    """Before a page has shown anything, there is no snapshot, and the crawler has to retry. After
    that, the content is served but not stored."""
    content = "<script>document.body.append('content')</script>"
    endless = {
        "/before": f"<!DOCTYPE html><title>Endless</title><script>{ENDLESS_LOOPS[before]}</script>"
        + content,
        "/after": "<p>the content</p>"
        f"<script>setTimeout(() => {{ {ENDLESS_LOOPS[after]} }}, 100);</script>",
    }
    origin = await pages(start_origin, endless | NEXT_PAGE)
    proxy = await start_proxy(origin.url, ENDLESS)
    empty, served = await _crawl_between_others(proxy, endless)
    while served.status == 503:  # on a busy machine; the test has a time limit
        served = await proxy.crawl("/after")
    assert empty.status == 503, empty.text
    assert int(empty.headers["Retry-After"]) > 0
    assert served.status == 200, served.text
    assert "the content" in served.text
    assert served.headers["Cache-Status"] == "prerender; fwd=miss; detail=cut-off"


async def _crawl_between_others(proxy: Proxy, paths: Iterable[str]) -> list[Reply]:
    """Crawl pages that are cut off, all at once. The pool is used before and works afterwards."""

    async def other(name: str) -> None:
        while (answer := await proxy.crawl(f"/next#!/{name}")).status == 503:
            pass  # on a busy machine; the test has a time limit
        assert "the next page" in answer.text

    async def others(name: str) -> None:
        await asyncio.gather(*(other(f"{name}/{number}") for number in range(len(ENDLESS_LOOPS))))

    await others("before")
    watch = processes.Stopwatch()
    answers = await asyncio.gather(*(proxy.crawl(path) for path in paths))
    assert watch.seconds < ENDLESS_SECONDS + 2
    await others("after")
    return answers
