"""Submits changed pages to search engines (https://www.indexnow.org/documentation).

A page has changed if its new snapshot has another text, title, status or metadata than the one it
replaces, not only other bytes. Changes are collected and submitted in batches, which are repeated on
failure. A key file, which ``KeyFile`` serves, proves that the site sent them.
"""

import asyncio
import json
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import structlog
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar
from cachetools import LRUCache
from yarl import URL

from prerender.background import running
from prerender.config.settings import IndexNowSettings
from prerender.content.content_changes import content_of
from prerender.gateway.connection_errors import reason_of
from prerender.http.forwarding_headers import authority
from prerender.http.message_head import Request
from prerender.http.retry_after import seconds_of
from prerender.proxy.client_connection import RequestHandler
from prerender.proxy.client_stream import ClientStream
from prerender.proxy.responses import whole
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.target import Target

MOST_AT_ONCE = 10_000
# Minimum time between submissions of the same page, for pages that change on each render.
SAME_PAGE_SECONDS = 600.0
_MOST_WAITING = 100_000
_MOST_REMEMBERED = 100_000
# Each holds two snapshots. Beyond that, other bytes are a change.
_MOST_COMPARED = 32
_LONGEST_PAUSE_SECONDS = 3600.0
_TIMEOUT_SECONDS = 30.0
# Time limit of the last submission on shutdown.
_LAST_SECONDS = 2.0

log = structlog.get_logger(__name__)


