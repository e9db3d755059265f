"""The probe: a script that runs in every frame before any script of the page.

It knows the work that virtual time does not see, and moves animation frames and idle callbacks onto
the page's virtual clock. Between slices of virtual time settle.py asks it what is pending; when nothing
is any more, what waits to be seen, and has it shown.

Its parts (scripts/probe/) are pieces of one function, in this order. Everything it calls later it takes
at its start, because a page may replace any of it.
"""

from importlib.resources import files

_PARTS = (
    "counts",
    "clocks",
    "timers",
    "outside",
    "conversations",
    "layout",
    "shadow",
    "document",
    "sight",
    "state",
)
_folder = files("prerender.rendering") / "scripts" / "probe"

SCRIPT = "".join(
    [
        '(() => {\n"use strict";\n',
        *((_folder / f"{part}.js").read_text(encoding="utf-8") for part in _PARTS),
        "})();\n",
    ]
)
# What is pending: the counts of ``settle._State``.
STATE = 'globalThis[Symbol.for("prerender.probe")]?.()'
# What the page's scripts complained of.
ERRORS = 'globalThis[Symbol.for("prerender.probe")]?.errors'


def lead(seconds: float) -> str:
    """A script that tells a new document how far the page's clock is ahead of the real one."""
    return f'globalThis[Symbol.for("prerender.probe")]?.lead({seconds * 1000:.0f})'


def sight(call: str) -> str:
    """The expression of a call of scripts/probe/sight.js."""
    return f'globalThis[Symbol.for("prerender.probe")]?.sight.{call}'
