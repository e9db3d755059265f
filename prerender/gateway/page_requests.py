"""The requests of a page during one render: their record, and what settling asks about them."""

import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from http import HTTPStatus

from prerender.gateway.exchange import Exchange, Traffic
from prerender.gateway.needed_requests import DATA, Hanging, without_query
from prerender.gateway.page_navigation import PageNavigation
from prerender.gateway.page_usage import PageUsage
from prerender.gateway.resource_kind import MEDIA


class PageRequests:
    """The requests of a page of the site at ``origin``, a URL without a slash at its end.

    Far beyond the limit of ``usage``, requests are not recorded. ``traffic``: the totals of all pages;
    ``hanging``: requests that have hung on other pages. ``document_url``: in the browser's spelling,
    after the document has been served. ``polled``: how often data was fetched, by URL without query.
    ``service_workers``: the URLs of their scripts.
    ``navigation``: to another page, until the browser has left this one or stays.
    """

    def __init__(self, origin: str, usage: PageUsage, traffic: Traffic, hanging: Hanging) -> None:
        self.exchanges: list[Exchange] = []
        self.document_url = ""
        self.navigation = PageNavigation()
        self.polled: Counter[str] = Counter()
        self.service_workers: set[str] = set()
        self._own = f"{origin}/"
        self._usage = usage
        self._traffic = traffic
        self._hanging = hanging
        self._unfinished: dict[int, Exchange] = {}

    @property
    def requests(self) -> int:
        """The number of requests."""
        return self._usage.requests

    @property
    def is_leaving(self) -> bool:
        """Whether the page navigates to another one."""
        return bool(self.navigation.url)

    def navigate(self, url: str, *, posts: bool = False) -> None:
        """Note the URL to which the page navigates, maybe by POST, or '' when the browser has left it
        or stays."""
        self.navigation.end()
        self.navigation = PageNavigation(url, posts=posts)

    @contextmanager
    def exchange(self, method: str, url: str, destination: str) -> Iterator[Exchange]:
        """Record a request, from its arrival to the last byte of its response."""
        now = time.monotonic()
        record = Exchange(method, url, destination, now, now)
        self._usage.requests += 1
        number = self.requests
        if not self._usage.is_flooded:
            self.exchanges.append(record)
            self._unfinished[number] = record
        complete = False
        try:
            yield record
            complete = True
        finally:
            record.finished = True
            # It references the task, and so the response with all its headers.
            record.deadline = None
            if record.needed and not record.unused:
                seconds = time.monotonic() - record.started
                answered = bool(record.status) and (complete or not record.has_end)
                self._hanging.ended(record.resource, self.document_url, seconds, answered=answered)
            self._unfinished.pop(number, None)
            record.ended = time.monotonic()
            self._traffic.count(record)
            if method == "GET" and destination in DATA:
                self.polled[without_query(url)] += 1

    def cut_off(self) -> None:
        """Note that the visit ends: what is in progress gets no response any more."""
        for record in self._unfinished.values():
            record.cut = True

    @property
    def depend_on_use(self) -> bool:
        """Whether the verdict depends on which responses the page uses: some have failed or are
        missing, or were unused when the page was still settling."""
        return any(
            one.unused or one.fault or not one.status or one.status >= 400
            for one in self.exchanges
            if not one.blocked
        )

    @property
    def of_workers(self) -> Collection[str]:
        """The URLs of the requests of service workers."""
        return {record.url for record in self.exchanges if record.of_worker}

    def note_unused(self, urls: Counter[str]) -> None:
        """Note the URLs of requests whose responses the page does not use, or not yet, and how many
        there are."""
        requested: Counter[tuple[str, str]] = Counter()
        # What the content does not depend on anyway is what was sent.
        for record in sorted(self.exchanges, key=_may_be_used):
            record.unused = record.url in urls
            if record.unused and not record.of_worker:
                # After a preload, a worker may request the same, or post to the same URL as a beacon.
                name = record.method, record.url
                requested[name] += 1
                most = 1 if record.method == "GET" else urls[record.url]
                record.unused = requested[name] <= most

    def gave_data(self, url: str) -> bool:
        """Whether a request that the content may depend on got a body from this URL: more than
        ``null`` or ``OK``, which as XHR's ``response`` look like what is no JSON."""
        return any(
            record.url == url
            and record.matters
            and not (record.blocked or record.is_preflight)
            # With status 304, the browser has the body.
            and (record.status == 304 or (200 <= record.status < 300 and record.received_bytes > 4))
            for record in self.exchanges
        )

    def lost_document(self, url: str) -> bool:
        """Whether the last document of a URL (without fragment) is incomplete."""
        documents = [
            record
            for record in self.exchanges
            if record.destination == "document" and record.url == url.partition("#")[0]
        ]
        return bool(documents) and documents[-1].status >= HTTPStatus.INTERNAL_SERVER_ERROR

    @property
    def answered(self) -> int:
        """The number of finished requests."""
        return len(self.exchanges) - len(self._unfinished)

    @property
    def has_unfinished(self) -> bool:
        """Whether requests are in progress, hanging or not."""
        return bool(self._unfinished)

    @property
    def answered_urls(self) -> list[str]:
        """The URLs of the finished requests, without that for the page's document."""
        return [record.url for record in self.exchanges[1:] if record.finished]

    @property
    def only_known_to_hang(self) -> bool:
        """Whether all requests in progress have hung on other pages."""
        return all(record.hangs for record in self._unfinished.values())

    @property
    def has_ending(self) -> bool:
        """Whether any request in progress is no stream, so that its connection becomes free.

        A response without a known end may be one, also one whose beginning the browser holds back to
        find its type.
        """
        return any(
            not record.endless and (not record.status or record.has_end)
            for record in self._unfinished.values()
        )

    @property
    def fetches(self) -> int:
        """The number of requests by script whose response has not begun."""
        return sum(
            record.destination in DATA and not record.status for record in self._unfinished.values()
        )

    def loads_programs(self, *, parsed: bool) -> bool:
        """Whether scripts that the content depends on are loading, however slow.

        These are the site's own scripts, and all scripts and styles while the document is not
        ``parsed``: they block the rest of the document.
        """
        if not parsed:
            return any(
                record.is_program or record.destination == "style"
                for record in self._unfinished.values()
            )
        return any(
            record.is_program and record.url.startswith(self._own)
            for record in self._unfinished.values()
        )

    @property
    def awaited_seconds(self) -> float:
        """How long needed data has been loading; 0 if none is."""
        now = time.monotonic()
        return max(
            (now - record.started for record in self._unfinished.values() if record.awaited),
            default=0,
        )

    def waiting_for(self, patience_seconds: float) -> bool:
        """Whether a request in progress is worth waiting for.

        Needed requests are, however slow. Others are not if they are event streams, or without data for
        longer than the patience. Scripts and styles are never polls, and media have no content.
        """
        oldest = time.monotonic() - patience_seconds
        return any(
            not record.endless
            and not record.hangs
            and record.destination not in MEDIA
            and (
                record.last_byte > oldest
                or record.awaited
                or record.is_program
                or record.destination == "style"
            )
            for record in self._unfinished.values()
        )


def _may_be_used(record: Exchange) -> bool:
    return record.method == "GET" or record.needed or record.judged
