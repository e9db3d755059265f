"""Snapshots as Markdown, converted from those in HTML, which determine the content and its TTL."""

import asyncio
from dataclasses import replace

import structlog

from prerender.extensions.markdown.convert import FORMAT
from prerender.extensions.markdown.worker import MarkdownWorker
from prerender.http.encodings import encoded
from prerender.snapshots import steady_clock
from prerender.snapshots.entry import Entry
from prerender.snapshots.request_coalescing import Coalesced
from prerender.snapshots.snapshot import CacheResult, Snapshot, SnapshotResult, etag_of
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target
from prerender.snapshots.tokens import tokens_of

MARKDOWN = "text/markdown; charset=utf-8"
# The Markdown is found by the ETag of its snapshot, so it never becomes wrong: when there is another
# snapshot, it is no longer used.
_STORAGE_SECONDS = 86400.0
_TOKENS = "X-Markdown-Tokens"

log = structlog.get_logger(__name__)


class MarkdownSnapshots:
    """Converts the snapshots of ``html`` to Markdown, once each, and caches the result in ``store``."""

    def __init__(self, html: CachedSnapshots, store: Store) -> None:
        self._html = html
        self._store = store
        self._conversions: Coalesced[Snapshot] = Coalesced()
        self._worker = MarkdownWorker()

    def fresh(self, target: Target) -> SnapshotResult | None:
        """The Markdown of a fresh snapshot, if both are in memory. Takes microseconds."""
        result = self._html.fresh(target)
        if result is None or not result.snapshot.body:
            return result
        entry = self._store.peek(_key(target, result.snapshot), steady_clock.now())
        return None if entry is None else replace(result, snapshot=entry.snapshot)

    async def snapshot(self, target: Target) -> SnapshotResult:
        """The snapshot of a target as Markdown; as HTML if it cannot be converted.

        Raises RenderError, OriginError or NotRenderable.
        """
        result = await self._html.snapshot(target)
        html = result.snapshot
        if not html.body:
            return result  # a redirect
        # If the HTML must not be stored, the Markdown must not be either.
        keep = result.stored or result.how.is_hit or result.how is CacheResult.KEPT
        try:
            return replace(result, snapshot=await self.of(target, html, keep=keep))
        except ValueError as error:
            log.warning("markdown_failed", url=target.url, reason=str(error))
            return result

    async def of(self, target: Target, html: Snapshot, *, keep: bool = True) -> Snapshot:
        """A snapshot as Markdown, which is stored to ``keep`` it. Raises ValueError."""
        key = _key(target, html)
        entry = await self._store.get(key)
        if entry is not None:
            return entry.snapshot
        snapshot, _ = await self._conversions.run(
            key, lambda: self._convert(target, html, key if keep else "")
        )
        return snapshot

    async def close(self) -> None:
        """Cancel conversions."""
        await self._conversions.close()
        await self._worker.close()

    async def _convert(self, target: Target, html: Snapshot, key: str) -> Snapshot:
        body = await self._worker.markdown_of(html.body, target.url)
        # A weak ETag of the HTML makes a weak one of the Markdown.
        weak = "W/" if html.etag.startswith("W/") else ""
        headers = (*html.headers, (_TOKENS, str(tokens_of(body.decode("utf-8", "replace")))))
        snapshot = replace(
            html,
            headers=headers,
            body=body,
            etag=weak + etag_of(html.status, headers, body),
            encoded=await asyncio.to_thread(encoded, body),
            content_type=MARKDOWN,
            manifest=b"",
        )
        if key:
            now = steady_clock.now()
            entry = Entry(
                key,
                target.path,
                snapshot,
                stored=now,
                expires=now + _STORAGE_SECONDS,
                generation=self._store.purges.generation,
                # There is no lease for it: the later write wins. Fences are microseconds, too.
                fence=int(now * 1_000_000),
                variant=target.variant,
            )
            await self._store.set(entry, _STORAGE_SECONDS)
        return snapshot


def _key(target: Target, html: Snapshot) -> str:
    return f"{target.key}.{FORMAT}.{html.etag}"
