"""Decides how to make lazy content visible: content that loads when it is scrolled to. Pure.

The window grows to the height of the page. Content that remains invisible is scrolled to: in scrolling
elements, and in pages that grow with their window (sections of its height), in a window of the
ordinary height.
"""

from dataclasses import dataclass, replace
from typing import Self

# The window grows to the height of a page with lazy content, but only up to this: a page may grow with
# its window.
HIGHEST_WINDOW = 20_000
MOST_SHOWINGS = 4
# While each attempt adds content to a page that is lower than this window: so many, which begin within
# this time. Lists that load a few rows at a time need them; endless ones must not take much longer.
MOST_PRODUCTIVE_SHOWINGS = 12
PRODUCTIVE_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Show:
    """Call a function of scripts/probe/lazy_content.js.

    ``height``: first give the window this height in CSS pixels; None: leave it as it is.
    """

    call: str
    height: int | None = None


_MEASURE = Show("height()")
_FIND = Show("hasNextToVisit()")


@dataclass(frozen=True, slots=True)
class Showing:
    """The attempts to make content visible. Heights are those of the window in CSS pixels.

    ``began``: when the first attempt began, in seconds. ``mutations``: of the page, before the last
    attempt. ``grows``: the page grows with its window. ``step``: the last step.
    """

    ordinary_height: int
    height: int
    attempts: int = 0
    began: float = 0.0
    mutations: int = 0
    grows: bool = False
    step: Show = _MEASURE

    def may_begin(self, mutations: int, seconds: float) -> bool:
        """Whether another attempt is allowed."""
        if self.attempts < MOST_SHOWINGS:
            return True
        is_productive = (
            mutations > self.mutations and not self.grows and self.height < HIGHEST_WINDOW
        )
        is_in_time = seconds - self.began < PRODUCTIVE_SECONDS
        return is_productive and is_in_time and self.attempts < MOST_PRODUCTIVE_SHOWINGS

    def begin(self, mutations: int, seconds: float) -> tuple[Self, Show]:
        """Begin an attempt."""
        began = self.began if self.attempts else seconds
        begun = replace(self, attempts=self.attempts + 1, began=began, mutations=mutations)
        return begun._next(_FIND if self.grows else _MEASURE)

    def after(self, measured: object) -> tuple[Self, Show | bool]:
        """The next step after the page's answer to the last one. Or, after the last step of an
        attempt, whether there was content to show.

        The page can answer anything.
        """
        match self.step:
            case Show("height()", None):
                return self._measured(_height(measured))
            case Show("height()"):
                if _height(measured) <= self.height:
                    return self._next(Show("shown()"))
                return replace(self, grows=True)._next(Show("tour()", self.ordinary_height))
            case Show("hasNextToVisit()"):
                return self._next(Show("tour()")) if measured else (self, False)
        return self, True

    def _measured(self, page_height: int) -> tuple[Self, Show]:
        height = min(page_height, HIGHEST_WINDOW)
        if height <= self.height:
            return self._next(_FIND)
        # A page cannot be followed beyond the highest window, so it is not measured again.
        return self._next(Show("shown()" if height == HIGHEST_WINDOW else "height()", height))

    def _next(self, step: Show) -> tuple[Self, Show]:
        height = self.height if step.height is None else step.height
        return replace(self, step=step, height=height), step


def _height(measured: object) -> int:
    return int(measured) if isinstance(measured, int | float) else 0
