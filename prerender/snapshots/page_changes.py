"""The header by which a snapshot says what was changed of its page, for whoever compares the two.

Pure.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from prerender.snapshots.strict_json import read

NAME = "X-Prerender-Changes"
# Longer values could be refused by proxies in front.
_LONGEST = 2000


class Changes(NamedTuple):
    """The selectors of elements that were removed, and the HTML that was added ([snapshot])."""

    remove: tuple[str, ...] = ()
    add: tuple[str, ...] = ()

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The header of the snapshot: JSON in ASCII. None if nothing is changed."""
        value = json.dumps(self, separators=(",", ":"))
        if len(value) > _LONGEST:
            value = json.dumps((self.remove, ("...",)), separators=(",", ":"))
        if len(value) > _LONGEST:
            value = json.dumps((("...",), ("...",)))
        return ((NAME, value),) if any(self) else ()


NO_CHANGES = Changes()


def changes_of(headers: Iterable[tuple[str, str]]) -> Changes:
    """What the headers of a response say. They may be of any server."""
    try:
        return next(read(Changes, value) for name, value in headers if name.lower() == NAME.lower())
    except (StopIteration, ValueError):
        return NO_CHANGES
