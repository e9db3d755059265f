"""The exceptions that cross packages, with the HTTP status of the response.

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
├── ServerGone               (a server has not answered such a command for minutes)
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

BadMessage                   (a malformed HTTP message)
CutShort                     (a connection ended in the middle of a message)
"""

from http import HTTPStatus
from typing import Literal

from prerender.words import Word

# Verdicts of renders whose result must not be stored (rendering/verdict.py).
Unusable = Literal["incomplete", "failed", "blank"]
# Too slow, for another server, too early, too many (RFC 9110 section 15.5, RFC 8470, RFC 6585).
_OF_THE_REQUEST = (408, 421, 425, 429)


class ErrorCode(Word):
    """Errors as records, metrics and the API name them."""

    INTERNAL_ERROR = "internal_error", "an internal error, which is in the log"
    CANCELLED = "cancelled", "the client disconnected"
    CUT_SHORT = "cut_short", "a connection ended in the middle of a message"
    BAD_REQUEST = "bad_request", "the request is malformed or not supported"
    ORIGIN_ERROR = "origin_error", "the site's server could not be reached"
    ORIGIN_TIMEOUT = "origin_timeout", "the site's server did not respond in time"
    LOOP_DETECTED = "loop_detected", "the origin leads back to this proxy"
    CRAWLER_REFUSED = "crawler_refused", "[triggers] refuses this class of crawlers"
    PAGE_TOO_LONG = "page_too_long", "the URL is longer than those of pages"
    FOREIGN_PAGE = "foreign_page", "a middleware requested a page of another site"
    MALFORMED_PAGE = "malformed_page", "a middleware requested something that is not a page"
    TOKEN_MISSING = "token_missing", "a middleware sent no token"
    TOKEN_WRONG = "token_wrong", "a middleware sent a wrong token"
    NOT_RENDERABLE = "not_renderable", "the target is not an HTML page"
    RENDER_ERROR = "render_error", "the page could not be rendered"
    RENDER_TIMEOUT = "render_timeout", "the page was not rendered within [render] timeout"
    PAGE_OVER_LIMIT = "page_over_limit", "the page used more resources than one render may"
    EMPTY_PAGE = "empty_page", "the page shows nothing"
    INCOMPLETE_PAGE = "incomplete_page", "the site's own data is missing from the page"
    DOCUMENT_REFUSED = "document_refused", "the site responds to visitors, but not to the renderer"
    SNAPSHOT_TOO_LARGE = "snapshot_too_large", "the page is larger than [render] max_bytes"
    POOL_BUSY = "pool_busy", "all pages of the browser were busy"
    SHUTTING_DOWN = "shutting_down", "the proxy was shutting down"
    BROWSER_GONE = "browser_gone", "the browser died or did not respond"


class PrerenderError(Exception):
    """Base class. ``reason`` is for the log and operators; clients get ``public``.

    ``about``: the URL or request that it concerns, which precedes the reason in the message.
    ``event`` is its log event.
    """

    status = HTTPStatus.INTERNAL_SERVER_ERROR
    public = "Internal server error."
    event = "request_failed"
    code = ErrorCode.INTERNAL_ERROR

    def __init__(self, reason: str = "", *, about: str = "") -> None:
        super().__init__(f"{about}: {reason}" if about else reason)
        self.reason = reason


class BadMessage(Exception):
    """A malformed or unsupported message; ``status`` is that of the response."""

    code = ErrorCode.BAD_REQUEST

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


class CutShort(Exception):
    """A connection ended in the middle of a message: of a request or of a response."""

    code = ErrorCode.CUT_SHORT


def code_of(error: BaseException | None) -> ErrorCode | None:
    """The code of an error; None if there is none."""
    if error is None:
        return None
    if isinstance(error, PrerenderError | BadMessage | CutShort):
        return error.code
    # Of what is no Exception, only a cancellation comes here. (``--help`` does not import asyncio.)
    return ErrorCode.INTERNAL_ERROR if isinstance(error, Exception) else ErrorCode.CANCELLED


class ConfigError(PrerenderError):
    """Invalid or unknown settings. ``problems`` has one line for each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class OriginError(PrerenderError):
    """The origin refused the connection, closed it early, or did not speak HTTP."""

    code = ErrorCode.ORIGIN_ERROR
    status = HTTPStatus.BAD_GATEWAY
    public = "Bad gateway: the site's origin server cannot be reached."
    event = "origin_unreachable"


class OriginTimeout(OriginError):
    """The origin did not respond in time."""

    code = ErrorCode.ORIGIN_TIMEOUT
    status = HTTPStatus.GATEWAY_TIMEOUT
    public = "Gateway timeout: the site's origin server did not respond in time."


class LoopDetected(OriginError):
    """The request has already passed through this proxy (RFC 9110 section 7.6.3)."""

    code = ErrorCode.LOOP_DETECTED
    status = HTTPStatus.LOOP_DETECTED
    public = "Loop detected: the origin of this proxy leads back to the proxy."


class BadRequest(PrerenderError):
    """A malformed or unsupported request. ``reason`` is shown to the client."""

    code = ErrorCode.BAD_REQUEST

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = HTTPStatus(status)
        self.public = f"Bad request: {reason}."


class Refused(PrerenderError):
    """The site's settings refuse the request."""

    status = HTTPStatus.FORBIDDEN


