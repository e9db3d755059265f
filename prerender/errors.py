"""Every exception that this project raises, with the HTTP status of the response.

PrerenderError               500
├── ConfigError              (the process exits with status 2)
├── OriginError              502  the origin failed
│   ├── OriginTimeout        504
│   └── LoopDetected         508  the origin is this proxy
├── BadRequest               4xx, 501, 505: the request is malformed or not supported
├── Refused                  403
│   ├── CrawlerRefused       [triggers] refuses this class of crawlers
│   ├── PageTooLong          414  the URL is longer than those of pages
│   ├── ForeignPage          a [drop_in] request for another site
│   ├── MalformedPage        400  a [drop_in] request without the URL of a page
│   ├── TokenMissing         a [drop_in] request without a token
│   └── TokenWrong           401
├── NotRenderable            (the target is not an HTML page: the request is forwarded)
├── BadEntry                 (a stored entry is corrupt or of another version: a miss)
├── StoreError               (one operation of the store failed: a miss)
│   └── StoreGone            (the store is unavailable: it is not used for a while)
├── AdminError               (a command cannot reach the admin listener, or is refused)
├── FetchFailed              (a command that acts as a crawler got no response)
│   └── Unreachable          (it got no connection)
├── ReplicasGone             (no replica of the proxy has answered such a command for minutes)
├── JournalError             (its state file cannot be read or written)
├── ArchiveError             (an export cannot be read or written)
├── SitemapError             (a sitemap or list of URLs cannot be read)
└── RenderError              503 + Retry-After: the page exists but could not be rendered
    ├── RenderTimeout
    ├── PageOverLimit        the page used more resources than one render may
    ├── EmptyPage            the page shows nothing
    ├── IncompletePage       the site's own data is missing
    ├── DocumentRefused      the origin responds to visitors, but not to the renderer
    ├── SnapshotTooLarge
    ├── PoolBusy
    ├── ShuttingDown         the render could not finish before the proxy ends
    └── BrowserGone          the browser or the tab died; the render may be repeated once
        └── NeedsNewContext  only the first page of a browser context can be rendered with certainty
"""

from http import HTTPStatus
from typing import Literal

# Verdicts of renders whose result must not be stored (rendering/verdict.py).
Unusable = Literal["incomplete", "failed", "blank"]
# Too slow, for another server, too early, too many (RFC 9110 section 15.5, RFC 8470, RFC 6585).
_OF_THE_REQUEST = (408, 421, 425, 429)


class PrerenderError(Exception):
    """Base class. The message is for the log; clients get ``public``. ``event`` is its log event."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR
    public = "Internal server error."
    event = "request_failed"


class ConfigError(PrerenderError):
    """Invalid or unknown settings. ``problems`` has one line for each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class OriginError(PrerenderError):
    """The origin refused the connection, closed it early, or did not speak HTTP."""

    status = HTTPStatus.BAD_GATEWAY
    public = "Bad gateway: the site's origin server cannot be reached."
    event = "origin_unreachable"


class OriginTimeout(OriginError):
    """The origin did not respond in time."""

    status = HTTPStatus.GATEWAY_TIMEOUT
    public = "Gateway timeout: the site's origin server did not respond in time."


class LoopDetected(OriginError):
    """The request has already passed through this proxy (RFC 9110 section 7.6.3)."""

    status = HTTPStatus.LOOP_DETECTED
    public = "Loop detected: the origin of this proxy leads back to the proxy."


class BadRequest(PrerenderError):
    """A malformed or unsupported request. ``reason`` is shown to the client."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = HTTPStatus(status)
        self.public = f"Bad request: {reason}."


class Refused(PrerenderError):
    """The site's settings refuse the request."""

    status = HTTPStatus.FORBIDDEN


class ForeignPage(Refused):
    """A [drop_in] request for a page of another site."""

    public = "This service renders pages of its own site only."


class MalformedPage(Refused):
    """A [drop_in] request whose path is not the URL of a page."""

    status = HTTPStatus.BAD_REQUEST
    public = "The requested URL is not the URL of a page."


