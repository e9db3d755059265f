"""Redirects as snapshots: of the origin, and of pages that navigate to another URL. Pure."""

from yarl import URL

from prerender.browser.page_results import Departed
from prerender.errors import RenderError
from prerender.gateway.document import Document
from prerender.http import forwarding_headers
from prerender.snapshots.snapshot import Header, Snapshot, etag_of
from prerender.snapshots.target import Target
from prerender.urls.cache_busters import is_same_page
from prerender.urls.hosts import normalized
from prerender.urls.references import pretty_reference, redirected

# Proxies in front and HTTP clients refuse longer header lines: most allow 8 KB.
_LONGEST_LOCATION = 8000


class Redirects:
    """Makes redirects for the site at ``public``, whose origin is at ``origin``.

    ``document``: that of the target, which says whether caches may store the redirect. ``now``: Unix
    seconds.
    """

    def __init__(self, public: URL, origin: URL) -> None:
        self._public = public
        self._origin = origin
        self._hosts = (normalized(public.raw_host or ""),)

    def of_document(self, target: Target, document: Document, now: float) -> Snapshot:
        """The origin's redirect of a target's document, with a pretty URL."""
        location = redirected(target.url, document.headers["Location"], self._hosts)
        return _redirect(document.status, location, document, now)

    def of_departed(
        self, target: Target, document: Document, departed: Departed, now: float
    ) -> Snapshot:
        """The redirect for a page that navigates to another URL. Raises RenderError."""
        if is_same_page(target.url.partition("#")[0], departed.url.partition("#")[0], now):
            raise RenderError("reloads itself endlessly", about=target.url)
        return self.to(target, document, departed.url, now)

    def to(self, target: Target, document: Document, url: str, now: float) -> Snapshot:
        """The redirect to the URL that a page navigated to. It inherits no ``#!`` state. Raises
        RenderError."""
        location = forwarding_headers.publish(url, self._origin, self._public)
        location = pretty_reference(location, target.url, self._hosts)
        if len(location) > _LONGEST_LOCATION:
            raise RenderError("goes to a URL that is too long for a redirect", about=target.url)
        return _redirect(302, location, document, now)


def _redirect(status: int, location: str, document: Document, now: float) -> Snapshot:
    """A redirect. No store keeps it (freshness.py): fetching it from the origin is cheap."""
    headers: tuple[Header, ...] = (("Location", location),)
    etag = etag_of(status, headers, b"")
    return Snapshot(status, headers, b"", etag, int(now), storable=document.storable)
