"""The browser as a child process: its environment, its files and its end.

The second half is the contract with Chromium: each DevTools command and event that the code uses,
with the same parameters, in the real browser.
"""

import asyncio
import inspect
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from prerender import rendering
from prerender.browser import chromium, frame_drawing, guardian
from prerender.browser.browser_context import BLANK, NOWHERE, STORAGE, Context
from prerender.browser.chromium import CannotStart, Chromium
from prerender.browser.devtools import CommandFailed, Session
from prerender.browser.emulation import user_agent_override
from prerender.browser.frame_drawing import Frames
from prerender.browser.virtual_clock import VirtualClock
from prerender.errors import BrowserGone, ConfigError
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.gateway import Gateway
from prerender.gateway.upstream import Upstream, open_session
from prerender.gateway.visit import Document
from prerender.snapshots.variants import Variant
from tests.conftest import StartOrigin, proxied
from tests.support import processes, raw
from tests.support.commands import ROOT, in_
from tests.support.pools import launch_browser

SITE = URL("https://www.example.com")
NUMBER = 7


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
async def gateway(no_shared_browser: None, start_origin: StartOrigin) -> AsyncIterator[Gateway]:
    """A gateway to a site whose documents the tests provide; /hang never gets a response."""
    application = web.Application()

    async def hang(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def worker(_: web.Request) -> web.Response:
        script = "self.onfetch = (event) => event.respondWith(new Response('from the worker'))"
        return web.Response(text=script, content_type="text/javascript")

    async def download(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * 1000, headers={"Content-Disposition": "attachment"})

    application.add_routes(
        [web.get("/hang", hang), web.get("/worker.js", worker), web.get("/download", download)]
    )
    origin = await start_origin(application)
    async with (
        open_session(AddressPolicy.only(URL(origin.url)), 1, 60) as session,
        Gateway.open(SITE, Upstream(session, URL(origin.url)), session) as gateway,
    ):
        yield gateway


def names_in(folder: Path) -> list[str]:
    """The files and folders in a folder."""
    return sorted(path.name for path in folder.iterdir())


@asynccontextmanager
async def launched(gateway: Gateway) -> AsyncIterator[tuple[Chromium, int]]:
    """A browser and the id of its session. At the end, nothing of it may be left."""
    browser = await launch_browser(gateway)
    (session,) = processes.sessions()
    try:
        yield browser, session
    finally:
        await browser.close()
        assert processes.members(session) == []


async def test_no_tab_stays_open_after_the_start(gateway: Gateway) -> None:
    async with launched(gateway) as (browser, _), asyncio.timeout(raw.SECONDS):
        while (await browser.devtools.call("Target.getTargets"))["targetInfos"]:
            await asyncio.sleep(0.01)


async def test_launch_and_close_leave_nothing(gateway: Gateway, folder: Path) -> None:
    before = asyncio.all_tasks()
    async with launched(gateway) as (browser, session):
        kinds = {processes.kind(process) for process in processes.members(session)}
        assert {"guardian", "browser", "zygote"} <= kinds
        assert [name.startswith("prerender-chromium-") for name in names_in(folder)] == [True]
        assert repr(browser) == f"<Chromium under guardian {session}>"
    assert names_in(folder) == []
    await browser.close()
    async with asyncio.timeout(raw.SECONDS):
        while left := asyncio.all_tasks() - before:
            await asyncio.wait(left)


async def test_close_is_not_stopped_by_a_cancelled_caller(gateway: Gateway, folder: Path) -> None:
    async with launched(gateway) as (browser, session):
        closing = asyncio.create_task(browser.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert processes.members(session) == []
        assert names_in(folder) == []


@pytest.mark.parametrize("milliseconds", [0, 1, 5, 20, 50, 90, 130])
async def test_a_cancelled_launch_leaves_nothing(
    gateway: Gateway, folder: Path, milliseconds: int
) -> None:
    """Cancelled at moments from the first to the last step of a launch."""
    launching = asyncio.create_task(Chromium.launch(chromium.find(), gateway, sandbox=False))
    await asyncio.wait([launching], timeout=milliseconds / 1000)
    started = processes.sessions()
    launching.cancel()
    await asyncio.wait([launching])
    if not launching.cancelled():
        await launching.result().close()
    await processes.all_gone([*started, *processes.sessions()], folder)
    assert names_in(folder) == []


async def test_chromium_gets_none_of_our_secrets(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "a-secret-of-ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-ours")
    with socket.create_server(("127.0.0.1", 0)) as ours, tempfile.TemporaryFile() as file:
        ours.set_inheritable(True)
        os.set_inheritable(file.fileno(), True)
        secret_files = {
            os.readlink(f"/proc/self/fd/{number}") for number in (ours.fileno(), file.fileno())
        }
        async with launched(gateway) as (_, session):
            looked_at = set()
            for process in processes.members(session):
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                    environment, open_files = _inherited(process.pid)
                    looked_at.add(processes.kind(process))
                    assert "a-secret-of-ours" not in environment
                    assert not secret_files & open_files
            assert {"guardian", "browser", "zygote"} <= looked_at


def _inherited(pid: int) -> tuple[str, set[str]]:
    """The environment and the open files of a process."""
    folder = Path(f"/proc/{pid}")
    opened = set()
    for entry in (folder / "fd").iterdir():
        with suppress(OSError):
            opened.add(os.readlink(entry))
    return (folder / "environ").read_text(errors="replace"), opened


async def test_the_browser_listens_nowhere(gateway: Gateway) -> None:
    """Other users of the machine, and pages, could control the browser through a DevTools port."""
    async with launched(gateway) as (_, session):
        members = processes.members(session)
        assert len(members) > 3
        sockets = []
        for process in members:
            with suppress(psutil.NoSuchProcess):  # it has ended since
                sockets += process.net_connections(kind="inet")
        assert [one.laddr for one in sockets if one.status == psutil.CONN_LISTEN] == []


def _program(folder: Path, script: str, *, mode: int = 0o755) -> str:
    path = folder / "browser"
    path.write_text(script)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("#!/bin/sh\necho no display >&2\nexit 3\n", r"exit status 3; no display$"),
        ("#!/bin/sh\nkill -SEGV $$\n", r"exit status 245; it printed nothing$"),
        ("#!/bin/sh\nexec sleep 60\n", r"not ready in 0\.5 s; it printed nothing$"),
        ("#!/bin/sh\ntrap '' TERM HUP\nsleep 60 &\nexec sleep 60\n", r"not ready in 0\.5 s"),
        ("#!/bin/sh\nsleep 60 &\nexit 0\n", r"exit status 0; it printed nothing$"),
        ("#!/bin/sh\nyes | tr -d '\\n' >&2\n", r"not ready in 0\.5 s; y+$"),
        ("#!/nonexistent/interpreter\n", r"exit status 127; .*No such file or directory$"),
        ("no program at all", r"exit status 127; .*Exec format error$"),
    ],
)
async def test_programs_that_are_no_browser(
    gateway: Gateway, folder: Path, tmp_path_factory: pytest.TempPathFactory, script: str, told: str
) -> None:
    program = _program(tmp_path_factory.mktemp("bin"), script)
    limit = 0.5 if "not ready" in told else 10.0
    launching = asyncio.create_task(
        Chromium.launch(program, gateway, sandbox=False, start_seconds=limit)
    )
    started: set[int] = set()
    while not launching.done():
        started |= set(processes.sessions())
        await asyncio.wait([launching], timeout=0.02)
    with pytest.raises(BrowserGone, match=told):
        await launching
    await processes.all_gone(started, folder)


