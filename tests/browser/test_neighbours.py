"""A hostile page does not make other renders fail. benchmarks/neighbours.py measures its cost."""

import asyncio
import os
import re
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from prerender.browser.cpu_priority import PageProcess
from prerender.browser.supervisor import ReplacementCause
from tests.conftest import StartOrigin, StartProxy, pages
from tests.sites.hostile import GREEDY
from tests.support import processes
from tests.support.sampling import sampled

# Of the things that pages share, the browser and the network; CPUs are in the test of the lowest
# priority. make test-long has all.
SHORT = ("hash-loop", "requests-10000")
NEIGHBOUR = """<p id="out">waiting</p><script>
  fetch("/data").then((answer) => answer.text()).then((text) => {
    setTimeout(() => { out.textContent = `complete ${text}${location.search}`; }, 100);
  });
  new ResizeObserver(() => {}).observe(out);  // its frames and the hostile page's take turns
</script>"""


COOKIES = """<p id="out"></p><script>
  for (let i = 0; i < 1000; i++) document.cookie = `written=${i}`;
  cookieStore.set("also", "yes").then(() => { out.textContent = document.cookie; });
</script>"""


QUESTIONS = """<p id="out"></p><script>
  let answers = 0;
  for (let i = 0; i < 1100; i++) {
    CALL.finally(() => { out.textContent = ++answers; }).catch(() => {});
  }
</script>"""


WORKERS = """<p id="out">no worker</p><script>
  const work = `fetch("${origin}/held?" + Math.random()).then(() => postMessage(1))`;
  const code = URL.createObjectURL(new Blob([work]));
  let answers = 0;
  for (let i = 0; i < COUNT; i++) {
    new Worker(code).onmessage = () => { out.textContent = ++answers; };
  }
</script>"""


async def answer(request: web.Request) -> web.Response:
    """The hostile pages, an ordinary page, and data."""
    if request.path == "/data":
        return web.Response(text="with data")
    html = GREEDY.get(request.path[1:], NEIGHBOUR)
    return web.Response(text=html, content_type="text/html")


async def neighbours(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    name: str,
    *,
    lanes: int = 3,
    count: int = 10,
    timeout: int = 20,
) -> int:
    """Render a page repeatedly, and others at the same time. Returns the number of lost browsers.

    ``count``: pages in each of the lanes. ``timeout``: seconds for a render.
    """
    application = web.Application()
    application.add_routes([web.get("/{path:.*}", answer)])
    origin = await start_origin(application)
    settings = {"browser": {"pages": lanes + 1}, "render": {"timeout": timeout}}
    proxy = await start_proxy(origin.url, settings)

    lost = proxy.running.pool.replacements[ReplacementCause.LOST]

    async def again_and_again() -> None:
        number = 0
        while True:
            number += 1
            await proxy.crawl(f"/{name}?{number}")

    async def beside(lane: int) -> None:
        for number in range(count):
            page = await proxy.crawl(f"/?{lane}-{number}")
            assert page.status == 200, page.text
            assert f">complete with data?{lane}-{number}<" in page.text
            assert "stored" in page.headers["Cache-Status"]

    hostile = asyncio.create_task(again_and_again())
    try:
        await asyncio.gather(*(beside(lane) for lane in range(lanes)))
    finally:
        hostile.cancel()
        await asyncio.wait([hostile])
    return proxy.running.pool.replacements[ReplacementCause.LOST] - lost


@pytest.mark.ci_only
@pytest.mark.parametrize("name", SHORT)
async def test_neighbours(start_origin: StartOrigin, start_proxy: StartProxy, name: str) -> None:
    # The time that a busy machine takes is no matter here.
    await neighbours(start_origin, start_proxy, name, lanes=1, count=1, timeout=60)


