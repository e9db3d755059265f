"""The first render of every new browser page is a test page, so that no crawler waits for one-time
work.

A browser that cannot render it is unusable. Afterwards, the page is warm: its process, its fonts and
its connection to the gateway exist.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from multidict import CIMultiDict
from yarl import URL

from prerender.browser.page import Page
from prerender.browser.page_results import Rendered, SerializeOptions
from prerender.config.settings import RenderSettings
from prerender.errors import RenderError
from prerender.gateway.document import Document

Trial = Callable[[Page], Coroutine[Any, Any, None]]

_SECONDS = 20.0
_LIMITS = RenderSettings(budget=1, patience=1)
_EXPECTED = "it works"
_PAGE = f"""<!DOCTYPE html><meta charset="utf-8"><title>Trial</title>
<style>p {{ font: bold 16px sans-serif; transition: opacity 1s }}</style>
<p id="out">…<i>é</i> <code>x</code> <span style="font-family: serif">y</span></p>
<script>setTimeout(() => {{ out.textContent = "{_EXPECTED}"; }}, 10);</script>"""


def trial(public: URL) -> Trial:
    """A function that tests a new page and renews it. It raises RenderError on failure."""
    headers = CIMultiDict({"Content-Type": "text/html; charset=utf-8"})
    # The site's scheme and host decide which headers a navigation has. Without its port, which browsers
    # may refuse: that would be the site's fault, not the browser's.
    url = f"{public.origin().with_port(None)}/"

    async def run(page: Page) -> None:
        with page.visit(Document(200, headers, _PAGE.encode())) as visit:
            rendered = await page.render(
                url, visit, _LIMITS, timeout=_SECONDS, options=SerializeOptions()
            )
        if not isinstance(rendered, Rendered) or _EXPECTED not in rendered.html:
            raise RenderError("the test page was not rendered")
        # It sends no requests later, which could be taken for those of a first page.
        page.context.proxy.visits = 0
        await page.renew()

    return run