class ForeignPage(Refused):
    """A [drop_in] request for a page of another site."""

    code = ErrorCode.FOREIGN_PAGE
    public = "This service renders pages of its own site only."


class MalformedPage(Refused):
    """A [drop_in] request whose path is not the URL of a page."""

    code = ErrorCode.MALFORMED_PAGE
    status = HTTPStatus.BAD_REQUEST
    public = "The requested URL is not the URL of a page."


class TokenMissing(Refused):
    """A [drop_in] request without a token."""

    code = ErrorCode.TOKEN_MISSING
    public = "A token is required in the X-Prerender-Token header."


class TokenWrong(Refused):
    """A [drop_in] request with a wrong token."""

    code = ErrorCode.TOKEN_WRONG
    status = HTTPStatus.UNAUTHORIZED
    public = "The token in the X-Prerender-Token header is wrong."


class CrawlerRefused(Refused):
    """A crawler of a class that [triggers] refuses."""

    code = ErrorCode.CRAWLER_REFUSED
    public = "This site is not open to crawlers like this one."


class PageTooLong(Refused):
    """A request for the snapshot of a URL that is longer than those of pages."""

    code = ErrorCode.PAGE_TOO_LONG
    status = HTTPStatus.REQUEST_URI_TOO_LONG
    public = "The URL is too long for a page."


class NotRenderable(PrerenderError):
    """The origin's response for the target is not an HTML page.

    ``answered_with``: the status of that response; 0 if there was none.
    """

    code = ErrorCode.NOT_RENDERABLE

    def __init__(self, reason: str, *, answered_with: int = 0) -> None:
        super().__init__(reason)
        self.answered_with = answered_with

    @property
    def refused_with(self) -> int:
        """The status if it is an error other than that there is no such page, else 0."""
        status = self.answered_with
        return status if status >= 400 and status not in (404, 410) else 0

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


class ServerGone(PrerenderError):
    """A server cannot be reached, and could not for minutes."""


class JournalError(PrerenderError):
    """The state file of a command cannot be read or written."""


class ArchiveError(PrerenderError):
    """A folder of exported snapshots cannot be read or written."""


class SitemapError(PrerenderError):
    """A sitemap or list of URLs is missing or invalid."""


class RenderError(PrerenderError):
    """The page could not be rendered. Never a 404: the page exists."""

    code = ErrorCode.RENDER_ERROR
    status = HTTPStatus.SERVICE_UNAVAILABLE
    public = "This page could not be rendered. Try again later."
    event = "render_failed"
    # The detail parameter of Cache-Status.
    detail = "error"


class RenderTimeout(RenderError):
    """[render] timeout passed before the page showed anything."""

    code = ErrorCode.RENDER_TIMEOUT
    detail = "cut-off"


class PageOverLimit(RenderError):
    """The page was stopped for the resources it used. The message says which."""

    code = ErrorCode.PAGE_OVER_LIMIT


class EmptyPage(RenderError):
    """The rendered page shows nothing."""

    code = ErrorCode.EMPTY_PAGE

    def __init__(self, reason: str, verdict: Unusable = "blank", *, about: str = "") -> None:
        super().__init__(reason, about=about)
        self.verdict = self.detail = verdict


class IncompletePage(RenderError):
    """The site's own data is missing, so the page is not what a visitor would see.

    ``verdict``: see rendering/verdict.py.
    """

    code = ErrorCode.INCOMPLETE_PAGE

    def __init__(self, reason: str, verdict: str, *, about: str = "") -> None:
        super().__init__(reason, about=about)
        self.detail = verdict


class DocumentRefused(RenderError):
    """The origin sends visitors a page, but answers the renderer with an error.

    The usual cause is a list of allowed hosts that lacks the public one.
    """

    code = ErrorCode.DOCUMENT_REFUSED
    detail = "refused"


class SnapshotTooLarge(RenderError):
    """The rendered page is larger than a snapshot may be."""

    code = ErrorCode.SNAPSHOT_TOO_LARGE


class PoolBusy(RenderError):
    """All pages are busy and the queue is full, or the render waited in it for too long."""

    code = ErrorCode.POOL_BUSY
    detail = "busy"


class ShuttingDown(RenderError):
    """The proxy is shutting down, and [server] grace is over."""

    code = ErrorCode.SHUTTING_DOWN


class BrowserGone(RenderError):
    """The browser or the tab died, or did not respond to a command."""

    code = ErrorCode.BROWSER_GONE


class NeedsNewContext(BrowserGone):
    """Only the first page of a browser context can be rendered with certainty."""
