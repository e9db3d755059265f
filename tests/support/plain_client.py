"""A gateway, and a client that sends requests like those of the browser."""

import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Any

from aiohttp import ClientSession, DummyCookieJar, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.context_proxy import ContextProxy
from prerender.gateway.document import Document
from prerender.gateway.gateway import Gateway, NetworkRules
from prerender.gateway.upstream import Upstream, open_session
from prerender.gateway.visit import Visit
from tests.conftest import Reply

PUBLIC = URL("http://www.example.com")
USER_AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/156.0.0.{} Safari/537.36"
HTML = CIMultiDict({"Content-Type": "text/html"})


class Elsewhere(AbstractResolver):
    """Resolves every name to an address of this machine: a third party for tests.

    ``asked``: the names that were looked up.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        return [
            ResolveResult(
                hostname=host, host="127.0.0.1", port=self._port, family=family, proto=0, flags=0
            )
        ]

    async def close(self) -> None: ...


class PlainClient:
    """A gateway and a client that sends requests like those of the browser."""

    def __init__(self, gateway: Gateway, client: ClientSession) -> None:
        self.gateway = gateway
        self.client = client
        self._proxies: dict[int, ContextProxy] = {}
        self._visits: dict[int, ExitStack] = {}
        self._requests: Counter[int] = Counter()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        origin: str,
        resolver: AbstractResolver | None = None,
        public: URL = PUBLIC,
        rules: NetworkRules | None = None,
    ) -> AsyncIterator["PlainClient"]:
        rules = rules or NetworkRules()
        async with (
            open_session(AddressPolicy.only(URL(origin)), 1, 5) as own,
            open_session(rules.addresses, 1, 5, resolver) as third_parties,
            Gateway.open(public, Upstream(own, URL(origin)), third_parties, rules) as gateway,
            ClientSession(
                connector=TCPConnector(force_close=True),  # some connections end with their visit
                cookie_jar=DummyCookieJar(),
                auto_decompress=False,
                max_headers=2000,
            ) as client,
        ):
            yield cls(gateway, client)

    async def request(
        self,
        host: str,
        path: str = "/",
        *,
        page: int = 1,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Reply:
        """Send a request of a page, by its number; redirects are not followed.

        The page counts as rendering, if only for this request.
        """
        sent = {"Host": host, "User-Agent": USER_AGENT.format(page), **(headers or {})}
        url = URL(f"{self.proxy(page).url}{path}", encoded=True)
        options = {**options, "headers": sent, "allow_redirects": False}
        with self._visiting(page):
            async with self.client.request(method, url, **options) as response:
                return Reply(response.status, response.headers, await response.read())

    @contextmanager
    def _visiting(self, page: int) -> Iterator[None]:
        if self.proxy(page)._visit is None:
            self._visits[page] = ExitStack()
            self._visits[page].enter_context(self.visit(page, None))
        self._requests[page] += 1
        try:
            yield
        finally:
            self._requests[page] -= 1
            if not self._requests[page] and (visit := self._visits.pop(page, None)):
                visit.close()

    def proxy(self, page: int = 1) -> ContextProxy:
        """The proxy of the page with this number, in its own browser context."""
        if page not in self._proxies:
            self._proxies[page] = self.gateway.open_proxy()
        return self._proxies[page]

    def visit(self, page: int, document: Document | None) -> AbstractContextManager[Visit]:
        """Serve the requests of a page."""
        return self.proxy(page).visit(page, document)

    def socket_url(self, path: str) -> str:
        return f"ws://127.0.0.1:{self.proxy().port}{path}"
