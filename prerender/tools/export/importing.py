"""Stores an imported snapshot."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

from prerender.snapshots import steady_clock
from prerender.snapshots.entry import Entry
from prerender.snapshots.freshness import Freshness
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target

Adopted = Literal["kept", "expired", "newer", "purged", "not kept"]
OUTCOMES: tuple[Adopted, ...] = get_args(Adopted)


async def adopt(
    store: Store,
    freshness: Freshness,
    target: Target,
    snapshot: Snapshot,
    made: float,
    *,
    clock: Callable[[], float] = steady_clock.now,
) -> Adopted:
    """Store a snapshot that was rendered at ``made`` (Unix seconds), with its ``encoded`` forms.

    "expired": stored, but older than its TTL. "newer": a newer one is stored or being rendered.
    "purged": a purge since ``made`` applies. "not kept": because of the settings.
    """
    made = min(made, clock())
    async with store.lease(target.key, 0) as lease:
        old = lease.entry
        if lease.fence is None or (old is not None and old.stored >= made):
            return "newer"
        if old is not None and old.snapshot.etag == snapshot.etag:
            snapshot = replace(snapshot, last_modified=old.snapshot.last_modified)
        ttl = freshness.lifetime(target.path, snapshot, doubt=False)
        if not ttl:
            return "not kept"
        entry = Entry(
            target.key,
            target.path,
            snapshot,
            stored=made,
            expires=made + ttl,
            # Numbers of purges are microseconds, too (purges.py).
            generation=min(lease.generation, int(made * 1_000_000)),
            fence=lease.fence,
            variant=target.variant,
        )
        if store.purges.applied(entry) is None:
            return "purged"
        if not await store.set(entry, freshness.storage_seconds(ttl)):
            return "not kept"
        return "kept" if entry.expires > clock() else "expired"
