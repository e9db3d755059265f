"""Variants of a page: selects one of the declared variants for a client. Pure.

Only declared values are returned, so clients cannot influence cache keys otherwise.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

from prerender.http.fields import Fields
from prerender.http.negotiation import preferences

Device = Literal["desktop", "mobile"]
DEVICES: tuple[Device, ...] = get_args(Device)

# In the User-Agent of phones, but not of tablets (MDN, "Browser detection using the user agent
# string"); also of Googlebot for phones.
_MOBILE = re.compile("Mobi", re.IGNORECASE)
# Longer headers are truncated, to bound the cache.
_LONGEST = 1024
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Variant:
    """A kind of device, and a language tag or '' for that of [browser] language."""

    device: Device = "desktop"
    language: str = ""

    @property
    def languages(self) -> tuple[str, ...]:
        """The language and its less specific tags (RFC 4647 section 3.4)."""
        return _widening(self.language) if self.language else ()

    @property
    def accept_language(self) -> str:
        """The Accept-Language header for the language; '' without one."""
        weighed = (
            f"{tag};q={1 - number / 10:.1f}" if number else tag
            for number, tag in enumerate(self.languages)
        )
        return ",".join(weighed)

    def speaking(self, language: str) -> "Variant":
        """The same variant, in this language if it has none of its own."""
        return self if self.language else replace(self, language=language)

    def __str__(self) -> str:
        return f"{self.device} {self.language}".rstrip()


ORDINARY = Variant()


class Vary:
    """Selects variants by device, by ``languages``, or both.

    The first language is the default. ``fields``: the request headers that select the variant.
    ``variants``: all that are declared.
    """

    def __init__(self, *, device: bool = False, languages: Sequence[str] = ()) -> None:
        self._by_device = device
        self._languages = {tag.lower(): tag for tag in languages}
        self.fields = (("User-Agent",) if device else ()) + (
            ("Accept-Language",) if languages else ()
        )
        self.variants = tuple(
            Variant(device, language)
            for device in (DEVICES if device else DEVICES[:1])
            for language in (languages or ("",))
        )
        self._device = lru_cache(maxsize=_REMEMBERED)(_device_of)
        self._language: Callable[[str], str] = lru_cache(maxsize=_REMEMBERED)(self._negotiated)

    def variant_of(self, headers: Fields) -> Variant:
        """The variant for a request."""
        device: Device = "desktop"
        language = ""
        if self._by_device:
            device = self._device(headers.get("user-agent")[:_LONGEST])
        if self._languages:
            language = self._language(headers.get("accept-language")[:_LONGEST])
        return Variant(device, language)

    def _negotiated(self, value: str) -> str:
        """The declared language that a client prefers (RFC 9110 section 12.5.4)."""
        for wanted in preferences(value):
            # "de-CH" matches "de", and "de" matches "de-CH".
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