_FULL_CHROME = """#!/usr/bin/env python3
import json, os
while asked := os.read(3, 65536):
    for text in asked.split(b"\\0")[:-1]:
        answer = {"id": json.loads(text)["id"], "result": {"product": "Chrome/156.0.8078.79"}}
        os.write(4, json.dumps(answer).encode() + b"\\0")
"""


async def test_a_full_chrome(gateway: Gateway, folder: Path) -> None:
    """It draws frames by itself, and ignores that frames are on request."""
    program = _program(folder, _FULL_CHROME)
    with pytest.raises(CannotStart, match=r"Chrome/156.* a full Chrome.* install chromium-head"):
        await Chromium.launch(program, gateway, sandbox=False)


async def test_a_program_that_cannot_be_started(
    gateway: Gateway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BrowserGone):
        await Chromium.launch("/nonexistent", gateway, sandbox=False)
    assert names_in(folder) == []
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    with pytest.raises(BrowserGone, match="cannot create a folder for"):
        await Chromium.launch(chromium.find(), gateway, sandbox=False)


def test_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _program(tmp_path, "", mode=0o644)
    for path in (plain, str(tmp_path), "/nonexistent/chromium", "no-such-program"):
        with pytest.raises(BrowserGone, match=r"\[browser\] path"):
            chromium.find(path)
    Path(plain).chmod(0o755)
    assert chromium.find(plain) == plain
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chromium.find("browser") == plain
    with pytest.raises(BrowserGone, match="no headless Chromium found: install chromium-"):
        chromium.find()
    (tmp_path / "google-chrome").symlink_to(plain)
    with pytest.raises(BrowserGone, match="no headless Chromium found"):
        chromium.find()
    for name in ("chrome-headless-shell", "chromium-headless-shell"):
        (tmp_path / name).symlink_to(plain)
        assert chromium.find() == str(tmp_path / name)


