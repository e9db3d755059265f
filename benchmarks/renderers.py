"""The measured renderers: this proxy, Prerender, Rendertron, and bare loops.

The competitors are npm packages (rivals/package.json), with their defaults and the same Chromium. The
bare loops (bare_loop.py) are the baselines: only Chromium.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import psutil
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, web
from bare_loop import BareLoop
from measuring import application_runner, free_port, serving
from yarl import URL

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from prerender.browser import chromium
from prerender.gateway.document import PAGE_STATUSES
from prerender.urls.ajax_crawling import pretty_to_ugly

STATIC = "/static"
APPLICATION = "/application"
# The text of complete pages; a snapshot without it was taken too early.
FINISHED = "finished"
_STATIC = f"<!DOCTYPE html><title>Static</title><p id=out>{FINISHED}</p>{'<p>text' * 500}"
# It fetches data and builds a list, like an application.
_APPLICATION = f"""<!DOCTYPE html><title>Application</title><ul id="list"></ul><p id="out"></p><script>
  fetch("/data" + location.search).then((answer) => answer.json()).then((items) => {{
    for (const item of items) {{
      const entry = list.appendChild(document.createElement("li"));
      const link = entry.appendChild(document.createElement("a"));
      link.href = "/items/" + item.id;
      link.textContent = item.name;
      entry.append(" ", item.text);
    }}
    document.title = items.length + " items";
    out.textContent = "{FINISHED}";
  }});
</script>"""
_DATA_SECONDS = 0.02
_ITEMS = [
    {"id": n, "name": f"Item {n}", "text": f"What it is, {n} times. " * 5} for n in range(100)
]
_SAID = re.compile(r"<p id=\"?out\"?>(.*?)</p>")
PATIENCE_SECONDS = 60

# Options of Prerender; all others are its defaults.
_PRERENDER = """
const modules = process.env.MODULES + "/";
const server = require(modules + "prerender")({
  port: +process.env.PORT, browserDebuggingPort: +process.env.DEBUG_PORT,
  chromeLocation: process.env.CHROME, logRequests: false,
  chromeFlags: ["--no-sandbox", "--headless", "--disable-gpu", "--hide-scrollbars",
    "--disable-background-networking", "--no-first-run",
    "--remote-debugging-port=" + process.env.DEBUG_PORT, "--user-data-dir=" + process.env.PROFILE],
});
if (process.env.CACHED) server.use(require(modules + "prerender-memory-cache"));
server.start();
"""
_RENDERTRON = """
const folder = process.env.MODULES + "/rendertron/build/";
const { Rendertron } = require(folder + "rendertron");
const { ConfigManager } = require(folder + "config");
new Rendertron().initialize({ ...ConfigManager.config,
  cache: process.env.CACHED ? "memory" : null, port: process.env.PORT, host: "127.0.0.1",
  puppeteerArgs: ["--no-sandbox", "--disable-gpu"] });
"""


# Whether the HTML of a page is complete.
Check = Callable[[str], bool | Awaitable[bool]]


@dataclass(frozen=True)
class Outcome:
    """A render of a path: whether it was complete, and its milliseconds."""

    path: str
    complete: bool
    milliseconds: float


class Renderer(Protocol):
    """A renderer of one site's pages."""

    @property
    def pid(self) -> int:
        """The process that is the parent of all others."""

    async def html(self, path: str) -> str:
        """The snapshot of a path; empty if it failed."""


@dataclass(frozen=True)
class Server:
    """A renderer with an HTTP interface; ``url_of``: its URL for a path."""

    client: ClientSession
    pid: int
    url_of: Callable[[str], str]

    async def html(self, path: str) -> str:
        try:
            url = URL(self.url_of(path), encoded=True)
            async with self.client.get(url, allow_redirects=False) as answer:
                text = await answer.text(errors="replace")
                return text if answer.status in PAGE_STATUSES else ""
        except (ClientError, OSError, TimeoutError):
            return ""


def finished(html: str, expected: str = FINISHED) -> bool:
    """Whether #out has the text ``expected``."""
    said = _SAID.search(html)
    return said is not None and said[1] == expected


async def render(renderer: Renderer, path: str, is_complete: Check = finished) -> Outcome:
    """Render a page."""
    started = time.perf_counter()
    html = await renderer.html(path)
    took = (time.perf_counter() - started) * 1000
    complete = is_complete(html)
    return Outcome(path, await complete if isinstance(complete, Awaitable) else complete, took)


async def together(
    renderer: Renderer, pages: Iterable[tuple[str, Check]], at_once: int
) -> tuple[float, list[Outcome]]:
    """Render paths, some at once. Returns renders per second, and each outcome."""
    left = iter(pages)
    outcomes: list[Outcome] = []

    async def crawler() -> None:
        for path, is_complete in left:
            outcomes.append(await render(renderer, path, is_complete))

    started = time.perf_counter()
    await asyncio.gather(*(crawler() for _ in range(at_once)))
    return len(outcomes) / (time.perf_counter() - started), outcomes


async def burst(
    renderer: Renderer, path: str, count: int, at_once: int
) -> tuple[float, list[Outcome]]:
    """Render this many different targets of a path with ``together``."""
    # Numbers that no other burst has used.
    mark = time.monotonic_ns()
    pages = ((f"{path}?number={mark}-{number}", finished) for number in range(count))
    return await together(renderer, pages, at_once)


