"""Snapshots as Markdown, made of those in HTML, which decide what is shown and how old it may be."""

import asyncio
from dataclasses import replace

import structlog

from prerender.http.encodings import encoded
from prerender.snapshots import clock
from prerender.snapshots.cached import CachedSnapshots
from prerender.snapshots.coalesced import Coalesced
from prerender.snapshots.entry import Entry
from prerender.snapshots.markdown.convert import FORMAT
from prerender.snapshots.markdown.worker import MarkdownWorker
from prerender.snapshots.snapshot import Snapshot, SnapshotResult, Target, etag_of
from prerender.snapshots.stores.store import Store

MARKDOWN = "text/markdown; charset=utf-8"
# What has been made of a snapshot is found by its entity-tag, and is right for ever: when there is
# another snapshot, it is only of no use any more.
_KEPT_SECONDS = 86400.0

log = structlog.get_logger(__name__)


class MarkdownSnapshots:
    """Makes Markdown of the snapshots of ``html``, once each, and keeps it in ``store`` beside them."""

    def __init__(self, html: CachedSnapshots, store: Store) -> None:
        self._html = html
        self._store = store
        self._conversions: Coalesced[Snapshot] = Coalesced()
        self._worker = MarkdownWorker()

    def fresh(self, target: Target) -> SnapshotResult | None:
        """The Markdown of a fresh snapshot if both are at hand. Costs microseconds."""
        result = self._html.fresh(target)
        if result is None or not result.snapshot.body:
            return result
        entry = self._store.peek(_key(target, result.snapshot), clock.now())
        return None if entry is None else replace(result, snapshot=entry.snapshot)

    async def snapshot(self, target: Target) -> SnapshotResult:
        """The snapshot of a target as Markdown; in HTML if that cannot be made.

        Raises RenderError, OriginError or NotRenderable.
        """
        result = await self._html.snapshot(target)
        html = result.snapshot
        if not html.body:
            return result  # a redirect
        key = _key(target, html)
        entry = await self._store.get(key)
        if entry is not None:
            return replace(result, snapshot=entry.snapshot)
        # What may not be kept in one form may not be kept in the other.
        keep = result.stored or result.how in ("hit", "kept")
        try:
            snapshot, _ = await self._conversions.run(
                key, lambda: self._convert(target, html, key if keep else "")
            )
        except ValueError as error:
            log.warning("markdown_failed", url=target.url, reason=str(error))
            return result
        return replace(result, snapshot=snapshot)

    async def close(self) -> None:
        """Stop what is being made."""
        await self._conversions.close()
        await self._worker.close()

    async def _convert(self, target: Target, html: Snapshot, key: str) -> Snapshot:
        body = await self._worker.markdown_of(html.body, target.url)
        # What counts as the same in HTML counts as the same in Markdown.
        weak = "W/" if html.etag.startswith("W/") else ""
        snapshot = replace(
            html,
            body=body,
            etag=weak + etag_of(html.status, html.headers, body),
            encoded=await asyncio.to_thread(encoded, body),
            content_type=MARKDOWN,
        )
        if key:
            now = clock.now()
            entry = Entry(
                key,
                target.path,
                snapshot,
                stored=now,
                expires=now + _KEPT_SECONDS,
                generation=self._store.purges.generation,
                # There is no lease for it: the later one counts. Fences are microseconds, too.
                fence=int(now * 1_000_000),
                variant=target.variant,
            )
            await self._store.set(entry, _KEPT_SECONDS)
        return snapshot


def _key(target: Target, html: Snapshot) -> str:
    return f"{target.key}.{FORMAT}.{html.etag}"
