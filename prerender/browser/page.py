"""A page: it navigates, settles and serializes, one render after another.

Its browser context and process are reused for the next render after all state has been cleared, but not
after a timeout or crash, or if some state may remain. Each render has its own tab.
"""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Container, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import structlog

from prerender.background import cancel_all
from prerender.browser import probe, serializer
from prerender.browser.browser_context import Context
from prerender.browser.chromium import Chromium
from prerender.browser.departure import Departure
from prerender.browser.devtools import COMMAND_SECONDS, CommandFailed
from prerender.browser.emulation import AS_OPENED, Window, become, window_of
from prerender.browser.page_results import (
    Departed,
    Rendered,
    Resource,
    SerializeOptions,
)
from prerender.browser.settling.reasons import SettleReason
from prerender.browser.settling.settler import Settled, Settler
from prerender.browser.tab import Tab
from prerender.browser.virtual_clock import VirtualClock
from prerender.config.settings import RenderSettings
from prerender.errors import (
    BrowserGone,
    NeedsNewContext,
    PageOverLimit,
    RenderError,
    RenderTimeout,
    SnapshotTooLarge,
)
from prerender.gateway.document import Document
from prerender.gateway.visit import Visit
from prerender.snapshots.variants import ORDINARY, Variant

# A context is replaced after this many renders, so that leaks do not add up.
RENDERS = 500
# In workers, Date cannot be corrected, so if the clock is further ahead, the context is replaced.
LEAD_SECONDS = 60.0
# Of all URLs that a page gives itself. Each occupies the browser process by its length.
_MAX_URLS_LENGTH = 8_000_000
# An ordinary page has a few frames. Each costs the browser process a few milliseconds.
_MAX_FRAMES = 200
# Requests beyond [network] max_requests are refused; this many times as many end the page.
_FLOOD = 3
# Characters in a part of the serializer's result (serialize/html.js).
_PIECE_LENGTH = 2**20
# Characters of a snapshot: such a page takes hundreds of megabytes until garbage is collected.
_LARGE_LENGTH = 1_000_000
_WORLD = "prerender"
_MOST_ENTRIES = 20
_LONGEST_ENTRY = 500
_WHOSE = "requests may be the page's or an older one's"
# The time to serialize the page and clear the context after the time limit of a render.
_LAST_SECONDS = 2.0
_STOP_SECONDS = 1.0
_RENEW_SECONDS = 5.0
# CPU time that renewing may take. More means that a closed page goes on, for example with requests in a
# loop, which fail at once then.
_RENEW_CPU_SECONDS = 1.0
# Unique in all pools: late requests of an old page must not count as a new one's.
_numbers = itertools.count(1)

log = structlog.get_logger(__name__)


