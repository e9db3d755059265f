"""The probe: a script that runs in every frame before any script of the page.

It tracks the work that virtual time does not cover, and moves animation frames and idle callbacks to
the page's virtual clock. Between slices of virtual time, settling/ asks it what is pending. When
nothing is, settling/ asks which content waits to become visible, and scrolls to it.

Its modules (scripts/probe/) are bundled into one function. It saves all built-ins that it calls later,
because a page may replace them.
"""

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, fields
from operator import attrgetter

from prerender.browser.devtools import CommandFailed, Session
from prerender.browser.javascript import bundle, source

SCRIPT = f"""{source("removed_apis.js")}(() => {{
"use strict";
// Skipped in the blank page between two renders, to save time.
const isBlank = globalThis === top && location.href === "about:blank";
if (isBlank || globalThis[Symbol.for("prerender.probe")]) return;
{bundle("probe", "state")}}})();
"""
# Pending work: a ProbeState.
STATE = 'globalThis[Symbol.for("prerender.probe")]?.()'
# Errors of the page's scripts, and the URLs of data that cannot be parsed: two texts, whose lines are
# separated by zero characters. FATAL begins errors that ended a script.
FATAL = "\x01"
# Whether the document was complete before a script of it ran.
LATE = 'globalThis[Symbol.for("prerender.probe")]?.late'
ERRORS = 'globalThis[Symbol.for("prerender.probe")]?.errors()'
# The URLs of requests whose responses the page does not use, as one text like the above.
_UNUSED = 'globalThis[Symbol.for("prerender.probe")]?.unused({})'
# Style sheets that scripts have modified, as indexes in document.styleSheets, and the sources of rules
# of which the browser has no full text.
SHEETS = 'globalThis[Symbol.for("prerender.probe")]?.sheets()'
# What scripts have attached to custom elements: [number of the element, [[attribute, value]], [state]].
ATTACHED = 'globalThis[Symbol.for("prerender.probe")]?.attached()'
# Style attributes that the policy of the page refuses: indexes in document.querySelectorAll("[style]").
REFUSED_STYLES = 'globalThis[Symbol.for("prerender.probe")]?.refusedStyles()'


@dataclass(frozen=True, slots=True)
class ProbeState:
    """A response of the probe. All fields are counts, except ``timers``: milliseconds until each is
    due, and ``elapsed``: milliseconds of the page's clock since the start of its document."""

    complete: bool
    parsed: bool
    ready: bool | None
    timers: list[float]
    elapsed: float
    intervals: int
    frames: int
    working: int
    layout: int
    drawn: int
    watched: int
    talking: int
    fetching: int
    foreign: int
    activity: int
    mutations: int
    unseen: int
    errors: int
    sheets: int
    acknowledged: int = 0
    pushed: int = 0
    delivering: int = 0
    attachments: int = 0

    @classmethod
    def read(cls, value: object) -> "ProbeState | None":
        """Parse the probe's response; None if there is no probe or the page has broken it."""
        try:
            state = cls(**value)  # type: ignore[arg-type]
        except TypeError:
            return None
        if not isinstance(state.timers, list):
            return None
        numbers = (*_counts(state), *state.timers)
        return state if _NUMBERS.issuperset(map(type, numbers)) else None


_counts = attrgetter(*(field.name for field in fields(ProbeState) if field.type in (int, float)))
_NUMBERS = frozenset((int, float, bool))


def lead(seconds: float) -> str:
    """A script that tells a new document how far the page's clock is ahead of real time."""
    return f'globalThis[Symbol.for("prerender.probe")]?.lead({seconds * 1000:.0f})'


def has(urls: list[str]) -> str:
    """The JavaScript expression that tells whether the page has got the responses of these URLs."""
    return f'globalThis[Symbol.for("prerender.probe")]?.has({json.dumps(urls)})'


async def unused(session: Session, of_workers: Collection[str]) -> Counter[str]:
    """The URLs of requests whose responses the page does not use, or not yet, and how many there are.
    The page can manipulate the result. ``of_workers``: the URLs that service workers have requested."""
    try:
        urls = await session.evaluate(_UNUSED.format(json.dumps(list(of_workers))))
    except CommandFailed:
        return Counter()
    return Counter(urls.split("\0") if isinstance(urls, str) else ())


def sight(call: str) -> str:
    """The JavaScript expression that calls scripts/probe/lazy_content.js."""
    return f'globalThis[Symbol.for("prerender.probe")]?.sight.{call}'
