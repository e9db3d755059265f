"""Notices about the configuration: logged once, and shown in the dashboard."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import structlog

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice. ``seen``: Unix seconds when it last applied; ``about``: values that explain it."""

    name: str
    seen: float
    consequence: str
    remedy: str
    about: dict[str, str | int]


class Notices:
    """The notices since the start of the process."""

    def __init__(self) -> None:
        self._by_name: dict[str, Notice] = {}

    def warn(self, name: str, *, consequence: str, remedy: str, **about: str | int) -> None:
        """Record a notice. It is logged only the first time."""
        if name not in self._by_name:
            log.warning(name, consequence=consequence, remedy=remedy, **about)
        self._by_name[name] = Notice(name, time.time(), consequence, remedy, about)

    def withdraw(self, name: str) -> None:
        """Remove a notice that does not apply any more."""
        self._by_name.pop(name, None)

    def __iter__(self) -> Iterator[Notice]:
        return iter(self._by_name.values())
