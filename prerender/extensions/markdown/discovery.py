"""Markdown that clients find: its URLs, and the headers that name them (llmstxt.org, v2).

The handler knows it by the protocol in proxy/discovery.py.
"""

import time
from dataclasses import replace
from functools import lru_cache
from urllib.parse import urljoin

from aiohttp import ClientError
from cachetools import TTLCache
from multidict import CIMultiDict
from yarl import URL

from prerender.crawlers.triggers import Triggers, may_be_page
from prerender.errors import OriginError
from prerender.extensions.markdown.snapshots import MARKDOWN
from prerender.gateway.upstream import Upstream
from prerender.http import forwarding_headers
from prerender.http.caching import forbids_storing
from prerender.http.fields import is_html
from prerender.http.message_head import Request, ResponseHead
from prerender.proxy.site_hosts import SiteHosts
from prerender.snapshots.snapshot import Snapshot, SnapshotResult
from prerender.snapshots.target import Target
from prerender.urls.markdown_urls import markdown_url, page_of

_REMEMBERED = 1024
# Longer URLs are not advertised: a header has to fit into the buffers of proxies in front.
_LONGEST = 1024
_SECONDS = 60.0
_SIGNAL = "content-signal"
# The file that describes the site (live_llms.py), at the end of a Link header.
_LLMS = ', </llms.txt>; rel="describedby"; type="text/plain"\r\n'


class OriginFiles:
    """Which files the origin has itself, asked at most once a minute for each."""

    def __init__(self, upstream: Upstream, public: URL) -> None:
        self._upstream = upstream
        self._public = public
        self._cache: TTLCache[str, bool] = TTLCache(_REMEMBERED, _SECONDS, time.monotonic)

    async def has(self, target: str) -> bool:
        """Whether the origin responds with a file that is not HTML: applications respond to any URL
        with their page. An origin that fails has none."""
        if (known := self._cache.get(target)) is not None:
            return known
        headers: CIMultiDict[str] = CIMultiDict({"Accept-Encoding": "identity"})
        forwarding_headers.mark(headers, self._public)
        try:
            async with self._upstream.request("GET", target, headers) as response:
                exists = response.status == 200 and not is_html(response.content_type)
        except (OriginError, ClientError, OSError):
            return False
        if len(target) <= _LONGEST:
            self._cache[target] = exists
        return exists


class MarkdownDiscovery:
    """Headers about Markdown: of snapshots, of Markdown and of forwarded pages.

    ``content_signal``: the owner's Content-Signal (contentsignals.org), "" for none.
    """

    def __init__(
        self, files: OriginFiles, hosts: SiteHosts, triggers: Triggers, content_signal: str
    ) -> None:
        self._files = files
        self._hosts = hosts
        self._triggers = triggers
        self._signal = f"Content-Signal: {content_signal}\r\n".encode() if content_signal else b""
        self._links = lru_cache(_REMEMBERED)(_alternate)

    page_of = staticmethod(page_of)

    async def origin_has(self, target: str) -> bool:
        """Whether the origin has a file of its own at a Markdown URL."""
        return await self._files.has(target)

    def shown(
        self, target: Target, result: SnapshotResult, at_markdown_url: bool, /
    ) -> tuple[SnapshotResult, bytes]:
        """What a client gets for a result, in HTML or Markdown, and header lines of it.

        At its Markdown URL, a redirect leads to another one, unless it leads away from the site.
        """
        if at_markdown_url and not result.snapshot.body:
            return _redirected(target, result), b""
        return result, self._lines(target, result.snapshot, at_markdown_url)

    def _lines(self, target: Target, snapshot: Snapshot, at_markdown_url: bool) -> bytes:
        if snapshot.content_type != MARKDOWN:
            has_one = snapshot.status == 200 and len(target.path) <= _LONGEST
            return self._links(target.path) if has_one else b""
        signalled = any(name.lower() == _SIGNAL for name, _ in snapshot.headers)
        lines = b"" if signalled else self._signal
        return lines + _canonical(target.url) if at_markdown_url else lines

    def of_forwarded(self, request: Request, response: ResponseHead) -> bytes:
        """The header lines of a page that is forwarded: a link, if everybody gets this page."""
        target = request.target
        if (
            response.status != 200
            or request.method not in ("GET", "HEAD")
            or not is_html(response.fields.get("content-type"))
            or len(target) > _LONGEST
            or forbids_storing(response.fields.get("cache-control"))
            or not may_be_page(target)
            or not self._triggers.may_render(target)
            or request.host not in self._hosts
        ):
            return b""
        return self._links(target)


def _redirected(target: Target, result: SnapshotResult) -> SnapshotResult:
    snapshot = result.snapshot
    site = target.url.removesuffix(target.path)

    def led_to(location: str) -> str:
        try:
            whole = urljoin(target.url.partition("#")[0], location)
        except ValueError:
            return location
        page = whole.removeprefix(site)
        of_site = whole.startswith(f"{site}/") and may_be_page(page)
        return (markdown_url(page) if of_site else None) or location

    headers = tuple(
        (name, led_to(value) if name == "Location" else value) for name, value in snapshot.headers
    )
    return replace(result, snapshot=replace(snapshot, headers=headers))


def _alternate(page: str) -> bytes:
    url = markdown_url(page)
    return f'Link: <{url}>; rel="alternate"; type="text/markdown"{_LLMS}'.encode() if url else b""


def _canonical(url: str) -> bytes:
    page = url.encode("utf-8", "surrogateescape")
    is_simple = page.isascii() and b">" not in page
    return b'Link: <%b>; rel="canonical"%b' % (page, _LLMS.encode()) if is_simple else b""
