"""The most requested pages, to renew them first: after a deploy, and before they expire."""

from prerender.snapshots.target import Target
from prerender.telemetry.records import RequestRecord

_MOST = 10_000


class Popularity:
    """Subscribes to the records of requests, and counts them by target."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._counts: dict[str, int] = {}
        self._targets: dict[str, Target] = {}

    def __call__(self, record: RequestRecord) -> None:
        """Count a request for a snapshot."""
        target = record.snapshot_target
        if target is None or target.is_long:
            return
        key = target.key
        if key in self._counts:
            self._counts[key] += 1
            return
        self._counts[key] = 1
        self._targets[key] = target
        if len(self._counts) > self._most:
            self._forget_half()

    def most_first(self, least: int = 1) -> list[Target]:
        """The targets with at least this count, most requested first."""
        keys = (key for key, count in self._counts.items() if count >= least)
        ordered = sorted(keys, key=self._counts.__getitem__, reverse=True)
        return [self._targets[key] for key in ordered]

    def fade(self, target: Target) -> None:
        """Halve the count of a target; it is forgotten at 0."""
        if count := self._counts.get(target.key, 0) // 2:
            self._counts[target.key] = count
        else:
            self._counts.pop(target.key, None)
            self._targets.pop(target.key, None)

    def _forget_half(self) -> None:
        """Drop rare targets, and subtract from all others what the dropped ones had.

        So recent requests count more, and a crawler that requests every page once changes little
        (Misra and Gries, "Finding repeated elements").
        """
        ordered = self.most_first()
        frequent, dropped = ordered[: self._most // 2], ordered[self._most // 2]
        less = self._counts[dropped.key]
        self._counts = {target.key: max(1, self._counts[target.key] - less) for target in frequent}
        self._targets = {target.key: target for target in frequent}
