"""The decision when a page has settled: recorded pages, the limits of each rule, and any page at all.

No browser is needed. tests/browser/test_settling.py renders the pages that the traces are of.
"""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.browser.settling import decision, lazy_content, patience
from prerender.browser.settling.decision import (
    Budget,
    Done,
    Frame,
    SettlingProgress,
    Slice,
    Slices,
    Stage,
    Step,
    Wait,
    after_show,
    begin,
    decide,
)
from prerender.browser.settling.lazy_content import Show
from prerender.browser.settling.observation import Observation
from prerender.browser.settling.patience import Loops, WaitTurns
from prerender.browser.settling.reasons import SettleReason
from tests.support.settling_traces import observation, pages, read, replayed

HEIGHT = 1024
QUIET: dict[str, Any] = {
    **dict.fromkeys(("complete", "parsed", "probe", "clock_waits"), True),
    **dict.fromkeys(("intervals", "frames", "working", "layout", "drawn", "watched", "talking"), 0),
    **dict.fromkeys(("foreign", "activity", "mutations", "unseen", "errors", "sheets"), 0),
    **dict.fromkeys(("unfinished", "promising", "programs"), False),
    **dict.fromkeys(("awaited_seconds", "seconds", "cpu_seconds", "slice_cpu_seconds"), 0.0),
    "ready": None,
    "timers": [],
    "elapsed": 100.0,
    "requests": 1,
    "answered": 1,
}
CONFIRMED = Slice(decision.CONFIRMING_SLICE_MS)
QUIET_END = Done(SettleReason.NOTHING_PENDING)
LITTLE = 0.001
TURN = patience.SHORTEST_PAUSE_SECONDS + patience.MOST_BEYOND_PAUSE_SECONDS


def seen(**changes: Any) -> Observation:
    """A page with nothing pending, apart from the changes."""
    return observation(QUIET | changes)


def running(budget_seconds: float = 10.0, **parts: Any) -> SettlingProgress:
    """The progress of a page after slices and frames."""
    progress, _ = begin(budget_seconds, HEIGHT)
    return replace(progress, **{"stage": Stage.WORK, **parts})


def next_step(progress: SettlingProgress | None = None, **changes: Any) -> Step:
    return decide(progress or running(), seen(**changes))[1]


def confirmed(progress: SettlingProgress | None = None, **changes: Any) -> Step:
    """The step after the short slice that confirms that the page has settled."""
    progress, step = decide(progress or running(), seen(**changes))
    assert step == CONFIRMED
    return decide(progress, seen(**changes))[1]


@pytest.mark.parametrize("page", pages())
def test_recorded_pages_take_the_same_steps(page: str) -> None:
    rows = read(page)
    assert replayed(rows) == [step for _, step in rows]


def test_recorded_pages_show_each_kind_of_step() -> None:
    steps = [step for page in pages() for _, step in read(page)]
    assert {step[0] for step in steps} == {"Slice", "Frame", "Wait", "Show", "Done"}
    reasons = {step[1] for step in steps if step[0] == "Done"}
    assert reasons == {"nothing_pending", "budget", "no_probe", "prerender_ready", "only_loops"}


# ---- Slices


@pytest.mark.parametrize(("budget", "expected"), [(10, 100), (0.1, 100), (0.099, 99)])
def test_the_first_slice(budget: float, expected: float) -> None:
    assert begin(budget, HEIGHT)[1] == Slice(expected)


@pytest.mark.parametrize(
    ("elapsed", "expected"), [(50, 25), (50.5, 49.5), (99.5, 0.5), (100, 25), (120, 25)]
)
def test_the_first_slice_is_extended_if_the_document_arrived_late(
    elapsed: float, expected: float
) -> None:
    progress, _ = begin(10, HEIGHT)
    extended, step = decide(progress, seen(elapsed=elapsed))
    assert step == Slice(expected)
    # Once, and outside the budget.
    assert next_step(extended, elapsed=elapsed) in (CONFIRMED, QUIET_END)
    assert extended.budget.left == 9900 - (25 if step == CONFIRMED else 0)


