"""The serializer: a script that reads a settled page as HTML, with its metadata.

It runs in an isolated world, where the page cannot replace built-ins. Its parts (scripts/serialize/)
are pieces of one function, in this order, with the parameters ``SerializeOptions`` and the style sheets
that scripts have modified (probe/sheets.js). A long text is transferred in chunks: the first in the
result, the others in ``globalThis.moreHtml``.
"""

from importlib.resources import files

_PARTS = ("pretty", "urls", "styles", "state", "pictures", "parsing", "html")
_folder = files("prerender.browser") / "scripts" / "serialize"


def part(name: str) -> str:
    """The source of one part."""
    return (_folder / f"{name}.js").read_text("utf-8")


SCRIPT = "".join(['((options, sheets) => {\n"use strict";\n', *map(part, _PARTS), "})"])