def test_the_sandbox_is_known_to_work_or_not() -> None:
    """It does not work as root. As another user, it works where the kernel lets unshare(1) create
    its namespaces.
    """
    if os.geteuid() == 0:
        assert chromium.sandbox_problem() == "it cannot run as root"
        return
    command = ["unshare", "--user", "--pid", "--fork", "--net", "true"]
    possible = subprocess.run(command, check=False, capture_output=True).returncode == 0
    assert (chromium.sandbox_problem() == "") == possible


@pytest.mark.skipif(not chromium.sandbox_problem(), reason="the sandbox works here")
async def test_a_sandbox_that_is_required_but_does_not_work() -> None:
    with pytest.raises(ConfigError, match=r"^\[browser\] sandbox: \"on\", but it "):
        async with proxied(web.Application(), {"browser": {"sandbox": "on"}}):
            pass


DEATHS = {
    "browser": r"exit status|connection lost|process died",
    "wrapper": r"exit status|connection lost|process died",
    "guardian": r"exit status -9",
}


@pytest.mark.parametrize("victim", DEATHS)
async def test_a_killed_browser_is_noticed(gateway: Gateway, folder: Path, victim: str) -> None:
    async with launched(gateway) as (browser, session):
        if not processes.of_kind(session, victim):
            pytest.skip(f"this browser has no {victim}")
        gone = asyncio.create_task(browser.gone())
        processes.kill(session, victim)
        async with asyncio.timeout(raw.SECONDS):
            assert re.search(DEATHS[victim], await gone)
        started = time.monotonic()
        await browser.close()
        assert time.monotonic() - started < guardian.TERM_SECONDS + guardian.KILL_SECONDS / 2
        assert processes.members(session) == []
        assert names_in(folder) == []


async def test_a_stopped_browser_is_noticed(gateway: Gateway, folder: Path) -> None:
    async with launched(gateway) as (browser, session):
        (process,) = processes.of_kind(session, "browser")
        os.kill(process.pid, signal.SIGSTOP)
        waiting = asyncio.create_task(browser.devtools.call("Target.getTargets", 60.0))
        async with asyncio.timeout(10):
            # It is killed, because nothing would resume it. Its children die with it, in any order.
            reason = await browser.gone()
            assert re.fullmatch(
                "no answer|connection lost|exit status .*|its .* process died", reason
            )
        started = time.monotonic()
        with pytest.raises(BrowserGone):
            await waiting
        await browser.close()
        assert time.monotonic() - started < guardian.TERM_SECONDS + guardian.KILL_SECONDS / 2
        assert processes.members(session) == []
        assert names_in(folder) == []


