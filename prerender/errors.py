"""Everything this project raises on purpose, each with the HTTP status it is answered with.

    PrerenderError               500
    ├── ConfigError              (stops the start with exit status 2)
    ├── OriginError              502  the site's own server failed
    │   ├── OriginTimeout        504
    │   └── LoopDetected         508  it is this proxy again
    ├── BadRequest               4xx, 501, 505: the client's message is not taken
    ├── Refused                  403
    │   ├── CrawlerRefused       the site's owner wants none of this class
    │   ├── ForeignPage          a page of another site is asked for ([drop_in])
    │   ├── MalformedPage        400  no page, by its URL
    │   ├── TokenMissing         only who knows a token may ask
    │   └── TokenWrong           401
    ├── NotRenderable            (the target has no snapshot: it is forwarded instead)
    ├── BadEntry                 (a store holds what is no entry of this version: a miss)
    ├── StoreError               (one operation of a store failed: a miss)
    │   └── StoreGone            (the store cannot be reached: it is left alone for a while)
    ├── AdminError               (the command line cannot reach the proxy, or it refuses)
    ├── FetchFailed              (a command that acts as a crawler gets no answer)
    ├── ArchiveError             (an export cannot be written, or is none)
    ├── SitemapError             (what a command was given is no sitemap, or cannot be read)
    └── RenderError              503 + Retry-After: there is a page, but no snapshot of it now
        ├── RenderTimeout
        ├── PageOverLimit    the page took far more than one render may
        ├── EmptyPage        nothing is shown
        ├── IncompletePage   the site's own data is missing
        ├── DocumentRefused  the origin answers visitors, but not the renderer
        ├── SnapshotTooLarge
        ├── PoolBusy
        └── BrowserGone          the browser or the page died; one retry on another is worth it

Foreign exceptions are translated once, where the library is used (upstream.py, devtools.py).
"""

from http import HTTPStatus
from typing import Literal

# The verdicts about renders whose result is not to be stored (rendering/verdict.py).
Unusable = Literal["incomplete", "failed", "blank"]
# Too slow, for another server, too early, too many (RFC 9110 section 15.5, RFC 8470, RFC 6585).
_OF_THE_REQUEST = (408, 421, 425, 429)


class PrerenderError(Exception):
    """Base of all; its text is for the log, never for a client."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR
    public = "The server made a mistake."


class ConfigError(PrerenderError):
    """One or more settings are unknown or wrong. ``problems`` holds one line for each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class OriginError(PrerenderError):
    """The origin refused, died or did not speak HTTP."""

    status = HTTPStatus.BAD_GATEWAY
    public = "The site behind this server cannot be reached."


class OriginTimeout(OriginError):
    """The origin did not answer in time."""

    status = HTTPStatus.GATEWAY_TIMEOUT
    public = "The site behind this server did not answer in time."


class LoopDetected(OriginError):
    """A request came back to where it had been (RFC 9110 section 7.6.3)."""

    status = HTTPStatus.LOOP_DETECTED
    public = "This server has been set up to ask itself."


class BadRequest(PrerenderError):
    """A request that is not well-formed; ``reason`` tells the client what is wrong with it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = HTTPStatus(status)
        self.public = f"This request cannot be answered: {reason}."


class Refused(PrerenderError):
    """The site's owner does not want it."""

    status = HTTPStatus.FORBIDDEN


class ForeignPage(Refused):
    """A middleware asks for a page of a site that is not this one ([drop_in])."""

    public = "This server prepares pages of its own site only."


class MalformedPage(Refused):
    """A middleware asks for what is no URL of a page."""

    status = HTTPStatus.BAD_REQUEST
    public = "That is not the URL of a page."


class TokenMissing(Refused):
    """A middleware does not give a token ([drop_in])."""

    public = "A token is needed, in the field X-Prerender-Token."


class TokenWrong(Refused):
    """A middleware gives another token."""

    status = HTTPStatus.UNAUTHORIZED
    public = "The token in the field X-Prerender-Token is wrong."


class CrawlerRefused(Refused):
    """A crawler of a class that the site's owner refuses ([triggers])."""

    public = "This site is not open to crawlers like this one."


class NotRenderable(PrerenderError):
    """The origin's response for the target is not an HTML page, so there is nothing to render.

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
    """Bytes that are no entry of this version, or not a whole one."""


class StoreError(PrerenderError):
    """One operation of a store failed; the next one may succeed."""


class StoreGone(StoreError):
    """The store cannot be reached: asking again at once is no use."""


class AdminError(PrerenderError):
    """The admin listener is not there, or refuses."""


class FetchFailed(PrerenderError):
    """A page that a crawler asks for does not come."""


class ArchiveError(PrerenderError):
    """A folder of exported snapshots cannot be written or read."""


class SitemapError(PrerenderError):
    """A sitemap or a list of URLs is not there, or is none."""


class RenderError(PrerenderError):
    """No snapshot could be made now. Never a 404: the page exists."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    public = "This page could not be prepared. Please try again in a moment."
    # Of Cache-Status.
    detail = "error"


class RenderTimeout(RenderError):
    """The wall-clock limit of a render passed with nothing to show."""

    detail = "cut-off"


class PageOverLimit(RenderError):
    """A page was ended for what it took from the others. The text says what."""


class EmptyPage(RenderError):
    """The page shows nothing, which no visitor would take for success."""

    def __init__(self, reason: str, verdict: Unusable = "blank") -> None:
        super().__init__(reason)
        self.verdict = self.detail = verdict


class IncompletePage(RenderError):
    """The site's own data is missing, so the page is not what a visitor would see.

    ``verdict``: of rendering/verdict.py.
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
    """All pages are taken and the queue is full, or the wait in it was too long."""


class BrowserGone(RenderError):
    """The browser, or the page in it, died or went silent under a command."""
