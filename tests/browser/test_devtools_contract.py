"""The contract with Chromium: each DevTools command and event that the code uses, with the same
parameters, in the real browser.

The tests share one browser. Each has its own page, in a new browser context.
"""

import asyncio
import os
import re
import struct
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from multidict import CIMultiDict

from prerender.browser import frame_drawing
from prerender.browser.browser_context import BLANK, NOWHERE, STORAGE, Context
from prerender.browser.chromium import Chromium
from prerender.browser.devtools import CommandFailed, Session
from prerender.browser.emulation import user_agent_override
from prerender.browser.frame_drawing import FrameDrawing
from prerender.browser.virtual_clock import VirtualClock
from prerender.errors import BrowserGone
from prerender.gateway.document import Document
from prerender.gateway.gateway import Gateway
from prerender.gateway.visit import Visit
from prerender.snapshots.variants import Variant
from tests.support import raw
from tests.support.commands import ROOT
from tests.support.pools import SITE, gateway_of, launch_browser

NUMBER = 7


class Origin:
    """A site whose documents the tests provide. /hang never gets a response, and /slow when ``answer``
    is set; ``asked``: it has been requested.
    """

    def __init__(self) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    def application(self) -> web.Application:
        application = web.Application()
        for name in ("hang", "slow", "worker.js", "download"):
            application.router.add_get(f"/{name}", getattr(self, f"_{name.partition('.')[0]}"))
        return application

    async def _hang(self, _: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def _slow(self, _: web.Request) -> web.Response:
        self.asked.set()
        await self.answer.wait()
        return web.Response(text="<title>slow</title>", content_type="text/html")

    async def _worker(self, _: web.Request) -> web.Response:
        script = "self.onfetch = (event) => event.respondWith(new Response('from the worker'))"
        return web.Response(text=script, content_type="text/javascript")

    async def _download(self, _: web.Request) -> web.Response:
        return web.Response(body=b"x" * 1000, headers={"Content-Disposition": "attachment"})


@pytest.fixture(scope="module")
def origin() -> Origin:
    return Origin()


@pytest.fixture(scope="module")
async def gateway(origin: Origin) -> AsyncIterator[Gateway]:
    async with (
        TestServer(origin.application(), port=raw.free_port()) as server,
        gateway_of(server.make_url("/")) as gateway,
    ):
        yield gateway


@pytest.fixture(scope="module")
async def browser(gateway: Gateway) -> AsyncIterator[Chromium]:
    browser = await launch_browser(gateway)
    yield browser
    await browser.close()


class Opened:
    """A page that is opened as in page.py."""

    process = None

    def __init__(self, browser: Chromium, gateway: Gateway) -> None:
        self.browser, self.gateway = browser, gateway
        self.context_id = self.target_id = ""

    async def open(self) -> Session:
        self.devtools = devtools = self.browser.devtools
        self.proxy = self.gateway.open_proxy()
        context = await devtools.call(
            "Target.createBrowserContext",
            disposeOnDetach=True,
            proxyServer=self.proxy.url,
            proxyBypassList="<-loopback>",
        )
        self.context_id = context["browserContextId"]
        target = await devtools.call(
            "Target.createTarget",
            url=BLANK,
            browserContextId=self.context_id,
            width=1280,
            height=1024,
            enableBeginFrameControl=True,
        )
        self.target_id = target["targetId"]
        self.session = await devtools.attach(self.target_id)
        self.clock = VirtualClock()
        self.clock.attach(self.session)
        self.frames = FrameDrawing(self.session, cast("Context", self))
        await self.session.call("Page.enable")
        version = await devtools.call("Browser.getVersion")
        override = user_agent_override(version["userAgent"], NUMBER)
        await self.session.call("Emulation.setUserAgentOverride", **override)
        return self.session

    async def show(self, html: str, path: str = "/") -> dict[str, Any]:
        """Navigate to a page with this content, and wait until it is loaded."""
        headers = CIMultiDict({"Content-Type": "text/html; charset=utf-8"})
        with self.proxy.visit(NUMBER, Document(200, headers, html.encode())):
            loaded = self.session.expect("Page.loadEventFired")
            answer = await self.session.call("Page.navigate", url=f"{SITE}{path}")
            assert "errorText" not in answer
            await asyncio.wait_for(loaded, 10)
        return answer

    def visit(self) -> AbstractContextManager[Visit]:
        """Serve what the page requests, also by workers, as if it were the first one."""
        self.proxy.visits = 0
        return self.proxy.visit(NUMBER, None)

    async def close(self) -> None:
        await self.gateway.close_proxy(self.proxy)
        await self.devtools.call("Target.disposeBrowserContext", browserContextId=self.context_id)


@pytest.fixture
async def page(browser: Chromium, gateway: Gateway) -> AsyncIterator[Opened]:
    page = Opened(browser, gateway)
    await page.open()
    yield page
    await page.close()


async def happened(event: "asyncio.Future[Any]") -> Any:
    return await asyncio.wait_for(event, 10)


async def test_version(browser: Chromium) -> None:
    version = await browser.devtools.call("Browser.getVersion")
    number = version["product"].partition("/")[2].partition(".")[0]
    agent = user_agent_override(version["userAgent"], NUMBER)["userAgent"]
    assert f" Chrome/{number}.0.0.{NUMBER} " in agent
    assert "Headless" not in agent


async def test_pictures(page: Opened) -> None:
    await page.session.call("Emulation.setScriptExecutionDisabled", value=True)
    await page.show(
        "<body style='margin: 0; height: 3000px'><script>document.title = 'run'</script>"
    )
    metrics = await page.session.call("Page.getLayoutMetrics")
    assert metrics["cssContentSize"]["height"] == 3000
    assert await page.session.evaluate("document.title") == ""
    metrics = {"width": 40, "height": 50, "deviceScaleFactor": 1, "mobile": False}
    await page.session.call("Emulation.setDeviceMetricsOverride", **metrics)
    png = await page.frames.picture()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack_from(">II", png, 16) == (40, 50)


async def test_frames_come_when_they_are_asked_for(page: Opened) -> None:
    """Their timestamps are virtual: what a page sees does not depend on real time."""
    await page.show('<style>p { transition: opacity 3s }</style><p id="out">x</p>')
    await page.frames.picture()  # the first frames of a window are empty
    await (await page.clock.start(1))
    await page.session.evaluate("""
      var told = [];
      requestAnimationFrame(() => told.push("frame"));
      new ResizeObserver(() => told.push("size")).observe(out);
      out.ontransitionend = () => told.push("end");
      setTimeout(() => { out.style.opacity = 0; }, 200);
    """)

    async def told_after(milliseconds: float) -> list[str]:
        await (await page.clock.start(milliseconds))
        told: list[str] = await page.session.evaluate("told.splice(0)")
        return told

    assert await told_after(100) == []
    await page.frames.make()
    assert await told_after(1) == ["frame", "size"]
    assert await told_after(200) == []
    await page.frames.make()
    assert await told_after(3016) == []
    await page.frames.make()
    assert await told_after(1) == ["end"]


@pytest.mark.ci_only
async def test_frames_of_several_pages(
    browser: Chromium, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at a time, because two at once crash the browser. Scripts that hang in a frame are
    terminated.
    """
    monkeypatch.setattr(frame_drawing, "_HANGING_SECONDS", 3.0)
    opened = [Opened(browser, gateway) for _ in range(4)]
    for page in opened:
        await page.open()
        await (await page.clock.start(1))

    async def draw(page: Opened) -> None:
        for _ in range(25):
            await page.frames.make(drawn=True)
            await (await page.clock.start(16))

    await asyncio.gather(*map(draw, opened))
    hanging, other, *_ = opened
    await hanging.session.evaluate("new ResizeObserver(() => { for (;;); }).observe(document.body)")
    frame = asyncio.create_task(hanging.frames.make())
    async with asyncio.timeout(30):
        while not browser.devtools.drawing.locked():
            await asyncio.sleep(0.001)
        await other.frames.make()
        with pytest.raises(TimeoutError):
            await frame
        await asyncio.gather(draw(hanging), draw(other))
    await asyncio.gather(*(page.close() for page in opened))


async def test_targets(browser: Chromium) -> None:
    devtools = browser.devtools
    created: list[dict[str, Any]] = []
    attached: list[dict[str, Any]] = []
    devtools.on("Target.targetCreated", lambda params: created.append(params["targetInfo"]))
    devtools.on("Target.attachedToTarget", attached.append)
    await devtools.call("Target.setDiscoverTargets", discover=True)
    context = await devtools.call("Target.createBrowserContext", disposeOnDetach=True)
    target = await devtools.call(
        "Target.createTarget", url=BLANK, browserContextId=context["browserContextId"]
    )
    session = await devtools.attach(target["targetId"])
    assert [event["sessionId"] for event in attached] == [session._sessionId]
    (info,) = [info for info in created if info["targetId"] == target["targetId"]]
    assert info["type"] == "page"
    assert info["browserContextId"] == context["browserContextId"]
    found = (await devtools.call("Target.getTargets"))["targetInfos"]
    assert target["targetId"] in [one["targetId"] for one in found]
    await session.call("Page.enable")
    # No window is opened, not even by a user's gesture (--block-new-web-contents).
    assert await session.evaluate("open('about:blank') === null", userGesture=True)
    assert [info["targetId"] for info in created if info["type"] == "page"][-1] == target[
        "targetId"
    ]
    await devtools.call(
        "Target.disposeBrowserContext", browserContextId=context["browserContextId"]
    )
    async with asyncio.timeout(raw.SECONDS):
        await session.ended.wait()


async def test_scripts_on_new_documents(page: Opened) -> None:
    added = await page.session.call(
        "Page.addScriptToEvaluateOnNewDocument", source="globalThis.early = self === top"
    )
    await page.show("<script>var seen = [early, frames.length]</script><iframe></iframe>")
    assert await page.session.evaluate("[...seen, frames[0].early]") == [True, 0, False]
    await page.session.call(
        "Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"]
    )
    await page.show("")
    assert await page.session.evaluate("typeof early") == "undefined"


async def test_navigation(page: Opened) -> None:
    answer = await page.show("<title>here</title>")
    assert answer["frameId"] == page.target_id
    assert await page.session.evaluate("document.title") == "here"
    await page.proxy.close()
    failed = await page.session.call("Page.navigate", url="https://www.example.com:8443/")
    assert failed["errorText"] == "net::ERR_PROXY_CONNECTION_FAILED"
    with pytest.raises(CommandFailed, match=r"\(Page\.navigate\): Cannot navigate"):
        await page.session.call("Page.navigate", url="not a URL")


async def test_user_agent(page: Opened) -> None:
    await page.show("")
    agent = await page.session.evaluate("navigator.userAgent")
    assert re.search(rf" Chrome/\d+\.0\.0\.{NUMBER} Safari/", agent)
    hints = await page.session.evaluate("navigator.userAgentData.toJSON()")
    assert [brand["brand"] for brand in hints["brands"]] == ["Chromium"]
    assert (hints["platform"], hints["mobile"]) == ("Linux", False)


async def test_languages_and_touch(page: Opened) -> None:
    """What is set for one render can be reset for the next, which may use the same process."""
    says = """[navigator.language, new Intl.NumberFormat().resolvedOptions().locale,
               navigator.maxTouchPoints, matchMedia("(pointer: coarse)").matches]"""
    version = await page.browser.devtools.call("Browser.getVersion")
    await page.show("")
    before = await page.session.evaluate(says)
    assert before[0] == "en-US"
    for variant, expected in (
        (Variant("mobile", "de-CH"), ["de-CH", "de-CH", 5, True]),
        (Variant("mobile", "fr"), ["fr", "fr", 5, True]),
        (Variant(), before),
    ):
        mobile = variant.device == "mobile"
        override = user_agent_override(version["userAgent"], NUMBER, variant)
        await page.session.call("Emulation.setUserAgentOverride", **override)
        await page.session.call(
            "Emulation.setTouchEmulationEnabled", enabled=mobile, maxTouchPoints=5
        )
        await page.session.call("Emulation.setLocaleOverride", locale=variant.language)
        await page.show("")
        assert await page.session.evaluate(says) == expected


async def test_requested_navigations(page: Opened) -> None:
    await page.show("")
    for script in ("location = '/other'", "location.reload()"):
        event = page.session.expect("Page.frameRequestedNavigation")
        await page.session.evaluate(script)
        params = await happened(event)
        assert params["frameId"] == page.target_id
        assert params["disposition"] == "currentTab"
        assert params["url"].startswith(str(SITE))


async def test_a_page_that_navigates_loads_until_it_leaves_or_stays(
    page: Opened, origin: Origin
) -> None:
    events: list[str] = []
    for name in ("RequestedNavigation", "Navigated", "StoppedLoading"):
        page.session.on(f"Page.frame{name}", lambda _, name=name: events.append(name))
    headers = CIMultiDict({"Content-Type": "text/html"})
    html = b"<script>location = '/slow'</script>"
    with page.proxy.visit(NUMBER, Document(200, headers, html)):
        await page.session.call("Page.navigate", url=f"{SITE}/")
        await asyncio.wait_for(origin.asked.wait(), 10)
        left = page.session.expect("Page.frameNavigated")
        stopped = page.session.expect("Page.frameStoppedLoading")
        origin.answer.set()
        await happened(left)
        await happened(stopped)
        assert events == ["Navigated", "RequestedNavigation", "Navigated", "StoppedLoading"]
        stopped = page.session.expect("Page.frameStoppedLoading")
        await page.session.evaluate("location = '/download', 0")
        assert (await happened(stopped))["frameId"] == page.target_id
        assert events[4:] == ["RequestedNavigation", "StoppedLoading"]
    origin.asked.clear()
    origin.answer.clear()


async def test_a_response_of_the_page_comes_behind_its_events(page: Opened) -> None:
    await page.show("")
    navigations: list[str] = []
    page.session.on(
        "Page.frameRequestedNavigation", lambda params: navigations.append(params["url"])
    )
    with page.visit():
        evaluation = page.session.evaluate("location = '/hang', 0")
        async with asyncio.timeout(raw.SECONDS):
            await asyncio.gather(evaluation, page.session.call("Page.getFrameTree"))
    assert navigations == [f"{SITE}/hang"]


async def test_a_navigation_that_replaces_another_starts_loading_again(page: Opened) -> None:
    shown = page.session.expect("Page.frameStoppedLoading")
    await page.show("")
    await happened(shown)
    requested, started, stopped = (
        "Page.frameRequestedNavigation",
        "Page.frameStartedLoading",
        "Page.frameStoppedLoading",
    )
    events: asyncio.Queue[str] = asyncio.Queue()
    for name in (requested, started, stopped):
        page.session.on(name, lambda _, name=name: events.put_nowait(name))
    # The replaced one may stop before the other one starts.
    overlapping = [requested, started, requested, started, stopped]
    separate = [requested, started, requested, stopped, started, stopped]
    script = "location = '/hang'; void fetch('/').then(() => { location = '/download' })"
    with page.visit():
        await page.session.evaluate(script)
        async with asyncio.timeout(raw.SECONDS):
            got = [await events.get() for _ in overlapping]
            if got != overlapping:
                got.append(await events.get())
            assert got in (overlapping, separate)


async def test_dialogs(page: Opened) -> None:
    await page.show("")
    for kind in ("alert", "confirm", "prompt"):
        event = page.session.expect("Page.javascriptDialogOpening")
        answer = asyncio.create_task(page.session.evaluate(f"String({kind}('?'))"))
        assert (await happened(event))["type"] == kind
        await page.session.call("Page.handleJavaScriptDialog", accept=False)
        assert await answer in ("undefined", "false", "null")


@pytest.mark.parametrize("policy", ["pauseIfNetworkFetchesPending", "advance"])
async def test_virtual_time(page: Opened, policy: str) -> None:
    session = page.session
    await page.show("<script>setTimeout(() => { document.title = 'rung' }, 60_000)</script>")
    expired = session.expect("Emulation.virtualTimeBudgetExpired")
    started = time.monotonic()
    await session.call(
        "Emulation.setVirtualTimePolicy",
        policy=policy,
        maxVirtualTimeTaskStarvationCount=10_000,
        budget=61_000.0,
    )
    await happened(expired)
    assert time.monotonic() - started < 30
    assert await session.evaluate("document.title") == "rung"
    # Then the clock stands still until it gets a budget.
    await session.evaluate("setTimeout(() => { document.title = 'again' }, 10)")
    assert await session.evaluate("document.title") == "rung"
    await session.call("Emulation.setVirtualTimePolicy", policy="advance", budget=20.0)
    async with asyncio.timeout(raw.SECONDS):
        while await session.evaluate("document.title") != "again":
            await asyncio.sleep(0.01)


async def test_virtual_time_waits_for_the_network(page: Opened) -> None:
    """A policy without a budget continues the current budget."""
    session = page.session
    await page.show("<title>quiet</title>")
    with page.visit():
        await _wait_for_the_network(session)


async def _wait_for_the_network(session: Session) -> None:
    await session.evaluate("void fetch('/hang')")
    expired = session.expect("Emulation.virtualTimeBudgetExpired")
    await session.call(
        "Emulation.setVirtualTimePolicy", policy="pauseIfNetworkFetchesPending", budget=100.0
    )
    done, _ = await asyncio.wait([expired], timeout=0.3)
    assert not done
    await session.call("Emulation.setVirtualTimePolicy", policy="advance")
    await happened(expired)


async def test_a_budget_within_another_one(page: Opened) -> None:
    """While requests pause the clock, it runs tasks. ``Timestamp`` is virtual time, in seconds."""
    session = page.session
    await page.show("<title>quiet</title>")
    await session.call("Performance.enable")

    async def ticks() -> float:
        metrics = (await session.call("Performance.getMetrics"))["metrics"]
        return next(float(one["value"]) * 1000 for one in metrics if one["name"] == "Timestamp")

    async def used_up(policy: str, budget: float) -> None:
        expired = session.expect("Emulation.virtualTimeBudgetExpired")
        await session.call("Emulation.setVirtualTimePolicy", policy=policy, budget=budget)
        await happened(expired)

    with page.visit():
        await used_up("advance", 10.0)
        begun = await ticks()
        await session.evaluate("void fetch('/hang'), setTimeout(() => { document.title = 'ran' })")
        await session.call(
            "Emulation.setVirtualTimePolicy", policy="pauseIfNetworkFetchesPending", budget=100.0
        )
        assert await session.evaluate("document.title") == "quiet"
        await used_up("advance", 0.01)
        assert await session.evaluate("document.title") == "ran"
        passed = await ticks() - begun
        assert 0 < passed < 50
        # The clock pauses at the end of each. One a little before the end of the first budget leads to
        # two pauses; equal ones, as times are rounded to microseconds, to one or two.
        await used_up("advance", 99.9 - passed)
        assert round(await ticks() - begun, 1) == 99.9
        await used_up("advance", 0.2)
        assert round(await ticks() - begun, 1) == 100


async def test_a_budget_is_not_exceeded(page: Opened) -> None:
    """The ends of a budget and of those for tasks within it may be a microsecond apart."""
    session, clock = page.session, page.clock
    await page.show("<title>quiet</title>")
    with page.visit():
        await happened(await clock.start(10))
        await session.evaluate("setInterval(() => {}, 10)")
        for _ in range(20):
            begun = await clock._now()
            await session.evaluate(
                "globalThis.request = new AbortController(), "
                "fetch('/hang', { signal: request.signal }).catch(() => {}), 0"
            )
            budget = await clock.start(100, wait_for_network=True)
            for _ in range(2):
                await clock.run_tasks()
            await session.evaluate("request.abort()")
            await happened(budget)
            assert round(await clock._now() - begun) == 100


async def test_evaluation_in_an_isolated_world(page: Opened) -> None:
    await page.show("<script>var mine = 1; JSON.stringify = null</script><p>text")
    world = await page.session.call(
        "Page.createIsolatedWorld", frameId=page.target_id, worldName="prerender"
    )
    script = "[typeof mine, typeof JSON.stringify, document.querySelector('p').textContent]"
    seen = await page.session.evaluate(script, contextId=world["executionContextId"])
    assert seen == ["undefined", "function", "text"]
    assert await page.session.evaluate("void 0") is None
    for broken, told in (("nothing.at.all", "ReferenceError: nothing is"), ("throw 7", "7$")):
        with pytest.raises(CommandFailed, match=told):
            await page.session.evaluate(broken)


async def test_an_endless_script_is_terminated(page: Opened) -> None:
    await page.show("<title>before</title>")
    endless = asyncio.create_task(page.session.evaluate("for (;;);", 30.0))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(endless), 0.1)
    async with asyncio.timeout(raw.SECONDS):
        await page.session.call("Runtime.terminateExecution")
        with pytest.raises(CommandFailed):
            await endless
        assert await page.session.evaluate("document.title") == "before"


async def test_storage(page: Opened) -> None:
    await page.show("<title>stores</title>")
    store = """(async () => {
      document.cookie = "seen=1";
      localStorage.seen = sessionStorage.seen = 1;
      await caches.open("seen");
      await new Promise((done) => { indexedDB.open("seen").onsuccess = done; });
      await (await navigator.storage.getDirectory()).getFileHandle("seen", {create: true});
      await navigator.serviceWorker.register("/worker.js");
    })()"""
    look = """(async () => [
      document.cookie, localStorage.seen, sessionStorage.seen, await caches.has("seen"),
      (await indexedDB.databases()).length,
      (await Array.fromAsync((await navigator.storage.getDirectory()).keys())).length,
      (await navigator.serviceWorker.getRegistrations()).length,
    ].map(String).join())()"""
    with page.visit():
        await page.session.evaluate(store, awaitPromise=True)
    usage = await page.session.call("Storage.getUsageAndQuota", origin=str(SITE))
    assert usage["usage"] > 0
    stored = await page.session.evaluate(look, awaitPromise=True)
    assert stored == "seen=1,1,1,true,1,1,1"
    await page.session.call("Page.navigate", url=BLANK)
    await page.browser.devtools.call("Storage.clearCookies", browserContextId=page.context_id)
    await page.session.call("Storage.clearDataForOrigin", origin="*", storageTypes=STORAGE)
    await page.show("<title>looks</title>")
    usage = await page.session.call("Storage.getUsageAndQuota", origin=str(SITE))
    assert usage["usage"] == 0
    left = await page.session.evaluate(look, awaitPromise=True)
    assert left == ",undefined,undefined,false,0,0,0"


async def test_tabs(page: Opened) -> None:
    """A new tab has no history, and its page uses the process of the last one."""
    devtools = page.browser.devtools
    await page.show("<script>name = 'kept'</script>")
    await page.session.call("Emulation.setScriptExecutionDisabled", value=True)
    processes_before = await _renderers(page)
    keeper = page.session
    tab = await devtools.call("Target.createTarget", url=NOWHERE, browserContextId=page.context_id)
    page.target_id, page.session = tab["targetId"], await devtools.attach(tab["targetId"])
    await page.session.call("Page.enable")
    version = await devtools.call("Browser.getVersion")
    override = user_agent_override(version["userAgent"], NUMBER)
    await page.session.call("Emulation.setUserAgentOverride", **override)
    await page.show("")
    assert await page.session.evaluate("[history.length, name]") == [1, ""]
    # Another one may just have ended.
    assert set(await _renderers(page)) <= set(processes_before)
    await devtools.call("Target.closeTarget", targetId=page.target_id)
    await asyncio.wait_for(page.session.ended.wait(), 10)
    assert not keeper.gone


async def _renderers(page: Opened) -> list[int]:
    found = await page.browser.devtools.call("SystemInfo.getProcessInfo")
    return sorted(one["id"] for one in found["processInfo"] if one["type"] == "renderer")


async def test_service_workers_are_told(page: Opened) -> None:
    told: list[dict[str, Any]] = []
    page.session.on("ServiceWorker.workerRegistrationUpdated", told.append)
    await page.session.call("ServiceWorker.enable")
    await page.show("")
    with page.visit():
        await page.session.evaluate("void navigator.serviceWorker.register('/hang')")
        async with asyncio.timeout(10):
            while not any(one["registrations"] for one in told):
                await asyncio.sleep(0.01)


async def test_cookies(page: Opened) -> None:
    context = {"browserContextId": page.context_id}
    devtools = page.browser.devtools
    await page.show("<script>document.cookie = 'seen=1'</script>")
    # Writing is asynchronous, but precedes the next reading.
    assert await page.session.evaluate("document.cookie") == "seen=1"
    found = await devtools.call("Storage.getCookies", **context)
    assert [cookie["name"] for cookie in found["cookies"]] == ["seen"]
    await devtools.call("Storage.clearCookies", **context)
    assert (await devtools.call("Storage.getCookies", **context))["cookies"] == []


async def test_downloads_are_denied(page: Opened) -> None:
    await page.browser.devtools.call(
        "Browser.setDownloadBehavior", behavior="deny", browserContextId=page.context_id
    )
    before = os.listdir()
    with page.visit():
        answer = await page.session.call("Page.navigate", url=f"{SITE}/download")
    assert answer["errorText"] == "net::ERR_ABORTED"
    assert os.listdir() == before


async def test_the_window_grows(page: Opened) -> None:
    await page.show("")
    sizes = await page.session.evaluate("[innerWidth, innerHeight, screen.width, screen.height]")
    assert sizes == [1280, 1024, 1280, 1024]
    await page.session.call(
        "Emulation.setDeviceMetricsOverride",
        width=1280,
        height=4000,
        deviceScaleFactor=1,
        mobile=False,
    )
    assert await page.session.evaluate("[innerWidth, innerHeight]") == [1280, 4000]
    await (await page.clock.start(1))
    await page.frames.make()
    await page.session.call("Emulation.clearDeviceMetricsOverride")
    async with asyncio.timeout(raw.SECONDS):
        while await page.session.evaluate("[innerWidth, innerHeight]") != [1280, 1024]:
            await asyncio.sleep(0.01)


async def test_garbage_is_collected(page: Opened) -> None:
    await page.show("")
    await page.session.evaluate("globalThis.kept = new Array(4e6).fill(0.5), 0")
    await page.session.evaluate("delete globalThis.kept")
    before = (await page.session.call("Runtime.getHeapUsage"))["usedSize"]
    await page.session.call("HeapProfiler.collectGarbage")
    after = (await page.session.call("Runtime.getHeapUsage"))["usedSize"]
    assert before - after > 30_000_000


async def test_a_crash_is_told(page: Opened) -> None:
    neighbour = Opened(page.browser, page.gateway)
    await neighbour.open()
    crashed = page.session.expect("Inspector.targetCrashed")
    waiting = asyncio.create_task(page.session.evaluate("new Promise(() => {})", awaitPromise=True))
    with pytest.raises(BrowserGone):
        await page.session.call("Page.crash")
    with pytest.raises(BrowserGone):
        await waiting
    assert page.session.gone
    with pytest.raises(BrowserGone):
        await crashed
    assert await neighbour.session.evaluate("1 + 1") == 2
    await neighbour.close()


async def test_frames_are_told(page: Opened) -> None:
    attached = page.session.expect("Page.frameAttached")
    navigated = page.session.expect("Page.frameNavigated")
    answer = await page.show("<iframe></iframe>")
    assert (await happened(attached))["parentFrameId"] == page.target_id
    assert (await happened(navigated))["frame"]["loaderId"] == answer["loaderId"]


async def test_the_history_is_reset(page: Opened) -> None:
    await page.show("")
    for number in range(3):
        changed = page.session.expect("Page.navigatedWithinDocument")
        await page.session.evaluate(f"history.pushState(null, '', '#{number}')")
        assert (await happened(changed))["url"].endswith(f"#{number}")
    assert await page.session.evaluate("history.length") == 5  # with the first, blank page
    await page.session.call("Page.resetNavigationHistory")
    assert await page.session.evaluate("history.length") == 1


async def test_a_navigation_is_stopped(page: Opened, origin: Origin) -> None:
    await page.show("<title>stays</title>")
    with page.visit():
        await page.session.evaluate("location = '/slow', 0")
        await asyncio.wait_for(origin.asked.wait(), 10)
        await page.session.call("Page.stopLoading")
        origin.answer.set()
        # The response would have been shown before this one arrives.
        fetched = "fetch('/worker.js').then((response) => response.text())"
        assert "onfetch" in await page.session.evaluate(fetched, awaitPromise=True)
    assert await page.session.evaluate("document.title") == "stays"


async def test_service_workers_are_stopped(page: Opened) -> None:
    told: list[str] = []
    page.session.on(
        "ServiceWorker.workerVersionUpdated",
        lambda params: told.extend(one["runningStatus"] for one in params["versions"]),
    )
    await page.session.call("ServiceWorker.enable")
    await page.show("")
    with page.visit():
        ready = "navigator.serviceWorker.register('/worker.js').then(() => 1)"
        await page.session.evaluate(ready, awaitPromise=True)
        async with asyncio.timeout(raw.SECONDS):
            while "running" not in told:
                await asyncio.sleep(0.01)
            told.clear()
            await page.session.call("ServiceWorker.stopAllWorkers")
            # It may start again, to be activated.
            while "stopped" not in told:
                await asyncio.sleep(0.01)


async def test_what_a_screen_reader_announces(page: Opened) -> None:
    await page.show("<h1>Title</h1>")
    tree = await page.session.call("Accessibility.getFullAXTree")
    told = [
        (node["role"]["value"], node["name"]["value"]) for node in tree["nodes"] if "name" in node
    ]
    assert ("heading", "Title") in told


# Calls and events that the tests use by these methods.
BY_METHODS = {"Target.attachToTarget", "Runtime.evaluate", "HeadlessExperimental.beginFrame"}


async def test_the_log_is_told_afterwards(page: Opened) -> None:
    """Chromium keeps its messages for those who ask later."""
    told: list[dict[str, Any]] = []
    policy = "<meta http-equiv='Content-Security-Policy' content=\"script-src 'self'\">"
    await page.show(f"{policy}<script>0</script>")
    page.session.on("Log.entryAdded", told.append)
    await page.session.call("Log.enable")
    (entry,) = [one["entry"] for one in told]
    assert (entry["level"], entry["source"]) == ("error", "security")
    assert "Content Security Policy" in entry["text"]


def test_the_contract_is_complete() -> None:
    """Every command and event in the code has a test here."""
    name = re.compile(r'"([A-Z][A-Za-z]+\.[a-z][A-Za-z]+)"')
    sources = (ROOT / "prerender").rglob("*.py")
    used = {found for source in sources for found in name.findall(source.read_text())}
    assert used > BY_METHODS
    assert used - BY_METHODS <= set(name.findall(Path(__file__).read_text()))