def memory_mib(renderer: Renderer) -> float:
    """The memory of a process and its descendants, with shared memory counted once (PSS)."""
    total = 0
    process = psutil.Process(renderer.pid)
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            total += one.memory_full_info().pss
    return total / 2**20


def cpu_seconds(renderer: Renderer) -> float:
    """The CPU time of a process and its descendants so far, including ended ones."""
    total = 0.0
    process = psutil.Process(renderer.pid)
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            total += sum(one.cpu_times()[:4])
    return total


@dataclass
class Site:
    """The pages to render; ``asked`` counts requests for documents."""

    url: str = ""
    asked: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Site"]:
        """Serve the site on a free port, in this process."""
        application = web.Application()
        application.router.add_get(STATIC, self._static)
        application.router.add_get(APPLICATION, self._application)
        application.router.add_get("/data", self._data)
        async with serving(application_runner(application)) as self.url:
            yield self

    async def _static(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(text=_STATIC, content_type="text/html")

    async def _application(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(text=_APPLICATION, content_type="text/html")

    async def _data(self, _: web.Request) -> web.Response:
        await asyncio.sleep(_DATA_SECONDS)
        return web.json_response(_ITEMS)


@asynccontextmanager
async def _process(*command: str, **environment: str) -> AsyncIterator[int]:
    """Run a program, and end it with all its descendants. Yields its process id."""
    running = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield running.pid
    finally:
        below = psutil.Process(running.pid).children(recursive=True)
        with suppress(ProcessLookupError):
            running.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await running.wait()
        # Including orphans: Prerender does not end its Chromium when it is asked to stop.
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        await running.wait()
        for left in below:
            with suppress(psutil.Error):
                left.kill()


async def _until_it_answers(renderer: Renderer, path: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await renderer.html(path):
            await asyncio.sleep(0.02)


def ugly(path: str) -> str:
    """The ugly form of a path of a page that opted in; an ugly one as it is."""
    return pretty_to_ugly(path, opted_in=True) or path


@asynccontextmanager
async def ours(
    client: ClientSession, site: str, first: str = STATIC, **settings: str
) -> AsyncIterator[Server]:
    """This proxy, without a cache unless ``settings`` (environment variables) say otherwise."""
    port = free_port()
    environment = {"PRERENDER_CACHE_TTL": "0"} | settings
    async with _process(
        *(sys.executable, "-m", "prerender", "serve"),
        PRERENDER_ORIGIN_URL=site,
        PRERENDER_SERVER_PORT=str(port),
        PRERENDER_ADMIN_PORT="0",
        **environment,
    ) as pid:
        server = Server(client, pid, lambda path: f"http://127.0.0.1:{port}{ugly(path)}")
        await _until_it_answers(server, first)
        yield server


@asynccontextmanager
async def _of_npm(
    script: str,
    prefix: str,
    client: ClientSession,
    site: str,
    modules: Path,
    *,
    cached: bool = False,
    first: str = STATIC,
    pinned: Sequence[str] = (),
) -> AsyncIterator[Server]:
    """A competitor, with or without memory cache. ``pinned``: a command that starts it (taskset)."""
    port = free_port()
    profile = tempfile.mkdtemp()
    try:
        async with _process(
            *(*pinned, "node", "-e", script),
            MODULES=str(modules.resolve()),
            PORT=str(port),
            DEBUG_PORT=str(free_port()),
            CHROME=chromium.find(),
            PUPPETEER_EXECUTABLE_PATH=chromium.find(),
            PROFILE=profile,
            CACHED="1" if cached else "",
            CACHE_TTL="3600",
            NODE_ENV="production",
        ) as pid:
            server = Server(
                client, pid, lambda path: f"http://127.0.0.1:{port}{prefix}/{site}{path}"
            )
            await _until_it_answers(server, first)
            yield server
    finally:
        shutil.rmtree(profile, ignore_errors=True)


prerender = partial(_of_npm, _PRERENDER, "")
rendertron = partial(_of_npm, _RENDERTRON, "/render")


Start = Callable[[], AbstractAsyncContextManager[Renderer]]


def all_of(client: ClientSession, site: str, pages: int, modules: Path | None) -> dict[str, Start]:
    """How to start each side: this proxy first, the baselines last."""
    sides: dict[str, Start] = {
        "prerender-proxy": lambda: ours(client, site, PRERENDER_BROWSER_PAGES=str(pages))
    }
    if modules is not None:
        sides["Prerender"] = lambda: prerender(client, site, modules)
        sides["Rendertron"] = lambda: rendertron(client, site, modules)
    sides["bare loop"] = lambda: BareLoop.running(site, pages)
    sides["bare loop without frames"] = lambda: BareLoop.running(site, pages, frames=False)
    return sides


@asynccontextmanager
async def crawler() -> AsyncIterator[ClientSession]:
    """An HTTP client without cookies, with a long timeout."""
    timeout = ClientTimeout(total=PATIENCE_SECONDS)
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(
            ClientSession(cookie_jar=DummyCookieJar(), timeout=timeout)
        )
