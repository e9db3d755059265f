"""Chromium as a child process: finding, starting, connecting to and ending it.

It runs in its own session under a guardian (guardian.py), with a private temporary profile, a minimal
environment and no inherited file descriptors.
"""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import structlog

from prerender.browser import guardian
from prerender.browser.devtools import DevTools
from prerender.browser.emulation import DESKTOP
from prerender.browser.installed import Installed
from prerender.browser.proc import is_runnable
from prerender.browser.processes import Watch, survey
from prerender.errors import BrowserGone, RenderError
from prerender.gateway.context_proxy import ContextProxy
from prerender.gateway.gateway import Gateway

_NAMES = ("chromium-headless-shell", "chrome-headless-shell")
# The product name of the headless shell. A full Chrome, headless or not, is "Chrome": it accepts a tab
# with frame control, but draws frames by itself.
_PRODUCT = "HeadlessChrome/"
INSTALL = (
    "install chromium-headless-shell (Debian) or chrome-headless-shell (Chrome for Testing: "
    "npx @puppeteer/browsers install chrome-headless-shell@stable), or set [browser] path to it"
)
_PROFILE = "prerender-chromium-"
_START_SECONDS = 20.0
_GUARDIAN_SECONDS = guardian.TERM_SECONDS + guardian.KILL_SECONDS + 1
_PROBE_EVERY_SECONDS = 0.5
_PROBE_SECONDS = 0.75
# A single probe without a response can be due to a busy event loop of this process.
_PROBES = 2
# A browser that waits for a CPU, or is busy, may be silent for this long. One that hangs uses no CPU.
_BUSY_SECONDS = 6.0
# With less shared memory, Chromium does not use it: a page dies if it is full.
LARGE_SHM_BYTES = 256 * 1024**2

# RenderDocument creates a new frame host for each navigation, which doubles the time of a render on a
# reused page (measured). The back/forward cache would keep the page of the last render alive. Without
# site isolation, frames of other sites share the page's process, and so its virtual time. A script that
# is streamed is parsed anew by each page; others are compiled once for all pages of the process.
_DISABLED_FEATURES = (
    "RenderDocument",
    "BackForwardCache",
    "ScriptStreaming",
    "IsolateOrigins",
    "site-per-process",
    "Translate",
    "OptimizationHints",
    "MediaRouter",
    "Prerender2",
    "AutofillServerCommunication",
    "CertificateTransparencyComponentUpdater",
)
FRAME_FLAGS = (
    # A frame is complete when the response to its command arrives: all events that it causes have been
    # dispatched.
    "--run-all-compositor-stages-before-draw",
    # Animations and scrolling advance with frames, too, and images are decoded before they are drawn.
    "--disable-threaded-animation",
    "--disable-threaded-scrolling",
    "--disable-checker-imaging",
)
_FLAGS = (
    "--headless",
    # The size of the screen, too. Its default is 800 by 600, less than the windows of pages.
    f"--window-size={DESKTOP.width},{DESKTOP.height}",
    # Not a port: anybody who reaches it controls the browser. Chromium exits when the pipe closes.
    "--remote-debugging-pipe",
    "--disable-site-isolation-trials",
    # Browsers block new windows without a user gesture. Here, they would also escape the limits of the
    # render.
    "--block-new-web-contents",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-gpu",
    # Nothing is drawn by a GPU, but clearing this cache took most of the time of clearing storage.
    "--disable-gpu-shader-disk-cache",
    "--disable-hang-monitor",
    "--disable-prompt-on-repost",
    "--disable-quic",
    "--disable-renderer-backgrounding",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    # Nobody sees what is drawn. A separate GPU process took a tenth of a render's CPU time.
    "--in-process-gpu",
    "--metrics-recording-only",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--no-proxy-server",
    # Nothing starts from the second zygote here: it took a tenth of a second of CPU time, and 9 MiB.
    "--no-unsandboxed-zygote",
    "--password-store=basic",
    *FRAME_FLAGS,
    # As a process of its own the network service took 4 ms of a render's CPU time, and could die alone.
    "--enable-features=NetworkServiceInProcess2",
    # A new tab uses the existing process of its context.
    "--renderer-process-limit=1",
    # As in a visitor's browser, navigator.webdriver is false.
    "--disable-blink-features=AutomationControlled",
    # A mouse, as on an ordinary desktop: these machines have none. HoverType and PointerType of Blink.
    "--blink-settings=primaryHoverType=2,availableHoverTypes=2,"
    "primaryPointerType=4,availablePointerTypes=4",
    # WebRTC would open its own sockets and bypass the gateway.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    f"--disable-features={','.join(_DISABLED_FEATURES)}",
)

