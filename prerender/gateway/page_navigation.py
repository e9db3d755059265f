"""The navigation of a page to another one."""

import asyncio
from contextlib import suppress
from http import HTTPStatus

from yarl import URL

from prerender.urls.addresses import url_of

# After this time and so many redirects, the other page is taken to be one.
RESPONSE_SECONDS = 3.0
_MOST_REDIRECTS = 5
# Redirects that keep the method and the body (RFC 9110 section 15.4). Others make a GET of a POST.
_REPEATED = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)


class PageNavigation:
    """A navigation to ``url``, or none: ''. ``posts``: it submits a form there by POST.

    ``request_url``: the URL of its next request, which may be that of a redirect, or ''. ``ended``: set
    when the browser has left the page or stays there.
    """

    def __init__(self, url: str = "", *, posts: bool = False) -> None:
        self.url = url
        self.posts = posts
        self.request_url = url.partition("#")[0]
        self.ended = asyncio.Event()
        self._redirects = 0
        self._deadline: float | None = None

    @property
    def deadline(self) -> float:
        """When the response must have come, in the time of the event loop. It begins with the first
        request, and includes all redirects."""
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + RESPONSE_SECONDS
        return self._deadline

    @property
    def may_be_redirected(self) -> bool:
        """Whether another redirect is followed."""
        return self._redirects < _MOST_REDIRECTS

    def end(self) -> None:
        """Note that the browser has left the page or stays there."""
        self.url = self.request_url = ""
        self.ended.set()

    def redirect(self, url: str, location: str, status: int) -> None:
        """Note a redirect from a URL. After a POST, the page goes to where browsers send a GET."""
        self._redirects += 1
        with suppress(ValueError):
            # In a browser's spelling.
            target = URL(url).join(url_of(location, encoded=False))
            self.request_url = str(target.with_fragment(None))
            if self.posts and status not in _REPEATED:
                self.url, self.posts = str(target), False
