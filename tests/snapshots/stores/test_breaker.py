"""A failing store is skipped, tried by one caller at a time, and used again when it responds."""

from prerender.snapshots.stores.breaker import Breaker
from tests.support.renders import Clock


def test_a_failure_opens_it_for_a_while() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    assert breaker.closed
    assert breaker.admits()
    breaker.failed()
    assert not breaker.closed
    assert not breaker.admits()
    clock.now += 0.5
    assert [breaker.admits() for _ in range(3)] == [True, False, False]
    breaker.succeeded()
    assert breaker.closed
    assert all(breaker.admits() for _ in range(3))


def test_the_pause_doubles_up_to_a_limit() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    pauses = []
    for _ in range(6):
        breaker.failed()
        started = clock.now
        while not breaker.admits():
            clock.now += 0.125
        pauses.append(clock.now - started)
    assert pauses == [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_calls_that_fail_together_count_once() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    for _ in range(100):
        breaker.failed()
    clock.now += 0.5
    assert breaker.admits()


def test_a_trial_that_never_ends_does_not_keep_it_open() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    breaker.failed()
    clock.now += 0.5
    assert breaker.admits()
    clock.now += 0.5
    assert breaker.admits()