def test_a_frame_that_a_late_page_wants_follows_the_extended_slice() -> None:
    """The probe says only once that the page wants a frame, for a scroll event for example."""
    progress, step = decide(begin(10, HEIGHT)[0], seen(elapsed=90, layout=1))
    assert step == Slice(10)
    progress, step = decide(progress, seen(elapsed=100, layout=0))
    assert step == Frame(drawn=False)
    assert next_step(progress, elapsed=116) == CONFIRMED


LAST = 200.0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"complete": False}, 2 * LAST),
        ({"intervals": 1, "timers": [50.0]}, 2 * LAST),
        ({"frames": 1, "timers": [50.0]}, 2 * LAST),
        ({"foreign": 1, "timers": [50.0]}, 2 * LAST),
        ({"ready": False, "timers": [50.0]}, 2 * LAST),
        ({"probe": False}, 2 * LAST),
        ({"complete": False, "slice_cpu_seconds": decision.COSTLY_SLICE_SECONDS}, 2 * LAST),
        ({"complete": False, "slice_cpu_seconds": decision.COSTLY_SLICE_SECONDS + LITTLE}, LAST),
        ({"timers": [50.0]}, 51),
        ({"timers": [50.0, 70.0, 99_000.0]}, 71),
        ({"timers": [398.0]}, 399),
        ({"timers": [2000.0]}, 2 * LAST),
        ({"timers": [-300.0]}, decision.SHORTEST_SLICE_MS),
        ({"timers": [14.0]}, decision.SHORTEST_SLICE_MS),
        ({"timers": [16.0]}, 17),
    ],
)
def test_slices_double_but_end_with_the_last_timer(
    changes: dict[str, Any], expected: float
) -> None:
    assert next_step(running(slices=Slices(LAST)), **changes) == Slice(expected)


def test_slices_have_a_maximum() -> None:
    progress = running(20, slices=Slices(decision.LONGEST_SLICE_MS - 1))
    assert next_step(progress, complete=False) == Slice(decision.LONGEST_SLICE_MS)


def test_slices_end_with_the_budget() -> None:
    progress = running(budget=Budget(150.0), slices=Slices(LAST))
    assert next_step(progress, complete=False) == Slice(150)


@pytest.mark.parametrize(
    ("unchanged", "mutations", "expected"),
    [
        (decision.POLLING_SLICES - 1, 0, 51),
        (decision.POLLING_SLICES, 0, 2 * LAST),
        (decision.POLLING_SLICES, 1, 51),
    ],
)
def test_polling_gets_longer_slices(unchanged: int, mutations: int, expected: float) -> None:
    progress = running(slices=Slices(LAST, unchanged, mutations=0))
    assert next_step(progress, timers=[50.0], mutations=mutations) == Slice(expected)


# ---- Frames


@pytest.mark.parametrize("drawn", [0, 1])
def test_observed_elements_get_a_frame_after_each_slice(drawn: int) -> None:
    for stage in (Stage.FIRST, Stage.SLICE):
        progress = running(stage=stage)
        assert next_step(progress, watched=1, drawn=drawn) == Frame(bool(drawn))
        assert next_step(progress, watched=1, ready=True) == Frame(drawn=False)
        assert next_step(replace(progress, budget=Budget(0.0)), watched=1) == Frame(drawn=False)
    assert next_step(watched=1) == CONFIRMED


@pytest.mark.parametrize(
    ("left", "ready", "expected"),
    [
        (0.1, None, Frame(False)),
        (0.1, False, Frame(False)),
        (0.1, True, CONFIRMED),
        (0.0, None, CONFIRMED),
    ],
)
def test_layout_gets_frames_while_there_is_budget(
    left: float, ready: bool | None, expected: Step
) -> None:
    assert next_step(running(budget=Budget(left)), layout=1, ready=ready) == expected


# ---- Work in real time


