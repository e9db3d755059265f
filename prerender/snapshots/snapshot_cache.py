"""The snapshot cache: which snapshot is served, when it is renewed, and what may replace it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

import structlog

from prerender.errors import (
    EmptyPage,
    IncompletePage,
    NotRenderable,
    OriginError,
    PrerenderError,
    RenderError,
)
from prerender.http.encodings import encoded
from prerender.snapshots import steady_clock
from prerender.snapshots.entry import Entry
from prerender.snapshots.freshness import (
    DOUBT_SECONDS,
    MOST_REFUSALS,
    Freshness,
    Servable,
    due_at,
    is_fresh,
    worse_than,
)
from prerender.snapshots.renewals import Renewals, Revalidation, RevalidationResult
from prerender.snapshots.repeated_faults import RepeatedFaults
from prerender.snapshots.request_coalescing import Coalesced
from prerender.snapshots.retries import Retries
from prerender.snapshots.snapshot import UNUSABLE, CacheResult, Snapshot, SnapshotResult, Snapshots
from prerender.snapshots.stores.store import Lease, Store
from prerender.snapshots.target import Target

_UNTRIED = RevalidationResult("untried")
_HIT = CacheResult.HIT  # slow to look up

# Called with a target, the entry that a snapshot replaces, and the snapshot.
BeforeStoring = Callable[[Target, Entry | None, Snapshot], Awaitable[None]]

log = structlog.get_logger(__name__)


class Outlook(NamedTuple):
    """What the cache would do for a target at ``now`` (Unix seconds). For /explain.

    ``ttl``: the ordinary TTL in seconds; 0: not stored. ``shown``: how the ``entry`` would be served,
    None if it would not; ``renewed``: whether a new one would be rendered meanwhile; ``rendering``:
    whether a render is running. ``why_rendered``: why the entry is not renewed without rendering.
    """

    ttl: float
    entry: Entry | None
    now: float
    shown: Servable | None
    renewed: bool
    rendering: bool
    why_rendered: str = ""


class CachedSnapshots:
    """Caches the snapshots of ``inner`` in ``store``, with one render per target at a time.

    ``wait_seconds``: maximum wait for the render of another replica, in seconds. ``refreshes``: maximum
    concurrent renders of stale snapshots. ``serve_incomplete``: serve a page whose own data is missing
    if there is no good snapshot (it is never stored); otherwise that is an error.
    Expired entries stay in the store, to compare new content with: equal content keeps its validators.
    """

    def __init__(
        self,
        inner: Snapshots,
        store: Store,
        freshness: Freshness,
        wait_seconds: float,
        *,
        refreshes: int = 4,
        clock: Callable[[], float] = steady_clock.now,
        serve_incomplete: bool = False,
    ) -> None:
        self._inner = inner
        self._store = store
        self._freshness = freshness
        self._wait_seconds = wait_seconds
        self._refreshes = refreshes
        self._refreshing = 0
        self._ahead: set[asyncio.Task[SnapshotResult]] = set()
        self._before_storing: list[BeforeStoring] = []
        self._clock = clock
        self._when_stored: list[Callable[[Target, Snapshot | None, Snapshot], None]] = []
        self._serve_incomplete = serve_incomplete
        # Renews snapshots without rendering; set by an extension.
        self.revalidation: Revalidation | None = None
        self._renders: Coalesced[SnapshotResult] = Coalesced(lambda: store.purges.generation)
        self._retries = Retries(self._refresh_soon)
        self.repeated_faults = RepeatedFaults()

    def when_stored(self, call: Callable[[Target, Snapshot | None, Snapshot], None]) -> None:
        """Call ``call`` for each stored snapshot with its target, the previous snapshot (None if there
        was none) and the new one."""
        self._when_stored.append(call)

    def before_storing(self, call: BeforeStoring) -> None:
        """Await ``call`` before each snapshot is stored."""
        self._before_storing.append(call)

    def fresh(self, target: Target) -> SnapshotResult | None:
        """The stored snapshot if it is in memory and fresh. Takes microseconds: the common case."""
        now = self._clock()
        entry = self._store.peek(target.key, now)
        if entry is None or not is_fresh(entry.expires, now):
            return None
        self._store.memory_hits += 1
        return SnapshotResult(entry.snapshot, _HIT, age=now - entry.stored, ttl=entry.expires - now)

    async def snapshot(self, target: Target) -> SnapshotResult:
        """A stored or new snapshot. Raises RenderError, OriginError or NotRenderable."""
        if result := self.fresh(target):
            return result
        if result := await self._servable(target):
            return result
        # A render that began before a purge may lack what the site has changed. Only its end shows
        # whether the purge applies to it: a page sets its tags.
        if outdated := await self._renders.outdated_ended(target.key):
            if result := await self._servable(target):
                return result
            if self._counts(target, *outdated):
                return _joined(outdated[0].result())
        if not self._freshness.ordinary(target.path):
            return await self._shared(target, lambda: self._render_only(target))
        return await self._shared(
            target, lambda: self._render_if_nobody_does(target, self._wait_seconds)
        )

    def _counts(self, target: Target, ended: asyncio.Task[SnapshotResult], generation: int) -> bool:
        """Whether no purge since a generation applies to the result, or the error, of a render."""
        if ended.cancelled():
            return False
        snapshot = None if ended.exception() else ended.result().snapshot
        return not self._store.purges.concern(target.path, snapshot, generation)

    async def _servable(self, target: Target) -> SnapshotResult | None:
        """The stored snapshot if it may be served. It is renewed in the background if it is due."""
        if not self._freshness.ordinary(target.path):
            return None
        old = await self._store.get(target.key)
        if old is None:
            return None
        now = self._clock()
        if self._freshness.renewed(old, now):
            self._refresh_soon(target)
        shown = self._freshness.shown(old, now)
        if shown is None:
            return None
        if shown == "fresh":
            return self._stored(old, now, CacheResult.HIT)
        return self._stored(old, now, CacheResult.STALE, shown)

    def begin(self, target: Target) -> None:
        """The render of a target has got a page: it is finished even if all clients leave."""
        self._renders.begin(target.key)

    async def renew(self, target: Target) -> SnapshotResult:
        """Render a new snapshot, even if a fresh one is stored. It is judged and stored as usual.

        A running render is awaited first: it may have begun before what the caller knows of.
        Raises RenderError, OriginError or NotRenderable.
        """
        await self._renders.ended(target.key)
        if not self._freshness.ordinary(target.path):
            return await self._shared(target, lambda: self._render_only(target))
        return await self._shared(target, lambda: self._render_anyway(target))

    async def _render_only(self, target: Target) -> SnapshotResult:
        return self._shown_once(target, await self._made(target))

    async def _made(self, target: Target) -> SnapshotResult:
        """A new result of ``inner``, whose detail is the verdict about it."""
        result = await self._inner.snapshot(target)
        verdict = result.snapshot.facts.verdict
        return replace(result, detail="" if verdict == "complete" else verdict)

    def _shown_once(self, target: Target, result: SnapshotResult) -> SnapshotResult:
        """A result that is served but not stored. Raises IncompletePage unless it may be shown."""
        facts = result.snapshot.facts
        if facts.unusable and not self._serve_incomplete:
            raise IncompletePage(facts.why, facts.verdict, about=target.url)
        return result

    async def _render_anyway(self, target: Target) -> SnapshotResult:
        async with self._store.lease(target.key, self._wait_seconds) as lease:
            return await self._render(target, lease)

    async def outlook(self, target: Target) -> Outlook:
        """What the cache would do for a target now, without doing it."""
        ttl = self._freshness.ordinary(target.path)
        entry = await self._store.get(target.key) if ttl else None
        now = self._clock()
        shown = None if entry is None else self._freshness.shown(entry, now)
        renewed = entry is not None and self._freshness.renewed(entry, now)
        why = ""
        if self.revalidation is not None and entry is not None:
            why = self.revalidation.why_rendered(target.url, entry, now)
        return Outlook(ttl, entry, now, shown, renewed, self._renders.runs(target.key), why)

    @property
    def refreshing(self) -> int:
        """The number of snapshots that are being renewed in the background."""
        return self._refreshing + len(self._ahead)

    async def close(self) -> None:
        """Cancel running renders."""
        self._retries.close()
        await self._renders.close()

    def _stored(
        self, entry: Entry, now: float, how: CacheResult, detail: str = ""
    ) -> SnapshotResult:
        age = max(0.0, now - entry.stored)
        return SnapshotResult(
            entry.snapshot,
            how,
            age=age,
            ttl=entry.expires - now,
            detail=detail,
        )

    async def _shared(
        self, target: Target, work: Callable[[], Coroutine[Any, Any, SnapshotResult]]
    ) -> SnapshotResult:
        result, joined = await self._renders.run(target.key, work)
        return _joined(result) if joined else result

    def refresh_ahead(self, target: Target, before: float) -> asyncio.Task[SnapshotResult] | None:
        """Render a snapshot again ``before`` seconds before it expires, in the background.

        The result is "coalesced" if another replica does or has. None if the target is being rendered.
        """
        return self._start_ahead(target, lambda: self._render_if_nobody_does(target, 0, before))

    def render_since(self, target: Target, since: float) -> asyncio.Task[SnapshotResult] | None:
        """Render in the background, unless a fresh snapshot was rendered at ``since`` (Unix seconds) or
        later; then the result is "coalesced". None if the target is being rendered."""
        wait = self._wait_seconds
        return self._start_ahead(
            target, lambda: self._render_if_nobody_does(target, wait, since=since)
        )

    def _start_ahead(
        self, target: Target, work: Callable[[], Coroutine[Any, Any, SnapshotResult]]
    ) -> asyncio.Task[SnapshotResult] | None:
        if self._renders.runs(target.key):
            return None
        task = self._renders.start(target.key, work)
        self._ahead.add(task)
        task.add_done_callback(self._ahead.discard)
        return task

    def cancel_refresh(self, key: str) -> bool:
        """Cancel a background render, unless a client waits for it. Returns whether it did."""
        return self._renders.stop(key)

    def _refresh_soon(self, target: Target) -> bool:
        """Render in the background. Returns False if too many background renders are running.

        Skipped targets are tried again with the next request, so popular pages are renewed first, and
        new pages find room in the browser.
        """
        if self._renders.runs(target.key) or self._refreshing >= self._refreshes:
            return False
        self._refreshing += 1
        self._renders.start(target.key, lambda: self._refresh(target))
        return True

    async def _refresh(self, target: Target) -> SnapshotResult:
        failed = True
        try:
            result = await self._render_if_nobody_does(target, 0)
            failed = result.how is CacheResult.KEPT
        except NotRenderable as reason:
            failed = reason.origin_failed
            raise
        finally:
            self._refreshing -= 1
            self._retries.ended(target, failed=failed)
        return result

    async def _render_if_nobody_does(
        self, target: Target, wait_seconds: float, before: float = 0.0, since: float = 0.0
    ) -> SnapshotResult:
        """Render, or wait up to ``wait_seconds`` for the render of another replica.

        ``before``: render also if the stored snapshot is due so many seconds before it expires, or was
        rendered before ``since``.
        """
        async with self._store.lease(target.key, wait_seconds) as lease:
            # The previous holder, or another task of this process, may have stored a snapshot.
            now = self._clock()
            left_to_others = lease.fence is None and not wait_seconds
            entry = lease.entry
            is_new = entry is not None and entry.rendered >= since
            if entry is not None and (
                (is_new and is_fresh(due_at(entry, before), now)) or left_to_others
            ):
                return self._stored(entry, now, CacheResult.COALESCED)
            revalidated = _UNTRIED
            if self.revalidation is not None and entry is not None and is_new:
                revalidated = await self.revalidation.ask(target, entry, now, lease.generation)
                if revalidated.result == "same" and (renewed := await self._renewed(target, lease)):
                    return renewed
            return await self._render(target, lease, revalidated)

    async def _renewed(self, target: Target, lease: Lease) -> SnapshotResult | None:
        """The stored snapshot for another TTL, unless it has been purged meanwhile."""
        old = await self._store.current(target.key, lease.entry)
        if old is None or old.renewals is None or self.revalidation is None:
            return None
        now = self._clock()
        ttl = min(
            self._freshness.lifetime(target.path, old.snapshot, doubt=False),
            old.rendered + self.revalidation.max_age - now,
        )
        if ttl <= 0:
            return None
        renewals = replace(old.renewals, count=old.renewals.count + 1, futile=0)
        entry = replace(
            old,
            stored=now,
            expires=now + ttl,
            retry=0.0,
            refusals=0,
            generation=lease.generation,
            fence=lease.fence or 0,
            renewals=renewals,
        )
        if not await self._store.set(entry, self._freshness.storage_seconds(ttl)):
            return None
        return replace(
            self._stored(entry, now, CacheResult.REVALIDATED, "revalidated"), stored=True
        )

    async def _render(
        self, target: Target, lease: Lease, revalidated: RevalidationResult = _UNTRIED
    ) -> SnapshotResult:
        began = self._clock()
        try:
            result = await self._made(target)
        except NotRenderable as reason:
            if not reason.origin_failed:
                # It is no longer a page.
                await self._store.delete(target.key)
                raise
            return await self._despite(reason, target, lease)
        except (RenderError, OriginError) as error:
            if isinstance(error, EmptyPage):
                self._retries.failed(target)
            return await self._despite(error, target, lease)
        return await self._keep(result, target, lease, revalidated, began)

    async def _despite(self, error: PrerenderError, target: Target, lease: Lease) -> SnapshotResult:
        """Serve the old snapshot after a failed render. Raises ``error`` if it is too old."""
        old = await self._store.current(target.key, lease.entry)
        if old is None or not self._freshness.good_on_error(old, self._clock()):
            raise error
        log.warning("snapshot_not_renewed", url=target.url, reason=str(error))
        return await self._stay(old, lease, "failed")

    async def _stay(self, old: Entry, lease: Lease, why: str) -> SnapshotResult:
        """Keep the old snapshot, and note when to try again."""
        now = self._clock()
        old = replace(old, retry=now + DOUBT_SECONDS, fence=max(old.fence, lease.fence or 0))
        await self._store.set(old, self._freshness.storage_seconds())
        return self._stored(old, now, CacheResult.KEPT, why)

    async def _keep(
        self,
        result: SnapshotResult,
        target: Target,
        lease: Lease,
        revalidated: RevalidationResult,
        began: float,
    ) -> SnapshotResult:
        """Store a new snapshot in place of the old one, if it is good enough. ``began``: its render."""
        snapshot = result.snapshot
        old = await self._store.current(target.key, lease.entry)
        now = self._clock()
        if snapshot.facts.unusable:
            before = None if old is None else old.snapshot
            if await self.repeated_faults.confirm(target.key, snapshot, now, before):
                # Like a missing file: another render would be the same.
                snapshot = replace(snapshot, facts=replace(snapshot.facts, lasting=True))
                result = replace(result, snapshot=snapshot)
        else:
            self.repeated_faults.forget(target.key)
        if snapshot.facts.verdict in UNUSABLE:
            self._retries.failed(target)
        else:
            self._retries.succeeded(target)
        if old is not None and (refused := self._refused(old, snapshot, now)):
            log.warning("snapshot_not_replaced", url=target.url, reason=refused)
            old_result = await self._stay(replace(old, refusals=old.refusals + 1), lease, refused)
            return replace(old_result, timings=result.timings)
        if snapshot.facts.unusable:
            return self._shown_once(target, result)
        same = old is not None and old.snapshot.etag == snapshot.etag
        if same and old is not None:
            snapshot = replace(snapshot, last_modified=old.snapshot.last_modified)
        # A repeated result is not in doubt any more.
        ttl = self._freshness.lifetime(target.path, snapshot, doubt=not same)
        if not ttl:
            if old is not None and not snapshot.facts.unfinished:
                # It may no longer be stored, or it is gone.
                await self._store.delete(target.key)
            return replace(result, snapshot=snapshot)
        snapshot = await self._with_codings(snapshot, old)
        snapshot, renewals = await self._with_renewals(target, old, snapshot, revalidated, began)
        for observer in self._before_storing:
            await observer(target, old, snapshot)
        entry = Entry(
            target.key,
            target.path,
            snapshot,
            # What the site has changed since then may be missing in it.
            stored=began,
            expires=now + ttl,
            generation=lease.generation,
            fence=lease.fence or 0,
            variant=target.variant,
            renewals=renewals,
        )
        if not await self._store.set(entry, self._freshness.storage_seconds(ttl)):
            return replace(result, snapshot=snapshot)
        self._report(target, None if old is None else old.snapshot, snapshot)
        # A CDN that was purged during the render must not keep what the proxy does not keep.
        left = await self._store.current(target.key, entry)
        ttl = 0.0 if left is None or left.expires < entry.expires else ttl
        return replace(result, snapshot=snapshot, stored=left is not None, ttl=ttl)

    def _report(self, target: Target, before: Snapshot | None, snapshot: Snapshot) -> None:
        for observer in self._when_stored:
            observer(target, before, snapshot)

    async def _with_renewals(
        self,
        target: Target,
        old: Entry | None,
        snapshot: Snapshot,
        revalidated: RevalidationResult,
        began: float,
    ) -> tuple[Snapshot, Renewals | None]:
        """The snapshot as it is stored, with what is known about renewing it without rendering."""
        if self.revalidation is None:
            return snapshot, None
        return await self.revalidation.after_render(target, old, snapshot, revalidated, began)

    async def _with_codings(self, snapshot: Snapshot, old: Entry | None) -> Snapshot:
        """Compress the snapshot in another thread, or reuse the codings of the old one."""
        if old is not None and old.snapshot.body == snapshot.body:
            return replace(snapshot, encoded=old.snapshot.encoded)
        return replace(snapshot, encoded=await asyncio.to_thread(encoded, snapshot.body))

    def _refused(self, old: Entry, new: Snapshot, now: float) -> str:
        """Why a new snapshot must not replace the old one, or ''."""
        if not self._freshness.good_on_error(old, now):
            return ""
        worse = worse_than(old.snapshot, new)
        always = new.facts.unfinished or new.status >= 500
        return worse if always or old.refusals < MOST_REFUSALS else ""


def _joined(result: SnapshotResult) -> SnapshotResult:
    """The result for those who have not begun its render."""
    if result.how is CacheResult.MISS:
        return replace(result, how=CacheResult.COALESCED)
    return result
