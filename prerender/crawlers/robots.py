"""The opt-out of the AJAX crawling scheme: robots.txt rules about ugly URLs.

"Disallow: /*_escaped_fragment_" disables snapshots at ugly URLs. Other rules are for crawlers, not for
the proxy. The origin's robots.txt is reloaded periodically.
"""

import asyncio
import re
import time
from collections.abc import Callable
from urllib.parse import unquote

import structlog
from aiohttp import ClientError
from multidict import CIMultiDict
from protego import Protego
from yarl import URL

from prerender.errors import OriginError
from prerender.gateway.connection_errors import reason_of
from prerender.gateway.upstream import Upstream
from prerender.http import forwarding_headers
from prerender.urls.ajax_crawling import UGLY_TOKEN, pretty_to_ugly

PATH = "/robots.txt"
_PARAMETER = UGLY_TOKEN.removesuffix("=")
# RFC 9309 sections 2.4 and 2.5: at most a day, at least 500 KiB.
FRESH_SECONDS = 3600.0
RETRY_SECONDS = 60.0
MAX_BYTES = 512 * 1024
_FETCH_SECONDS = 5.0
# As Protego reads them, with or without a colon.
_USER_AGENT = re.compile(r"user[- ]?agent\b", re.IGNORECASE)
_OF_NO_GROUP = re.compile(r"(sitemaps?|site-map|host)\b", re.IGNORECASE)

log = structlog.get_logger(__name__)


def opt_out_of(text: str) -> Protego | None:
    """The rules of a robots.txt about ugly URLs; None if there are none."""
    if _PARAMETER not in text:
        return None
    lines = []
    for full_line in text.splitlines():
        line = full_line.partition("#")[0].strip()
        if _USER_AGENT.match(line) or _PARAMETER in line:
            lines.append(line)
        elif line and not _OF_NO_GROUP.match(line):
            # Without any line, a group would be part of the next one (RFC 9309, section 2.2.1).
            lines.append("Disallow:")
    return Protego.parse("\n".join(lines))


class OptOut:
    """Checks ugly URLs against robots.txt. Without a robots.txt all are allowed."""

    def __init__(
        self, upstream: Upstream, public: URL, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._upstream = upstream
        self._public = public
        self._clock = clock
        self._rules: Protego | None = None
        self._reload_at = 0.0
        self._loading = asyncio.Lock()

    async def forbids(self, target: str, page: str, user_agent: str) -> bool:
        """Whether robots.txt disallows an ugly request target for a crawler, or its ``page`` (path,
        query and ``#!`` state) as rules spell it: a state has many ugly URLs."""
        if self._clock() >= self._reload_at:
            async with self._loading:
                if self._clock() >= self._reload_at:
                    await self._load()
        if self._rules is None:
            return False
        path, _, state = page.partition("#!")
        plain = pretty_to_ugly(f"{path}#!{unquote(state)}") or target
        site = str(self._public.origin())
        return any(
            not self._rules.can_fetch(f"{site}{spelling}", user_agent)
            for spelling in (target, plain)
        )

    async def _load(self) -> None:
        try:
            text = await fetch(self._upstream, self._public)
        except (OriginError, ClientError, OSError) as error:
            # Keep the previous rules.
            log.info("robots_txt_unavailable", reason=reason_of(error))
            self._reload_at = self._clock() + RETRY_SECONDS
            return
        self._rules = opt_out_of(text)
        self._reload_at = self._clock() + FRESH_SECONDS


async def fetch(upstream: Upstream, public: URL) -> str:
    """The robots.txt of the site; '' if it has none. Raises OriginError, ClientError and OSError."""
    headers: CIMultiDict[str] = CIMultiDict({"Accept-Encoding": "identity"})
    forwarding_headers.mark(headers, public)
    async with asyncio.timeout(_FETCH_SECONDS), upstream.request("GET", PATH, headers) as response:
        if response.status >= 500:
            raise OriginError(f"status {response.status}", about=PATH)
        if response.status != 200:
            return ""
        body = b""
        async for part in response.content.iter_any():
            body += part
            if len(body) >= MAX_BYTES:
                break
    # Editors of Windows write a byte order mark.
    return body[:MAX_BYTES].decode("utf-8-sig", "replace")