def waits(after_seconds: float, begins: dict[str, Any], **changes: Any) -> bool:
    """Whether work is still waited for so long after it has begun."""
    progress, _ = decide(running(), seen(**begins))
    step = next_step(
        replace(progress, stage=Stage.WORK, turns=WaitTurns()), **changes, seconds=after_seconds
    )
    return isinstance(step, Wait)


WORKS = {"working": 1}
PROMISES = {"requests": 2, "unfinished": True, "promising": True}


@pytest.mark.parametrize(
    ("begins", "changes", "most_seconds"),
    [
        pytest.param(WORKS, WORKS, patience.UNPRODUCTIVE_SECONDS, id="work without effect"),
        pytest.param(
            WORKS, {**WORKS, "mutations": 1}, patience.WORK_PATIENCE_SECONDS, id="silent work"
        ),
        pytest.param(
            WORKS,
            {**WORKS, "mutations": 1, "activity": 1},
            patience.LONGEST_WORK_SECONDS,
            id="work with effect",
        ),
        pytest.param(
            {},
            {"fetching": 1, "fetches": 0, "mutations": 1},
            patience.WORK_PATIENCE_SECONDS,
            id="requests on their way to the gateway",
        ),
        pytest.param({}, {"talking": 1}, patience.MESSAGE_PATIENCE_SECONDS, id="a silent server"),
        pytest.param(
            {"talking": 1, "acknowledged": 1},
            {"talking": 1, "acknowledged": 1},
            patience.ACKNOWLEDGED_SECONDS,
            id="a server that has acknowledged a request",
        ),
        pytest.param(
            {"talking": 1, "acknowledged": 1},
            {"talking": 1, "acknowledged": 1, "delivering": 1},
            patience.DELIVERING_SECONDS,
            id="a server that delivers the page",
        ),
        pytest.param({}, {"clock_waits": False}, patience.DELIVERY_SECONDS, id="delivery"),
        pytest.param(
            {},
            {"clock_waits": False, "parsed": False, "mutations": 1},
            patience.WORK_PATIENCE_SECONDS,
            id="delivery of what blocks the document",
        ),
        pytest.param(
            PROMISES, PROMISES, patience.UNPRODUCTIVE_SECONDS, id="requests without effect"
        ),
        pytest.param(
            PROMISES,
            {**PROMISES, "mutations": 1},
            patience.LONGEST_WORK_SECONDS,
            id="requests with effect",
        ),
    ],
)
def test_work_is_waited_for_this_long(
    begins: dict[str, Any], changes: dict[str, Any], most_seconds: float
) -> None:
    assert waits(most_seconds - LITTLE, begins, **changes)
    assert not waits(most_seconds + LITTLE, begins, **changes)


def test_later_messages_do_not_extend_the_patience_after_an_acknowledgement() -> None:
    progress, channel = running(), {"talking": 1, "acknowledged": 1}
    heartbeat = patience.ACKNOWLEDGED_SECONDS - patience.MESSAGE_PATIENCE_SECONDS
    for activity, seconds in enumerate((0, heartbeat)):
        progress, step = decide(progress, seen(**channel, activity=activity, seconds=seconds))
        assert isinstance(step, Wait)
        progress = replace(progress, turns=WaitTurns())
    late = {"activity": 1, "seconds": patience.ACKNOWLEDGED_SECONDS + LITTLE}
    assert not isinstance(next_step(progress, **channel, **late), Wait)


def talks(messages: list[tuple[float, dict[str, int]]]) -> Step:
    """The step at the last of some moments of a channel, in seconds, between which turns passed."""
    progress, step, state = running(), None, {"talking": 1}
    turns = int(messages[-1][0] / TURN)
    for turn in range(turns + 1):
        if messages[0][0] <= turn * TURN:
            state |= messages.pop(0)[1] | {"activity": turn}
        progress, step = decide(progress, seen(**state, seconds=turn * TURN))
        if not isinstance(step, Wait):
            break
    assert step
    return step