async def test_the_frames_of_a_page_load_one_by_one_after_the_first(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    arrivals = []

    async def frame(request: web.Request) -> web.Response:
        if request.path == "/":
            frames = "".join(f'<iframe src="/{number}"></iframe>' for number in range(30))
            return web.Response(text=frames, content_type="text/html")
        arrivals.append(asyncio.get_running_loop().time())
        return web.Response(text="<p>frame", content_type="text/html")

    application = web.Application()
    application.add_routes([web.get("/{path:.*}", frame)])
    proxy = await start_proxy((await start_origin(application)).url)
    assert (await proxy.crawl("/")).status == 200
    assert len(arrivals) == 30
    # 20 at once, and then one in 50 ms, which is half a second in all.
    assert arrivals[-1] - arrivals[0] > 0.25


async def test_cookies_beyond_the_quota_are_not_written(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": COOKIES})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    assert '<p id="out">written=499</p>' in (await proxy.crawl("/")).text


LONG_URLS = {
    "push": "history.pushState(null, '', '?' + i + 'x'.repeat(1e5))",
    "replace": "history.replaceState(null, '', '?' + i + 'x'.repeat(1e5))",
    "hash": "location.hash = i + 'x'.repeat(1e5)",
    "link": "(link.href = '#' + i + 'x'.repeat(1e5), link.click())",
    "navigation": "navigation.navigate('#' + i + 'x'.repeat(1e5)).finished?.catch(() => 0)",
    "state": "history.replaceState({ deep: [['x'.repeat(4e5)]] }, '', '#' + i)",
    "bytes": "history.replaceState(new Uint8Array(4e5), '', '#' + i)",
    "list": "history.replaceState({ list: Array(4e5).fill(0) }, '', '#' + i)",
}


@pytest.mark.parametrize("change", sampled([*LONG_URLS], 2))
async def test_urls_and_states_beyond_the_quota_are_not_set(
    change: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """Ordinary ones are set before, as often as the browser allows."""
    script = f"""
      const ordinary = {{ length: 5e6, byteLength: 5e6, box: {{ width: "20", length: "30" }} }};
      for (let i = 0; i < 50; i++) history.replaceState({{ i, ordinary }}, "", "?page=" + i);
      const before = location.search;
      for (let i = 0; i < 20; i++) {LONG_URLS[change]};
      out.textContent = before + " " + /^[?#]([0-9]+)/.exec(location.hash || location.search)[1];
      history.replaceState(null, "", "?");"""
    page = f"<p id=out></p><a id=link></a><script>{script}</script>"
    origin = await pages(start_origin, {"/": page})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    text = (await proxy.crawl("/")).text
    found = re.search(r'<p id="out">\?page=49 (\d+)<', text)
    assert found, text[:500]
    assert int(found[1]) <= 4


async def test_titles_beyond_the_quota_are_not_set(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    titles = "<script>for (let i = 0; i < 1100; i++) document.title = `title ${i}`</script><p>text"
    origin = await pages(start_origin, {"/": titles})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    assert "<title>title 999</title>" in (await proxy.crawl("/")).text


async def test_calls_beyond_the_quota_of_the_console_return_what_the_page_uses(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    logs = """<p id="out"></p><script>for (let i = 0; i < 1100; i++) console.log(i);
      console.context("other").log("x");
      out.textContent = console.createTask("task").run(() => "ran");</script>"""
    origin = await pages(start_origin, {"/": logs})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    assert '<p id="out">ran</p>' in (await proxy.crawl("/")).text


@pytest.mark.ci_only
async def test_fetches_beyond_the_quota_wait_for_others(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    fetches = """<p id="out"></p><script>
      let answers = 0;
      for (let i = 0; i < 250; i++) {
        fetch("/data?" + i).then(() => { out.textContent = ++answers; });
      }
    </script>"""
    origin = await pages(start_origin, {"/": fetches, "/data": "data"})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    assert '<p id="out">250</p>' in (await proxy.crawl("/")).text
    assert origin.count("/data") == 250


@pytest.mark.parametrize(
    "asked",
    sampled(
        [
            ('navigator.permissions.query({ name: "geolocation" })', 1000),
            ('navigator.clipboard.writeText("text")', 50),
            ("document.body.requestFullscreen()", 50),
            ('navigator.serviceWorker.register("/missing")', 5),
            ("navigator.mediaDevices.enumerateDevices()", 50),
            ("Notification.requestPermission()", 50),
            ("new Promise((done) => navigator.geolocation.getCurrentPosition(done, done))", 50),
        ],
        3,
    ),
)
async def test_questions_to_the_browser_beyond_the_quota_get_no_answer(
    start_origin: StartOrigin, start_proxy: StartProxy, asked: tuple[str, int]
) -> None:
    call, answered = asked
    origin = await pages(start_origin, {"/": QUESTIONS.replace("CALL", call)})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    assert f'<p id="out">{answered}</p>' in (await proxy.crawl("/")).text


def page_with_workers(count: int) -> tuple[int, list[int]]:
    """The process of the page with this number of workers, and its number of threads; 0 and none if
    there is none.
    """
    for session in processes.sessions():
        for process in processes.of_kind(session, "renderer"):
            with suppress(OSError):
                names = {
                    int(thread.name): (thread / "comm").read_text("ascii")
                    for thread in Path(f"/proc/{process.pid}/task").iterdir()
                }
                workers = [one for one in names if names[one].startswith("DedicatedWorker")]
                if len(workers) == count:
                    return process.pid, workers
    return 0, []


@pytest.mark.parametrize(
    ("count", "policy"),
    [(5, os.SCHED_IDLE), pytest.param(4, os.SCHED_BATCH, marks=pytest.mark.long)],
)
async def test_many_workers_have_the_lowest_priority(
    start_origin: StartOrigin, start_proxy: StartProxy, count: int, policy: int
) -> None:
    asked, release = asyncio.Semaphore(0), asyncio.Event()

    async def held(request: web.Request) -> web.Response:
        asked.release()
        await release.wait()
        return web.Response(text="data")

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=WORKERS.replace("COUNT", str(count)), content_type="text/html")

    application = web.Application()
    application.add_routes([web.get("/held", held), web.get("/", page)])
    settings = {"render": {"timeout": "60s"}}
    proxy = await start_proxy((await start_origin(application)).url, settings)
    crawl = asyncio.create_task(proxy.crawl("/"))
    try:
        async with asyncio.timeout(60):
            for _ in range(count):
                await asked.acquire()
            while not (found := page_with_workers(count))[0]:
                await asyncio.sleep(0.01)
            process, workers = found
            while {os.sched_getscheduler(worker) for worker in workers} != {policy}:
                await asyncio.sleep(0.01)
        # The page itself continues as before.
        assert os.sched_getscheduler(process) == os.SCHED_BATCH
    finally:
        release.set()
    assert f'<p id="out">{count}</p>' in (await crawl).text


def test_workers_whose_threads_get_their_names_late() -> None:
    """On a busy machine they can be seen before."""
    process, release = PageProcess(os.getpid()), threading.Event()
    process.begin()
    threads = [threading.Thread(target=release.wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    workers = [thread.native_id or 0 for thread in threads]
    try:
        process.weigh()
        assert os.SCHED_IDLE not in map(os.sched_getscheduler, workers)
        for worker in workers:
            Path(f"/proc/self/task/{worker}/comm").write_text("DedicatedWorker")
        process.weigh()
        assert set(map(os.sched_getscheduler, workers)) == {os.SCHED_IDLE}
    finally:
        release.set()
        for thread in threads:
            thread.join()


@pytest.mark.long
@pytest.mark.parametrize("name", GREEDY)
async def test_neighbours_of_every_page(
    start_origin: StartOrigin, start_proxy: StartProxy, name: str
) -> None:
    # Beside other tests a browser may get so little of the CPUs that it is taken for hung.
    assert not await neighbours(start_origin, start_proxy, name)
