"""The serializer: a script that reads a settled page as HTML, with its metadata.

It runs in an isolated world, where the page cannot replace built-ins. Its modules (scripts/serialize/)
are bundled into one function of ``SerializeOptions`` and of the style sheets that scripts have modified
(probe/sheets.js). A long text is transferred in chunks: the first in the result, the others in
``globalThis.moreHtml``.
"""

from prerender.browser.javascript import bundle

SCRIPT = f"""((options, sheets) => {{
"use strict";
{bundle("serialize", "html")}return serialize();
}})"""
