"""The document of a page, fetched before a tab is taken.

Redirects, errors of the origin and anything that is not HTML need no browser.
"""

import re
import time
import zlib
from dataclasses import dataclass
from http.cookiejar import http2time  # type: ignore[attr-defined]  # it is not in typeshed
from urllib.parse import urljoin

from aiohttp import ClientError, ClientResponse
from multidict import CIMultiDict
from yarl import URL

from prerender.errors import NotRenderable, OriginError, OriginTimeout, SnapshotTooLarge
from prerender.gateway.connection_errors import reason_of
from prerender.gateway.upstream import Upstream
from prerender.http import forwarding_headers
from prerender.http.caching import forbids_storing
from prerender.http.fields import is_html
from prerender.http.hop_by_hop import end_to_end
from prerender.http.trace_context import CURRENT

# An application may render its own page for a missing file, for which object stores also say 403.
# Other errors are not pages.
PAGE_STATUSES = (200, 403, 404, 410)
_HEAD_BYTES = 65536
REDIRECTS = (301, 302, 303, 307, 308)
# Headers that describe the transferred bytes; the browser gets decoded ones.
_OF_THE_TRANSFER = ("Content-Encoding", "Content-Length", "Accept-Ranges", "Alt-Svc")

# A redirect of a first visit leads back to the page, with a cookie.
_MOST_RETURNS = 5
_DECODED = ("gzip", "x-gzip", "deflate")
# Codings that browsers decode, but that were not requested.
_UNDECODED = ("br", "zstd", "dcb", "dcz")
# The tags by which browsers recognise HTML (WHATWG MIME Sniffing, section 7.1).
_HTML = re.compile(
    rb"[\t\n\x0c\r ]*<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a"
    rb"|style|title|b|body|br|p|!--)[ >]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Document:
    """The target's document from the origin, with its content coding decoded.

    ``headers``: end-to-end headers without length and coding.
    """

    status: int
    headers: CIMultiDict[str]
    body: bytes

    @property
    def storable(self) -> bool:
        """Whether shared caches may store it."""
        return not forbids_storing(", ".join(self.headers.getall("Cache-Control", ())))

    @property
    def has_policy(self) -> bool:
        """Whether it has a Content Security Policy, by which the browser may refuse its scripts."""
        name = b"content-security-policy"
        return name.decode() in self.headers or name in self.body[:_HEAD_BYTES].lower()


async def fetch(
    upstream: Upstream,
    public: URL,
    target: str,
    max_bytes: int,
    headers: CIMultiDict[str],
    *,
    for_a_person: bool = False,
) -> Document:
    """Fetch the document of a request target, or its redirect (status 3xx, empty body).

    ``headers``: of the browser's navigation; nothing of the crawler's request, because snapshots are
    shared. ``for_a_person``: the request is not marked as a renderer's.
    A redirect to the same URL that sets cookies is followed with them, as by a browser.
    Raises NotRenderable if the origin's response should be passed on instead, SnapshotTooLarge
    above ``max_bytes`` of decoded body, OriginError and OriginTimeout.
    """
    headers = headers.copy()
    if for_a_person:
        forwarding_headers.direct(headers, public)
    else:
        forwarding_headers.mark(headers, public)
    forwarding_headers.add_trace(headers, CURRENT.get())
    cookies: dict[str, str] = {}
    set_cookies: list[str] = []
    for _ in range(_MOST_RETURNS):
        document = await _fetch(upstream, public, target, max_bytes, headers)
        new = document.headers.getall("Set-Cookie", [])
        set_cookies += new
        if not new or not _returns(document, public, target):
            break
        for line in new:
            _set_cookie(cookies, line)
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    document.headers.popall("Set-Cookie", None)
    document.headers.extend(("Set-Cookie", line) for line in set_cookies)
    return document


def _set_cookie(cookies: dict[str, str], line: str) -> None:
    """Apply a Set-Cookie as a browser does (RFC 6265 section 5.2), as far as it matters here.

    SimpleCookie drops the whole line for an attribute that it does not know, such as Partitioned.
    """
    pair, *parts = line.split(";")
    name, equals, value = (text.strip() for text in pair.partition("="))
    if not (name and equals):
        return
    attributes = {}
    for part in parts:
        key, _, text = part.partition("=")
        attributes[key.strip().lower()] = text.strip()
    cookies[name] = value
    if re.fullmatch(r"-?\d+", attributes.get("max-age", ""), re.ASCII):
        is_over = int(attributes["max-age"]) <= 0
    else:
        expires = http2time(attributes.get("expires", ""))
        is_over = expires is not None and expires <= time.time()
    if is_over:
        del cookies[name]


def _returns(document: Document, public: URL, target: str) -> bool:
    """Whether a document is a redirect to itself."""
    if document.status not in REDIRECTS:
        return False
    here = f"{public.origin()}{target}"
    try:
        return urljoin(here, document.headers["Location"]).partition("#")[0] == here
    except ValueError:
        return False


# A document that needs a script file: of an application, not of a firewall that refuses the request.
_APPLICATION = re.compile(rb"<script\b[^>]*\ssrc\s*=", re.IGNORECASE)


async def _fetch(
    upstream: Upstream, public: URL, target: str, max_bytes: int, headers: CIMultiDict[str]
) -> Document:
    async with upstream.request("GET", target, headers) as response:
        fields = end_to_end(response.headers)
        for name in _OF_THE_TRANSFER:
            fields.popall(name, None)
        forwarding_headers.publish_all(fields, upstream.base, public)
        if response.status in REDIRECTS and "Location" in fields:
            return Document(response.status, fields, b"")
        if reason := _not_a_page(response):
            raise NotRenderable(reason, answered_with=response.status)
        try:
            body = await _read(response, max_bytes)
        except TimeoutError as error:
            raise OriginTimeout(reason_of(error), about=target) from error
        except (ClientError, OSError, zlib.error) as error:
            raise OriginError(reason_of(error), about=target) from error
        if response.status == 403 and not _APPLICATION.search(body):
            raise NotRenderable("status 403", answered_with=response.status)
        if not _media_type(response):
            nosniff = response.headers.get("X-Content-Type-Options", "").lower() == "nosniff"
            if nosniff or not _HTML.match(body):
                raise NotRenderable("media type unknown", answered_with=response.status)
        return Document(response.status, fields, body)


def _media_type(response: ClientResponse) -> str:
    """The last valid media type of all Content-Type headers (WHATWG Fetch, section 2.2.2), or ''."""
    values = ",".join(response.headers.getall("Content-Type", ())).split(",")
    types = [value.partition(";")[0].strip().lower() for value in values]
    return next((one for one in reversed(types) if "/" in one and one != "*/*"), "")


def _codings(response: ClientResponse) -> list[str]:
    """The content codings to decode, the last one first. If browsers do not know one of them, they
    ignore all."""
    codings = ",".join(response.headers.getall("Content-Encoding", ())).lower().split(",")
    names = [name.strip() for name in codings if name.strip() not in ("", "identity")]
    known = all(name in (*_DECODED, *_UNDECODED) for name in names)
    return names[::-1] if known else []


def _not_a_page(response: ClientResponse) -> str:
    """Why there is nothing to render, or ''."""
    status = response.status
    if status not in PAGE_STATUSES:
        return f"status {status}"
    media_type = _media_type(response)
    if media_type and not is_html(media_type):
        return f"media type {media_type}"
    if response.headers.get("Content-Disposition", "").lower().startswith("attachment"):
        return "a download"
    if any(name in _UNDECODED for name in _codings(response)):
        return "a content coding that was not requested"
    return ""


async def _read(response: ClientResponse, max_bytes: int) -> bytes:
    parts = []
    size = 0
    decoders = [_Decoder(max_bytes) for _ in _codings(response)]
    async for part in response.content.iter_any():
        for decoder in decoders:
            part = decoder.decode(part)  # noqa: PLW2901 (through one decoder after the other)
        size += len(part)
        if size > max_bytes:
            raise SnapshotTooLarge(
                f"the document is over {max_bytes} bytes", about=response.url.path
            )
        parts.append(part)
    return b"".join(parts)


class _Decoder:
    """Decodes gzip, zlib and bare deflate as browsers do: without a trailer, and with anything behind
    it. A compression bomb stops slightly above ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # 32 + 15: detects gzip and zlib by their first bytes.
        self._inflate = zlib.decompressobj(32 + zlib.MAX_WBITS)
        self._has_begun = False

    def decode(self, data: bytes) -> bytes:
        """Decode a part. Raises zlib.error."""
        if self._inflate.eof or not data:
            return b""
        try:
            decoded = self._inflate.decompress(data, self._max_bytes + 1)
        except zlib.error:
            if self._has_begun:
                raise
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            decoded = self._inflate.decompress(data, self._max_bytes + 1)
        self._has_begun = True
        return decoded
