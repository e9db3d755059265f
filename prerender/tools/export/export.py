"""Creates an export: renders pages, with one retry if the result is doubtful, and writes them."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urljoin

from yarl import URL

from prerender.errors import NotRenderable, OriginError, RenderError
from prerender.snapshots.snapshot import Snapshot, Snapshots
from prerender.snapshots.target import Target
from prerender.tools.concurrency import work_through
from prerender.urls.addresses import pretty_of

# Renders beyond the number of browser pages, so that none is idle.
AHEAD = 2
_ATTEMPTS = 2
_EXPORTED = (200, 403, 404, 410)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the snapshot of a page is missing in an export, or doubtful."""

    url: str
    reason: str


@dataclass(slots=True)
class Exported:
    """The result of an export. ``doubtful``: exported, although some requests of the page failed.

    ``unread_sitemaps``: their number; pages that only these list are not in it.
    """

    pages: int = 0
    failures: list[Failure] = field(default_factory=list)
    doubtful: list[Failure] = field(default_factory=list)
    unread_sitemaps: int = 0


class Files(Protocol):
    """Where the pages of a ``site`` are written to: an archive, static files, or llms.txt."""

    site: str

    def add(self, target: Target, snapshot: Snapshot, made: float, /) -> None:
        """Write a page, in a thread. Raises ValueError if it has no place there, and ArchiveError."""
        ...

    def keep(self, path: str) -> bool:
        """Keep the page of the last export. Returns whether there is one."""
        ...


class Export:
    """Renders with ``snapshots``, which must not cache. ``obey_origin``: leave out pages that the
    origin does not allow to be stored."""

    def __init__(
        self,
        snapshots: Snapshots,
        files: Files,
        *,
        obey_origin: bool,
        on_page: Callable[[Failure | None], None] = lambda _: None,
    ) -> None:
        self._snapshots = snapshots
        self._files = files
        self._public = URL(files.site)
        self._obey_origin = obey_origin
        self._on_page = on_page
        self.result = Exported()

    async def run(self, urls: Iterable[str], concurrency: int) -> Exported:
        """Render pages of the site and write them."""
        await work_through(dict.fromkeys(urls), self._export, concurrency=concurrency)
        return self.result

    async def _export(self, url: str) -> tuple[str, ...]:
        target = Target.of(self._public, pretty_of(url))
        reason = ""
        try:
            snapshot, made = await self._rendered(target)
            lasting = not snapshot.facts.unfinished and snapshot.status < 500
            self._check(target, snapshot)
            await asyncio.to_thread(self._files.add, target, snapshot, made)
        except ValueError as error:
            reason = str(error)
        except (RenderError, OriginError, NotRenderable) as error:
            reason = " ".join(str(error).split())
            lasting = isinstance(error, NotRenderable) and not error.origin_failed
        if reason and not lasting and self._files.keep(target.path):
            reason += "; the snapshot of the last export stays"
        failure = None
        if reason:
            failure = Failure(target.url, reason)
            self.result.failures.append(failure)
        else:
            self.result.pages += 1
            if lacking := _lacking(snapshot):
                what = "failed" if snapshot.facts.failed_requests else "did not respond"
                reason = f"exported, but {lacking[0]} {what}: the snapshot may be incomplete"
                failure = Failure(target.url, reason)
                self.result.doubtful.append(failure)
        self._on_page(failure)
        return ()

    async def _rendered(self, target: Target) -> tuple[Snapshot, float]:
        for attempt in range(1, _ATTEMPTS + 1):
            made = time.time()
            try:
                snapshot = (await self._snapshots.snapshot(target)).snapshot
            except (RenderError, OriginError):
                if attempt == _ATTEMPTS:
                    raise
                continue
            if attempt == _ATTEMPTS or not (snapshot.facts.unfinished or _lacking(snapshot)):
                return snapshot, made
        raise AssertionError("the last attempt returns or raises")

    def _check(self, target: Target, snapshot: Snapshot) -> None:
        """Raises ValueError if a snapshot is not exported."""
        if snapshot.status // 100 == 3:
            location = urljoin(target.url, dict(snapshot.headers).get("Location", ""))
            raise ValueError(f"status {snapshot.status} to {location}: list that instead")
        if snapshot.status not in _EXPORTED:
            raise ValueError(f"status {snapshot.status}")
        if snapshot.facts.unfinished:
            raise ValueError(f"{snapshot.facts.verdict}: {snapshot.facts.why}")
        if self._obey_origin and not snapshot.storable:
            raise ValueError("its Cache-Control says that it must not be stored")


def _lacking(snapshot: Snapshot) -> tuple[str, ...]:
    return snapshot.facts.failed_requests or snapshot.facts.unanswered_requests