def test_messages_with_pauses_are_waited_for() -> None:
    first = (0.0, {"acknowledged": 1})
    pushes = [(1.3 + 0.4 * number, {"pushed": number + 1}) for number in range(6)]
    assert isinstance(talks([first, *pushes]), Wait)
    ticker = [(1.3 * number, {"pushed": number}) for number in range(1, 6)]
    assert not isinstance(talks([first, *ticker]), Wait)


def test_a_heartbeat_of_a_second_does_not_restart_the_page() -> None:
    beats = [(1.1 * number, {"acknowledged": number}) for number in range(6)]
    assert not isinstance(talks(beats), Wait)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"programs": True}, True),
        ({"awaited_seconds": patience.SLOW_DATA_SECONDS + LITTLE}, True),
        ({"awaited_seconds": patience.SLOW_DATA_SECONDS}, False),
    ],
)
def test_the_content_itself_is_waited_for_without_a_limit(
    changes: dict[str, Any], expected: bool
) -> None:
    assert waits(100.0, WORKS, unfinished=True, **changes) == expected


def test_a_page_has_restarted_when_its_programs_have_arrived() -> None:
    progress, _ = decide(running(), seen(**WORKS))
    progress, _ = decide(progress, seen(programs=True, seconds=100.0))
    progress, _ = decide(progress, seen(**PROMISES, seconds=100.0))
    step = next_step(progress, **PROMISES, mutations=1, seconds=100 + patience.LONGEST_WORK_SECONDS)
    assert isinstance(step, Wait)


LATE_SECONDS = patience.UNPRODUCTIVE_SECONDS + LITTLE


@pytest.mark.parametrize("is_at_gateway", [True, False])
def test_a_request_after_silence_has_restarted(is_at_gateway: bool) -> None:
    request = PROMISES if is_at_gateway else {"fetching": 1, "fetches": 0, "activity": 1}
    progress, step = decide(running(), seen(**WORKS))
    for turn in range(50):
        now = LATE_SECONDS + turn * TURN
        progress, step = decide(progress, seen(**WORKS | request, seconds=now))
    assert isinstance(step, Wait)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"requests": patience.UNPRODUCTIVE_REQUESTS}, True),
        ({"requests": patience.UNPRODUCTIVE_REQUESTS + 1}, False),
        ({"awaited_seconds": 0.0}, False),
        ({"awaited_seconds": 0.0, "fetching": 1, "fetches": 0}, True),
        ({"seconds": patience.LONGEST_WORK_SECONDS + LITTLE}, False),
    ],
)
def test_an_unproductive_page_may_still_request_its_content(
    changes: dict[str, Any], expected: bool
) -> None:
    progress, step = running(), None
    for turn in range(int(LATE_SECONDS / TURN)):
        talks = seen(**WORKS, activity=turn, requests=1, seconds=turn * TURN)
        progress, step = decide(progress, talks)
    assert isinstance(step, Wait)
    request = {**PROMISES, "awaited_seconds": LITTLE, "activity": 1000, "seconds": LATE_SECONDS}
    assert isinstance(next_step(progress, **request | changes), Wait) == expected


def test_a_clock_that_waits_for_requests_delivers_them() -> None:
    assert not waits(patience.DELIVERY_SECONDS / 2, {}, answered=2)
    assert waits(patience.DELIVERY_SECONDS / 2, {}, answered=2, clock_waits=False)


def test_responses_that_the_page_has_got_are_not_on_their_way() -> None:
    delivered = {"answered": 2, "clock_waits": False, "delivered": True}
    assert not waits(patience.DELIVERY_SECONDS / 2, {}, **delivered)


def test_requests_that_have_reached_the_gateway_are_its_business() -> None:
    assert not waits(LITTLE, {}, fetching=1, fetches=1)


@pytest.mark.parametrize("ending", [True, False])
def test_a_queued_request_is_waited_for_while_a_connection_can_become_free(ending: bool) -> None:
    progress, step = running(), None
    for turn in range(400):
        queued = seen(clock_waits=False, fetching=1, ending=ending, seconds=turn * TURN)
        progress, step = decide(progress, queued)
    assert isinstance(step, Wait) == ending


