"""Asks for the inputs of stored snapshots again, and checks by rendering what their sameness means.

The document comes first; the first difference ends it. What was fetched of the document is kept for the
render that follows.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from http import HTTPStatus

import structlog
from aiohttp import ClientError, ClientResponse
from cachetools import LRUCache, TTLCache

from prerender.background import cancel_all
from prerender.config.settings import NetworkSettings
from prerender.errors import NotRenderable, PrerenderError
from prerender.extensions.revalidation import schedule
from prerender.extensions.revalidation.eligibility import UnrenewableReason, explained, why_rendered
from prerender.extensions.revalidation.maker import Maker
from prerender.extensions.revalidation.manifest import (
    BadManifest,
    Fingerprint,
    Input,
    Manifest,
    decode,
    difference,
    encode,
    fingerprint_of,
    fingerprint_of_document,
    has_changed,
    without_volatile,
)
from prerender.extensions.revalidation.sections import Sections
from prerender.gateway.address_policy import Forbidden
from prerender.gateway.assets import AssetStore
from prerender.gateway.egress import Egress
from prerender.gateway.page_usage import LimitReached
from prerender.gateway.received import Digest, ReceivedResponse
from prerender.http import caching
from prerender.http.hop_by_hop import end_to_end
from prerender.http.trace_context import CURRENT
from prerender.rendering.renderer import Renderer
from prerender.snapshots import steady_clock
from prerender.snapshots.renewals import Renewals, RevalidationResult, StoredSnapshot
from prerender.snapshots.sameness import same_content
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.stores.notes import Notes
from prerender.snapshots.target import Target

# Requests of one page at once: browsers open six connections to a server.
_AT_ONCE = 6
# Snapshots at once for each page of the browser: most have few inputs.
_PER_PAGE = 3
# An answer about an input also counts for other pages that need it within this time.
_SHARED_SECONDS = 2.0
_MOST_SHARED = 5000
_MOST_ASSET_LISTS = 200
# How long the assets of a page stay in the notes without being stored again.
_NOTE_SECONDS = 8 * 86400.0
_NOTE_AGAIN_SECONDS = 6 * 3600.0
_NOTE = "inputs:"
_LONGEST_REASON = 300
# The results of checks: the same; another content; the same, but from other requests.
CHECKS = ("confirmed", "wrong", "unsteady")


log = structlog.get_logger(__name__)


class _Differs(Exception):
    """An input differs: ``what`` of the response to which request."""

    def __init__(self, what: str, url: str) -> None:
        super().__init__(f"{what} {url}"[:_LONGEST_REASON])
        self.what = what


class Revalidator:
    """Asks through ``egress`` and with the ``assets`` of pages, within the ``limits`` of a render.

    ``seconds``: time limit for all inputs of a snapshot. Requests are not more at once than those of
    ``pages`` in a browser.
    ``results``: by result and reason; ``checks``: by result.
    """

    def __init__(
        self,
        egress: Egress,
        assets: AssetStore,
        limits: NetworkSettings,
        documents: Renderer,
        *,
        maker: Maker,
        notes: Notes,
        seconds: float,
        pages: int,
        max_age: float,
        clock: Callable[[], float] = steady_clock.now,
    ) -> None:
        self._egress = egress
        self._assets = assets
        self._limits = limits
        self._documents = documents
        self._maker = maker
        self._notes = notes
        self._seconds = seconds
        self._snapshots = asyncio.Semaphore(_PER_PAGE * pages)
        self._requests = asyncio.Semaphore(_AT_ONCE * pages)
        self.max_age = max_age
        self.sections = Sections(clock)
        self.results: Counter[tuple[str, str]] = Counter({("same", ""): 0})
        self.checks: Counter[str] = Counter(dict.fromkeys(CHECKS, 0))
        self._shared: TTLCache[tuple[Input, int], asyncio.Future[str]] = TTLCache(
            _MOST_SHARED, _SHARED_SECONDS, timer=time.monotonic
        )
        self._lists: LRUCache[str, tuple[Input, ...]] = LRUCache(_MOST_ASSET_LISTS)
        self._noted: LRUCache[str, float] = LRUCache(_MOST_ASSET_LISTS)

    async def ask(
        self, target: Target, old: StoredSnapshot, now: float, generation: int
    ) -> RevalidationResult:
        """Ask for the inputs of a snapshot again."""
        state = old.renewals
        if why := self._why_rendered(target.url, old, now):
            revalidated = RevalidationResult("untried", why)
        elif state is None or schedule.is_check_due(state, now, self.max_age):
            # The manifest of the render will show whether the inputs are the same.
            revalidated = RevalidationResult("check")
        else:
            before = CURRENT.get()
            if before is not None and before.own:
                # Nothing of the client's request may reach the origin, as in a render.
                CURRENT.set(before.successor())
            try:
                revalidated = await self._compared(target, old.snapshot, generation)
            finally:
                CURRENT.set(before)
        if revalidated.result == "same":
            self._documents.forget(target)
        self.results[revalidated.result, revalidated.reason.partition(" ")[0]] += 1
        log.debug(
            "revalidated", url=target.url, result=revalidated.result, reason=revalidated.reason
        )
        return revalidated

    def why_rendered(self, url: str, old: StoredSnapshot, now: float) -> str:
        """Why a snapshot is not renewed without rendering, in words; or ''."""
        code = self._why_rendered(url, old, now)
        return explained(code) if code else ""

    def _why_rendered(self, url: str, old: StoredSnapshot, now: float) -> str:
        return why_rendered(old, now) or (
            UnrenewableReason.SECTION if self.sections.is_suspended(url) else ""
        )

    async def _compared(
        self, target: Target, snapshot: Snapshot, generation: int
    ) -> RevalidationResult:
        try:
            async with self._snapshots, asyncio.timeout(self._seconds):
                manifest = await self._whole(snapshot.manifest)
                if manifest.maker != self._maker.name:
                    return RevalidationResult("doubt", "maker")
                await self._compare(target, manifest, generation)
        except _Differs as differs:
            return RevalidationResult(
                "headers" if differs.what == "headers" else "changed", str(differs)
            )
        except NotRenderable:
            return RevalidationResult("changed", f"status {target.url}")
        except (
            PrerenderError,
            Forbidden,
            BadManifest,
            ClientError,
            OSError,
            TimeoutError,
        ) as error:
            return RevalidationResult("doubt", f"error {error}"[:_LONGEST_REASON])
        return RevalidationResult("same")

    async def _compare(self, target: Target, manifest: Manifest, generation: int) -> None:
        """Raises _Differs for the first difference."""
        document = await self._documents.fetch_ahead(target)
        if what := difference(manifest.document, fingerprint_of_document(document)):
            raise _Differs(what, target.url)
        budget = _Budget(self._limits)
        unknown = [one for one in manifest.all if not self._is_known(one, generation)]
        left = iter(unknown)

        async def work() -> None:
            for one in left:
                await self._check(one, generation, budget)

        workers = [
            asyncio.create_task(work(), name=f"inputs of {target.url}") for _ in unknown[:_AT_ONCE]
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            await cancel_all(workers)

    def _is_known(self, page_input: Input, generation: int) -> bool:
        """Whether an input was asked for just now, or is fresh in the asset cache. Raises _Differs."""
        known = self._shared.get((page_input.of_any_page, generation))
        if known is not None:
            if known.done() and known.result():
                raise _Differs(known.result(), page_input.url)
            return known.done()
        headers = page_input.request_headers
        if not caching.may_be_shared(page_input.method, headers) or caching.demands_validation(
            headers
        ):
            return False
        stored = self._assets.find(page_input.url, headers)
        if stored is None or not stored.is_fresh(time.monotonic()):
            return False
        now = fingerprint_of(ReceivedResponse(HTTPStatus.OK, stored.headers, stored.digest))
        if what := difference(page_input.fingerprint, now):
            raise _Differs(what, page_input.url)
        self._share(page_input, generation).set_result("")
        return True

    def _share(self, page_input: Input, generation: int) -> asyncio.Future[str]:
        future = asyncio.get_running_loop().create_future()
        self._shared[page_input.of_any_page, generation] = future
        return future

    async def _check(self, page_input: Input, generation: int, budget: "_Budget") -> None:
        """Ask for an input, or wait until another page has. Raises _Differs."""
        while (future := self._shared.get((page_input.of_any_page, generation))) is not None:
            await asyncio.wait([future])
            if not future.cancelled():
                what = future.result()
                break
        else:
            future = self._share(page_input, generation)
            try:
                what = await self._ask(page_input, budget)
            except BaseException:
                self._shared.pop((page_input.of_any_page, generation), None)
                future.cancel()
                raise
            future.set_result(what)
        if what:
            raise _Differs(what, page_input.url)

    async def _ask(self, page_input: Input, budget: "_Budget") -> str:
        """What of the response differs now, or ''. Raises OriginError and Forbidden."""
        headers = page_input.request_headers
        conditions = page_input.conditions
        headers.update(conditions)
        async with (
            self._requests,
            asyncio.timeout(self._limits.request_timeout),
            self._egress.repeat(
                page_input.method, page_input.url, headers, page_input.body.encode() or None
            ) as repeated,
        ):
            response, own = repeated
            if response.status == HTTPStatus.NOT_MODIFIED and conditions:
                self._renew_asset(page_input, response)
                return ""
            response_headers = end_to_end(response.headers)
            self._egress.publish(response_headers, own=own)
            digest = await _digest(response, budget)
        return difference(
            page_input.fingerprint,
            fingerprint_of(ReceivedResponse(response.status, response_headers, digest)),
        )

    def _renew_asset(self, page_input: Input, response: ClientResponse) -> None:
        """Spare the next render that needs it the same question."""
        headers = page_input.request_headers
        if not caching.may_be_shared(page_input.method, headers) or caching.is_personal(
            response.headers
        ):
            return
        stored = self._assets.find(page_input.url, headers)
        if stored is not None and stored.digest == page_input.fingerprint.digest:
            renewed = caching.refreshed(stored, response.headers, time.time(), time.monotonic())
            self._assets.put(page_input.url, renewed)

    async def after_render(
        self,
        target: Target,
        old: StoredSnapshot | None,
        new: Snapshot,
        revalidated: RevalidationResult,
        now: float,
    ) -> tuple[Snapshot, Renewals]:
        """What to store of a new snapshot: its manifest, and what ``revalidated`` has meant."""
        state = None if old is None else old.renewals
        if not new.manifest:
            return new, schedule.unchecked(state, now)
        manifest = decode(new.manifest)
        after = schedule.unchecked(state, now)
        if old is not None and state is not None and old.snapshot.manifest:
            try:
                before = await self._whole(old.snapshot.manifest)
            except BadManifest:
                before = None
            if before is not None and revalidated.result not in ("doubt", "untried"):
                same = await asyncio.to_thread(same_content, old.snapshot, new)
                settles = same and revalidated.result in ("check", "headers")
                known = without_volatile(before, manifest, confirmed=settles)
                after = self._judged(target, state, revalidated, before, known, same=same, now=now)
                manifest = known
        return replace(new, manifest=await self._stored(manifest)), after

    def _judged(
        self,
        target: Target,
        state: Renewals,
        revalidated: RevalidationResult,
        before: Manifest,
        after: Manifest,
        *,
        same: bool,
        now: float,
    ) -> Renewals:
        """The state after a render, and counts the check."""
        changed = has_changed(without_volatile(after, before, confirmed=False), after)
        if revalidated.result != "check" or changed:
            if not same:
                return schedule.changed(state, now)
            if revalidated.result == "changed" or changed:
                return schedule.futile(state, now, UnrenewableReason.FUTILE)
            return schedule.confirmed(state, now)
        requests, others = ({one.key for one in it.inputs} for it in (before, after))
        if same and requests == others:
            self.checks["confirmed"] += 1
            self.sections.checked(target.url, confirmed=True)
            return schedule.confirmed(state, now)
        self.checks["unsteady" if same else "wrong"] += 1
        self.sections.checked(target.url, confirmed=False)
        reason = UnrenewableReason.REQUESTS if requests != others else UnrenewableReason.WRONG
        log.info("revalidation_suspended", url=target.url, reason=reason.text, same_content=same)
        return schedule.wrong(now, reason)

    async def _stored(self, manifest: Manifest) -> bytes:
        """The manifest in its stored form, after its assets have been stored under their name."""
        if not manifest.assets:
            return encode(manifest)
        data = encode(Manifest("", Fingerprint(0, "", ()), manifest.assets))
        name = blake2b(data, digest_size=16).hexdigest()
        if self._noted.get(name, 0.0) < time.monotonic():
            await self._notes.set(_NOTE + name, data, _NOTE_SECONDS)
            self._noted[name] = time.monotonic() + _NOTE_AGAIN_SECONDS
        return encode(replace(manifest, assets_name=name))

    async def _whole(self, data: bytes) -> Manifest:
        """A stored manifest with its assets. Raises BadManifest."""
        manifest = decode(data)
        if not (name := manifest.assets_name):
            return manifest
        if (assets := self._lists.get(name)) is None:
            note = await self._notes.get(_NOTE + name)
            if note is None or blake2b(note, digest_size=16).hexdigest() != name:
                self._noted.pop(name, None)
                raise BadManifest("its assets are not in the store any more")
            assets = self._lists[name] = decode(note).inputs
        return replace(manifest, assets=assets)


class _Budget:
    """The bytes that the responses of a page may have."""

    def __init__(self, limits: NetworkSettings) -> None:
        self._limits = limits
        self._received = 0

    def spend(self, size: int, of_one: int) -> None:
        """Raises LimitReached."""
        self._received += size
        limits = self._limits
        if self._received > limits.max_bytes or of_one > limits.max_response_bytes:
            raise LimitReached("limit reached: [network] max_bytes or max_response_bytes")


async def _digest(response: ClientResponse, budget: _Budget) -> str:
    """Read a response. Raises ClientError, OSError and LimitReached."""
    digest, size = Digest(), 0
    async for part in response.content.iter_any():
        size += len(part)
        budget.spend(len(part), size)
        digest.update(part)
    return str(digest)
