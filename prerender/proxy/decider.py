"""Decides what to do with a request, with all that a decision depends on.

``decision.py`` has the rules that need the request only. Here come the client, the form of the request,
the host, and the slow checks: signatures, addresses of crawlers and robots.txt.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from prerender.config.crawler_classes import CrawlerClass
from prerender.crawlers.robots import OptOut
from prerender.crawlers.triggers import Triggers
from prerender.crawlers.web_bot_auth import SignedAgents
from prerender.errors import Refused
from prerender.http import forwarding_headers
from prerender.http.client_address import Clients
from prerender.http.fields import Fields, value_of
from prerender.http.message_head import Request
from prerender.http.negotiation import prefers_markdown
from prerender.proxy.decision import Decision, Forward, Reason, Refuse, Render, decide
from prerender.proxy.discovery import Discovery
from prerender.proxy.drop_in import DropIn
from prerender.proxy.site_hosts import SiteHosts
from prerender.proxy.vary import PageVary
from prerender.proxy.websocket_tunnel import is_upgrade
from prerender.snapshots.target import Target
from prerender.snapshots.variants import Vary
from prerender.telemetry.records import LONGEST_USER_AGENT
from prerender.urls.ajax_crawling import UGLY_TOKEN
from prerender.urls.tracking import NO_TRACKING, Tracking

_REMEMBERED_TARGETS = 1024
_REMEMBERED_CLIENTS = 1024
_LONGEST_REMEMBERED = 1024
# How long a response that depends on a signature waits for the keys of an unknown agent.
_KEY_SECONDS = 1.0
_SIGNATURE_AGENT = "signature-agent"
# Decided by what a cache in front does not compare: marks, connection headers, addresses.
_HIDDEN = (Reason.RENDERER, Reason.UPGRADE, Reason.UNVERIFIED)


class Considered(NamedTuple):
    """A decision about a request, and the facts that it depends on.

    ``request``: the request as a crawler sends it, if a middleware sent it in another form.
    ``remote``: the client's address, according to trusted proxies. ``agent``: the agent that signed the
    request, or ''; ``agent_unverified``: why a signature does not count.
    """

    request: Request
    decision: Decision
    user_agent: str
    crawler: CrawlerClass | None
    remote: str
    agent: str = ""
    agent_unverified: str = ""


@dataclass(frozen=True)
class SitePages:
    """What is a page of the site.

    ``target_of(pretty, variant=...)``: makes the target of a page; ``variant`` only with ``vary``.
    ``hosts``: the host names that get snapshots.
    """

    target_of: Callable[..., Target]
    hosts: SiteHosts
    tracking: Tracking = NO_TRACKING
    vary: Vary | None = None


@dataclass(frozen=True)
class Clientele:
    """Who sends a request.

    ``addresses``: finds the client's address. ``verify``: whether a request comes from the crawler that
    it names. ``agents``: verifies the signatures of agents. ``opt_out``: robots.txt, for ugly URLs.
    """

    addresses: Clients = field(default_factory=lambda: Clients(()))
    verify: Callable[[Request], Awaitable[bool]] | None = None
    agents: SignedAgents | None = None
    opt_out: OptOut | None = None


class Decider:
    """Decides. ``drop_in``: accepts requests of middlewares."""

    def __init__(
        self,
        triggers: Triggers,
        pages: SitePages,
        clientele: Clientele,
        drop_in: DropIn | None = None,
    ) -> None:
        self.hosts = pages.hosts
        self._triggers = triggers
        self._pages = pages
        self._clientele = clientele
        self._drop_in = drop_in
        # Crawlers request the same pages repeatedly, and clients repeat their User-Agents.
        self._known_target = lru_cache(maxsize=_REMEMBERED_TARGETS)(pages.target_of)
        self._known_client = lru_cache(maxsize=_REMEMBERED_CLIENTS)(self._read_client)
        self._key_seconds = _KEY_SECONDS if triggers.need_signatures else 0.0
        self._checks_renders = clientele.verify is not None or clientele.opt_out is not None
        self.has_checks = self._checks_renders or clientele.agents is not None
        self._discovery: Discovery | None = None
        variants = pages.vary.fields if pages.vary else ()
        self.vary = PageVary(
            triggers,
            variants,
            middleware=drop_in is not None,
            opt_out=clientele.opt_out is not None,
        )

    def discover(self, discovery: Discovery) -> None:
        """Decide about Markdown URLs, too."""
        self._discovery = discovery
        self._checks_renders = self.has_checks = True

    def consider(self, request: Request) -> Considered:
        """The decision, without slow checks."""
        user_agent, crawler = self._client(request.headers)
        request, decision = self._decide(request, crawler)
        remote = self._clientele.addresses.address_of(request)
        return Considered(request, decision, user_agent, crawler, remote)

    def needs_checks(self, considered: Considered) -> bool:
        """Whether slow checks may change the decision."""
        return (
            self._checks_renders and isinstance(considered.decision, Render)
        ) or _SIGNATURE_AGENT in considered.request.headers.names

    async def check(
        self, considered: Considered, key_seconds: float | None = None, *, remember: bool = True
    ) -> Considered:
        """The decision after slow checks.

        ``key_seconds``: how long to wait for the keys of an unknown agent, by default as its response
        depends on them; ``remember``: the same signature is not accepted again.
        """
        is_genuine = False
        if _SIGNATURE_AGENT in considered.request.headers.names:
            signer = self._signer(considered)
            if key_seconds is None:
                key_seconds = _KEY_SECONDS if signer else 0.0
                if considered.crawler is None:
                    key_seconds = self._key_seconds
            considered = await self._with_agent(considered, key_seconds, remember=remember)
            is_genuine = signer != "" and considered.agent == signer
        if isinstance(considered.decision, Render):
            decision = await self._checked(
                considered.request, considered.decision, is_genuine=is_genuine
            )
            considered = considered._replace(decision=decision)
        return considered

    def target_of(self, request: Request, decision: Render) -> Target:
        """The target of a request that is rendered."""
        pretty = decision.pretty
        is_long = len(pretty.path) + len(pretty.fragment) > _LONGEST_REMEMBERED
        target_of = self._pages.target_of if is_long else self._known_target
        if self._pages.vary is None:
            return target_of(pretty)
        return target_of(pretty, variant=self._pages.vary.variant_of(request.headers))

    def vary_of_forwarded(self, considered: Considered) -> tuple[str, ...]:
        """What a forwarded page varies by; "*" if it is none for others who send the same headers."""
        headers, decision = considered.request.headers, considered.decision
        is_unverified = considered.crawler is None and _SIGNATURE_AGENT in headers.names
        if decision.reason in _HIDDEN or (is_unverified and self._triggers.need_signatures):
            return ("*",)
        return self.vary.of_forwarded(considered.request.target)

    def _client(self, headers: Fields) -> tuple[str, CrawlerClass | None]:
        """The User-Agent and its class of crawlers."""
        line = headers.names.get("user-agent", b"")
        if len(line) <= _LONGEST_REMEMBERED:
            return self._known_client(line)
        return self._read_client(line)

    def _read_client(self, line: bytes) -> tuple[str, CrawlerClass | None]:
        user_agent = value_of(line).decode("latin-1")
        return user_agent[:LONGEST_USER_AGENT], self._triggers.class_of(user_agent)

    def _decide(self, request: Request, crawler: CrawlerClass | None) -> tuple[Request, Decision]:
        """The request as a crawler sends it, and the decision."""
        marked = forwarding_headers.is_marked(request.headers)
        drop_in = False
        if self._drop_in is not None:
            try:
                request, drop_in = self._drop_in.read(request)
            except Refused as error:
                return request, Refuse(type(error), Reason.MIDDLEWARE_REFUSED)
        target = request.target
        token_at = target.rfind(UGLY_TOKEN)
        if token_at >= 0 and target.find("&", token_at + len(UGLY_TOKEN)) >= 0:
            # Others append their parameters to shared URLs, behind the token, which must be the last.
            target = self._pages.tracking.without(target)
        page = None if self._discovery is None else self._discovery.page_of(target)
        decision = decide(
            request.method,
            target if page is None else page,
            triggers=self._triggers,
            crawler=crawler,
            marked=marked,
            upgrade=is_upgrade(request),
            wants_markdown=self._triggers.accept_markdown
            and prefers_markdown(request.headers.get("accept")),
            markdown_url=page is not None,
            drop_in=drop_in,
        )
        if isinstance(decision, Render) and not drop_in and request.host not in self.hosts:
            decision = Forward(Reason.FOREIGN_HOST)
        return request, decision

    async def _with_agent(
        self, considered: Considered, key_seconds: float, *, remember: bool
    ) -> Considered:
        """Verify the signature of an agent, which counts if its User-Agent names no crawler."""
        agents, request = self._clientele.agents, considered.request
        if agents is None or forwarding_headers.is_marked(request.headers):
            return considered
        signed = await agents.check(request, key_seconds, remember=remember)
        considered = considered._replace(agent=signed.agent, agent_unverified=signed.reason)
        if not signed.agent or considered.crawler is not None:
            return considered
        _, decision = self._decide(request, "signed")
        return considered._replace(crawler="signed", decision=decision)

    def _signer(self, considered: Considered) -> str:
        """The agent whose signature verifies the crawler of the User-Agent; '' if that is no matter."""
        if self._clientele.verify is None or not isinstance(considered.decision, Render):
            return ""
        return self._triggers.user_agents.signer_of(considered.user_agent)

    async def _checked(
        self, request: Request, decision: Render, *, is_genuine: bool = False
    ) -> Decision:
        """Apply robots.txt for ugly URLs, DNS for crawlers by User-Agent, the origin's own files.

        ``is_genuine``: the crawler is verified by its signature.
        """
        verify, opt_out = self._clientele.verify, self._clientele.opt_out
        if decision.by_user_agent:
            if (
                verify is not None
                and not decision.drop_in
                and not is_genuine
                and not await verify(request)
            ):
                return Forward(Reason.UNVERIFIED)
            return decision
        if (
            decision.markdown_url
            and self._discovery is not None
            and await self._discovery.origin_has(request.target)
        ):
            return Forward(Reason.ORIGINS_FILE)
        if opt_out is not None and UGLY_TOKEN in request.target:
            page = self.target_of(request, decision).path
            if await opt_out.forbids(request.target, page, request.headers.get("user-agent")):
                return Forward(Reason.ROBOTS_TXT)
        return decision
