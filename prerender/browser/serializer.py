"""The serialiser: a script that reads a page that has settled, as HTML and with what it says of itself.

It is evaluated in an isolated world, whose built-ins the page cannot have replaced. Its parts
(scripts/serialize/) are pieces of one function, in this order, which takes ``SerializeOptions`` and
the style sheets that scripts have touched (probe/sheets.js). A long text comes in pieces: the
first in the answer, the others in ``globalThis.moreHtml``.
"""

from importlib.resources import files

_PARTS = ("pretty", "urls", "styles", "parsing", "html")
_folder = files("prerender.browser") / "scripts" / "serialize"


def part(name: str) -> str:
    """The source of one part."""
    return (_folder / f"{name}.js").read_text("utf-8")


SCRIPT = "".join(['((options, sheets) => {\n"use strict";\n', *map(part, _PARTS), "})"])
