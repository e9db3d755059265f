"""The figures of the last hour, with a clock that the test sets."""

from prerender.extensions.dashboard.last_hour import STEP_SECONDS, Figures
from prerender.snapshots.snapshot import Timings
from prerender.telemetry.records import RenderRecord
from tests.support.renders import Clock, target

START = 1_000_000 * STEP_SECONDS


def test_what_has_grown_is_in_its_step() -> None:
    clock = Clock(START)
    answers = {"hit": 5.0}
    figures = Figures(lambda: dict(answers), clock)
    assert figures.points() == []
    answers |= {"hit": 7.0, "seconds": 0.5}
    clock.now = START + 1
    assert figures.points() == [{"time": START, "hit": 2, "seconds": 0.5}]
    answers |= {"hit": 8.0}
    assert figures.points() == [{"time": START, "hit": 3, "seconds": 0.5}]
    clock.now = START + STEP_SECONDS
    answers |= {"miss": 1.0}
    clock.now += 1
    assert figures.points()[1:] == [{"time": START + STEP_SECONDS, "miss": 1}]
    # The clock is set back: nothing is lost, and steps stay in their order.
    clock.now = START
    answers |= {"miss": 2.0}
    assert figures.points()[1:] == [{"time": START + STEP_SECONDS, "miss": 2}]


def test_an_hour_is_kept() -> None:
    clock = Clock(START)
    answers = {"hit": 0.0}
    figures = Figures(lambda: dict(answers), clock)
    for number in range(300):
        clock.now = START + number * STEP_SECONDS
        answers["hit"] += 1
        figures.look()
    points = figures.points()
    assert len(points) == 120
    assert points[0]["time"] == START + 180 * STEP_SECONDS
    assert {point["hit"] for point in points} == {1}
    clock.now += 7200
    assert figures.points() == []


def test_renders_are_counted_with_their_phases() -> None:
    figures = Figures(dict, Clock(START))
    fields: dict[str, object] = dict.fromkeys(RenderRecord._fields)
    fields |= {"target": target(), "outcome": "complete", "timings": Timings(0.1, 0.2, 0.3, 0.4)}
    for outcome in ("complete", "incomplete", "failed"):
        timings = fields["timings"] if outcome != "failed" else None
        figures.render(RenderRecord(**(fields | {"outcome": outcome, "timings": timings})))  # type: ignore[arg-type]
    (point,) = figures.points()
    assert point == {
        "time": START, "complete": 1, "incomplete": 1, "failed": 1, "timed": 2,
        "queue": 0.2, "document": 0.4, "settle": 0.6, "serialize": 0.8,
    }  # fmt: skip
