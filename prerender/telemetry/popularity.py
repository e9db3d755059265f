"""The most requested pages, to renew them first after a deploy."""

from prerender.snapshots.snapshot import Target
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
        if target is None:
            return
        key = target.key
        if key in self._counts:
            self._counts[key] += 1
            return
        self._counts[key] = 1
        self._targets[key] = target
        if len(self._counts) > self._most:
            self._forget_half()

    def most_first(self) -> list[Target]:
        """The targets, most requested first."""
        ordered = sorted(self._counts, key=self._counts.__getitem__, reverse=True)
        return [self._targets[key] for key in ordered]

    def _forget_half(self) -> None:
        """Drop rare targets and halve the counts of the others, so that recent requests count more."""
        kept = self.most_first()[: self._most // 2]
        self._counts = {target.key: max(1, self._counts[target.key] // 2) for target in kept}
        self._targets = {target.key: target for target in kept}