class Page:
    """Open it with ``await Page.open(...)``. ``number`` identifies a render to the gateway."""

    def __init__(self, context: Context) -> None:
        self.devtools = context.devtools
        self.context = context
        self._clock = context.clock
        self._tab: Tab
        self._visit: Visit | None = None
        self._free_at = 0.0
        self._over_limit = ""
        # The time limit of renewing, and the CPU seconds of the process at which it ends.
        self._renewing: tuple[asyncio.Timeout, float] | None = None
        self._length = 0
        self._urls_length = 0
        self.number = 0
        self.broken = False

    def __repr__(self) -> str:
        state = " broken" if self.broken else ""
        return f"<Page {self.number}, {self.context.renders} in its context{state}>"

    @classmethod
    async def open(cls, browser: Chromium) -> "Page":
        """Open a page in a new browser context. Raises BrowserGone or CommandFailed.

        One at a time in a browser, so that its new process is known to be the page's.
        """
        others = browser.page_processes()
        context = await Context.open(browser)
        page = cls(context)
        try:
            await page._open_tab()
            context.find_process(others)
        except BaseException:
            await context.close()
            raise
        return page

    async def _open_tab(self) -> None:
        self.number = next(_numbers)
        self.context.renders += 1
        self._tab = tab = await Tab.open(self.context, self.number)
        tab.session.on("Inspector.targetCrashed", self._crashed)
        tab.session.on("Page.frameAttached", self._frame_attached)
        for event in ("frameRequestedNavigation", "navigatedWithinDocument"):
            tab.session.on(f"Page.{event}", self._count_url)
        self._urls_length = 0

    async def _become(self, variant: Variant) -> None:
        variant = variant.speaking(self.context.language)
        if variant != AS_OPENED:
            await self._tab.name(self.number, variant)
            await become(self._tab.session, variant)

    def visit(
        self, document: Document | None, variant: Variant = ORDINARY
    ) -> AbstractContextManager[Visit]:
        """Let the gateway serve the requests of the next render (``ContextProxy.visit``)."""
        return self.context.proxy.visit(self.number, document, variant)

    @property
    def is_new(self) -> bool:
        """Whether its context has had no page of a site before, and its tab was just opened."""
        return self.context.proxy.visits == 0 and not self._tab.is_old

    @property
    def worn(self) -> bool:
        """Whether its context must not be used for another page."""
        process = self.context.process
        return (
            self.context.renders >= RENDERS
            or self._clock.lead_seconds > LEAD_SECONDS
            or (process is not None and process.gives_way)
        )

    async def render(
        self,
        url: str,
        visit: Visit,
        limits: RenderSettings,
        *,
        timeout: float,
        options: SerializeOptions,
        variant: Variant = ORDINARY,
    ) -> Rendered | Departed:
        """Open ``url``, wait until the page has settled, and read its DOM.

        ``timeout``: seconds of real time. Raises RenderTimeout if there is nothing to show then, and
        BrowserGone.
        """
        self._free_at = time.monotonic() + timeout + _LAST_SECONDS
        departure = self._begin(url, visit)
        if self.context.process is not None:
            self.context.process.begin()
        partial = False
        window = window_of(variant)
        settler = self._settler(visit, limits, window)
        try:
            async with asyncio.timeout(timeout):
                await self._clock.catch_up()
                await self._become(variant)
                frame_id = await self._tab.navigate(url, timeout, scripts=True)
                settled = await self._settle(settler, departure)
            if departure.to.done():
                return Departed(departure.to.result(), settled)
        except TimeoutError:
            if departure.leaving:
                self.broken = True
                departure.leave()
                return Departed(departure.to.result(), settler.cut_off(SettleReason.DEPARTED))
            partial = True
            settled = settler.cut_off(SettleReason.CUT_OFF)
            frame_id = await self._stop()
        except BrowserGone:
            self.broken = True
            if self._over_limit:
                raise PageOverLimit(self._over_limit, about=url) from None
            raise
        except BaseException:
            self.broken = True
            raise
        finally:
            departure.end()
        started = time.monotonic()
        await settler.restore()
        complaints, malformed = await self._faults(settler, visit)
        sheets = await self._sheets() if settler.touched_sheets else []
        world = await self._world(frame_id)
        # A moving drawing differs in each render, and so would the snapshot's ETag.
        options = replace(
            options, cache_buster=departure.cache_buster, drawings=not settler.animates
        )
        options = await self._options_for(settler, visit, options)
        result = await self._serialize(world, options, sheets)
        resources = tuple(Resource(*resource) for resource in result.pop("resources"))
        errors, script_failure = await self._errors(complaints, malformed, visit, resources)
        if visit.needs_own_context:
            self.broken = True
            raise NeedsNewContext(_WHOSE)
        if self._tab.allowed_more:
            self.broken = True
            raise NeedsNewContext(
                "Chromium ignored URL changes of this page: render it in a new tab"
            )
        return Rendered(
            **result,
            resources=resources,
            errors=errors,
            script_failure=script_failure,
            malformed=malformed,
            partial=partial,
            settled=settled,
            serialize_seconds=time.monotonic() - started,
        )

    @property
    def tab(self) -> Tab:
        """The tab, for those who look at the page after a render."""
        return self._tab

    @property
    def clock(self) -> VirtualClock:
        """The clock of the page."""
        return self._clock

    @asynccontextmanager
    async def lent(
        self,
        url: str,
        visit: Visit,
        limits: RenderSettings,
        *,
        scripts: bool,
        variant: Variant = ORDINARY,
    ) -> AsyncIterator[Tab]:
        """Open ``url`` and lend the tab when the page has settled. The caller sets a timeout.

        Without ``scripts``, none of the page's run. Raises RenderError. After any error, the page is
        not used again.
        """
        departure = self._begin(url, visit)
        try:
            await self._clock.catch_up()
            await self._become(variant)
            await self._tab.navigate(url, COMMAND_SECONDS, scripts=scripts)
            await self._settle(self._settler(visit, limits, window_of(variant)), departure)
            yield self._tab
        except BaseException:
            self.broken = True
            raise
        finally:
            departure.end()

    def _begin(self, url: str, visit: Visit) -> Departure:
        """Begin a visit. Its departure fails if the page cannot be rendered in this context."""
        self._visit = visit
        departure = Departure(self._tab, url, visit.requests)
        visit.catch_up = self._tab.catch_up
        visit.when_in_doubt = lambda: departure.fail(NeedsNewContext(_WHOSE))
        return departure

    def _settler(self, visit: Visit, limits: RenderSettings, window: Window) -> Settler:
        process = self.context.process
        return Settler(
            self._tab.session,
            self._tab.frames,
            visit.requests,
            limits.budget,
            limits.patience,
            window_height=window.height,
            resize=lambda height: self.resize(window, height),
            cpu_seconds=process.cpu_seconds if process else time.monotonic,
        )

    async def resize(self, window: Window, height: int) -> None:
        """Give the window another height, in CSS pixels."""
        metrics = window.metrics(height)
        await self._tab.session.call("Emulation.setDeviceMetricsOverride", **metrics)

    async def _settle(self, settler: Settler, departure: Departure) -> Settled:
        """Wait until the page has settled or has navigated to another document."""
        settling = asyncio.create_task(settler.settle(), name=f"settle {self!r}")
        try:
            either: set[asyncio.Future[Any]] = {settling, departure.to}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            await departure.decide()
            if departure.to.done():
                return settler.cut_off(SettleReason.DEPARTED)
            return settling.result()
        finally:
            await cancel_all([settling])

    async def _stop(self) -> str:
        """Stop a page that does not settle. Raises RenderTimeout if it cannot be stopped."""
        self.broken = True
        try:
            await self._tab.session.call("Runtime.terminateExecution", _STOP_SECONDS)
        except RenderError:
            raise RenderTimeout("the page does not respond") from None
        return self._tab.target_id

    async def world(self) -> int:
        """An isolated world of the main frame, for scripts of those who look at the page."""
        return await self._world(self._tab.target_id)

    async def _world(self, frame_id: str) -> int:
        """An isolated world for our scripts, whose built-ins the page cannot replace."""
        world = await self._tab.session.call(
            "Page.createIsolatedWorld", frameId=frame_id, worldName=_WORLD
        )
        context: int = world["executionContextId"]
        return context

    async def _options_for(
        self, settler: Settler, visit: Visit, options: SerializeOptions
    ) -> SerializeOptions:
        """The options with what only this page's scripts and policy tell."""
        if visit.has_policy:
            refused = await self._refused_styles()
            options = replace(options, has_policy=True, refused_styles=refused)
        if settler.attachments:
            options = replace(options, attached=await self._attached())
        return options

    async def _serialize(
        self, world: int, options: SerializeOptions, sheets: list[Any] | None
    ) -> dict[str, Any]:
        """The serializer's result. Raises SnapshotTooLarge."""
        session = self._tab.session
        result: dict[str, Any] = await session.evaluate(
            f"{serializer.SCRIPT}({options.as_json()}, {json.dumps(sheets)})", contextId=world
        )
        more = result.pop("more")
        if options.max_bytes and more * _PIECE_LENGTH > options.max_bytes:
            raise SnapshotTooLarge(f"more than {options.max_bytes} bytes", about=result["url"])
        pieces = [
            await session.evaluate(f"moreHtml[{number}]", contextId=world) for number in range(more)
        ]
        result["html"] = "".join([result["html"], *pieces])
        self._length = len(result["html"])
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in result.items()
        }

    async def _errors(
        self,
        complaints: Sequence[str],
        malformed: Sequence[str],
        visit: Visit,
        resources: Iterable[Resource],
    ) -> tuple[tuple[str, ...], str]:
        """The errors of the page's scripts and of the browser, and the first that ended a script or
        kept it from running, or ''."""
        # An ended script complains without a text.
        errors = (
            *(text for one in complaints if (text := one.removeprefix(probe.FATAL))),
            *(f"Malformed JSON: {url}" for url in malformed),
        )
        failure = next((one[1:] for one in complaints if one.startswith(probe.FATAL)), "")
        seen = {exchange.url for exchange in visit.requests.exchanges}
        unexplained = any(one.is_hidden and one.url not in seen for one in resources)
        if not (errors or unexplained or visit.has_policy):
            return errors, failure
        entries = await self._log_entries(seen)
        # The probe runs only in documents whose scripts run.
        if entries and not complaints and await self._is_without_scripts():
            failure = entries[0]
        return tuple(dict.fromkeys((*errors, *entries))), failure

    async def _faults(
        self, settler: Settler, visit: Visit
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the page complains about, and the URLs of needed data that it cannot parse."""
        complaints, urls = await self._complaints() if settler.complaints else ((), ())
        if visit.requests.depend_on_use:
            requests = visit.requests
            requests.note_unused(await probe.unused(self._tab.session, requests.of_workers))
        return complaints, tuple(filter(visit.requests.gave_data, urls))

    async def _complaints(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the probe reports of the page's scripts: their errors, and the URLs of what is no JSON.
        The page can put anything here."""
        try:
            lists = await self._tab.session.evaluate(probe.ERRORS)
        except CommandFailed:
            return (), ()
        match lists:
            case [str(errors), str(urls)]:
                return tuple(filter(None, errors.split("\0"))), tuple(
                    filter(None, urls.split("\0"))
                )
        return (), ()

    async def _is_without_scripts(self) -> bool:
        """Whether no script of the page has run."""
        try:
            return await self._tab.session.evaluate(probe.LATE) is True
        except CommandFailed:
            return False

    async def _log_entries(self, requested: Container[str]) -> list[str]:
        """What Chromium itself reports: mixed content, CORS, Content Security Policy, and requests that
        are not among the ``requested`` URLs. It collects its messages anyway, and is asked for them
        only after trouble."""
        entries: list[str] = []

        def add(params: dict[str, Any]) -> None:
            entry = params["entry"]
            # Failed requests are on record, but not those that the browser itself refused.
            known = entry["source"] == "network" and entry.get("url") in requested
            if entry["level"] == "error" and not known:
                where = (
                    f" ({entry['url']}:{entry.get('lineNumber', 0) + 1})" if "url" in entry else ""
                )
                entries.append(f"{entry['text']}{where}"[:_LONGEST_ENTRY])

        session = self._tab.session
        session.on("Log.entryAdded", add)
        with suppress(CommandFailed):
            await session.call("Log.enable", _STOP_SECONDS)
        session.remove_listener("Log.entryAdded", add)
        return entries[:_MOST_ENTRIES]

    async def _attached(self) -> list[Any]:
        """What scripts have attached to custom elements. The page can manipulate the result."""
        try:
            listed = await self._tab.session.evaluate(probe.ATTACHED)
        except CommandFailed:
            return []
        return [one for one in listed if _is_attached(one)] if isinstance(listed, list) else []

    async def _refused_styles(self) -> tuple[int, ...]:
        """The style attributes that the policy refuses. The page can manipulate the result."""
        try:
            listed = await self._tab.session.evaluate(probe.REFUSED_STYLES)
        except CommandFailed:
            return ()
        if not isinstance(listed, list):
            return ()
        return tuple(one for one in listed if isinstance(one, int) and one >= 0)

    async def _sheets(self) -> list[int | str] | None:
        """What scripts have modified (probe.SHEETS), or None if the page manipulates the result."""
        try:
            sheets = await self._tab.session.evaluate(probe.SHEETS)
        except CommandFailed:
            return None
        if not isinstance(sheets, list):
            return None
        return [one for one in sheets if isinstance(one, int | str)]

    @property
    def _renewing_seconds(self) -> float:
        """How long renewing may take: less after a long render, but at least a second."""
        return min(_RENEW_SECONDS, max(1.0, self._free_at - time.monotonic()))

    async def renew(self) -> None:
        """Be the next page in the same context, without any state of this one.

        Raises BrowserGone if the context cannot be used again.
        """
        try:
            async with asyncio.timeout(self._renewing_seconds) as limit:
                if self.context.process is not None:
                    self._renewing = limit, self.context.process.cpu_seconds() + _RENEW_CPU_SECONDS
                if self._visit and (reason := self._visit.remembered):
                    raise RenderError(reason)
                await self._tab.close()
                await self.context.clear()
                if self._length > _LARGE_LENGTH:
                    await self.context.collect_garbage()
                await self._open_tab()
                if self._visit:
                    await self.context.check_empty(str(self._visit.public.origin()))
        except (TimeoutError, RenderError) as error:
            self.broken = True
            raise BrowserGone(f"the context cannot be used again: {error!r}") from error
        finally:
            self._renewing = None

    async def close(self) -> None:
        """Close the page with its context. Safe to call twice. Ignores errors: it may be gone."""
        self.kill()
        await self._tab.frames.end()
        await self.context.close()

    def _crashed(self, _: dict[str, Any]) -> None:
        """Handle the death of its process. If it is idle, the pool must not use it any more."""
        self.broken = True

    def weigh(self) -> None:
        """Lower its priority if it uses much CPU time, and end it if it makes far too many requests.

        Call this often while the page is rendered and renewed.
        """
        if self.context.process is not None:
            self.context.process.weigh()
            if self._renewing and self.context.process.cpu_seconds() > self._renewing[1]:
                limit, self._renewing = self._renewing[0], None
                if not limit.expired():
                    limit.reschedule(0.0)
        visit = self._visit
        if visit is not None and visit.usage.requests > _FLOOD * visit.usage.limits.max_requests:
            self._end(f"more than {_FLOOD} times max_requests = {visit.usage.limits.max_requests}")

    def _end(self, reason: str) -> None:
        """End the page's process. Its render fails with the reason."""
        if not self._over_limit:
            self._over_limit = reason
            self.kill()

    def kill(self) -> None:
        """Kill the page at once, whatever it or the browser is doing."""
        self.broken = True
        if self.context.process is not None:
            self.context.process.kill()

    def _frame_attached(self, _: dict[str, Any]) -> None:
        self._tab.inner_frames += 1
        if self._tab.inner_frames > _MAX_FRAMES:
            # Immediately: the browser drops pending work of the page with it.
            self._end(f"more than {_MAX_FRAMES} frames")

    def _count_url(self, params: dict[str, Any]) -> None:
        self._urls_length += len(params["url"])
        if self._urls_length > _MAX_URLS_LENGTH:
            self._end(f"more than {_MAX_URLS_LENGTH} characters of URLs")


def _is_attached(value: object) -> bool:
    match value:
        case [int(), [*attributes], [*states]]:
            pairs = all(
                isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair)
                for pair in attributes
            )
            return pairs and all(isinstance(state, str) for state in states)
    return False