SILENT = f"""#!{sys.executable} -IS
import json, os, time
received = b""
for answer in {{"product": "HeadlessChrome/1"}}, {{}}, {{"targetInfos": []}}:
    while b"\\0" not in received:
        received += os.read(3, 9999)
    command, _, received = received.partition(b"\\0")
    message = {{"id": json.loads(command)["id"], "result": answer}}
    os.write(4, json.dumps(message).encode() + b"\\0")
"""


@pytest.mark.parametrize(("goes_on", "least"), [("time.sleep(60)", 0.0), ("while True: pass", 1.0)])
async def test_a_silent_browser_has_more_time_while_it_is_busy(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: str, least: float
) -> None:
    monkeypatch.setattr(chromium, "_PROBE_SECONDS", 0.1)
    monkeypatch.setattr(chromium, "_BUSY_SECONDS", least or 60.0)
    program = _program(tmp_path, SILENT + goes_on)
    browser = await Chromium.launch(program, gateway, sandbox=False)
    try:
        started = time.monotonic()
        async with asyncio.timeout(raw.SECONDS):
            assert await browser.gone() == "no answer"
        assert time.monotonic() - started >= least
    finally:
        await browser.close()


async def test_a_stopped_guardian_is_ended_too(
    gateway: Gateway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chromium, "_GUARDIAN_SECONDS", 0.2)
    async with launched(gateway) as (browser, session):
        os.kill(session, signal.SIGSTOP)
        await browser.close()
        assert processes.members(session) == []
        assert names_in(folder) == []


# The contract with Chromium.


@pytest.fixture
async def browser(gateway: Gateway) -> AsyncIterator[Chromium]:
    async with launched(gateway) as (browser, _):
        yield browser


class Opened:
    """A page that is opened as in page.py."""

    process = None

    def __init__(self, browser: Chromium, gateway: Gateway) -> None:
        self.browser, self.gateway = browser, gateway
        self.context_id = self.target_id = ""

    async def open(self) -> Session:
        self.devtools = devtools = self.browser.devtools
        context = await devtools.call("Target.createBrowserContext", disposeOnDetach=True)
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
        self.frames = Frames(self.session, cast("Context", self))
        await self.session.call("Page.enable")
        version = await devtools.call("Browser.getVersion")
        override = user_agent_override(version["userAgent"], NUMBER)
        await self.session.call("Emulation.setUserAgentOverride", **override)
        return self.session

    async def show(self, html: str, path: str = "/") -> dict[str, Any]:
        """Navigate to a page with this content, and wait until it is loaded."""
        headers = CIMultiDict({"Content-Type": "text/html; charset=utf-8"})
        with self.gateway.visit(NUMBER, Document(200, headers, html.encode())):
            loaded = self.session.expect("Page.loadEventFired")
            answer = await self.session.call("Page.navigate", url=f"{SITE}{path}")
            assert "errorText" not in answer
            await asyncio.wait_for(loaded, 10)
        return answer


@pytest.fixture
async def page(browser: Chromium, gateway: Gateway) -> Opened:
    page = Opened(browser, gateway)
    await page.open()
    return page


async def happened(event: "asyncio.Future[dict[str, Any]]") -> dict[str, Any]:
    return await asyncio.wait_for(event, 10)


_REMOVED = """
import os, sys
from prerender.browser import guardian
def told(event, arguments):
    if event == "os.remove": print(os.path.basename(arguments[0]))
sys.addaudithook(told)
guardian.remove(sys.argv[1])
"""


def test_the_lock_of_a_profile_is_removed_last(tmp_path: Path) -> None:
    """Otherwise the next start would not know an incompletely removed profile."""
    profile = tmp_path / "profile"
    (profile / "folder").mkdir(parents=True)
    names = [guardian.LOCK, "folder/inner", "zzz", "aaa"]
    for name in names:
        (profile / name).touch()
    (profile / "link").symlink_to(tmp_path)
    removed = in_(ROOT, sys.executable, "-c", _REMOVED, str(profile)).split()
    assert sorted(removed) == sorted([guardian.LOCK, "inner", "zzz", "aaa", "link"])
    assert removed[-1] == guardian.LOCK
    assert not profile.exists()
    assert tmp_path.exists()


