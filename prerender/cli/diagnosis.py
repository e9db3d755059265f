"""The checks of ``prerender doctor``.

Each check yields lines that are "ok", "warning" (it works, but not well) or "problem". Warnings and
problems come with a remedy. The checks change nothing.
"""

import asyncio
import errno
import resource
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import psutil
from multidict import CIMultiDict
from yarl import URL

from prerender import plugins
from prerender.admin.client import AdminClient
from prerender.admin.token_file import TokenFile
from prerender.browser import chromium, container, defaults
from prerender.config import Settings
from prerender.config.crawler_classes import PRESETS
from prerender.config.presets import PRESET_WORDS
from prerender.config.store_urls import kind_of
from prerender.crawlers.from_settings import crawlers_of, files_of_ranges
from prerender.crawlers.published import OLD_SECONDS
from prerender.crawlers.ranges import RangesFile
from prerender.errors import (
    AdminError,
    ConfigError,
    NotRenderable,
    OriginError,
    PrerenderError,
)
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.connection_errors import reason_of, reason_of_listening
from prerender.gateway.upstream import Upstream, open_session
from prerender.http.forwarding_headers import authority, mark
from prerender.rendering import from_settings
from prerender.snapshots.stores.from_settings import namespace
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL

_LEAST_FILES = 4096
_LEAST_DISK_BYTES = 512 * 1024**2
_SECONDS = 10.0
_MOST_NAMED = 10
_LONGEST_LIST_AGE = timedelta(days=270)
_MIB = 1024**2
# Settings of frameworks with the accepted hosts.
_LISTS = (
    "server.allowedHosts (Vite), devServer.allowedHosts (webpack, Vue CLI), allowedHosts (Angular), "
    "ALLOWED_HOSTS (Django), config.hosts (Rails)"
)


@dataclass(frozen=True, slots=True)
class Line:
    """The result of a check; ``remedy`` is '' if it is ok."""

    name: str
    state: Literal["ok", "warning", "problem"]
    text: str
    remedy: str = ""


async def examine(settings: Settings) -> AsyncGenerator[Line]:
    """Run all checks, quick ones first."""
    for line in (*_machine(settings), *_ports(settings), *_files(settings)):
        yield line
    yield _site(settings)
    yield _crawlers(settings)
    for line in await _of_the_running_proxy(settings):
        yield line
    yield await _store(settings)
    for extension in plugins.modules("doctor"):
        for line in await extension.examine(settings):
            yield line
    origin = await _origin(settings)
    yield origin
    browser = await asyncio.to_thread(_browser, settings)
    for line in browser:
        yield line
    if all(line.state != "problem" for line in browser):
        async for line in _renders(settings, origin_responds=origin.state != "problem"):
            yield line


def _machine(settings: Settings) -> Iterator[Line]:
    needed, free = defaults.limits(settings).memory, _free_bytes()
    text = f"{free // _MIB} MiB free, the browser may use {needed // _MIB} MiB"
    if needed and free < needed:
        remedy = "add memory, or lower [browser] pages or max_memory"
        yield Line("memory", "warning", text, remedy)
    else:
        yield Line("memory", "ok", text)
    yield _shm()
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = files == resource.RLIM_INFINITY
    text = f"{'unlimited' if unlimited else files} open files"
    if not unlimited and files < _LEAST_FILES:
        remedy = f"raise the hard limit to {_LEAST_FILES} or more (ulimit -Hn, LimitNOFILE=)"
        yield Line("files", "warning", text, remedy)
    else:
        yield Line("files", "ok", text)
    folder = tempfile.gettempdir()
    disk = shutil.disk_usage(folder).free
    text = f"{disk // _MIB} MiB free in {folder}, for browser profiles"
    if disk < _LEAST_DISK_BYTES:
        yield Line("disk", "warning", text, "free disk space, or set TMPDIR to another folder")
    else:
        yield Line("disk", "ok", text)


def _files(settings: Settings) -> Iterator[Line]:
    """The files that the settings name. Without them the proxy does not start."""
    admin, triggers = settings.admin, settings.triggers
    files: list[tuple[str, str, Callable[[], object]]] = []
    if admin.token_file:
        files.append(("token file", admin.token_file, lambda: TokenFile(admin.token_file)))
    if triggers.verify:
        files += [("ranges", file, partial(RangesFile, Path(file))) for _, file in triggers.ranges]
    for name, file, read in files:
        try:
            read()
        except (ConfigError, OSError, ValueError) as error:
            text = (
                error.problems[0]
                if isinstance(error, ConfigError)
                else f"{file}: {reason_of(error)}"
            )
            yield Line(name, "problem", text, "correct the file or the setting")
        else:
            yield Line(name, "ok", file)


