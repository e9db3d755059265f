"""Variants of a page: which one a client gets, out of those that the site's owner declares. Pure.

Only values from short, known lists come out of here, so nothing that a client sends can reach a key.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol, get_args

from prerender.http.negotiation import preferences

Device = Literal["desktop", "mobile"]
DEVICES: tuple[Device, ...] = get_args(Device)

# What phones have in their User-Agent and tablets have not (MDN, "Browser detection using the user
# agent string"); Googlebot's phone has it too.
_MOBILE = re.compile("Mobi", re.IGNORECASE)
# Nobody sends more in earnest, and it must not fill the memory.
_LONGEST = 1024
_REMEMBERED = 1024


class FieldLines(Protocol):
    """Header fields, of which those of one name can be had as one value."""

    def get(self, name: str, /) -> str:
        """The values of all lines of a field, '' if there is none."""


@dataclass(frozen=True, slots=True)
class Variant:
    """For whom a page is rendered: a kind of device, and a language tag or '' for the browser's own."""

    device: Device = "desktop"
    language: str = ""

    @property
    def languages(self) -> tuple[str, ...]:
        """The language and the wider ones that it belongs to (RFC 4647 section 3.4)."""
        return _widening(self.language) if self.language else ()

    @property
    def accept_language(self) -> str:
        """The Accept-Language field of somebody who prefers the language; '' without one."""
        weighed = (
            f"{tag};q={1 - number / 10:.1f}" if number else tag
            for number, tag in enumerate(self.languages)
        )
        return ",".join(weighed)

    def __str__(self) -> str:
        return f"{self.device} {self.language}".rstrip()


ORDINARY = Variant()


class Vary:
    """What the snapshots of a page differ by: kinds of devices, or some ``languages``, or both.

    Who wants none of the languages gets the first one. ``fields``: those of a request that decide.
    """

    def __init__(self, *, device: bool = False, languages: Sequence[str] = ()) -> None:
        self._by_device = device
        self._languages = {tag.lower(): tag for tag in languages}
        self.fields = (("User-Agent",) if device else ()) + (
            ("Accept-Language",) if languages else ()
        )
        self._device = lru_cache(maxsize=_REMEMBERED)(_device_of)
        self._language: Callable[[str], str] = lru_cache(maxsize=_REMEMBERED)(self._negotiated)

    def variant_of(self, headers: FieldLines) -> Variant:
        """The variant for the client that sent a request."""
        device: Device = "desktop"
        language = ""
        if self._by_device:
            device = self._device(headers.get("user-agent")[:_LONGEST])
        if self._languages:
            language = self._language(headers.get("accept-language")[:_LONGEST])
        return Variant(device, language)

    def _negotiated(self, value: str) -> str:
        """The declared language that a client likes best (RFC 9110 section 12.5.4)."""
        for wanted in preferences(value):
            # "de-CH" is content with "de", and "de" with "de-CH".
            for tag in _widening(wanted):
                if tag in self._languages:
                    return self._languages[tag]
            for tag, language in self._languages.items():
                if tag.startswith(f"{wanted}-"):
                    return language
        return next(iter(self._languages.values()))


def _device_of(user_agent: str) -> Device:
    return "mobile" if _MOBILE.search(user_agent) else "desktop"


def _widening(tag: str) -> tuple[str, ...]:
    parts = tag.split("-")
    return tuple("-".join(parts[:length]) for length in range(len(parts), 0, -1))
