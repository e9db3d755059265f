"""Decides how long to wait for work that may be endless or that virtual time does not cover. Pure."""

import math
from dataclasses import dataclass, replace

from prerender.browser.probe import ProbeState
from prerender.browser.settling.observation import Observation
from prerender.browser.settling.reasons import SettleReason

# While real work is pending, virtual time follows real time, in turns. The pause in a turn is short
# after an event, because more may follow; each one without an event is followed by a longer one.
SHORTEST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.04
_PAUSE_GROWTH = 1.25
# A turn takes about 5 ms more than its pause. If it takes longer than this and no request holds the
# clock, the machine was busy, and the work that is waited for was delayed, too: that does not count.
MOST_BEYOND_PAUSE_SECONDS = 0.02
# How long work in a worker, a database or a socket may be silent before it is ignored.
WORK_PATIENCE_SECONDS = 3.0
# A worker or server that has sent something may send more.
MESSAGE_PATIENCE_SECONDS = 0.3
# After the first message since the page has requested something of it, which may only acknowledge that.
ACKNOWLEDGED_SECONDS = 1.5
# If there were longer pauses between its messages, this many times the longest one: pages may collect
# them until the last one. At most this long: signs of life are further apart.
_MESSAGE_PAUSES = 3
_MOST_MESSAGE_PATIENCE_SECONDS = 1.0
# If its last message has changed the page: applications that are sent in parts pause for this long.
DELIVERING_SECONDS = 2.4
# A response that the gateway has passed on takes a moment to reach the page.
DELIVERY_SECONDS = 0.2
# Limits of endless work: while it has no visible effect in the page (it is unproductive), and in total.
UNPRODUCTIVE_SECONDS = 2.5
LONGEST_WORK_SECONDS = 8.0
# An unproductive page, for example one that listens to a stream, may still request its content.
# After this many requests without a visible effect, that is not expected any more.
UNPRODUCTIVE_REQUESTS = 10
# A page whose data has not arrived after this time waits for a slow server, and is not unproductive.
SLOW_DATA_SECONDS = 1.0
# CPU time that intervals and animation loops may use: if they change nothing, and if they keep
# changing the page. Cheap ones run to the end of the virtual budget, where an endlessly changing page
# is the same each time.
IDLE_LOOP_SECONDS = 0.5
BUSY_LOOP_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class WaitTurns:
    """Turns of waiting in real time.

    ``before``: the observation before the running one, if any. ``pause_seconds``: its pause, or that
    of the next one. ``seconds``: how long the last one took. ``lost_seconds``: how long the machine
    was busy with other things in all turns.
    """

    before: Observation | None = None
    pause_seconds: float = SHORTEST_PAUSE_SECONDS
    seconds: float = SHORTEST_PAUSE_SECONDS
    lost_seconds: float = 0.0

    def after(self, seen: Observation) -> "WaitTurns":
        """The turns after an observation, which ends a running one."""
        if self.before is None:
            return self
        took = seen.seconds - self.before.seconds
        seconds = min(took, self.pause_seconds + MOST_BEYOND_PAUSE_SECONDS)
        lost = 0.0 if self._clock_was_held(seen) else took - seconds
        pause = SHORTEST_PAUSE_SECONDS
        if seen.events == self.before.events:
            pause = min(self.pause_seconds * _PAUSE_GROWTH, LONGEST_PAUSE_SECONDS)
        return WaitTurns(None, pause, seconds, self.lost_seconds + lost)

    def _clock_was_held(self, seen: Observation) -> bool:
        """Whether the clock has waited for a request in the running turn."""
        assert self.before is not None
        requests = seen.network.requests - self.before.network.requests
        return seen.clock_waits and (requests > 0 or seen.network.unfinished)


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A value, and since when it has not changed, in seconds of some clock."""

    value: int | None = None
    since: float = 0.0

    def at(self, seconds: float, value: int) -> "Unchanged":
        """The same at a later time."""
        return self if value == self.value else Unchanged(value, seconds)


@dataclass(frozen=True, slots=True)
class Work:
    """Work in real time: when it began, and since when something of it has not changed.

    ``mutations``: of the page. ``activity``: of workers, databases and sockets. ``answered``: requests.
    ``acknowledged``: messages that may only acknowledge a request. ``pushed``: messages that nothing
    requested; ``longest_pause``: before one of them. ``only_talks``: only channels are open that have
    sent something, so that silence is no delay. ``events``: everything that happens in the page's work.
    ``requests``: how many there were when the page last changed.
    Seconds are of real time, without those when the machine was busy with other things.
    """

    began: float = math.inf
    mutations: Unchanged = Unchanged()
    activity: Unchanged = Unchanged()
    answered: Unchanged = Unchanged()
    acknowledged: Unchanged = Unchanged(0, -math.inf)
    pushed: Unchanged = Unchanged(0, -math.inf)
    longest_pause: float = 0.0
    only_talks: bool = False
    events: Unchanged = Unchanged()
    requests: int = 0

    def is_unproductive(self, seconds: float) -> bool:
        """Whether it has gone on for long, or for a while without a visible effect."""
        return seconds - self.mutations.since > UNPRODUCTIVE_SECONDS or self._is_too_long(seconds)

    def _is_too_long(self, seconds: float) -> bool:
        return seconds - self.began > LONGEST_WORK_SECONDS

    def after(self, seen: Observation, page: ProbeState, seconds: float) -> "tuple[Work, bool]":
        """The updated work, and whether any of it is worth waiting for."""
        network = seen.network
        if network.awaited_seconds > SLOW_DATA_SECONDS or network.programs:
            return self._restarted(seconds), True
        work = self._observed(seen, page, seconds)
        if work.is_unproductive(seconds) and not work._still_loads_content(seen, seconds):
            return work, False
        if network.promising:
            return work, True
        return work._apart_from_requests(seen, page, seconds)

    def _observed(self, seen: Observation, page: ProbeState, seconds: float) -> "Work":
        """The work with the effects and events of an observation."""
        network, mutations = seen.network, self.mutations.at(seconds, page.mutations)
        events = self.events.at(seconds, network.requests + network.answered + page.activity)
        pushed, longest_pause = self.pushed.at(seconds, page.pushed), self.longest_pause
        was_still = (
            events is not self.events
            and seconds - self.events.since > SLOW_DATA_SECONDS
            and (not self.only_talks or network.promising or seen.is_request_moving)
        )
        if pushed is not self.pushed:
            # A ticker begins once.
            was_still = not self.pushed.value
            last = max(self.pushed.since, self.acknowledged.since)
            longest_pause = max(longest_pause, seconds - last if last > -math.inf else 0.0)
        if was_still:
            # Before, something hung, such as an event stream, which says nothing about the page.
            mutations = replace(mutations, since=seconds)
        return replace(
            self,
            began=min(self.began, seconds),
            mutations=mutations,
            pushed=pushed,
            longest_pause=longest_pause,
            only_talks=page.talking > 0
            and not (page.working or network.ending or seen.is_request_moving),
            events=events,
            requests=self.requests if mutations is self.mutations else network.requests,
        )

    def _still_loads_content(self, seen: Observation, seconds: float) -> bool:
        """Whether an unproductive page still loads content."""
        awaits = seen.network.awaited_seconds > 0 or seen.is_request_moving
        few = seen.network.requests - self.requests < UNPRODUCTIVE_REQUESTS
        return awaits and few and not self._is_too_long(seconds)

    def _restarted(self, seconds: float) -> "Work":
        """The work begins anew when slow data or programs have arrived."""
        return replace(self, began=math.inf, mutations=replace(self.mutations, since=seconds))

    def _apart_from_requests(
        self, seen: Observation, page: ProbeState, seconds: float
    ) -> "tuple[Work, bool]":
        """Whether work is pending apart from requests."""
        answered = self.answered.at(seconds, seen.network.answered)
        # The parser may wait for a program that the gateway has passed on.
        delivery_seconds = DELIVERY_SECONDS if page.parsed else WORK_PATIENCE_SECONDS
        is_delivering = not (seen.clock_waits or seen.network.delivered)
        if is_delivering and seconds - answered.since < delivery_seconds:
            # A response may be on its way to the page.
            return replace(self, answered=answered), True
        activity = self.activity.at(seconds, page.activity)
        silent = seconds - activity.since
        is_moving = seen.is_request_moving
        if is_moving and seen.network.ending and silent > SLOW_DATA_SECONDS:
            # Chromium queues it, because slow requests use all connections to its host.
            return self._restarted(seconds), True
        works = (page.working > 0 or is_moving) and silent < WORK_PATIENCE_SECONDS
        acknowledged = self.acknowledged.at(seconds, page.acknowledged)
        # Who has just changed the page may do so again; a server that only pings has no effect.
        pauses = min(_MESSAGE_PAUSES * self.longest_pause, _MOST_MESSAGE_PATIENCE_SECONDS)
        patience = max(MESSAGE_PATIENCE_SECONDS, pauses)
        if page.delivering > 0:
            patience = DELIVERING_SECONDS
        is_expected = silent < patience or seconds - acknowledged.since < ACKNOWLEDGED_SECONDS
        work = replace(self, activity=activity, answered=answered, acknowledged=acknowledged)
        return work, works or (page.talking > 0 and is_expected)


@dataclass(frozen=True, slots=True)
class Loops:
    """Intervals and animation loops, in seconds of CPU time: since when only they are pending, and
    since when the page has not changed."""

    alone_since: float = math.inf
    mutations: Unchanged = Unchanged()

    def after(self, page: ProbeState, cpu_seconds: float) -> "tuple[Loops, SettleReason | None]":
        """The loops, and why they are not waited for any more, if so."""
        mutations = self.mutations.at(cpu_seconds, page.mutations)
        if cpu_seconds - mutations.since > IDLE_LOOP_SECONDS:
            return replace(self, mutations=mutations), SettleReason.IDLE_LOOPS
        since = min(self.alone_since, cpu_seconds)
        is_over = cpu_seconds - since > BUSY_LOOP_SECONDS
        return Loops(since, mutations), SettleReason.LOOPS if is_over else None