class IndexNow:
    """Submits changed pages of the site at ``public``, each at most every ``same_page`` seconds.

    ``volatile``: what counts as no change.
    """

    def __init__(
        self,
        public: URL,
        settings: IndexNowSettings,
        *,
        same_page: float = SAME_PAGE_SECONDS,
        volatile: Sequence[re.Pattern[str]] = (),
    ) -> None:
        self._site = str(public.origin())
        self._host = authority(public)
        self._key = settings.key
        self._endpoint = URL(settings.endpoint, encoded=True)
        self._interval = settings.interval
        self._same_page = same_page
        self._volatile = volatile
        self._compared: asyncio.Queue[tuple[Target, Snapshot, Snapshot]] = asyncio.Queue(
            _MOST_COMPARED
        )
        # By URL: when it may be submitted.
        self._waiting: OrderedDict[str, float] = OrderedDict()
        self._submitted: LRUCache[str, float] = LRUCache(_MOST_REMEMBERED)
        self._etags: LRUCache[str, str] = LRUCache(_MOST_REMEMBERED)
        self._changed = asyncio.Event()
        self._failures = 0

    @asynccontextmanager
    async def submitting(self) -> AsyncIterator[None]:
        """Submit while the context is open, and once more at its end, with a short timeout."""
        timeout = ClientTimeout(total=_TIMEOUT_SECONDS)
        async with ClientSession(cookie_jar=DummyCookieJar(), timeout=timeout) as session:
            try:
                async with (
                    running(self._work(session), "indexnow"),
                    running(self._compare(), "indexnow comparisons"),
                ):
                    yield
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LAST_SECONDS):
                            await self._compared.join()
            finally:
                await self._finish(session)

    def stored(self, target: Target, before: Snapshot | None, snapshot: Snapshot) -> None:
        """Note that a snapshot was stored, and which one it replaces.

        If there was none, the last known ETag counts, because a purge leaves nothing else to compare
        with.
        """
        etag = before.etag if before else self._etags.get(target.key, "")
        self._etags[target.key] = snapshot.etag
        if not etag or etag == snapshot.etag or target.is_long:
            return
        if before is None or self._compared.full():
            self._wait_for_turn(target)
        else:
            self._compared.put_nowait((target, before, snapshot))

    @property
    def waiting(self) -> int:
        """The number of pending pages."""
        return len(self._waiting)

    async def _compare(self) -> None:
        """Submit those of which not only bytes have changed."""
        while True:
            target, before, snapshot = await self._compared.get()
            try:
                same = await asyncio.to_thread(self._read_same, target.url, before, snapshot)
            except Exception:
                log.exception("background_failed", name="indexnow comparisons", url=target.url)
                same = False
            if not same:
                self._wait_for_turn(target)
            self._compared.task_done()

    def _read_same(self, url: str, *snapshots: Snapshot) -> bool:
        one, other = (content_of(snapshot, url, self._volatile) for snapshot in snapshots)
        return one.reads_as(other)

    def _wait_for_turn(self, target: Target) -> None:
        url = target.ascii_url
        now = time.monotonic()
        due = max(now, self._submitted.get(url, -self._same_page) + self._same_page)
        self._waiting.setdefault(url, due)
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popitem(last=False)
            log.warning("indexnow_queue_full")
        self._changed.set()

    async def _work(self, session: ClientSession) -> None:
        pause = self._interval
        while True:
            await self._some_due()
            # Batch changes that happen at about the same time.
            await asyncio.sleep(pause)
            retry = await self._submit(session, self._due())
            pause = self._interval if retry is None else max(self._interval, retry)

    async def _some_due(self) -> None:
        """Wait until a page may be submitted."""
        while not self._due():
            self._changed.clear()
            soonest = min(self._waiting.values(), default=None)
            timeout = None if soonest is None else max(0.0, soonest - time.monotonic())
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _due(self) -> list[str]:
        now = time.monotonic()
        return [url for url, due in self._waiting.items() if due <= now][:MOST_AT_ONCE]

    async def _submit(self, session: ClientSession, urls: list[str]) -> float | None:
        """Submit a batch. Returns the seconds until the next attempt, or None on success."""
        # Removed before sending: pages that change meanwhile wait for the next batch.
        now = time.monotonic()
        for url in urls:
            self._waiting.pop(url, None)
            self._submitted[url] = now
        pause: float | None = 0.0
        try:
            pause = await self._send(session, urls)
        finally:
            if pause is not None:
                self._waiting = OrderedDict.fromkeys(urls, now) | self._waiting
        return pause

    async def _send(self, session: ClientSession, urls: list[str]) -> float | None:
        body = {
            "host": self._host,
            "key": self._key,
            "keyLocation": f"{self._site}/{self._key}.txt",
            "urlList": urls,
        }
        fields = {"Content-Type": "application/json; charset=utf-8"}
        try:
            async with session.post(
                self._endpoint, data=json.dumps(body), headers=fields, allow_redirects=False
            ) as response:
                status, after = response.status, response.headers.get("Retry-After", "")
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            return self._again(reason_of(error), "")
        if status == 429 or status >= 500:
            return self._again(f"status {status}", after)
        self._failures = 0
        if status in (200, 202):
            log.info("indexnow_submitted", count=len(urls), status=status)
        else:
            # 400, 403, 422: repeating it would not help.
            log.warning("indexnow_refused", status=status, count=len(urls), first=urls[0])
        return None

    def _again(self, reason: str, after: str) -> float:
        self._failures += 1
        pause = self._interval * 2.0 ** min(self._failures, 20)
        if wait := seconds_of(after):
            pause = max(self._interval, wait)
        pause = min(pause, _LONGEST_PAUSE_SECONDS)
        log.warning("indexnow_unreachable", reason=reason, again_in_seconds=round(pause, 1))
        return pause

    async def _finish(self, session: ClientSession) -> None:
        if urls := self._due():
            try:
                async with asyncio.timeout(_LAST_SECONDS):
                    await self._submit(session, urls)
            except TimeoutError:
                log.warning("indexnow_not_submitted", count=len(urls))


class KeyFile:
    """Serves the key file, and passes all other requests to ``handler``."""

    def __init__(self, key: str, handler: RequestHandler) -> None:
        self._target = f"/{key}.txt"
        self._body = key.encode()
        self._handler = handler

    async def __call__(self, request: Request, client: ClientStream) -> None:
        """Handle a request."""
        if request.target != self._target or request.method not in ("GET", "HEAD"):
            await self._handler(request, client)
            return
        fields = b"Content-Type: text/plain; charset=utf-8\r\nCache-Control: max-age=3600\r\n"
        await client.respond(whole(200, fields, self._body))
