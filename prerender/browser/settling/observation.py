"""What settling observes: the page, its requests, and the clocks."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from prerender.browser.probe import ProbeState


class NetworkView(Protocol):
    """What settling needs to know of the page's requests, at any moment."""

    @property
    def requests(self) -> int:
        """How many there were."""

    @property
    def answered(self) -> int:
        """How many have finished."""

    @property
    def answered_urls(self) -> list[str]:
        """The URLs of the finished ones, without that for the page's document."""

    @property
    def is_leaving(self) -> bool:
        """Whether the page navigates to another one."""

    @property
    def has_unfinished(self) -> bool:
        """Whether any are in progress, hanging or not."""

    @property
    def only_known_to_hang(self) -> bool:
        """Whether all in progress have hung on other pages."""

    @property
    def has_ending(self) -> bool:
        """Whether any in progress is no stream."""

    @property
    def fetches(self) -> int:
        """How many requests by script have no response yet."""

    @property
    def awaited_seconds(self) -> float:
        """How long needed data has been loading; 0 if none is."""

    def loads_programs(self, *, parsed: bool) -> bool:
        """Whether scripts are loading that the content depends on. ``parsed``: the document is."""

    def waiting_for(self, patience_seconds: float) -> bool:
        """Whether any in progress is worth waiting for."""

    @property
    def of_workers(self) -> Collection[str]:
        """The URLs of those of service workers."""

    def note_unused(self, urls: Counter[str]) -> None:
        """Note the URLs of those whose responses the page does not use, or not yet, and how many there
        are."""


@dataclass(frozen=True, slots=True)
class PageNetwork:
    """The page's requests.

    ``requests``: how many there were. ``answered``: how many have finished. ``unfinished``: whether
    any are in progress, hanging or not. ``promising``: whether any of those are worth waiting for, or
    the page navigates to another one.
    ``programs``: whether scripts are loading that the content depends on. ``fetches``: how
    many requests by script have no response yet. ``ending``: whether any in progress is no stream.
    ``awaited_seconds``: how long needed data has been loading. ``delivered``: the page is known to
    have got every response that the gateway has passed on.
    """

    requests: int
    answered: int
    unfinished: bool
    promising: bool
    programs: bool
    fetches: int
    ending: bool
    awaited_seconds: float
    delivered: bool = False

    @classmethod
    def of(
        cls, view: NetworkView, patience_seconds: float, *, parsed: bool, delivered: bool
    ) -> "PageNetwork":
        """The requests at this moment."""
        unfinished = view.has_unfinished
        return cls(
            view.requests,
            view.answered,
            unfinished=unfinished,
            promising=view.is_leaving or (unfinished and view.waiting_for(patience_seconds)),
            programs=unfinished and view.loads_programs(parsed=parsed),
            fetches=view.fetches if unfinished else 0,
            ending=unfinished and view.has_ending,
            awaited_seconds=view.awaited_seconds if unfinished else 0.0,
            delivered=delivered,
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known after a step.

    ``page``: None if the page has broken the probe. ``seconds``: real time. ``cpu_seconds``: CPU time
    of the page's process. ``slice_cpu_seconds``: CPU time of the last grant of virtual time.
    ``clock_waits``: whether the page's clock waits for requests.
    """

    page: ProbeState | None
    network: PageNetwork
    seconds: float
    cpu_seconds: float
    slice_cpu_seconds: float
    clock_waits: bool

    @property
    def is_request_moving(self) -> bool:
        """Whether a request may be on its way to the gateway, or its response to the page."""
        return self.page is not None and self.page.fetching > self.network.fetches

    @property
    def activity(self) -> tuple[int, int]:
        """Values that change when the page requests something, or a request progresses."""
        return self.network.requests, self.page.activity if self.page else 0

    @property
    def events(self) -> tuple[int, ...]:
        """Values that change when anything happens in the page or to its requests."""
        return *self.activity, self.network.answered, self.page.mutations if self.page else 0
