"""Recognizes signed agents (Web Bot Auth): their requests carry HTTP Message Signatures.

draft-ietf-webbotauth-httpsig-protocol-01, and the bare string of earlier drafts in Signature-Agent. An
agent is identified by the https URL where it publishes its keys.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import http_sf
import structlog
from cachetools import LRUCache
from multidict import CIMultiDict
from yarl import URL

from prerender.crawlers.key_directories import (
    MOST_DIRECTORIES,
    Agent,
    KeyDirectories,
    agent_of,
)
from prerender.crawlers.message_signatures import (
    CLOCK_SKEW_SECONDS,
    NotVerified,
    Signature,
    SignedRequest,
    dictionary,
    signatures,
    verify,
)
from prerender.http.fields import value_of
from prerender.http.forwarding_headers import authority
from prerender.http.message_head import Request
from prerender.urls.hosts import Hosts, host_of, normalized

TAG = "web-bot-auth"
FIELDS = ("Signature-Agent", "Signature-Input", "Signature")
LONGEST_FIELDS = 4096
# Of what is parsed for covered components with parameters, which takes longest.
LONGEST_PARSED = 4096
# One of an agent, one of its remote browser.
MOST_TRIED = 2
LONGEST_VALIDITY_SECONDS = 86400
# By agent. Older ones are forgotten.
MOST_NONCES = 2048
_LONGEST_REASON = 300

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Signed:
    """The result for a request with Signature-Agent. ``agent``: the name of the verified agent, or '';
    ``reason``: why it is not verified."""

    agent: str
    reason: str = ""


class SignedAgents:
    """Verifies signed requests for the site at ``public``, also under its other names, ``hosts``."""

    def __init__(
        self,
        directories: KeyDirectories,
        public: URL,
        hosts: Hosts,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directories = directories
        self._scheme = public.scheme
        self._authority = authority(public)
        self._name = normalized(public.raw_host or "")
        self._hosts = hosts
        self._clock = clock
        # By agent: nonces, as hashes, with the time when their signature expires.
        self._nonces: LRUCache[str, OrderedDict[int, int]] = LRUCache(MOST_DIRECTORIES)

    async def check(
        self, request: Request, wait_seconds: float, *, remember: bool = True
    ) -> Signed:
        """The agent that signed a request. Waits at most ``wait_seconds`` for its keys.

        Without ``remember``, the nonce may be used again.
        """
        try:
            return Signed(await self._agent(request, wait_seconds, remember=remember))
        except NotVerified as problem:
            return Signed("", str(problem)[:_LONGEST_REASON])
        except Exception:
            # A visitor must not get an error because of a header that only this check reads.
            log.exception("signature_check_failed")
            return Signed("", "internal error")

    async def _agent(self, request: Request, wait_seconds: float, *, remember: bool) -> str:
        fields = {name: request.headers.get(name) for name in FIELDS}
        for name, value in fields.items():
            if not value:
                raise NotVerified(f"there is no {name} header")
        if sum(map(len, fields.values())) > LONGEST_FIELDS:
            raise NotVerified(f"the headers of the signature have more than {LONGEST_FIELDS} bytes")
        candidates = signatures(fields["Signature-Input"], TAG)
        if not 0 < len(candidates) <= MOST_TRIED:
            raise NotVerified(
                f"more than {MOST_TRIED} signatures have the tag {TAG}"
                if candidates
                else f"no signature has the tag {TAG}"
            )
        message = self._message(request)
        until = asyncio.get_running_loop().time() + wait_seconds
        reasons = []
        for signature in candidates:
            left = max(0.0, until - asyncio.get_running_loop().time())
            try:
                agent = _check_rules(signature, request, self._clock())
                await self._verify(message, signature, agent, left)
                self._check_nonce(agent, signature, remember=remember)
            except NotVerified as problem:
                reasons.append(str(problem))
            else:
                return agent.name
        raise NotVerified("; ".join(reasons))

    def _message(self, request: Request) -> SignedRequest:
        """The request as the client sent it to the site's public URL.

        A signature for any other host must not count, since that host could send it on to this one.
        """
        host = request.host
        name = host_of(host)
        also = name != self._name and self._hosts.named(name, 0)
        lines = [(name, value_of(line).decode("latin-1")) for name, line in request.headers.lines]
        url = f"{self._scheme}://{host if also else self._authority}{request.target}"
        return SignedRequest(request.method, url, CIMultiDict(lines))

    async def _verify(
        self, message: SignedRequest, signature: Signature, agent: Agent, wait_seconds: float
    ) -> None:
        key = await self.directories.key(agent, signature.keyid, wait_seconds)
        if not key.not_before <= self._clock() <= key.expires:
            raise NotVerified(f"the key {signature.keyid} has expired or is not valid yet")
        verify(message, signature, key.public)

    def _check_nonce(self, agent: Agent, signature: Signature, *, remember: bool) -> None:
        """Raises NotVerified if the nonce was used before (RFC 9421, section 7.2.2)."""
        if not signature.nonce:
            return
        nonces = self._nonces.setdefault(agent.directory, OrderedDict())
        nonce = hash((signature.keyid, signature.nonce))
        if nonces.get(nonce, 0) >= self._clock() - CLOCK_SKEW_SECONDS:
            raise NotVerified("its nonce was used before")
        if remember:
            nonces[nonce] = signature.expires or 0
            if len(nonces) > MOST_NONCES:
                nonces.popitem(last=False)


def _check_rules(signature: Signature, request: Request, now: float) -> Agent:
    """Check what the draft requires besides a valid signature. Raises NotVerified."""
    parsed = {name for name, parameters in signature.components if parameters}
    size = sum(len(line) for name, line in request.headers.lines if name in parsed)
    if size + len(request.target) * ("@query-param" in parsed) > LONGEST_PARSED:
        raise NotVerified(f"components with parameters have more than {LONGEST_PARSED} bytes")
    if signature.created is None or signature.expires is None or not signature.keyid:
        raise NotVerified("created, expires and keyid are required")
    signature.check_time(now)
    if signature.expires - signature.created > LONGEST_VALIDITY_SECONDS:
        raise NotVerified(f"it is valid for more than {LONGEST_VALIDITY_SECONDS // 3600} hours")
    if not (signature.covers("@authority") or signature.covers("@target-uri")):
        raise NotVerified("it covers neither @authority nor @target-uri")
    return agent_of(_member(signature, request.headers.get("Signature-Agent")))


def _member(signature: Signature, field: str) -> str:
    """The member of Signature-Agent that a signature covers. Raises NotVerified."""
    members = _agents_of(field)
    covered = [
        parameters.get("key")
        for name, parameters in signature.components
        if name == "signature-agent"
    ]
    if not covered:
        raise NotVerified("it does not cover signature-agent")
    if None in covered:
        covered = [*members]
    key = signature.label if len(covered) > 1 else covered[0]
    if key not in covered or not isinstance(key, str):
        raise NotVerified("it covers several members of Signature-Agent, none with its label")
    value, parameters = members.get(key, (None, {}))
    if value is None:
        raise NotVerified(f"Signature-Agent has no member {key}")
    if not isinstance(value, str):
        raise NotVerified("Signature-Agent is not a string")
    if parameters:
        raise NotVerified("Signature-Agent has parameters")
    return value


def _agents_of(field: str) -> dict[str, tuple[object, dict[str, object]]]:
    """The members of Signature-Agent; '' is the key of a bare string, as in earlier drafts."""
    if not field.startswith('"'):
        return dictionary("Signature-Agent", field)
    try:
        item = http_sf.parse(field.encode("latin-1", "replace"), tltype="item")
    except ValueError as error:
        raise NotVerified(f"Signature-Agent is malformed: {error}") from error
    return {"": cast("tuple[object, dict[str, object]]", item)}
