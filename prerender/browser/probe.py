"""The probe: a script that runs in every frame before any script of the page.

It knows the work that virtual time does not see, and moves animation frames and idle callbacks onto
the page's virtual clock. Between slices of virtual time settle.py asks it what is pending; when nothing
is any more, what waits to be seen, and has it shown.

Its parts (scripts/probe/) are pieces of one function, in this order. Everything it calls later it takes
at its start, because a page may replace any of it.
"""

from dataclasses import dataclass, fields
from importlib.resources import files

_PARTS = (
    "counts",
    "clocks",
    "timers",
    "outside",
    "conversations",
    "dialogs",
    "quotas",
    "layout",
    "animations",
    "shadow",
    "sheets",
    "document",
    "sight",
    "state",
)
_folder = files("prerender.browser") / "scripts" / "probe"

SCRIPT = "".join(
    [
        (files("prerender.browser") / "scripts" / "absent.js").read_text(encoding="utf-8"),
        '(() => {\n"use strict";\n',
        *((_folder / f"{part}.js").read_text(encoding="utf-8") for part in _PARTS),
        "})();\n",
    ]
)
# What is pending: a State.
STATE = 'globalThis[Symbol.for("prerender.probe")]?.()'
# What the page's scripts complained of.
ERRORS = 'globalThis[Symbol.for("prerender.probe")]?.errors'
# The style sheets that they have touched: [place in document.styleSheets, rules in force or null].
SHEETS = 'globalThis[Symbol.for("prerender.probe")]?.sheets()'


@dataclass(frozen=True, slots=True)
class State:
    """One answer of the probe. Counts, but ``timers``: milliseconds until each is due, and
    ``elapsed``: milliseconds of the page's clock since its document began."""

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
    foreign: int
    activity: int
    mutations: int
    unseen: int
    errors: int
    sheets: int

    @classmethod
    def read(cls, answer: object) -> "State | None":
        """The probe's answer, or None if there is no probe or the page has broken it."""
        try:
            state = cls(**answer)  # type: ignore[arg-type]
        except TypeError:
            return None
        numbers = (getattr(state, field.name) for field in fields(cls)[4:])
        if not all(isinstance(number, int | float) for number in numbers):
            return None
        timers = state.timers
        if not isinstance(timers, list) or not all(isinstance(t, int | float) for t in timers):
            return None
        return state


def lead(seconds: float) -> str:
    """A script that tells a new document how far the page's clock is ahead of the real one."""
    return f'globalThis[Symbol.for("prerender.probe")]?.lead({seconds * 1000:.0f})'


def sight(call: str) -> str:
    """The expression of a call of scripts/probe/sight.js."""
    return f'globalThis[Symbol.for("prerender.probe")]?.sight.{call}'
