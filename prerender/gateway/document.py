"""Fetches the target's document before a page is taken.

Redirects, errors of the origin and anything that is not HTML need no browser.
"""

import zlib
from collections.abc import AsyncIterator

from aiohttp import ClientError, ClientResponse
from multidict import CIMultiDict
from yarl import URL

from prerender.errors import NotRenderable, OriginError, OriginTimeout, SnapshotTooLarge
from prerender.gateway.connection_errors import reason_of
from prerender.gateway.upstream import Upstream
from prerender.gateway.visit import HTML_TYPES, PAGE_STATUSES, Document
from prerender.http import forwarding_headers
from prerender.http.hop_by_hop import end_to_end
from prerender.http.trace_context import CURRENT
from prerender.snapshots.variants import ORDINARY, Variant

_REDIRECTS = (301, 302, 303, 307, 308)
# Nothing of the crawler's request is here except the variant, because snapshots are shared.
_REQUEST = (
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("Accept-Encoding", "gzip, deflate"),
    ("Accept-Language", "en-US,en;q=0.9"),
)
# Chrome's User-Agent on a phone, without its version, which is not known before there is a page.
_MOBILE = (
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Mobile Safari/537.36"
)
# Headers that describe the transferred bytes; the browser gets decoded ones.
_OF_THE_TRANSFER = ("Content-Encoding", "Content-Length", "Accept-Ranges", "Alt-Svc")


# Headers of a visitor's browser, for comparisons with snapshots.
_OF_A_PERSON = (
    *_REQUEST,
    ("Upgrade-Insecure-Requests", "1"),
    (
        "User-Agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
        "Chrome/140.0.0.0 Safari/537.36",
    ),
)


async def fetch(
    upstream: Upstream,
    public: URL,
    target: str,
    max_bytes: int,
    variant: Variant = ORDINARY,
    *,
    for_a_person: bool = False,
) -> Document:
    """Fetch the document of a request target, or its redirect (status 3xx, empty body).

    Raises NotRenderable if the origin's response should be passed on instead, SnapshotTooLarge
    above ``max_bytes`` of decoded body, OriginError and OriginTimeout. ``for_a_person``: the request
    is not marked as a renderer's.
    """
    headers: CIMultiDict[str] = CIMultiDict(_OF_A_PERSON if for_a_person else _REQUEST)
    if variant.device == "mobile":
        headers["User-Agent"] = _MOBILE
    if variant.language:
        headers["Accept-Language"] = variant.accept_language
    if for_a_person:
        forwarding_headers.direct(headers, public)
    else:
        forwarding_headers.mark(headers, public)
    forwarding_headers.add_trace(headers, CURRENT.get())
    async with upstream.request("GET", target, headers) as response:
        kept = end_to_end(response.headers)
        for name in _OF_THE_TRANSFER:
            kept.popall(name, None)
        forwarding_headers.publish_all(kept, upstream.base, public)
        if response.status in _REDIRECTS and "Location" in kept:
            return Document(response.status, kept, b"")
        if reason := _not_a_page(response):
            raise NotRenderable(reason, refused_with=_refused_with(response.status))
        try:
            body = await _read(response, max_bytes)
        except TimeoutError as error:
            raise OriginTimeout(f"{target}: {reason_of(error)}") from error
        except (ClientError, OSError, zlib.error) as error:
            raise OriginError(f"{target}: {reason_of(error)}") from error
        return Document(response.status, kept, body)


def _refused_with(status: int) -> int:
    return status if status >= 400 and status not in PAGE_STATUSES else 0


def _not_a_page(response: ClientResponse) -> str:
    """Why there is nothing to render, or ''."""
    status = response.status
    if status not in PAGE_STATUSES:
        return f"status {status}"
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if media_type not in HTML_TYPES:
        return f"media type {media_type or 'unknown'}"
    if response.headers.get("Content-Disposition", "").lower().startswith("attachment"):
        return "a download"
    if response.headers.get("Content-Encoding", "identity").lower() not in (
        "identity",
        "gzip",
        "x-gzip",
        "deflate",
    ):
        return "a content coding that was not requested"
    return ""


async def _read(response: ClientResponse, max_bytes: int) -> bytes:
    parts = []
    size = 0
    async for part in _decoded(response, max_bytes):
        size += len(part)
        if size > max_bytes:
            raise SnapshotTooLarge(f"{response.url.path}: the document is over {max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


async def _decoded(response: ClientResponse, max_bytes: int) -> AsyncIterator[bytes]:
    """Decode the content coding. A compression bomb stops slightly above ``max_bytes``."""
    coding = response.headers.get("Content-Encoding", "identity").lower()
    if coding == "identity":
        async for part in response.content.iter_any():
            yield part
        return
    # 32 + 15: detects gzip and zlib by their first bytes.
    decoder = zlib.decompressobj(32 + zlib.MAX_WBITS)
    async for part in response.content.iter_any():
        yield decoder.decompress(part, max_bytes + 1)
    yield decoder.flush()
    if not decoder.eof:
        raise OriginError("the compressed document is incomplete")