def _shm() -> Line:
    size = chromium.shared_memory_bytes()
    text = f"{size // _MIB} MiB"
    if size < chromium.LARGE_SHM_BYTES:
        text += " in /dev/shm: Chromium uses files instead, which is slower"
        remedy = "use docker run --shm-size=256m, or mount a larger tmpfs"
        return Line("shm", "warning", text, remedy)
    return Line("shm", "ok", text)


def _free_bytes() -> int:
    """Available memory: the machine's, or the rest of the container's limit if that is less."""
    return int(min(psutil.virtual_memory().available, container.memory_left()))


def _ports(settings: Settings) -> Iterator[Line]:
    for name, part in (("server", settings.server), ("admin", settings.admin)):
        where = f"{part.host}:{part.port}"
        setting = f"[{name}] host, port"
        try:
            with socket.create_server((part.host, part.port), family=_family(part.host), backlog=1):
                yield Line(f"{name} port", "ok", f"{where} is free")
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            reason = "already in use" if taken else reason_of_listening(error)
            yield Line(
                f"{name} port",
                "warning" if taken else "problem",
                f"{where}: {reason}",
                f"unless it is this proxy, change {setting}" if taken else f"change {setting}",
            )


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _site(settings: Settings) -> Line:
    if settings.site.url:
        return Line("site", "ok", f"pages are rendered under {settings.public_url}")
    text = f"[site] url is not set: snapshots carry the origin's URL, {settings.public_url}"
    return Line("site", "warning", text, "set it to the public URL of the site")


def _crawlers(settings: Settings) -> Line:
    """The list of known crawlers and its age."""
    try:
        crawlers = crawlers_of(settings)
        if settings.triggers.verify:
            files_of_ranges(settings, crawlers)
    except ConfigError as error:
        return Line("crawlers", "problem", error.problems[0], "correct the file or the setting")
    text = f"{len(crawlers.crawlers)} are known"
    if crawlers.date is None:
        return Line("crawlers", "ok", text)
    text += f"; the built-in list is of {crawlers.date}"
    if date.today() - crawlers.date > _LONGEST_LIST_AGE:
        remedy = "update prerender-proxy, or add crawlers in [triggers] crawlers_file"
        return Line("crawlers", "warning", text, remedy)
    return Line("crawlers", "ok", text)


async def _of_the_running_proxy(settings: Settings) -> list[Line]:
    """Who gets snapshots and how crawlers are verified, and what that led to in the last hour."""
    try:
        crawlers = await asyncio.to_thread(AdminClient.of(settings.admin).crawlers)
    except (AdminError, ConfigError):
        return [_preset(settings, None), _ranges(settings, None)]
    return [_preset(settings, crawlers["items"]), _ranges(settings, crawlers["ranges"])]


def _ranges(settings: Settings, lists: list[dict[str, Any]] | None) -> Line:
    """The published lists of addresses, and their age."""
    if not settings.triggers.verify:
        return Line("verification", "ok", "off: crawlers are believed by their User-Agent")
    if lists is None:
        return Line("verification", "ok", "on; the proxy is not running here")
    fetched = [one["fetched"] for one in lists if one["fetched"] is not None]
    text = f"on; {len(fetched)} of {len(lists)} published lists of addresses received"
    if fetched:
        text += f", the oldest {(time.time() - min(fetched)) / 3600:.0f} h ago"
    failed = [one for one in lists if one["error"]]
    old = [one for one in failed if (one["fetched"] or 0) < time.time() - OLD_SECONDS]
    if not old:
        return Line("verification", "ok", text)
    text += f"; not renewed: {old[0]['url']}: {old[0]['error']}"
    remedy = (
        "let the proxy reach them ([network]), or set [triggers] ranges or renew_ranges = false"
    )
    return Line("verification", "warning", text, remedy)


def _preset(settings: Settings, came: list[dict[str, Any]] | None) -> Line:
    """Who gets snapshots, and which known crawlers came in the last hour and got none."""
    preset = settings.triggers.preset
    text = f"{preset}: {PRESET_WORDS[preset]}"
    if came is None:
        return Line("preset", "ok", text)
    # Those that no preset serves need the page itself.
    served = PRESETS["all"]
    missed = [one for one in came if one["without_snapshot"] and one["crawler"] in served]
    if not missed:
        return Line("preset", "ok", f"{text}; no crawler missed a snapshot in the last hour")
    names = ", ".join(f"{one['name']} ({one['without_snapshot']})" for one in missed[:_MOST_NAMED])
    text += f"; got pages without a snapshot in the last hour: {names}"
    needed = {one["preset"] for one in missed}
    # An owner who has set a class has decided.
    larger = next((one for one in reversed(PRESETS) if one in needed), None)
    if larger is None:
        return Line("preset", "ok", text)
    remedy = f'set [triggers] preset = "{larger}", or set their classes to "forward" to leave it so'
    return Line("preset", "warning", text, remedy)


