"""Where a page goes during one visit: it stays, reloads itself, or leaves for another page."""

import asyncio
import time
from contextlib import suppress
from typing import Any

from prerender.browser.tab import Tab
from prerender.errors import RenderError
from prerender.gateway.page_navigation import RESPONSE_SECONDS
from prerender.gateway.page_requests import PageRequests
from prerender.urls.cache_busters import added_time, is_same_page

MAX_RELOADS = 3
# The gateway's limit, and time for the browser to act on the response.
_LEAVING_SECONDS = RESPONSE_SECONDS + 2.0
# A page that stops loading for another navigation starts again in the same task.
_RESTART_SECONDS = 0.1


class Departure:
    """The navigations of a page that is opened at ``url``. Call ``end`` when the visit is over.

    ``to``: completes when the page leaves, with the URL. ``cache_buster``: the parameter by which the
    page has reloaded itself past caches, or ''.
    """

    def __init__(self, tab: Tab, url: str, requests: PageRequests) -> None:
        self.to: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.cache_buster = ""
        self._url = url.partition("#")[0]
        self._requests = requests
        self._reloads = 0
        self._stays: asyncio.TimerHandle | None = None
        self._frame_id = tab.target_id
        self._session = tab.session
        self._handlers = {
            "Page.frameRequestedNavigation": self._requested,
            "Page.frameNavigated": self._navigated,
            "Page.frameStartedLoading": self._started_loading,
            "Page.frameStoppedLoading": self._stopped_loading,
        }
        for event, handler in self._handlers.items():
            self._session.on(event, handler)

    def end(self) -> None:
        """Handle no more navigations."""
        self._keep_waiting()
        for event, handler in self._handlers.items():
            self._session.remove_listener(event, handler)

    @property
    def leaving(self) -> str:
        """The URL to which the page navigates, until the browser has left it or stays, or ''."""
        return self._requests.navigation.url

    def fail(self, error: Exception) -> None:
        """Let those who wait for ``to`` fail."""
        if not self.to.done():
            self.to.set_exception(error)
            self.to.exception()  # mark it as retrieved: the page may have settled

    async def decide(self) -> None:
        """Wait until it is clear whether the page leaves, in case that it navigates. The other page may
        not respond, so there is a limit."""
        if not (leaving := self.leaving):
            return
        reloads, posts = self._reloads, self._requests.navigation.posts
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING_SECONDS):
                while self.leaving:
                    await self._requests.navigation.ended.wait()
        if self.leaving:  # there is no response
            self.leave()
        elif self._reloads > reloads:  # another document, which has not settled
            self._leave(leaving, posts=posts)

    def leave(self) -> None:
        """Let the page leave by its navigation, whose response may be missing."""
        self._leave(self.leaving, posts=self._requests.navigation.posts)

    def _requested(self, params: dict[str, Any]) -> None:
        """Handle a navigation by the page. Changes of only the fragment are not reported here."""
        url: str = params["url"]
        mine = params["frameId"] == self._frame_id and params["disposition"] == "currentTab"
        if self.to.done() or not mine or not url.startswith("http"):
            return
        if is_same_page(self._url, url.partition("#")[0], time.time()):
            self._end_navigation()
            self._reloaded(url, url)
        else:
            self._keep_waiting()
            self._requests.navigate(url, posts=params["reason"] == "formSubmissionPost")

    def _navigated(self, params: dict[str, Any]) -> None:
        """Handle another document, in the page or a frame. It may be the page's own again, by way of
        another one."""
        frame = params["frame"]
        if frame["id"] == self._frame_id and (leaving := self.leaving):
            if is_same_page(self._url, frame["url"], time.time()):
                self._reloaded(leaving, frame["url"])
            else:
                self.leave()
            self._end_navigation()

    def _stopped_loading(self, params: dict[str, Any]) -> None:
        """Handle the end of loading, of the page or a frame: without another document, it stays, unless
        it starts again at once, for a navigation that replaces another."""
        if params["frameId"] == self._frame_id and self.leaving:
            self._keep_waiting()
            loop = asyncio.get_running_loop()
            self._stays = loop.call_later(_RESTART_SECONDS, self._end_navigation)

    def _started_loading(self, params: dict[str, Any]) -> None:
        if params["frameId"] == self._frame_id:
            self._keep_waiting()

    def _keep_waiting(self) -> None:
        if self._stays is not None:
            self._stays.cancel()
            self._stays = None

    def _end_navigation(self) -> None:
        self._keep_waiting()
        self._requests.navigate("")

    def _reloaded(self, url: str, arrived_at: str) -> None:
        self.cache_buster = added_time(self._url, arrived_at, time.time())
        self._reloads += 1
        if self._reloads > MAX_RELOADS:
            self._leave(url)

    def _leave(self, url: str, *, posts: bool = False) -> None:
        if posts:
            # What a POST responds with has no URL of its own.
            self.fail(RenderError(f"posts a form to {url} by itself", about=self._url))
        elif not self.to.done():
            self.to.set_result(url)
