"""Sections of the site on whose pages checks failed: they are rendered for a while."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cachetools import LRUCache

from prerender.browser.queue import section_of
from prerender.snapshots import steady_clock

_MOST_SECTIONS = 500
_SECONDS = 3600.0
# A section is suspended after so many failed checks, if they are more than this share.
_FEWEST_WRONG = 3
_SHARE = 0.1
# Older checks count half.
_REMEMBERED = 200


@dataclass(slots=True)
class _Checks:
    confirmed: float = 0.0
    wrong: float = 0.0


class Sections:
    """Counts checks by section. ``clock``: Unix seconds."""

    learned_name = "sections to render"

    def __init__(self, clock: Callable[[], float] = steady_clock.now) -> None:
        self._clock = clock
        self._checks: LRUCache[str, _Checks] = LRUCache(_MOST_SECTIONS)
        self._failed: LRUCache[str, float] = LRUCache(_MOST_SECTIONS)

    def is_suspended(self, url: str) -> bool:
        """Whether pages of the section of a URL are not to be renewed without rendering."""
        return self._clock() < self._failed.get(section_of(url), 0.0) + _SECONDS

    def checked(self, url: str, *, confirmed: bool) -> None:
        """Count a check."""
        section = section_of(url)
        checks = self._checks.get(section) or _Checks()
        self._checks[section] = checks
        if confirmed:
            checks.confirmed += 1
        else:
            checks.wrong += 1
        total = checks.confirmed + checks.wrong
        if not confirmed and checks.wrong >= _FEWEST_WRONG and checks.wrong > _SHARE * total:
            self._failed[section] = self._clock()
        if total > _REMEMBERED:
            checks.confirmed /= 2
            checks.wrong /= 2

    def learned(self) -> dict[str, float]:
        """The suspended sections, and since when."""
        now = self._clock()
        return {name: since for name, since in self._failed.items() if now < since + _SECONDS}

    def learn(self, known: Mapping[str, float]) -> None:
        """Also know what other replicas know."""
        for name, since in known.items():
            self._failed[name] = max(since, self._failed.get(name, 0.0))