@pytest.mark.parametrize("changing", ["fetches", "activity"])
def test_endless_requests_are_not_taken_for_queued_ones(changing: str) -> None:
    """The gateway has them, or they go on."""
    progress, step = running(), None
    for turn in range(400):
        known = {"fetching": 1, "fetches": 0, "ending": True, changing: 1 + turn}
        progress, step = decide(progress, seen(clock_waits=False, **known, seconds=turn * TURN))
        if not isinstance(step, Wait):
            return
    raise AssertionError


def test_work_beside_prerender_ready_is_not_waited_for() -> None:
    assert confirmed(ready=True, working=1) == Done(SettleReason.PRERENDER_READY)


@pytest.mark.parametrize(
    ("took", "ends", "turn", "lost"),
    [
        (0.015, {}, 0.015, 0),
        (TURN, {}, 0.03, 0),
        (0.5, {}, 0.03, 0.47),
        (0.5, {"clock_waits": False}, 0.03, 0.47),
        (0.5, {"unfinished": True}, 0.03, 0),
        (0.5, {"requests": 2}, 0.03, 0),
        (0.5, {"requests": 2, "clock_waits": False}, 0.03, 0.47),
    ],
)
def test_time_of_a_busy_machine_does_not_count(
    took: float, ends: dict[str, Any], turn: float, lost: float
) -> None:
    progress, step = decide(running(), seen(**WORKS))
    assert step == Wait(patience.SHORTEST_PAUSE_SECONDS, patience.SHORTEST_PAUSE_SECONDS * 1000)
    progress, step = decide(progress, seen(**WORKS, seconds=took, **ends))
    assert isinstance(step, Wait)
    assert step.milliseconds == turn * 1000
    assert progress.turns.lost_seconds == pytest.approx(lost)
    assert progress.budget == Budget(9_900, 100 + 10 + turn * 1000)


def test_pauses_get_longer_while_nothing_happens() -> None:
    progress, pauses = running(), []
    for turn in range(10):
        progress, step = decide(progress, seen(**WORKS, seconds=turn * TURN))
        assert isinstance(step, Wait)
        pauses.append(step.pause_seconds)
    assert pauses[0] == patience.SHORTEST_PAUSE_SECONDS
    assert pauses[-1] == patience.LONGEST_PAUSE_SECONDS
    assert pauses == sorted(pauses)


@pytest.mark.parametrize("event", ["requests", "answered", "activity", "mutations"])
def test_an_event_makes_the_pause_short_again(event: str) -> None:
    progress = running(turns=WaitTurns(seen(**WORKS), patience.LONGEST_PAUSE_SECONDS))
    _, step = decide(progress, seen(**WORKS, seconds=TURN, **{event: 7}))
    assert isinstance(step, Wait)
    assert step.pause_seconds == patience.SHORTEST_PAUSE_SECONDS


# ---- The end


@pytest.mark.parametrize(
    ("changes", "budget", "expected"),
    [
        ({}, Budget(1.0), "nothing_pending"),
        ({}, Budget(0.0), "budget"),
        ({"ready": True}, Budget(0.0), "prerender_ready"),
        ({"ready": True, "complete": False, "timers": [5.0]}, Budget(9.0), "prerender_ready"),
        ({"ready": False}, Budget(9.0), ""),
        ({"complete": False}, Budget(9.0), ""),
        ({"ready": False, "complete": False}, Budget(0.0), "budget"),
        ({"timers": [9.0]}, Budget(9.0), ""),
        ({"timers": [9.0 + LITTLE]}, Budget(9.0), "nothing_pending"),
        ({"foreign": 1}, Budget(9.0, decision.UNKNOWN_MS - 1), ""),
        ({"foreign": 1}, Budget(9.0, decision.UNKNOWN_MS), "nothing_pending"),
        ({"probe": False}, Budget(9.0, decision.UNKNOWN_MS - 1), ""),
        ({"probe": False}, Budget(9.0, decision.UNKNOWN_MS), "no_probe"),
        ({"probe": False}, Budget(0.0, 500.0), "no_probe"),
        ({"intervals": 1}, Budget(9.0), ""),
        ({"frames": 1}, Budget(9.0), ""),
    ],
)
def test_a_page_has_settled_when(changes: dict[str, Any], budget: Budget, expected: str) -> None:
    progress = running(budget=budget)
    if not expected:
        assert next_step(progress, **changes) == Slice(9)
        return
    _, step = decide(replace(progress, confirming=seen(**changes)), seen(**changes))
    assert step == Done(SettleReason(expected))