# The namespaces of the sandbox: CLONE_NEWUSER, CLONE_NEWPID and CLONE_NEWNET.
_TRY_NAMESPACES = "import ctypes; raise SystemExit(ctypes.CDLL(None).unshare(0x70000000))"
SANDBOX_REMEDY = (
    "run as an ordinary user, with a seccomp profile that allows user namespaces (docs/security.md)"
)

log = structlog.get_logger(__name__)


class CannotStart(BrowserGone):
    """A browser cannot start here until the cause is fixed. Other failures may be temporary."""


def find(path: str = "") -> str:
    """The program to run: ``path`` if given, else the first of the usual names in PATH.

    Raises CannotStart with a remedy.
    """
    for name in [path] if path else _NAMES:
        if program := shutil.which(name):
            return program
    if path:
        raise CannotStart(f"{path}: is not an executable program ([browser] path)")
    raise CannotStart(f"no headless Chromium found: {INSTALL}")


def version(program: str) -> str:
    """The output of ``--version``. Takes a moment. Raises CannotStart."""
    try:
        shown = subprocess.run(  # noqa: S603 (the operator's program)
            [program, "--version"], capture_output=True, timeout=_START_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotStart(f"{program}: cannot print its version: {error}") from error
    return shown.stdout.decode(errors="replace").strip()


def sandbox_problem() -> str:
    """Why Chromium's sandbox cannot be used here, or '' if it can."""
    if os.geteuid() == 0:
        return "it cannot run as root"
    # A sysctl, a seccomp filter (of a container) or AppArmor may forbid it: only trying shows.
    command = [sys.executable, "-I", "-S", "-c", _TRY_NAMESPACES]
    failed = subprocess.call(command)  # noqa: S603 (constant arguments)
    forbids = "the kernel or container does not allow unprivileged user namespaces"
    return forbids if failed else ""


def shared_memory_bytes() -> int:
    """The size of /dev/shm, by which Chromium's processes share memory; 0 if it does not exist."""
    try:
        shm = os.statvfs("/dev/shm")  # noqa: S108 (only its size is read)
    except OSError:
        return 0
    return shm.f_blocks * shm.f_frsize


def remove_leftovers() -> None:
    """Remove the profiles of browsers that were killed together with their guardian and proxy."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PROFILE}*"):
        if guardian.is_abandoned(str(folder)):
            guardian.remove(str(folder))


class Chromium:
    """A running browser. Create it with ``await Chromium.launch(...)``, end it with ``close()``."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        profile: Path,
        devtools: DevTools,
        watch: Watch,
        ended_pages: "_EndedPages",
        *,
        version: str,
        gateway: Gateway,
    ) -> None:
        self.version = version
        self._installed = _installed(process.pid)
        self._gateway = gateway
        self._proxies: set[ContextProxy] = set()
        self._process = process
        self._profile = profile
        self._watch = watch
        self._ended_pages = ended_pages
        self.devtools = devtools
        self.started = time.monotonic()

    def __repr__(self) -> str:
        return f"Chromium {self.version}, process {self.pid}"

    @property
    def pid(self) -> int:
        """The process that starts and ends it, its guardian."""
        return self._process.pid

    @classmethod
    async def launch(
        cls,
        program: str,
        gateway: Gateway,
        *,
        sandbox: bool,
        max_memory: int = 0,
        timezone: str = "UTC",
        start_seconds: float = _START_SECONDS,
    ) -> "Chromium":
        """Start Chromium and connect to it. Raises BrowserGone, and leaves nothing running then.

        ``max_memory``: the limit in bytes for all browsers of this gateway together; 0: none.
        ``timezone``: of pages, a name of the IANA database.
        """
        ours, its = socket.socketpair()
        with its:
            devtools = await DevTools.over(ours)
            try:
                profile, process = await _start(
                    program,
                    gateway,
                    its,
                    devtools,
                    sandbox=sandbox,
                    max_memory=max_memory,
                    environment={"TZ": timezone},
                )
            except BaseException:
                await devtools.close()
                raise
        tail, ended_pages = _Tail(process), _EndedPages(process)
        watch = Watch(process.pid)
        try:
            async with asyncio.timeout(start_seconds):
                version = await _answered(devtools, process, start_seconds)
        except BaseException as error:
            await devtools.close()
            await _end(process, profile, watch)
            if isinstance(error, TimeoutError | RenderError):
                reason = str(error) or f"not ready in {start_seconds:g} s"
                kind = CannotStart if isinstance(error, CannotStart) else BrowserGone
                raise kind(f"{program}: {reason}; {await tail.text()}") from error
            raise
        return cls(process, profile, devtools, watch, ended_pages, version=version, gateway=gateway)

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of all its processes in bytes."""
        return self._watch.memory_bytes

    def is_replaced_on_disk(self) -> bool:
        """Whether other files than those that it was started from are in their place now."""
        return self._installed is not None and self._installed.is_replaced()

    @property
    def language(self) -> str:
        """The language of pages that have none of their own."""
        return self._gateway.language

    def open_proxy(self) -> ContextProxy:
        """The network of a new browser context. It is closed with the browser at the latest."""
        proxy = self._gateway.open_proxy()
        self._proxies.add(proxy)
        return proxy

    async def close_proxy(self, proxy: ContextProxy) -> None:
        """Close the network of a context that is gone."""
        self._proxies.discard(proxy)
        await self._gateway.close_proxy(proxy)

    def page_processes(self) -> set[int]:
        """The current processes of its pages."""
        return {process.pid for process in survey(self._process.pid) if process.kind == "renderer"}

    def look(self) -> None:
        """Register all current processes of the browser."""
        self._watch.look()

    def check(self) -> None:
        """Raise BrowserGone if an essential process has ended."""
        if reason := self._watch.dying():
            raise BrowserGone(reason)

    async def ended_for_memory(self, others: set[int]) -> bool:
        """Whether the guardian has just ended a page because of its memory.

        ``others``: the processes of the other pages. The process of a page is not always known.
        """
        return await self._ended_pages.any_but(others)

    async def gone(self) -> str:
        """Wait until the browser is unusable, and return the reason.

        From then on all its calls fail, even if it could still respond: its renders are repeated in
        another browser.
        """
        # React at once when one of its processes dies: a page must not settle without it.
        self._watch.died.add_done_callback(lambda _: self.devtools.abandon())
        reason = await self._lost()
        self.devtools.abandon()
        return reason

    async def _lost(self) -> str:
        exited = asyncio.create_task(self._process.wait(), name="browser exit")
        closed = asyncio.create_task(self.devtools.closed.wait(), name="browser connection")
        try:
            while True:
                await asyncio.wait(
                    {exited, closed},
                    timeout=_PROBE_EVERY_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                responds = exited.done() or closed.done() or await self._responds()
                if exited.done():
                    return f"exit status {self._process.returncode}"
                if closed.done():
                    died = self._watch.died
                    return died.result() if died.done() else "connection lost"
                if not responds:
                    return "no answer"
        finally:
            exited.cancel()
            closed.cancel()

    async def _responds(self) -> bool:
        """Whether the browser responds. Its connection can be dead while its processes run."""
        began, silent = time.monotonic(), 0
        while silent < _PROBES and not self.devtools.closed.is_set():
            with suppress(RenderError):
                await self.devtools.call("Browser.getVersion", _PROBE_SECONDS)
                return True
            if self.devtools.last_message > began:
                return True
            busy = time.monotonic() - began < _BUSY_SECONDS and self._is_runnable()
            silent = 0 if busy else silent + 1
        return False

    def _is_runnable(self) -> bool:
        processes = survey(self._process.pid)
        return any(is_runnable(one.pid) for one in processes if one.kind == "browser")

    async def close(self) -> None:
        """End the browser and all its processes. Safe to call if it is gone already.

        Cancelling the caller does not interrupt this; the cancellation takes effect afterwards.
        """
        closing = asyncio.create_task(self._close(), name=f"close {self!r}")
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise

    async def _close(self) -> None:
        await self.devtools.close()
        await asyncio.gather(*map(self.close_proxy, list(self._proxies)))
        await _end(self._process, self._profile, self._watch)


def _installed(guardian_pid: int) -> Installed | None:
    """The files of a browser that has started; None if the kernel does not tell them."""
    with suppress(OSError):
        for process in survey(guardian_pid):
            if process.kind == "browser":
                return Installed(process.pid)
    return None


async def _start(
    program: str,
    gateway: Gateway,
    its: socket.socket,
    devtools: DevTools,
    *,
    sandbox: bool,
    max_memory: int,
    environment: dict[str, str],
) -> tuple[Path, asyncio.subprocess.Process]:
    """Create a profile and a guardian that starts Chromium with ``its`` end of the connection."""
    try:
        profile = Path(tempfile.mkdtemp(prefix=_PROFILE))
    except OSError as error:
        raise CannotStart(f"cannot create a folder for the browser's profile: {error}") from error
    flags = _own_flags(profile, gateway, sandbox=sandbox)
    command = guardian.command(
        family=gateway.name,
        profile=str(profile),
        max_bytes=max_memory,
        chromium=[program, *_FLAGS, *flags],
    )
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *command,
            stdin=its.fileno(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(profile) | environment,
            start_new_session=True,
        ),
        name="start of a guardian",
    )
    try:
        return profile, await asyncio.shield(starting)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            # If the start itself were cancelled, it would kill the guardian, and nobody would clean
            # up.
            await devtools.close()
            with suppress(OSError):
                process = await starting
                its.close()
                await _end(process, profile, Watch(process.pid))
        shutil.rmtree(profile, ignore_errors=True)
        if isinstance(error, OSError):
            raise CannotStart(f"{program} cannot be started: {error}") from error
        raise


def _own_flags(profile: Path, gateway: Gateway, *, sandbox: bool) -> list[str]:
    flags = [
        f"--user-data-dir={profile}",
        f"--host-resolver-rules={gateway.resolver_rules}",
        # What is emulated for pages does not reach their workers.
        f"--accept-lang={gateway.browser_languages}",
        f"--ignore-certificate-errors-spki-list={gateway.certificate.spki_sha256}",
    ]
    if not sandbox:
        flags.append("--no-sandbox")
    if 0 < shared_memory_bytes() < LARGE_SHM_BYTES:
        flags.append("--disable-dev-shm-usage")
    return flags


def _environment(profile: Path) -> dict[str, str]:
    """The variables that Chromium needs, without our secrets."""
    names = ("PATH", "FONTCONFIG_PATH")
    return {name: os.environ[name] for name in names if name in os.environ} | {
        "HOME": str(profile),
        "TMPDIR": str(profile),
        "LANG": "C.UTF-8",
        "DBUS_SESSION_BUS_ADDRESS": "disabled:",
    }


async def _answered(devtools: DevTools, process: asyncio.subprocess.Process, seconds: float) -> str:
    """Wait for the first response of a browser: its version. Raises CannotStart or BrowserGone if there
    is none."""
    try:
        version = await devtools.call("Browser.getVersion", seconds)
        await devtools.call("Target.setDiscoverTargets", seconds, discover=True)
    except BrowserGone:
        if not devtools.closed.is_set():
            raise
        status = await process.wait()
        # With 0 or a signal, the browser ended after it had started.
        kind = CannotStart if 0 < status < 128 else BrowserGone
        raise kind(f"exit status {status}") from None
    if not version["product"].startswith(_PRODUCT):
        raise CannotStart(f"{version['product']} is a full Chrome, not a headless shell: {INSTALL}")
    return str(version["product"].rpartition("/")[2])


async def _end(process: asyncio.subprocess.Process, profile: Path, watch: Watch) -> None:
    """Wait until the guardian has ended the session, or end it here if the guardian cannot.

    The connection has been closed, which is the signal for the guardian.
    """
    try:
        async with asyncio.timeout(_GUARDIAN_SECONDS):
            status = await process.wait()
    except TimeoutError:
        log.warning("guardian_killed", pid=process.pid)
        with suppress(ProcessLookupError):
            process.kill()
        status = await process.wait()
    finally:
        await watch.stop()
    if status < 0:
        # The guardian was killed: its session and profile remain.
        await asyncio.to_thread(guardian.clean_up, process.pid, str(profile))


class _Tail:
    """Reads the browser's standard error, so that it never blocks, and keeps the last lines."""

    _MAX_CHARACTERS = 500
    _LAST_SECONDS = 1.0

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._text = ""
        self._task = asyncio.create_task(self._read(process), name="browser stderr")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while part := await process.stderr.read(4096):
            text = part.decode(errors="replace")
            log.debug("chromium_output", text=text)
            self._text = (self._text + text)[-self._MAX_CHARACTERS :]

    async def text(self) -> str:
        """The last output of a browser that has ended."""
        await asyncio.wait([self._task], timeout=self._LAST_SECONDS)
        return " | ".join(self._text.split("\n")).strip(" |") or "it printed nothing"


class _EndedPages:
    """Reads the guardian's reports of pages that it has ended for their memory (memory_limit.py)."""

    # The end of a process may be noticed before its report is read.
    _WAIT_SECONDS = 0.1
    _RECENT_SECONDS = 2.0

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._times: dict[int, float] = {}  # process id -> when it was reported
        self._reported = asyncio.Event()
        self._task = asyncio.create_task(self._read(process), name="guardian's reports")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            report = json.loads(line)
            log.warning("page_too_large", pid=report["pid"], mib=report["bytes"] >> 20)
            self._times[report["pid"]] = time.monotonic()
            self._reported.set()

    async def any_but(self, others: set[int]) -> bool:
        """Whether another process than these was just ended. True once for each."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._WAIT_SECONDS):
                while not (ended := self._recent() - others):
                    self._reported.clear()
                    await self._reported.wait()
                for pid in ended:
                    del self._times[pid]
                return True
        return False

    def _recent(self) -> set[int]:
        latest = time.monotonic() - self._RECENT_SECONDS
        self._times = {pid: at for pid, at in self._times.items() if at > latest}
        return set(self._times)
