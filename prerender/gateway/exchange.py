"""A request of a page with its response, and the totals of all pages."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from multidict import CIMultiDict

from prerender.gateway.received import ReceivedResponse
from prerender.gateway.resource_kind import PROGRAMS, ResponseFault
from prerender.snapshots.snapshot import FetchVerdict


@dataclass(slots=True)
class Exchange:
    """A request of the page and its response. Times are ``time.monotonic()`` seconds.

    ``needed``: the page's content depends on it (needed_requests.py). ``cached``: it comes from the
    asset cache.
    ``reason``: why it was blocked. ``limited``: ended by a limit; ``refused``: by the address policy.
    ``judged``: the content may depend on it, although it is not waited for. ``foreign``: it is for a
    third party. ``hangs``: it has hung on other pages. ``has_end``: its response is no stream.
    ``fault``: why the page cannot use a response that looks successful; ``detail``: the same in the
    words of this response. ``sent``: the end-to-end headers of the request; ``sent_body``: of a POST
    whose body is noted; ``received``: the complete response of a server or the asset cache.
    ``stubbed``: blocked by a setting, whatever the network says. ``cut``: it ended only with its visit.
    ``of_worker``: a service worker sent it, for itself or for the page.
    ``unused``: the page does not use its response, so the content does not depend on it after all.
    """

    method: str
    url: str
    destination: str
    started: float
    last_byte: float
    status: int = 0
    received_bytes: int = 0
    needed: bool = False
    endless: bool = False
    blocked: bool = False
    cached: bool = False
    reason: str = ""
    limited: bool = False
    refused: bool = False
    judged: bool = False
    foreign: bool = False
    hangs: bool = False
    fault: ResponseFault | None = None
    detail: str = ""
    has_end: bool = False
    finished: bool = False
    cut: bool = False
    ended: float = 0.0
    deadline: asyncio.Timeout | None = None
    sent: CIMultiDict[str] | None = None
    sent_body: str | None = None
    stubbed: bool = False
    of_worker: bool = False
    unused: bool = False
    received: ReceivedResponse | None = None

    def expect_no_end(self) -> None:
        """Mark it as a WebSocket or stream: it has no timeout and is not waited for."""
        self.endless = True
        if self.deadline is not None:
            self.deadline.reschedule(None)

    @property
    def verdict(self) -> FetchVerdict:
        """The verdict of the request."""
        if self.blocked:
            return "blocked"
        if self.endless:
            return "stream"
        if not self.completed:
            return "unanswered"
        if not self.status:
            return "aborted"
        if self.status >= 400:
            return "failed"
        return "cached" if self.cached else "allowed"

    @property
    def resource(self) -> str:
        """What hangs if it gets no response: its URL, or the preflights of that."""
        return f"OPTIONS {self.url}" if self.is_preflight else self.url

    @property
    def is_preflight(self) -> bool:
        """Whether the page gets nothing of its response."""
        return self.method == "OPTIONS"

    @property
    def completed(self) -> bool:
        """Whether it ended while the page was looked at. The end of the visit ends the others, too, but
        at any time."""
        return self.finished and not self.cut

    @property
    def awaited(self) -> bool:
        """Whether the page's content waits for this request, however slow the response is."""
        return self.lacks_response and not self.hangs

    @property
    def lacks_response(self) -> bool:
        """Whether it is needed, and its response has not begun, or has not arrived although it has an
        end."""
        is_open = self.hangs or not self.completed
        has_response = self.status and (self.completed or not self.has_end)
        is_needed = self.needed and not self.unused
        return is_needed and is_open and not self.endless and not has_response

    @property
    def matters(self) -> bool:
        """Whether the content may depend on its response."""
        return (self.needed or self.judged) and not self.unused

    @property
    def is_program(self) -> bool:
        """Whether it is for a script."""
        return self.destination in PROGRAMS


@dataclass(slots=True)
class Traffic:
    """Finished requests of pages and bytes of their responses, by verdict."""

    requests: Counter[FetchVerdict] = field(default_factory=Counter)
    received_bytes: Counter[FetchVerdict] = field(default_factory=Counter)

    def count(self, exchange: Exchange) -> None:
        """Count a finished request."""
        self.requests[exchange.verdict] += 1
        self.received_bytes[exchange.verdict] += exchange.received_bytes