async def _store(settings: Settings) -> Line:
    kind = kind_of(settings.cache.url)
    assert kind is not None, "the settings are valid"
    return Line("store", *await kind.diagnose(settings, namespace(settings)))


async def _origin(settings: Settings) -> Line:
    started = time.monotonic()
    where = settings.origin.url
    try:
        status, kind = await _first_response(settings, settings.public_url)
    except (OriginError, TimeoutError) as error:
        reason = reason_of(error.__cause__ or error)
        remedy = "start the origin, or correct [origin] url"
        return Line("origin", "problem", f"{where}: {reason}", remedy)
    text = f"{where}/: status {status}, {kind}, {_milliseconds(started)}"
    if status >= 500:
        return Line("origin", "problem", text, "fix the origin")
    if status >= 400:
        return await _refusal(settings, status, text)
    return Line("origin", "ok", text)


async def _refusal(settings: Settings, status: int, text: str) -> Line:
    """Check whether the origin refuses the public host, as development servers do."""
    public, own = authority(settings.public_url), authority(settings.origin_url)
    if public != own:
        with suppress(OriginError, TimeoutError):
            other, _ = await _first_response(settings, settings.origin_url)
            if other < 400:
                text += f"; with Host: {own} instead of {public}, status {other}"
                return Line("origin", "problem", text, f"let the origin accept {public}; {_LISTS}")
    return Line("origin", "warning", text, f"does the origin have a page at / for {public}?")


async def _first_response(settings: Settings, public: URL) -> tuple[int, str]:
    """The status and media type of ``/`` at the origin for a public URL. Raises OriginError."""
    fields = CIMultiDict({"Accept": "text/html,*/*;q=0.8", "Accept-Encoding": "identity"})
    mark(fields, public)
    policy = AddressPolicy.only(settings.origin_url)
    async with (
        open_session(policy, settings.origin.connect_timeout, _SECONDS) as session,
        asyncio.timeout(_SECONDS),
        Upstream(session, settings.origin_url, settings.origin.header_pairs).request(
            "GET", "/", fields
        ) as response,
    ):
        return response.status, response.headers.get("Content-Type", "no type")


def _browser(settings: Settings) -> list[Line]:
    lines = []
    try:
        program = chromium.find(settings.browser.path)
        version = chromium.version(program)
    except PrerenderError as error:
        return [Line("browser", "problem", str(error), chromium.INSTALL)]
    lines.append(Line("browser", "ok", f"{program}: {version}"))
    wanted, problem = settings.browser.sandbox, chromium.sandbox_problem()
    if wanted == "off":
        lines.append(Line("sandbox", "warning", "off", 'set [browser] sandbox to "auto"'))
    elif problem:
        state: Literal["warning", "problem"] = "problem" if wanted == "on" else "warning"
        lines.append(Line("sandbox", state, f"not possible: {problem}", chromium.SANDBOX_REMEDY))
    else:
        lines.append(Line("sandbox", "ok", "on"))
    return lines


async def _renders(settings: Settings, *, origin_responds: bool) -> AsyncIterator[Line]:
    """Start a browser, which renders a test page, then render the site's first page."""
    one = settings.browser.model_copy(update={"pages": 1})
    started = time.monotonic()
    remedy = 'see the log above, or try [log] level = "debug"'
    try:
        async with from_settings.rendering(
            settings.model_copy(update={"browser": one})
        ) as rendering:
            pool = rendering.pool
            async with pool.place() as place, pool.page(place, settings.render.timeout):
                yield Line("rendering", "ok", f"test page, {_milliseconds(started)}")
            if not origin_responds:
                return
            started = time.monotonic()
            target = Target.of(settings.public_url, PrettyURL("/", ""))
            try:
                snapshot = (await rendering.renderer.snapshot(target)).snapshot
            except NotRenderable as reason:
                text = f"{target.url}: not an HTML page: {reason}"
                yield Line("first page", "warning", text, "is [origin] url the origin of the site?")
                return
            text = f"{target.url}: status {snapshot.status}, "
            text += f"{snapshot.facts.text_length} characters of text, {_milliseconds(started)}"
            failed = snapshot.facts.failed_requests
            if failed:
                text += f"; {len(failed)} of its requests failed: {failed[0]}"
                yield Line("first page", "warning", text, "check the origin's response there")
            else:
                yield Line("first page", "ok", text)
    except PrerenderError as error:
        yield Line("rendering", "problem", " ".join(str(error).split()), remedy)


def _milliseconds(started: float) -> str:
    return f"{(time.monotonic() - started) * 1000:.0f} ms"
