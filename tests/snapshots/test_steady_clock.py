"""The clock of ages and timers: what it does when the machine's clocks change."""

from itertools import pairwise

import pytest

from prerender.snapshots.steady_clock import SteadyClock
from tests.support.renders import Clock


@pytest.mark.parametrize("change", [-20.0, 20.0])
def test_small_changes_of_the_wall_clock_do_not_matter(change: float) -> None:
    wall, monotonic = Clock(1_000_000.0), Clock(50.0)
    now = SteadyClock(wall, monotonic)
    wall.now += change + 5
    monotonic.now += 5
    assert now() == 1_000_005


def test_it_follows_a_wall_clock_that_is_set_late() -> None:
    """And a machine that was suspended: its monotonic clock stood meanwhile."""
    wall, monotonic = Clock(1_000_000.0), Clock(50.0)
    now = SteadyClock(wall, monotonic)
    wall.now += 3600
    assert now() == 1_000_000
    wall.now += 10
    monotonic.now += 10
    assert now() == 1_003_610
    wall.now += 5
    monotonic.now += 5
    assert now() == 1_003_615


def test_it_does_not_follow_a_wall_clock_that_is_wrong_for_a_moment() -> None:
    wall, monotonic = Clock(1_000_000.0), Clock(50.0)
    now = SteadyClock(wall, monotonic)
    for wrong in (1e7, 0.0, 1e7, 0.0):
        wall.now += 6
        monotonic.now += 6
        wall.now += wrong
        now()
        wall.now -= wrong
    assert now() == 1_000_024


def test_it_never_goes_back() -> None:
    wall, monotonic = Clock(1_000_000.0), Clock(50.0)
    now = SteadyClock(wall, monotonic)
    wall.now -= 3600
    times = [now()]
    for _ in range(800):
        wall.now += 10
        monotonic.now += 10
        times.append(now())
    # A timer of ten seconds ends after twenty at the latest.
    assert all(after - before >= 5 for before, after in pairwise(times))
    assert times[-1] - wall.now == pytest.approx(30, abs=10)