@pytest.mark.parametrize(
    ("mutations", "most_seconds", "reason"),
    [
        (0, patience.IDLE_LOOP_SECONDS, "only_loops_without_effect"),
        (1, patience.BUSY_LOOP_SECONDS, "only_loops"),
    ],
)
def test_loops_may_use_this_much_cpu_time(mutations: int, most_seconds: float, reason: str) -> None:
    progress, _ = decide(running(), seen(intervals=1))
    loops = {"intervals": 1, "mutations": mutations}
    assert next_step(progress, **loops, cpu_seconds=most_seconds - LITTLE) == Slice(400)
    assert confirmed(progress, **loops, cpu_seconds=most_seconds + LITTLE) == Done(
        SettleReason(reason)
    )


def test_cpu_time_before_the_loops_are_alone_does_not_count() -> None:
    page = seen(intervals=1).page
    assert page
    assert Loops().after(page, 50.0)[1] is None


def test_a_page_has_settled_only_if_a_short_slice_confirms_it() -> None:
    progress, step = decide(running(), seen())
    assert step == CONFIRMED
    assert next_step(progress) == QUIET_END
    assert next_step(progress, complete=False) == Slice(2 * decision.FIRST_SLICE_MS)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"requests": 2}, Slice(decision.FIRST_SLICE_MS)),
        ({"activity": 1}, Slice(decision.FIRST_SLICE_MS)),
        ({"answered": 2}, QUIET_END),
        (
            {"requests": 2, "seconds": patience.LONGEST_WORK_SECONDS - LITTLE},
            Slice(decision.FIRST_SLICE_MS),
        ),
        (
            {"requests": 2, "seconds": patience.LONGEST_WORK_SECONDS + LITTLE},
            QUIET_END,
        ),
        ({"requests": 2, "ready": True}, Done(SettleReason.PRERENDER_READY)),
    ],
)
def test_a_sequence_of_requests_goes_on(changes: dict[str, Any], expected: Step) -> None:
    progress, _ = decide(running(), seen())
    assert next_step(progress, **changes) == expected


# ---- Lazy content

HIGHEST = lazy_content.HIGHEST_WINDOW
MEASURE, FIND, TOUR, SHOWN = map(Show, ("height()", "hasNextToVisit()", "tour()", "shown()"))
OVER = Slice(decision.FIRST_SLICE_MS)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param(
            [3000, 3000, None], [MEASURE, Show("height()", 3000), SHOWN, OVER], id="grows once"
        ),
        pytest.param(
            [3000.5, 4000, None],
            [MEASURE, Show("height()", 3000), Show("tour()", HEIGHT), OVER],
            id="grows with its window",
        ),
        pytest.param(
            [HIGHEST, None], [MEASURE, Show("shown()", HIGHEST), OVER], id="as high as allowed"
        ),
        pytest.param(
            [HIGHEST - 1, 0, None],
            [MEASURE, Show("height()", HIGHEST - 1), SHOWN, OVER],
            id="almost as high as allowed",
        ),
        pytest.param(
            [HIGHEST + 1, None], [MEASURE, Show("shown()", HIGHEST), OVER], id="higher than allowed"
        ),
        pytest.param([HEIGHT, True, None], [MEASURE, FIND, TOUR, OVER], id="scrolls within"),
        pytest.param([HEIGHT, False], [MEASURE, FIND, QUIET_END], id="not displayed"),
        pytest.param([None, None], [MEASURE, FIND, QUIET_END], id="fails"),
        pytest.param(["9999", "x", {}], [MEASURE, FIND, TOUR, OVER], id="answers anything"),
    ],
)
def test_lazy_content_is_shown(answers: list[object], expected: list[Step]) -> None:
    progress, step = decide(running(confirming=seen()), seen(unseen=1))
    steps = [step]
    for answer in answers:
        progress, step = after_show(progress, answer)
        steps.append(step)
    assert steps == expected


