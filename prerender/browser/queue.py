"""The queue for pages: bounded, and fair among the sections of the site.

The sections take turns; within a section the order is first in, first out. When the queue is full, the
section with the most places gives up its newest one for a section that has fewer. So a flood of
requests for one section finds the queue full, while other sections are still admitted.

Nothing here waits: the holder of a place awaits ``Place.turn``.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prerender.errors import BrowserGone, PoolBusy, PrerenderError

if TYPE_CHECKING:
    from prerender.browser.page import Page


_LONGEST_URL = 1024


def section_of(url: str) -> str:
    """The part of a site that a URL belongs to: the first segments of its path and of its fragment.

    Queries are ignored: ``/search?q=1`` and ``/search?q=2`` belong to the same section.
    """
    # urlsplit() remembers its arguments.
    parts = urlsplit(url[:_LONGEST_URL])
    return f"{_first_segment(parts.path)}#{_first_segment(parts.fragment.removeprefix('!'))}"


def _first_segment(path: str) -> str:
    return path.partition("?")[0].strip("/").partition("/")[0]


class Place:
    """The place of a render, from its admission until it has a page. ``turn`` is set while it waits.

    ``limit`` cancels its holder when the place is taken away, with ``error`` as the reason.
    """

    __slots__ = ("error", "limit", "section", "turn")

    def __init__(self, section: str) -> None:
        self.section = section
        self.limit = asyncio.timeout(None)
        self.error: PrerenderError | None = None
        self.turn: asyncio.Future[Page] | None = None


class FairQueue:
    """Has ``size`` places. ``len()`` is the number of places that currently wait for a page."""

    def __init__(self, size: int) -> None:
        self.size = size
        # In the order in which they were taken.
        self._places: OrderedDict[Place, None] = OrderedDict()
        self._held: Counter[str] = Counter()
        # In the order of their turns.
        self._waiting: OrderedDict[str, deque[Place]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def admitted(self) -> int:
        """The number of places taken: those that wait for a page, and those that fetch a document."""
        return len(self._places)

    def enter(self, section: str, room: int = 0) -> Place:
        """A place for a render of a section. ``room``: the number of places allowed above the size.

        Raises PoolBusy when the queue is full and no other section has more places.
        """
        if len(self._places) >= self.size + room and not self._give_up_for(section):
            raise PoolBusy(f"the queue of {self.size} renders is full ([browser] queue)")
        place = Place(section)
        self._take(place)
        return place

    def leave(self, place: Place) -> None:
        """Release a place in any state. Safe to call twice."""
        line = self._waiting.get(place.section)
        if line is not None and place in line:
            line.remove(place)
            if not line:
                del self._waiting[place.section]
        if place in self._places:
            del self._places[place]
            self._held[place.section] -= 1
            if not self._held[place.section]:
                del self._held[place.section]

    def wait(self, place: Place) -> "asyncio.Future[Page]":
        """Wait for a page: the future completes when there is one.

        A place whose page was lost comes first in its section.
        """
        place.turn = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(place.section, deque())
        if place in self._places:
            line.append(place)
        else:
            self._take(place)
            line.appendleft(place)
        return place.turn

    def next(self) -> Place | None:
        """Remove the next place from the queue."""
        while self._waiting:
            section, line = next(iter(self._waiting.items()))
            place = line[0]
            self.leave(place)
            if section in self._waiting:
                self._waiting.move_to_end(section)
            assert place.turn is not None
            if not place.turn.done():
                return place
        return None

    def take_all_away(self, problem: str) -> None:
        """End all who have a place: there is no browser for now."""
        for place in list(self._places):
            self._take_away(place, BrowserGone(problem))

    def _take_away(self, place: Place, error: PrerenderError) -> None:
        self.leave(place)
        place.error = error
        place.limit.reschedule(asyncio.get_running_loop().time())

    def _take(self, place: Place) -> None:
        self._places[place] = None
        self._held[place.section] += 1

    def _give_up_for(self, section: str) -> bool:
        """Take the newest place of the largest section, if it has more than this section will have."""
        largest, held = max(self._held.items(), key=lambda item: item[1], default=("", 0))
        if held <= self._held[section] + 1:
            return False
        newest = next(place for place in reversed(self._places) if place.section == largest)
        reason = "queue full: dropped in favour of another section of the site"
        self._take_away(newest, PoolBusy(reason))
        return True