class TokenMissing(Refused):
    """A [drop_in] request without a token."""

    public = "A token is required in the X-Prerender-Token header."


class TokenWrong(Refused):
    """A [drop_in] request with a wrong token."""

    status = HTTPStatus.UNAUTHORIZED
    public = "The token in the X-Prerender-Token header is wrong."


class CrawlerRefused(Refused):
    """A crawler of a class that [triggers] refuses."""

    public = "This site is not open to crawlers like this one."


class PageTooLong(Refused):
    """A request for the snapshot of a URL that is longer than those of pages."""

    status = HTTPStatus.REQUEST_URI_TOO_LONG
    public = "The URL is too long for a page."


class NotRenderable(PrerenderError):
    """The origin's response for the target is not an HTML page.

    ``refused_with``: the status of the response if it is an error, else 0.
    """

    def __init__(self, reason: str, *, refused_with: int = 0) -> None:
        super().__init__(reason)
        self.refused_with = refused_with

    @property
    def origin_failed(self) -> bool:
        """Whether that says nothing about the page: an error of the origin's (5xx), or one of this
        request only."""
        return self.refused_with >= HTTPStatus.INTERNAL_SERVER_ERROR or (
            self.refused_with in _OF_THE_REQUEST
        )


class BadEntry(PrerenderError):
    """Stored bytes that are corrupt, or an entry of another version."""


class StoreError(PrerenderError):
    """One operation of the store failed. The next one may succeed."""


class StoreGone(StoreError):
    """The store is unavailable. Retrying at once is pointless."""


class AdminError(PrerenderError):
    """The admin listener cannot be reached, or refuses the request.

    ``answered_with``: the status of its response; 0 without one.
    """

    def __init__(self, reason: str, answered_with: int = 0) -> None:
        super().__init__(reason)
        self.answered_with = answered_with


class FetchFailed(PrerenderError):
    """A page requested by a command that acts as a crawler got no response."""


class Unreachable(FetchFailed):
    """There is no connection to the server."""


class ReplicasGone(PrerenderError):
    """No replica of the proxy can be reached, and none could for minutes."""


class JournalError(PrerenderError):
    """The state file of a command cannot be read or written."""


class ArchiveError(PrerenderError):
    """A folder of exported snapshots cannot be read or written."""


class SitemapError(PrerenderError):
    """A sitemap or list of URLs is missing or invalid."""


class RenderError(PrerenderError):
    """The page could not be rendered. Never a 404: the page exists."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    public = "This page could not be rendered. Try again later."
    event = "render_failed"
    # The detail parameter of Cache-Status.
    detail = "error"


class RenderTimeout(RenderError):
    """[render] timeout passed before the page showed anything."""

    detail = "cut-off"


class PageOverLimit(RenderError):
    """The page was stopped for the resources it used. The message says which."""


class EmptyPage(RenderError):
    """The rendered page shows nothing."""

    def __init__(self, reason: str, verdict: Unusable = "blank") -> None:
        super().__init__(reason)
        self.verdict = self.detail = verdict


class IncompletePage(RenderError):
    """The site's own data is missing, so the page is not what a visitor would see.

    ``verdict``: see rendering/verdict.py.
    """

    def __init__(self, reason: str, verdict: str) -> None:
        super().__init__(reason)
        self.detail = verdict


class DocumentRefused(RenderError):
    """The origin sends visitors a page, but answers the renderer with an error.

    The usual cause is a list of allowed hosts that lacks the public one.
    """

    detail = "refused"


class SnapshotTooLarge(RenderError):
    """The rendered page is larger than a snapshot may be."""


class PoolBusy(RenderError):
    """All pages are busy and the queue is full, or the render waited in it for too long."""

    detail = "busy"


class ShuttingDown(RenderError):
    """The proxy is shutting down, and [server] grace is over."""


class BrowserGone(RenderError):
    """The browser or the tab died, or did not respond to a command."""


class NeedsNewContext(BrowserGone):
    """Only the first page of a browser context can be rendered with certainty."""
