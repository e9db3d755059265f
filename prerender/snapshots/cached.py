"""Snapshots kept for a time: which is shown, when it is made anew, and what replaces it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

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
from prerender.snapshots import clock as steady
from prerender.snapshots.coalesced import Coalesced
from prerender.snapshots.entry import Entry
from prerender.snapshots.freshness import (
    DOUBT_SECONDS,
    MOST_REFUSALS,
    Freshness,
    worse_than,
)
from prerender.snapshots.purges import Purge
from prerender.snapshots.retries import Retries
from prerender.snapshots.snapshot import UNUSABLE, Snapshot, SnapshotResult, Snapshots, Target
from prerender.snapshots.stores.store import Lease, Store

Shown = Literal["fresh", "stale", "stale-if-error"]
log = structlog.get_logger(__name__)


class Outlook(NamedTuple):
    """What would be done for a target at the time ``now`` (Unix seconds).

    ``ttl``: how long its snapshots are fresh, in seconds, if nothing is the matter; 0: none is kept.
    ``shown``: as what the ``entry`` of the store would be shown, None if it would not; ``renewed``:
    whether a new one would be made meanwhile; ``rendering``: whether one is being made just now.
    """

    ttl: float
    entry: Entry | None
    now: float
    shown: Shown | None
    renewed: bool
    rendering: bool


class CachedSnapshots:
    """Keeps the snapshots of ``inner`` in ``store``; renders each once at a time.

    ``patience``: how many seconds a render may take, and so how long it is waited for if somebody else
    makes it. ``refreshes``: how many stale ones are renewed at once. ``popular``: targets in the order
    in which they are renewed after a deploy. An entry stays in the store past its time, because what
    comes next is compared with it: the same content keeps its validators.
    ``kept`` is told of each new snapshot that was stored: its target, and the entity-tags of the one
    before ('' if there was none) and of itself. ``serve_incomplete``: a page whose own data is missing
    is shown where there is no good snapshot, but never stored; without it that is an error.
    """

    def __init__(
        self,
        inner: Snapshots,
        store: Store,
        freshness: Freshness,
        patience: float,
        *,
        refreshes: int = 4,
        popular: Callable[[], Iterable[Target]] = tuple,
        clock: Callable[[], float] = steady.now,
        kept: Callable[[Target, str, str], None] = lambda *_: None,
        serve_incomplete: bool = False,
    ) -> None:
        self._inner = inner
        self._store = store
        self._freshness = freshness
        self._patience = patience
        self._refreshes = refreshes
        self._refreshing = 0
        self._popular = popular
        self._renewal: asyncio.Task[None] | None = None
        self._renewed_fingerprint = ""
        self._clock = clock
        self._kept = kept
        self._serve_incomplete = serve_incomplete
        self._renders: Coalesced[SnapshotResult] = Coalesced()
        self._retries = Retries(self._refresh_soon)

    def fresh(self, target: Target) -> SnapshotResult | None:
        """The kept snapshot if it is fresh. Costs microseconds: most requests end here."""
        now = self._clock()
        entry = self._store.peek(target.key, now)
        if entry is None or entry.expires <= now:
            return None
        self._store.memory_hits += 1
        return SnapshotResult(
            entry.snapshot, "hit", age=now - entry.stored, ttl=entry.expires - now
        )

    async def snapshot(self, target: Target) -> SnapshotResult:
        """A kept snapshot or a new one. Raises RenderError, OriginError or NotRenderable."""
        if result := self.fresh(target):
            return result
        if not self._freshness.ordinary(target.path):
            return await self._shared(target, lambda: self._render_only(target))
        old = await self._store.get(target.key)
        if old is not None:
            now = self._clock()
            shown = self._shown(old, now)
            if self._is_renewed(old, shown, now):
                self._refresh_soon(target)
            if shown is not None:
                return self._hit(old, now, "" if shown == "fresh" else shown)
        return await self._shared(
            target, lambda: self._render_if_nobody_does(target, self._patience)
        )

    async def renew(self, target: Target) -> SnapshotResult:
        """A new snapshot, whatever is kept; it is judged and kept like all others.

        Raises RenderError, OriginError or NotRenderable.
        """
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
        """An result that is not stored. Raises IncompletePage unless it may be shown."""
        facts = result.snapshot.facts
        if facts.unusable and not self._serve_incomplete:
            raise IncompletePage(f"{target.url}: {facts.why}", facts.verdict)
        return result

    async def _render_anyway(self, target: Target) -> SnapshotResult:
        async with self._store.lease(target.key, self._patience) as lease:
            return await self._render(target, lease)

    async def outlook(self, target: Target) -> Outlook:
        """What would be done for a target now. Nothing is."""
        ttl = self._freshness.ordinary(target.path)
        entry = await self._store.get(target.key) if ttl else None
        now = self._clock()
        shown = None if entry is None else self._shown(entry, now)
        renewed = entry is not None and self._is_renewed(entry, shown, now)
        return Outlook(ttl, entry, now, shown, renewed, self._renders.runs(target.key))

    @property
    def refreshing(self) -> int:
        """How many stale snapshots are being renewed."""
        return self._refreshing

    async def close(self) -> None:
        """Stop the renders that are under way."""
        self._retries.close()
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        await self._renders.close()

    def _shown(self, entry: Entry, now: float) -> Shown | None:
        """As what an entry is shown without waiting for a new one; None if it is not."""
        if now < entry.expires:
            return "fresh"
        if now < entry.expires + self._freshness.stale:
            return "stale"
        if now < min(entry.retry, entry.expires + self._freshness.stale_if_error):
            return "stale-if-error"
        return None

    def _is_renewed(self, entry: Entry, shown: Shown | None, now: float) -> bool:
        """Whether a new one is made while an entry is shown."""
        return shown == "stale" and now >= entry.retry

    def _hit(self, entry: Entry, now: float, detail: str = "") -> SnapshotResult:
        age = max(0.0, now - entry.stored)
        return SnapshotResult(
            entry.snapshot, "hit", age=age, ttl=entry.expires - now, detail=detail
        )

    async def _shared(
        self, target: Target, work: Callable[[], Coroutine[Any, Any, SnapshotResult]]
    ) -> SnapshotResult:
        result, joined = await self._renders.run(target.key, work)
        return replace(result, how="coalesced") if joined and result.how == "miss" else result

    def _refresh_soon(self, target: Target) -> bool:
        """Render in the background, if not too many are at it already; returns False then.

        Whoever is turned away comes again with the next request, so what is asked for most often is
        renewed first, and new pages find room in the browser.
        """
        if self._renders.runs(target.key) or self._refreshing >= self._refreshes:
            return False
        self._refreshing += 1
        self._renders.start(target.key, lambda: self._refresh(target))
        return True

    async def _refresh(self, target: Target) -> SnapshotResult:
        try:
            return await self._render_if_nobody_does(target, 0)
        finally:
            self._refreshing -= 1

    async def _render_if_nobody_does(self, target: Target, patience: float) -> SnapshotResult:
        """Render, or have what another replica renders, if that takes no longer than ``patience``."""
        async with self._store.lease(target.key, patience) as lease:
            # Whoever had the lease before, or was sooner in this process, may have kept something.
            now = self._clock()
            left_to_others = lease.fence is None and not patience
            if lease.entry is not None and (now < lease.entry.expires or left_to_others):
                return replace(self._hit(lease.entry, now), how="coalesced")
            return await self._render(target, lease)

    async def _render(self, target: Target, lease: Lease) -> SnapshotResult:
        try:
            result = await self._made(target)
        except NotRenderable as reason:
            if not reason.origin_failed:
                # What was here is no page any more.
                await self._store.delete(target.key)
                raise
            return await self._despite(reason, target, lease)
        except (RenderError, OriginError) as error:
            if isinstance(error, EmptyPage):
                self._retries.failed(target)
            return await self._despite(error, target, lease)
        return await self._keep(result, target, lease)

    async def _despite(self, error: PrerenderError, target: Target, lease: Lease) -> SnapshotResult:
        """The old snapshot although there is no new one. Raises ``error`` if it is too old."""
        old = await self._store.current(target.key, lease.entry)
        if old is None or self._clock() >= old.expires + self._freshness.stale_if_error:
            raise error
        log.warning("snapshot_not_renewed", url=target.url, reason=str(error))
        return await self._stay(old, lease, "failed")

    async def _stay(self, old: Entry, lease: Lease, why: str) -> SnapshotResult:
        """Keep the old snapshot, with a note on when to try again."""
        now = self._clock()
        old = replace(old, retry=now + DOUBT_SECONDS, fence=max(old.fence, lease.fence or 0))
        await self._store.set(old, self._freshness.kept(self._freshness.ttl))
        return replace(self._hit(old, now), how="kept", detail=why)

    async def _keep(self, result: SnapshotResult, target: Target, lease: Lease) -> SnapshotResult:
        """Put a new snapshot in the place of the old one, if it is good enough."""
        snapshot = result.snapshot
        old = await self._store.current(target.key, lease.entry)
        now = self._clock()
        if snapshot.facts.verdict in UNUSABLE:
            self._retries.failed(target)
        else:
            self._retries.succeeded(target)
        if old is not None and (refused := self._refused(old, snapshot, now)):
            log.warning("snapshot_not_replaced", url=target.url, reason=refused)
            kept = await self._stay(replace(old, refusals=old.refusals + 1), lease, refused)
            return replace(kept, timings=result.timings)
        if snapshot.facts.unusable:
            return self._shown_once(target, result)
        same = old is not None and old.snapshot.etag == snapshot.etag
        if same and old is not None:
            snapshot = replace(snapshot, last_modified=old.snapshot.last_modified)
        # What came out the same twice is not in doubt any more.
        ttl = self._freshness.lifetime(target.path, snapshot, doubt=not same)
        if not ttl:
            if old is not None and not snapshot.facts.unfinished:
                # It may not be kept any more, or it is gone.
                await self._store.delete(target.key)
            return replace(result, snapshot=snapshot)
        snapshot = await self._with_codings(snapshot, old)
        await self._watch_for_deploys(old, snapshot)
        entry = Entry(
            target.key,
            target.path,
            snapshot,
            stored=now,
            expires=now + ttl,
            generation=lease.generation,
            fence=lease.fence or 0,
            variant=target.variant,
        )
        stored = await self._store.set(entry, self._freshness.kept(ttl))
        if stored:
            self._kept(target, "" if old is None else old.snapshot.etag, snapshot.etag)
        return replace(result, snapshot=snapshot, stored=stored, ttl=ttl if stored else 0.0)

    async def _with_codings(self, snapshot: Snapshot, old: Entry | None) -> Snapshot:
        """The snapshot with its codings: the old one's, or made in another thread."""
        if old is not None and old.snapshot.body == snapshot.body:
            return replace(snapshot, encoded=old.snapshot.encoded)
        return replace(snapshot, encoded=await asyncio.to_thread(encoded, snapshot.body))

    def _refused(self, old: Entry, new: Snapshot, now: float) -> str:
        """Why a new snapshot must not replace an old one, or ''."""
        if now >= old.expires + self._freshness.stale_if_error:
            return ""
        worse = worse_than(old.snapshot, new)
        always = new.facts.unfinished or new.status >= 500
        return worse if always or old.refusals < MOST_REFUSALS else ""

    async def _watch_for_deploys(self, old: Entry | None, new: Snapshot) -> None:
        """Take all snapshots of the last deploy for stale when a page is seen to be of another one."""
        before = old.snapshot.asset_fingerprint if old is not None else ""
        if (
            not self._freshness.deploys
            or not before
            or not new.asset_fingerprint
            or before == new.asset_fingerprint
        ):
            return
        under_way = self._renewal is not None and not self._renewal.done()
        if under_way and self._renewed_fingerprint == before:
            return  # this is part of it
        log.info("deploy_detected", asset_fingerprint=before)
        await self._store.purges.purge(Purge("asset_fingerprint", before, soft=True))
        if self._renewal is not None:
            self._renewal.cancel()
        self._renewed_fingerprint = before
        self._renewal = asyncio.create_task(self._renew_all(before), name=f"renewal of {before}")

    async def _renew_all(self, asset_fingerprint: str) -> None:
        """One after the other, so that crawlers find room in the browser."""
        for target in self._popular():
            entry = await self._store.get(target.key)
            if (
                entry is None
                or entry.snapshot.asset_fingerprint != asset_fingerprint
                or self._clock() < entry.expires
            ):
                continue
            work = partial(self._render_if_nobody_does, target, 0)
            try:
                await self._renders.start(target.key, work)
            except PrerenderError as error:
                log.info("renewal_failed", url=target.url, reason=str(error))
