"""What settling observes: the page, its requests, and the clocks."""

from dataclasses import dataclass

from prerender.browser.probe import State


@dataclass(frozen=True, slots=True)
class Network:
    """The page's requests.

    ``requests``: how many there were. ``answered``: how many have finished. ``unfinished``: whether
    any are in progress, hanging or not. ``promising``: whether any of those are worth waiting for.
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


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known after a step.

    ``page``: None if the page has broken the probe. ``seconds``: real time. ``cpu_seconds``: CPU time
    of the page's process. ``slice_cpu_seconds``: CPU time of the last grant of virtual time.
    ``clock_waits``: whether the page's clock waits for requests.
    """

    page: State | None
    network: Network
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
