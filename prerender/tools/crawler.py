"""An HTTP client that fetches pages as a crawler does: no scripts, no cookies, no redirects followed.

Bodies are read completely, up to a limit. Requests can be sent to a proxy of the site (``via``), with
the site's own Host.
"""

import asyncio
import re
import time
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urljoin

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from multidict import CIMultiDictProxy
from yarl import URL

from prerender import __version__
from prerender.errors import FetchFailed
from prerender.gateway.failures import reason_of
from prerender.http import headers
from prerender.urls.addresses import after_host

# Without the word "prerender", by which middlewares of prerender services recognize a renderer.
USER_AGENT = f"Mozilla/5.0 (compatible; HashbangCrawler/{__version__})"
# A crawler that sites with a User-Agent list know.
SEARCH_ENGINE = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
MAX_BYTES = 64 * 1024**2
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
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def is_html(self) -> bool:
        """Whether there is a page to be read."""
        return self.media_type in ("text/html", "application/xhtml+xml")

    @property
    def charset(self) -> str | None:
        """The charset that the Content-Type names."""
        for parameter in self.headers.get("Content-Type", "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                return value.strip().strip('"') or None
        return None

    @property
    def links(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Absolute URLs of the Link headers, each with its relations in lower case (RFC 8288)."""
        for value in self.headers.getall("Link", ()):
            for reference, parameters in _LINK.findall(value):
                found = _RELATION.search(parameters)
                relations = (found[1] or found[2]).lower().split() if found else ()
                with suppress(ValueError):
                    yield urljoin(self.url, reference.strip()), tuple(relations)


class Crawler:
    """Create it with ``async with Crawler.open(...)``."""

    def __init__(
        self, session: ClientSession, via: URL | None, fields: Mapping[str, str], timeout: float
    ) -> None:
        self._session = session
        self._via = via
        self._fields = dict(fields)
        self._timeout = timeout

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        via: URL | None = None,
        user_agent: str = USER_AGENT,
        timeout: float = 60.0,
        connections: int = 0,
    ) -> AsyncIterator["Crawler"]:
        """Open a crawler; ``timeout`` in seconds is for one complete response."""
        fields = {"User-Agent": user_agent, "Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        async with ClientSession(
            connector=TCPConnector(limit=connections, keepalive_timeout=_IDLE_SECONDS),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None),
            trust_env=False,
        ) as session:
            yield cls(session, via, fields, timeout)

    async def get(self, url: str, user_agent: str = "") -> Fetched:
        """GET an absolute URL, byte for byte, without its fragment. Raises FetchFailed.

        ``user_agent``: the User-Agent of this request.
        """
        url = url.partition("#")[0]
        fields = dict(self._fields)
        if user_agent:
            fields["User-Agent"] = user_agent
        asked = url
        started = time.monotonic()
        try:
            if self._via is not None:
                site = URL(url, encoded=True).origin()
                fields["Host"] = headers.authority(site)
                fields["X-Forwarded-Proto"] = site.scheme
                asked = f"{self._via.origin()}{after_host(url)}"
            async with (
                asyncio.timeout(self._timeout),
                self._session.get(
                    URL(asked, encoded=True), headers=fields, allow_redirects=False
                ) as response,
            ):
                body = bytearray()
                async for part in response.content.iter_any():
                    body += part
                    if len(body) > MAX_BYTES:
                        raise FetchFailed(f"{url}: more than {MAX_BYTES // 1024**2} MiB")
        except TimeoutError:
            raise FetchFailed(f"{url}: no answer within {self._timeout:g} s") from None
        except (ClientError, OSError, ValueError, zlib.error) as error:
            raise FetchFailed(f"{url}: {reason_of(error)}") from error
        seconds = time.monotonic() - started
        return Fetched(url, response.status, response.headers, bytes(body), seconds)
