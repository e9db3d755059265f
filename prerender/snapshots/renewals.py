"""Renewing snapshots without rendering: the interface of extensions/revalidation/, and its values."""

from dataclasses import dataclass
from typing import Literal, Protocol

from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.target import Target


@dataclass(frozen=True, slots=True)
class Renewals:
    """How a stored snapshot has been renewed, and whether it may be renewed without rendering.

    ``rendered``: when its last render began; ``count``: how often it was renewed without one since.
    ``confirmed``: checks by rendering in a row that confirmed it. ``futile``: how often in a row its
    inputs differed, but not the snapshot. Not before ``suspended`` again, because of ``why``.
    Times in Unix seconds.
    """

    rendered: float
    count: int = 0
    confirmed: int = 0
    futile: int = 0
    suspended: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class RevalidationResult:
    """What asking for the inputs of a snapshot has shown.

    ``same``: all are; ``check``: it was not asked, a render is due; ``headers``: only headers differ;
    ``doubt``: some could not be had; ``untried``: it was not asked. ``reason``: a code and a URL.
    """

    result: Literal["same", "check", "headers", "changed", "doubt", "untried"]
    reason: str = ""


class StoredSnapshot(Protocol):
    """A stored snapshot (entry.py)."""

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot."""

    @property
    def renewals(self) -> Renewals | None:
        """How it was renewed; None if it was stored by an older release."""


class Revalidation(Protocol):
    """Decides from the inputs of a stored snapshot whether it is still what a render would make.

    ``max_age``: how long after its render a snapshot may be renewed, in seconds.
    """

    max_age: float

    async def ask(
        self, target: Target, old: StoredSnapshot, now: float, generation: int
    ) -> RevalidationResult:
        """Ask for the inputs again. ``generation``: the last known purge. Never raises for a fault of
        the network."""

    def why_rendered(self, url: str, old: StoredSnapshot, now: float) -> str:
        """Why a snapshot is not renewed without rendering, in words; or ''."""

    async def after_render(
        self,
        target: Target,
        old: StoredSnapshot | None,
        new: Snapshot,
        revalidated: RevalidationResult,
        now: float,
    ) -> tuple[Snapshot, Renewals]:
        """What to store of a new snapshot, whose render began ``now``. ``revalidated``: the result for
        the ``old`` one."""