_IMPORTED = """
import sys
sys.path.append(sys.argv[1])
from prerender.browser import guardian
print(*sys.modules)
"""


def test_the_guardian_imports_little() -> None:
    """It starts with every browser, so each module costs time and memory."""
    imported = set(in_(ROOT, sys.executable, "-I", "-S", "-c", _IMPORTED, str(ROOT)).split())
    assert {name for name in imported if name.startswith("prerender.")} == {
        "prerender.browser",
        *(f"prerender.browser.{name}" for name in ("guardian", "memory_limit", "proc")),
    }
    assert not imported & {"asyncio", "dataclasses", "inspect", "pathlib", "subprocess", "typing"}


async def test_contract_version(browser: Chromium) -> None:
    version = await browser.devtools.call("Browser.getVersion")
    number = version["product"].partition("/")[2].partition(".")[0]
    agent = user_agent_override(version["userAgent"], NUMBER)["userAgent"]
    assert f" Chrome/{number}.0.0.{NUMBER} " in agent
    assert "Headless" not in agent


async def test_contract_pictures(page: Opened) -> None:
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


async def test_contract_frames_come_when_they_are_asked_for(page: Opened) -> None:
    """Their timestamps are virtual: what a page sees does not depend on real time."""
    await page.show('<style>p { transition: opacity 3s }</style><p id="out">x</p>')
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


async def test_contract_frames_of_several_pages(
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


async def test_contract_targets(browser: Chromium) -> None:
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


async def test_contract_scripts_on_new_documents(page: Opened) -> None:
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


async def test_contract_navigation(page: Opened) -> None:
    answer = await page.show("<title>here</title>")
    assert answer["frameId"] == page.target_id
    assert await page.session.evaluate("document.title") == "here"
    failed = await page.session.call("Page.navigate", url="https://www.example.com:8443/")
    assert failed["errorText"] == "net::ERR_NAME_NOT_RESOLVED"
    with pytest.raises(CommandFailed, match=r"\(Page\.navigate\): Cannot navigate"):
        await page.session.call("Page.navigate", url="not a URL")


async def test_contract_user_agent(page: Opened) -> None:
    await page.show("")
    agent = await page.session.evaluate("navigator.userAgent")
    assert re.search(rf" Chrome/\d+\.0\.0\.{NUMBER} Safari/", agent)
    hints = await page.session.evaluate("navigator.userAgentData.toJSON()")
    assert [brand["brand"] for brand in hints["brands"]] == ["Chromium"]
    assert (hints["platform"], hints["mobile"]) == ("Linux", False)


async def test_contract_languages_and_touch(page: Opened) -> None:
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


async def test_contract_requested_navigations(page: Opened) -> None:
    await page.show("")
    for script in ("location = '/other'", "location.reload()"):
        event = page.session.expect("Page.frameRequestedNavigation")
        await page.session.evaluate(script)
        params = await happened(event)
        assert params["frameId"] == page.target_id
        assert params["disposition"] == "currentTab"
        assert params["url"].startswith(str(SITE))


async def test_contract_dialogs(page: Opened) -> None:
    await page.show("")
    for kind in ("alert", "confirm", "prompt"):
        event = page.session.expect("Page.javascriptDialogOpening")
        answer = asyncio.create_task(page.session.evaluate(f"String({kind}('?'))"))
        assert (await happened(event))["type"] == kind
        await page.session.call("Page.handleJavaScriptDialog", accept=False)
        assert await answer in ("undefined", "false", "null")


@pytest.mark.parametrize("policy", ["pauseIfNetworkFetchesPending", "advance"])
async def test_contract_virtual_time(page: Opened, policy: str) -> None:
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


async def test_contract_virtual_time_waits_for_the_network(page: Opened) -> None:
    """A policy without a budget continues the current budget."""
    session = page.session
    await page.show("<title>quiet</title>")
    with page.gateway.visit(NUMBER, None):
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


async def test_contract_evaluation_in_an_isolated_world(page: Opened) -> None:
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


async def test_contract_an_endless_script_is_terminated(page: Opened) -> None:
    await page.show("<title>before</title>")
    endless = asyncio.create_task(page.session.evaluate("for (;;);", 30.0))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(endless), 0.1)
    async with asyncio.timeout(raw.SECONDS):
        await page.session.call("Runtime.terminateExecution")
        with pytest.raises(CommandFailed):
            await endless
        assert await page.session.evaluate("document.title") == "before"


