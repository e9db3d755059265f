"""An HTTP client that fetches pages as a crawler does: no scripts, no cookies, no redirects followed.

``get`` reads bodies completely, up to a limit; ``stream`` reads files in parts, and follows redirects.
Requests can be sent to a proxy of the site (``via``), with the site's own Host.
"""

import asyncio
import re
import time
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urljoin

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from multidict import CIMultiDictProxy
from yarl import URL

from prerender import __version__
from prerender.cli.common import NO_HEADERS, SiteHeaders
from prerender.errors import FetchFailed, Unreachable
from prerender.gateway.connection_errors import reason_of
from prerender.http.cache_status import CACHE_NAME, parameters_of
from prerender.http.fields import charset_of, is_html
from prerender.http.forwarding_headers import authority
from prerender.urls.addresses import after_host, ascii_host, url_of

# Without the word "prerender", by which middlewares of prerender services recognize a renderer.
USER_AGENT = f"Mozilla/5.0 (compatible; HashbangCrawler/{__version__})"
# A crawler that sites with a User-Agent list know.
SEARCH_ENGINE = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
MAX_BYTES = 64 * 1024**2
# Twenty times what a sitemap may have.
LARGEST_FILE = 1024**3
_MOST_REDIRECTS = 5
_IDLE_SECONDS = 30
# A link and its parameters. Quoted values may contain the separators.
_LINK = re.compile(r"""<([^>]*)>((?:[^",<]|"(?:[^"\\]|\\.)*")*)""")
_RELATION = re.compile(r""";\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]+))""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A response with its body. ``seconds``: from the request to the last byte."""

    url: str
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    seconds: float

    @property
    def media_type(self) -> str:
        """The Content-Type without parameters, in lower case."""
        return media_type(self.headers)

    @property
    def is_html(self) -> bool:
        """Whether there is a page to be read."""
        return is_html(self.headers.get("Content-Type", ""))

    @property
    def cache_status(self) -> Mapping[str, str] | None:
        """The parameters of this proxy in Cache-Status; None if the response is not from the proxy."""
        return parameters_of(CACHE_NAME, self.headers.getall("Cache-Status", ()))

    @property
    def charset(self) -> str | None:
        """The charset that the Content-Type names."""
        return charset_of(self.headers.get("Content-Type", ""))

    @property
    def links(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Absolute URLs of the Link headers, each with its relations in lower case (RFC 8288)."""
        for value in self.headers.getall("Link", ()):
            for reference, parameters in _LINK.findall(value):
                match = _RELATION.search(parameters)
                relations = (match[1] or match[2]).lower().split() if match else ()
                with suppress(ValueError):
                    yield urljoin(self.url, reference.strip()), tuple(relations)


def media_type(fields: CIMultiDictProxy[str]) -> str:
    """The Content-Type without parameters, in lower case."""
    return fields.get("Content-Type", "").partition(";")[0].strip().lower()


class Streamed(NamedTuple):
    """A response whose body is read in parts, perhaps compressed with gzip."""

    status: int
    headers: CIMultiDictProxy[str]
    body: AsyncIterator[bytes]


class CrawlerClient:
    """Create it with ``async with CrawlerClient.open(...)``."""

    def __init__(
        self,
        session: ClientSession,
        via: URL | None,
        fields: Mapping[str, str],
        site_headers: SiteHeaders,
        timeout: float,
    ) -> None:
        self._session = session
        self._site_headers = site_headers
        self._via = via
        self._fields = dict(fields)
        self._timeout = timeout

    @property
    def user_agent(self) -> str:
        """The User-Agent of its requests."""
        return self._fields["User-Agent"]

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        via: URL | None = None,
        user_agent: str = USER_AGENT,
        timeout: float = 60.0,
        connections: int = 0,
        site_headers: SiteHeaders = NO_HEADERS,
    ) -> AsyncIterator["CrawlerClient"]:
        """Open a crawler; ``timeout`` in seconds is for one complete response."""
        fields = {"User-Agent": user_agent, "Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        async with ClientSession(
            connector=TCPConnector(limit=connections, keepalive_timeout=_IDLE_SECONDS),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None),
            trust_env=False,
        ) as session:
            yield cls(session, via, fields, site_headers, timeout)

    async def get(self, url: str, user_agent: str = "", accept: str = "") -> Fetched:
        """GET an absolute URL, byte for byte, without its fragment. Raises FetchFailed.

        ``user_agent`` and ``accept``: these headers of this request.
        """
        url = url.partition("#")[0]
        started = time.monotonic()
        async with self._response(url, user_agent, accept) as response:
            body = b"".join([part async for part in _limited(response, url, MAX_BYTES)])
        seconds = time.monotonic() - started
        return Fetched(url, response.status, response.headers, body, seconds)

    @asynccontextmanager
    async def stream(self, url: str) -> AsyncIterator[Streamed]:
        """GET a file of any size. Redirects are followed. Raises FetchFailed, also while it is read."""
        requested = url.partition("#")[0]
        for _ in range(_MOST_REDIRECTS):
            async with self._response(requested, compressed=True) as response:
                location = response.headers.get("Location", "")
                if response.status // 100 != 3 or not location:
                    body = _limited(response, url, LARGEST_FILE, self._timeout)
                    yield Streamed(response.status, response.headers, body)
                    return
            requested = _redirect_target(requested, location)
        raise FetchFailed(f"{url}: more than {_MOST_REDIRECTS} redirects")

    @asynccontextmanager
    async def _response(
        self, url: str, user_agent: str = "", accept: str = "", *, compressed: bool = False
    ) -> AsyncIterator[ClientResponse]:
        """The response of a URL. ``compressed``: with its content coding, without a time limit."""
        try:
            requested = ascii_host(url)
            parsed = url_of(requested)
            fields = {**dict(self._site_headers.of(parsed)), **self._fields}
            if user_agent:
                fields["User-Agent"] = user_agent
            if accept:
                fields["Accept"] = accept
            if compressed:
                fields["Accept-Encoding"] = "gzip"
            if self._via is not None:
                site = parsed.origin()
                fields["Host"] = authority(site)
                fields["X-Forwarded-Proto"] = site.scheme
                requested = f"{self._via.origin()}{after_host(url)}"
            async with (
                asyncio.timeout(self._timeout) as limit,
                self._session.get(
                    URL(requested, encoded=True),
                    headers=fields,
                    allow_redirects=False,
                    auto_decompress=not compressed,
                ) as response,
            ):
                if compressed:
                    limit.reschedule(None)
                yield response
        except TimeoutError:
            raise FetchFailed(f"{url}: no answer within {self._timeout:g} s") from None
        except ClientConnectorError as error:
            raise Unreachable(f"{url}: {reason_of(error)}") from error
        except (ClientError, OSError, ValueError, zlib.error) as error:
            raise FetchFailed(f"{url}: {reason_of(error)}") from error


async def _limited(
    response: ClientResponse, url: str, most_bytes: int, timeout: float | None = None
) -> AsyncIterator[bytes]:
    """A body, each part of which must come in ``timeout`` seconds. Raises FetchFailed."""
    size = 0
    while True:
        async with asyncio.timeout(timeout):
            part = await response.content.readany()
        if not part:
            return
        size += len(part)
        if size > most_bytes:
            raise FetchFailed(f"{url}: more than {most_bytes // 1024**2} MiB")
        yield part


def _redirect_target(url: str, location: str) -> str:
    with suppress(ValueError):
        target = urljoin(url, location).partition("#")[0]
        if target.startswith(("http://", "https://")):
            return target
    raise FetchFailed(f"{url}: redirects to {location}")
