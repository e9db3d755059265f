"""Redirects as snapshots: of the origin, and of pages that navigate to another URL. Pure."""

from yarl import URL

from prerender.browser.page_results import Departed
from prerender.errors import RenderError
from prerender.http import forwarding_headers
from prerender.snapshots.snapshot import Header, Snapshot, etag_of
from prerender.snapshots.target import Target
from prerender.urls.hosts import normalized
from prerender.urls.references import pretty_reference, redirected


class Redirects:
    """Makes redirects for the site at ``public``, whose origin is at ``origin``.

    ``now``: Unix seconds.
    """

    def __init__(self, public: URL, origin: URL) -> None:
        self._public = public
        self._origin = origin
        self._hosts = (normalized(public.raw_host or ""),)

    def of_document(self, target: Target, status: int, location: str, now: float) -> Snapshot:
        """The origin's redirect of a target's document, with a pretty URL."""
        return _redirect(status, redirected(target.url, location, self._hosts), now)

    def of_departed(self, target: Target, departed: Departed, now: float) -> Snapshot:
        """The redirect for a page that navigates to another URL. Raises RenderError."""
        if departed.url.partition("#")[0] == target.url.partition("#")[0]:
            raise RenderError("reloads itself endlessly", about=target.url)
        return self.to(target, departed.url, now)

    def to(self, target: Target, url: str, now: float) -> Snapshot:
        """The redirect to the URL that a page navigated to. It inherits no ``#!`` state."""
        location = forwarding_headers.publish(url, self._origin, self._public)
        return _redirect(302, pretty_reference(location, target.url, self._hosts), now)


def _redirect(status: int, location: str, now: float) -> Snapshot:
    """A redirect is not stored: fetching it from the origin is cheap."""
    headers: tuple[Header, ...] = (("Location", location),)
    return Snapshot(status, headers, b"", etag_of(status, headers, b""), int(now), storable=False)