async def test_contract_storage(page: Opened) -> None:
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
    await page.session.evaluate(store, awaitPromise=True)
    stored = await page.session.evaluate(look, awaitPromise=True)
    assert stored == "seen=1,1,1,true,1,1,1"
    await page.session.call("Page.navigate", url=BLANK)
    await page.browser.devtools.call("Storage.clearCookies", browserContextId=page.context_id)
    await page.session.call("Storage.clearDataForOrigin", origin="*", storageTypes=STORAGE)
    await page.show("<title>looks</title>")
    left = await page.session.evaluate(look, awaitPromise=True)
    assert left == ",undefined,undefined,false,0,0,0"


async def test_contract_tabs(page: Opened) -> None:
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


async def test_contract_service_workers_are_told(page: Opened) -> None:
    told: list[dict[str, Any]] = []
    page.session.on("ServiceWorker.workerRegistrationUpdated", told.append)
    await page.session.call("ServiceWorker.enable")
    await page.show("")
    with page.gateway.visit(NUMBER, None):
        await page.session.evaluate("void navigator.serviceWorker.register('/hang')")
        async with asyncio.timeout(10):
            while not any(one["registrations"] for one in told):
                await asyncio.sleep(0.01)


async def test_contract_cookies(page: Opened) -> None:
    context = {"browserContextId": page.context_id}
    devtools = page.browser.devtools
    await page.show("<script>document.cookie = 'seen=1'</script>")
    found = await devtools.call("Storage.getCookies", **context)
    assert [cookie["name"] for cookie in found["cookies"]] == ["seen"]
    await devtools.call("Storage.clearCookies", **context)
    assert (await devtools.call("Storage.getCookies", **context))["cookies"] == []


async def test_contract_downloads_are_denied(page: Opened, folder: Path) -> None:
    await page.browser.devtools.call(
        "Browser.setDownloadBehavior", behavior="deny", browserContextId=page.context_id
    )
    before = names_in(Path.cwd())
    with page.gateway.visit(NUMBER, None):
        answer = await page.session.call("Page.navigate", url=f"{SITE}/download")
    assert answer["errorText"] == "net::ERR_ABORTED"
    assert names_in(Path.cwd()) == before


async def test_contract_the_window_grows(page: Opened) -> None:
    await page.show("")
    assert await page.session.evaluate("[innerWidth, innerHeight]") == [1280, 1024]
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


async def test_contract_garbage_is_collected(page: Opened) -> None:
    await page.show("")
    await page.session.evaluate("globalThis.kept = new Array(4e6).fill(0.5), 0")
    await page.session.evaluate("delete globalThis.kept")
    before = (await page.session.call("Runtime.getHeapUsage"))["usedSize"]
    await page.session.call("HeapProfiler.collectGarbage")
    after = (await page.session.call("Runtime.getHeapUsage"))["usedSize"]
    assert before - after > 30_000_000


async def test_contract_a_crash_is_told(page: Opened) -> None:
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
    await page.browser.devtools.call(
        "Target.disposeBrowserContext", browserContextId=page.context_id
    )
    assert await neighbour.session.evaluate("1 + 1") == 2


def test_the_contract_is_complete() -> None:
    """Every command and event in the code has a test here."""
    name = re.compile(
        r'"((?:Browser|Emulation|HeapProfiler|Inspector|Network|Page|Runtime|ServiceWorker|Storage|Target)\.\w+)"'
    )
    sources = Path(inspect.getfile(rendering)).parent.glob("*.py")
    used = {found for source in sources for found in name.findall(source.read_text())}
    tested = set(name.findall(Path(__file__).read_text()))
    # The methods attach and evaluate are used here for "Target.attachToTarget" and "Runtime.evaluate".
    assert used <= tested
