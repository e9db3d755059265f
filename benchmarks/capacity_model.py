"""The capacity model of docs/scaling.md: renders and hits per second from traffic and stores. Pure.

Pages are requested independently of each other. A copy in the memory of a replica is used for half a
second, then Redis is asked, and then the bucket; Redis evicts what was not requested for longest.
"""

from dataclasses import dataclass
from math import ceil, exp

# Seconds of CPU, as benchmarks/stores.py and misses.py measure them.
COSTS = {"renders": 0.066, "memory": 40e-6, "redis": 120e-6, "bucket": 830e-6}
# How long a replica uses a copy in its memory without asking Redis, and how long Redis keeps what was
# read from the bucket.
TRUST_SECONDS, HOT_SECONDS = 0.5, 3600.0


@dataclass(frozen=True)
class Traffic:
    """Requests per second by kind; ``skew`` is the exponent of Zipf's law.

    A burst is ``burst`` requests for one page, at random within ``burst_seconds``.
    """

    pages: int = 1_000_000
    popular: float = 30.0
    sweeping: float = 15.0
    bursts: float = 0.2
    burst: int = 20
    burst_seconds: float = 5.0
    skew: float = 0.9

    @property
    def rate(self) -> float:
        """All requests per second."""
        return self.popular + self.sweeping + self.bursts * self.burst

    def popularity(self) -> list[float]:
        """The share of each page in the popular requests and in the bursts."""
        weights = [rank**-self.skew for rank in range(1, self.pages + 1)]
        total = sum(weights)
        return [weight / total for weight in weights]


@dataclass(frozen=True)
class Setup:
    """Replicas, snapshots that fit into Redis, and the TTL in seconds."""

    replicas: int = 3
    redis: int = 100_000
    ttl: float = 12 * 3600.0


@dataclass(frozen=True)
class Rates:
    """Per second: renders, and hits by tier."""

    renders: float
    memory: float
    redis: float
    bucket: float

    @property
    def cores(self) -> float:
        """The CPU time per second of all of it."""
        return sum(getattr(self, what) * seconds for what, seconds in COSTS.items())


def model(traffic: Traffic, setup: Setup) -> Rates:
    """The result of the formulas in docs/scaling.md."""
    period = traffic.pages / traffic.sweeping if traffic.sweeping else float("inf")
    popularity = traffic.popularity()
    # Arrivals of each page apart from the sweep. A burst arrives once: its other requests are hits.
    arrivals = [(traffic.popular + traffic.bursts) * share for share in popularity]
    renders = [_renders(rate, period, setup.ttl) for rate in arrivals]
    memory = sum(_trusted(traffic.popular * share, setup.replicas) for share in popularity)
    followers = traffic.bursts * (traffic.burst - 1)
    # During a burst each replica gets its part of it.
    in_burst = traffic.burst / traffic.burst_seconds
    memory += followers * _trusted(in_burst, setup.replicas) / in_burst
    kept = _kept_seconds(arrivals, period, setup.redis, setup.ttl)
    # Arrivals that are no renders find the snapshot in Redis if the last one was not too long ago.
    redis = sum(
        max(0.0, rate + 1 / period - rendered) * _seen_within(rate, period, kept)
        for rate, rendered in zip(arrivals, renders, strict=True)
    )
    redis += followers - memory
    total = sum(renders)
    return Rates(total, memory, redis, traffic.rate - total - memory - redis)


def _renders(rate: float, period: float, ttl: float) -> float:
    """Renders per second of a page: one for each first request after the TTL.

    That request is the sweep's or another one. After a render for the sweep, the next sweep that
    finds the snapshot expired comes a whole number of periods later; after another render, at any
    time.
    """
    if period == float("inf") or rate * period < 1e-9:
        return (
            rate / (1 + rate * ttl) if period == float("inf") else 1 / (ceil(ttl / period) * period)
        )
    until_sweep = ceil(ttl / period) * period - ttl
    # The probability that the sweep is first, and the wait for the first one, in both cases.
    sweep_again = exp(-rate * until_sweep)
    sweep_next = (1 - exp(-rate * period)) / (rate * period)
    by_sweep = sweep_next / (1 - sweep_again + sweep_next)
    wait = (by_sweep * (1 - sweep_again) + (1 - by_sweep) * (1 - sweep_next)) / rate
    return 1 / (ttl + wait)


def _trusted(rate: float, replicas: int) -> float:
    """Hits per second of copies that a replica need not look up again."""
    in_window = rate / replicas * TRUST_SECONDS
    return rate * in_window / (1 + in_window)


def _seen_within(rate: float, period: float, seconds: float) -> float:
    """The probability that a page was requested within the last seconds."""
    return 1 - exp(-rate * seconds) * max(0.0, 1 - seconds / period)


def _kept_seconds(arrivals: list[float], period: float, size: int, ttl: float) -> float:
    """How long Redis keeps a snapshot without requests (Che's approximation of LRU)."""
    low, high = 0.0, ttl
    if sum(_seen_within(rate, period, high) for rate in arrivals) <= size:
        return high
    while high - low > high / 1000:
        middle = (low + high) / 2
        there = sum(_seen_within(rate, period, middle) for rate in arrivals)
        low, high = (low, middle) if there > size else (middle, high)
    return low
