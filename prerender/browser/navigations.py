"""How much of Chromium's allowance for navigations a tab has used up.

A page that calls ``history.pushState`` or sets ``location.hash`` in a loop keeps the whole browser
busy. So Chromium ignores a frame's navigations beyond 200 in ten seconds, as it does in people's
browsers. But the frame of a reused tab is the same one for the next render, whose navigations must not
be ignored because of the last one's: a tab that has used up too much of its allowance is replaced.
"""

import time
from typing import Any

from prerender.browser.devtools import Session

# Chromium's are 200 and 10 s (NavigationRateLimiter); what one render may find used up is less.
_MOST_USED = 120
_WINDOW_SECONDS = 11.0
# Calls of history.back() and the like count too, but cause no event: the probe lets a document make so
# many (scripts/probe/history.js).
UNSEEN_PER_DOCUMENT = 2


class NavigationAllowance:
    """Counts the navigations of one tab. ``is_used_up``: the tab should be replaced."""

    def __init__(self, session: Session, frame_id: str) -> None:
        self._frame_id = frame_id
        self._since = 0.0
        self._used = 0
        session.on("Page.navigatedWithinDocument", self._navigated)
        session.on("Page.frameScheduledNavigation", self._navigated)
        session.on("Page.frameNavigated", self._new_document)

    @property
    def is_used_up(self) -> bool:
        """Whether the next render could find too little left."""
        return self._used > _MOST_USED and time.monotonic() - self._since < _WINDOW_SECONDS

    def _navigated(self, params: dict[str, Any]) -> None:
        if params["frameId"] == self._frame_id:
            self._count(1)

    def _new_document(self, params: dict[str, Any]) -> None:
        if params["frame"]["id"] == self._frame_id:
            self._count(UNSEEN_PER_DOCUMENT)

    def _count(self, number: int) -> None:
        # The page's clock, by which Chromium counts, is never slower than the real one.
        now = time.monotonic()
        if now - self._since > _WINDOW_SECONDS:
            self._since, self._used = now, 0
        self._used += number