def test_a_page_that_grows_with_its_window_is_toured_from_then_on() -> None:
    progress, _ = decide(running(confirming=seen()), seen(unseen=1))
    for answer in (3000, 4000, None):
        progress, _ = after_show(progress, answer)
    _, step = decide(replace(progress, confirming=seen(), stage=Stage.WORK), seen(unseen=1))
    assert step == FIND


def test_attempts_to_show_content_are_limited() -> None:
    progress = running(confirming=seen())
    for _ in range(lazy_content.MOST_SHOWINGS):
        progress, step = decide(progress, seen(unseen=1))
        assert step == MEASURE
        progress = replace(progress, confirming=seen(), stage=Stage.WORK)
    assert next_step(progress, unseen=1) == QUIET_END
    # Unless the last one has added content to a page that is not too high, for a while.
    added = {"unseen": 1, "mutations": 1}
    assert next_step(progress, **added) == MEASURE
    assert next_step(progress, **added, seconds=lazy_content.PRODUCTIVE_SECONDS) == QUIET_END
    for limit in (
        {"height": HIGHEST},
        {"grows": True},
        {"attempts": lazy_content.MOST_PRODUCTIVE_SHOWINGS},
    ):
        showing = replace(progress.showing, **limit)
        assert next_step(replace(progress, showing=showing), **added) == QUIET_END


def test_a_page_that_says_when_it_is_ready_is_not_scrolled() -> None:
    assert confirmed(unseen=1, ready=True) == Done(SettleReason.PRERENDER_READY)


def test_lazy_content_has_its_own_time() -> None:
    progress = running(budget=Budget(0.0), confirming=seen(unseen=1))
    progress, _ = decide(progress, seen(unseen=1))
    assert progress.budget.left == decision.SHOWN_MS


# ---- Any page

COUNTS = st.sampled_from([0, 0, 1])
PENDING = st.fixed_dictionaries(
    {
        **dict.fromkeys(
            ("intervals", "frames", "working", "layout", "watched", "talking", "foreign", "unseen"),
            COUNTS,
        ),
        "probe": st.booleans(),
        "complete": st.booleans(),
        "ready": st.sampled_from([None, None, True, False]),
        "timers": st.lists(st.floats(-1e4, 1e7), max_size=3),
        "elapsed": st.floats(0, 200),
        "promising": st.booleans(),
        "clock_waits": st.booleans(),
    }
)
GROWING = st.fixed_dictionaries(
    dict.fromkeys(("requests", "answered", "activity", "mutations"), COUNTS)
)


@pytest.mark.heavy
@given(
    pending=PENDING,
    growing=GROWING,
    turn=st.floats(0.01, 1),
    budget=st.floats(0.01, 20),
    cpu_share=st.floats(0, 1),
)
def test_every_page_settles(
    pending: dict[str, Any],
    growing: dict[str, int],
    turn: float,
    budget: float,
    cpu_share: float,
) -> None:
    """Whatever remains pending or goes on changing, apart from requests for the content itself."""
    progress, step = begin(budget, HEIGHT)
    for number in itertools.count():
        match step:
            case Done():
                return
            case Show():
                progress, step = after_show(progress, number * 1000)
                continue
            case Slice(milliseconds) | Wait(_, milliseconds):
                assert milliseconds > 0
        changed = {name: number * count for name, count in growing.items()}
        seconds = number * turn
        known = seen(**pending, **changed, seconds=seconds, cpu_seconds=seconds * cpu_share)
        progress, step = decide(progress, known)
        assert number < 3000
