"""How the running browser asks for a document: the headers of its own navigation, in their order.

The renderer fetches documents itself, before it takes a page. A server may look at these headers, and
the page's requests follow, so they are the browser's own: the gateway learns them from the test page of
each browser. Our name rides along at the end of the user agent (``forwarding_headers.mark``).
"""

import asyncio
import re
from contextlib import suppress

from multidict import CIMultiDict

from prerender.http.forwarding_headers import AnyHeaders
from prerender.snapshots.variants import Variant

# What the renderer can decode.
_CODINGS = "gzip, deflate"
# Until a browser has been started.
_BASIC = (
    ("Upgrade-Insecure-Requests", "1"),
    (
        "User-Agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Safari/537.36",
    ),
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("Accept-Encoding", _CODINGS),
)
# Of the browser's connection, or of one page.
_NOT_LEARNED = frozenset({"host", "cookie", "referer", "cache-control", "pragma"})


class Navigation:
    """The headers of a navigation. ``language``: of pages that have none of their own."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._headers: CIMultiDict[str] = CIMultiDict(_BASIC)
        self._learned = asyncio.Event()

    def learn(self, headers: AnyHeaders, user_agent: str) -> None:
        """Note the end-to-end headers of an ordinary navigation, with this user agent."""
        if self._headers["User-Agent"] == user_agent:
            return
        learned = CIMultiDict(
            (name, value) for name, value in headers.items() if name.lower() not in _NOT_LEARNED
        )
        learned["User-Agent"] = user_agent
        learned["Accept-Encoding"] = _CODINGS
        self._headers = learned
        self._learned.set()

    @property
    def user_agent(self) -> str:
        """The user agent of the browser."""
        return self._headers["User-Agent"]

    @property
    def is_known(self) -> bool:
        """Whether a browser has been started."""
        return self._learned.is_set()

    async def known(self, seconds: float) -> None:
        """Wait until a browser has been started, up to ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._learned.wait()

    def headers(self, variant: Variant) -> CIMultiDict[str]:
        """The headers for the document of a variant."""
        headers = self._headers.copy()
        if variant.device == "mobile":
            headers["User-Agent"] = of_phone(headers["User-Agent"])
            for name, value in (("Sec-CH-UA-Mobile", "?1"), ("Sec-CH-UA-Platform", '"Android"')):
                if name in headers:
                    headers[name] = value
        headers["Accept-Language"] = variant.speaking(self._language).accept_language
        return headers


def of_phone(user_agent: str) -> str:
    """The user agent of the same Chrome on a phone."""
    named = re.sub(r"\([^)]*\)", "(Linux; Android 10; K)", user_agent, count=1)
    return named.replace(" Safari/", " Mobile Safari/")
