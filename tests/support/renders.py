"""A renderer that a test controls, in place of the browser."""

import asyncio

from yarl import URL

from prerender.config.settings import CacheSettings
from prerender.errors import RenderError
from prerender.snapshots.freshness import Freshness
from prerender.snapshots.snapshot import Facts, Snapshot, SnapshotResult, etag_of
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.snapshot_lists import Lists
from prerender.snapshots.stores.backing_store import BackingCache
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL

PUBLIC = URL("https://www.example.com")


def target(page: str = "/") -> Target:
    return Target.of(PUBLIC, PrettyURL(page, ""))


class Renders:
    """Renders the ``text`` of its beginning, or raises ``error``. While ``gate`` is cleared, renders
    wait."""

    def __init__(self, text: str = "content") -> None:
        self.text = text
        self.status = 200
        self.storable = True
        self.facts = Facts(text_length=100)
        self.tags: tuple[str, ...] = ()
        self.asset_fingerprint = ""
        self.error: Exception | None = None
        self.count = 0
        self.rendered: list[str] = []
        self.fails: set[str] = set()
        self.running = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def snapshot(self, wanted: Target) -> SnapshotResult:
        self.count += 1
        text = self.text
        self.running += 1
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        if self.error is not None:
            raise self.error
        if wanted.path in self.fails:
            raise RenderError("it fails")
        self.rendered.append(wanted.path)
        body = f"<p>{text} of {wanted.path}".encode()
        return SnapshotResult(
            Snapshot(
                self.status,
                (),
                body,
                etag_of(self.status, (), body),
                last_modified=self.count,
                storable=self.storable,
                facts=self.facts,
                tags=self.tags,
                asset_fingerprint=self.asset_fingerprint,
            )
        )


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def until(condition: object, seconds: float = 10.0) -> None:
    """Run the event loop until a condition holds."""
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


class Replica:
    """The caching layers of one proxy on a shared store, by default almost without memory."""

    def __init__(
        self, cache: BackingCache, memory: int = 0, renders: Renders | None = None
    ) -> None:
        self.renders = renders or Renders("x" * 2000)
        self.store = Store(BoundedMemoryCache(memory), cache)
        self.lists = Lists(self.store)
        freshness = freshness_of(100.0, stale=50.0, stale_if_error=100.0)
        self.cached = CachedSnapshots(self.renders, self.store, freshness, 5.0)

    async def get(self, page: str = "/") -> SnapshotResult:
        return await self.cached.snapshot(target(page))


def freshness_of(ttl: float, error_ttl: float = 60.0, **cache: object) -> Freshness:
    """By default, snapshots are not used when they have expired."""
    changed = {"ttl": ttl, "error_ttl": error_ttl, "stale_if_error": 0.0, **cache}
    return Freshness(CacheSettings().model_copy(update=changed))
