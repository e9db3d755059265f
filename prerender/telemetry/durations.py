"""Logarithmic histograms of durations, which can be added. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial


class Scale:
    """Buckets at the powers of ``base``, from ``least`` to two days (seconds).

    A quantile is accurate to half of the distance of two buckets.
    """

    def __init__(self, base: float, least: float) -> None:
        self._base = base
        self._first = 0
        while base**self._first > least:
            self._first -= 1
        bounds = [base ** (self._first + 0.5)]
        while bounds[-1] < 2 * 86400:
            bounds.append(bounds[-1] * base)
        self._place = partial(bisect_left, bounds)

    def count(self, durations: Iterable[float]) -> Counter[int]:
        """The number of durations by power of the base."""
        places = Counter(map(self._place, durations))
        return Counter({place + self._first: number for place, number in places.items()})

    def quantile(self, counts: Mapping[int, int], share: float) -> float:
        """A quantile in seconds; 0 without durations."""
        left = share * sum(counts.values())
        for power, number in sorted(counts.items()):
            left -= number
            if left <= 0:
                return float(self._base**power)
        return 0.0
