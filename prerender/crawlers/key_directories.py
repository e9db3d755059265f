"""Key directories of signed agents: fetched, checked and cached, within limits.

Anyone can name any URL in a request, so fetches are limited in number, size and time, and go through
the address policy (draft-ietf-webbotauth-httpsig-protocol-01, "Key Distribution and Discovery" and
"Server-Side Request Forgery").
"""

import asyncio
import hashlib
import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

import structlog
from aiohttp import ClientError, ClientResponse, ClientSession
from cachetools import LRUCache
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from multidict import CIMultiDict
from yarl import URL

from prerender import __version__
from prerender.background import cancel_all
from prerender.crawlers.message_signatures import (
    NotVerified,
    SignedRequest,
    SignedResponse,
    signatures,
    verify,
)
from prerender.errors import OriginError
from prerender.gateway.connection_errors import reason_of
from prerender.gateway.upstream import send
from prerender.http.caching import Headers, directives
from prerender.urls.addresses import url_of

WELL_KNOWN = "/.well-known/http-message-signatures-directory"
MEDIA_TYPE = "application/http-message-signatures-directory+json"
PROOF_TAG = "http-message-signatures-directory"

FETCH_SECONDS = 5.0
MOST_BYTES = 64 * 1024
MOST_KEYS = 32
# Freshness without Cache-Control, and its bounds.
FRESH_SECONDS = 3600.0
_SHORTEST_SECONDS = 60.0
_LONGEST_SECONDS = 86400.0
# How long keys stay valid while the directory cannot be fetched, and the interval of retries.
STALE_SECONDS = 86400.0
RETRY_SECONDS = 60.0
MOST_DIRECTORIES = 128
MOST_FAILURES = 1024
# Fetches at the same time, and first fetches per minute: more are a flood of invented agents.
MOST_FETCHES = 8
MOST_PER_MINUTE = 30
_LONGEST_URL = 256
# JWK thumbprints of keys whose private part is published: RFC 9421 appendix B.1.4, RFC 8037 appendix A.
_TEST_KEYS = frozenset(
    {
        "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U",
        "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
    }
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Agent:
    """A signed agent. ``directory``: the URL of its keys, which identifies it; ``name``: the same for
    people, the host if the directory is at the well-known path."""

    directory: str
    name: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key and its validity in Unix seconds."""

    public: Ed25519PublicKey
    not_before: float = -inf
    expires: float = inf


@dataclass(slots=True)
class _Directory:
    """Keys by thumbprint. Times of the clock: of the last fetch, of the next one, and when the keys are
    no longer used."""

    keys: Mapping[str, Key]
    requested: float
    due: float
    ends: float


def agent_of(value: str) -> Agent:
    """The agent of a member of Signature-Agent: an origin, or the URL of a JWK Set.

    Raises NotVerified.
    """
    try:
        url = url_of(value, encoded=False)
        port = url.port
    except ValueError:
        port = None
    if port is None or not url.raw_host or not value.isprintable() or " " in value:
        raise NotVerified("Signature-Agent is not a URL")
    if url.scheme != "https":
        raise NotVerified("Signature-Agent is not an https URL")
    if len(value) > _LONGEST_URL:
        raise NotVerified(f"Signature-Agent has more than {_LONGEST_URL} characters")
    if url.raw_user is not None or url.raw_query_string or url.raw_fragment:
        raise NotVerified("Signature-Agent has a user, a query or a fragment")
    path = url.raw_path if url.raw_path not in ("", "/", WELL_KNOWN) else ""
    authority = url.host_port_subcomponent or ""
    return Agent(f"https://{authority}{path or WELL_KNOWN}", f"{authority}{path}")


class KeyDirectories:
    """The keys of agents, fetched with ``session``."""

    def __init__(self, session: ClientSession, clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._clock = clock
        self._known: LRUCache[str, _Directory] = LRUCache(MOST_DIRECTORIES)
        # Directories that cannot be fetched: the reason, and when to try again.
        self._failures: LRUCache[str, tuple[str, float]] = LRUCache(MOST_FAILURES)
        # Each returns '' or the reason why it failed.
        self._fetches: dict[str, asyncio.Task[str]] = {}
        self._left = float(MOST_PER_MINUTE)
        self._filled = clock()

    async def key(self, agent: Agent, keyid: str, wait_seconds: float) -> Key:
        """A key of an agent. Waits ``wait_seconds`` for its directory, if it has to be fetched.

        Raises NotVerified.
        """
        now = self._clock()
        directory = self._directory(agent, now)
        if directory is None or keyid not in directory.keys:
            if directory is None or now >= directory.requested + RETRY_SECONDS:
                await self._wait_for(agent, directory, wait_seconds)
                directory = self._directory(agent, self._clock())
            if directory is None or keyid not in directory.keys:
                raise NotVerified(f"{agent.name} has no Ed25519 key with the thumbprint {keyid!r}")
        elif now >= directory.due:
            self._fetch(agent)
        return directory.keys[keyid]

    async def close(self) -> None:
        """Cancel running fetches."""
        await cancel_all(self._fetches.values())

    def _directory(self, agent: Agent, now: float) -> _Directory | None:
        directory = self._known.get(agent.directory)
        return directory if directory is not None and now < directory.ends else None

    async def _wait_for(
        self, agent: Agent, directory: _Directory | None, wait_seconds: float
    ) -> None:
        """Fetch a directory that is unknown or lacks a key. Raises NotVerified."""
        if directory is None:
            self._check_limits(agent)
        done, _ = await asyncio.wait({self._fetch(agent)}, timeout=wait_seconds)
        for task in done:
            if task.cancelled():
                raise NotVerified("the proxy is shutting down")
            if problem := task.result():
                raise NotVerified(problem)
        if not done:
            raise NotVerified(f"the keys of {agent.name} are being fetched")

    def _check_limits(self, agent: Agent) -> None:
        """Raises NotVerified unless a directory may be fetched for the first time, or again."""
        if agent.directory in self._fetches:
            return
        now = self._clock()
        problem, again = self._failures.get(agent.directory, ("", 0.0))
        if problem and now < again:
            raise NotVerified(problem)
        refilled = (now - self._filled) * MOST_PER_MINUTE / 60
        self._left, self._filled = min(self._left + refilled, MOST_PER_MINUTE), now
        if self._left < 1 or len(self._fetches) >= MOST_FETCHES:
            raise NotVerified("too many unknown agents at the same time")
        self._left -= 1

    def _fetch(self, agent: Agent) -> asyncio.Task[str]:
        """Fetch a directory, unless this is running already."""
        task = self._fetches.get(agent.directory)
        if task is None:
            task = asyncio.create_task(self._update(agent), name=f"keys of {agent.name}")
            self._fetches[agent.directory] = task
            task.add_done_callback(lambda _: self._fetches.pop(agent.directory, None))
        return task

    async def _update(self, agent: Agent) -> str:
        """Fetch and store a directory. Returns why this failed, or ''."""
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                keys, fresh = await self._load(agent)
        except (NotVerified, OriginError, ClientError, OSError) as error:
            problem = f"the keys of {agent.name} cannot be fetched: {reason_of(error)}"[:300]
            log.info("agent_keys_unavailable", agent=agent.name, reason=problem)
            now = self._clock()
            again = now + RETRY_SECONDS
            if (directory := self._known.get(agent.directory)) is not None:
                directory.requested, directory.due = now, again
            self._failures[agent.directory] = (problem, again)
            return problem
        now = self._clock()
        self._failures.pop(agent.directory, None)
        self._known[agent.directory] = _Directory(
            keys, now, now + fresh, now + fresh + STALE_SECONDS
        )
        log.info("agent_keys_fetched", agent=agent.name, keys=len(keys))
        return ""

    async def _load(self, agent: Agent) -> tuple[dict[str, Key], float]:
        """The keys of a directory, and for how many seconds they are fresh."""
        accept = f"{MEDIA_TYPE}, application/jwk-set+json, application/json"
        headers = {
            "Accept": accept,
            "Accept-Encoding": "identity",
            "User-Agent": f"prerender-proxy/{__version__}",
        }
        url = URL(agent.directory, encoded=True)
        async with send(self._session, "GET", url, CIMultiDict(headers)) as response:
            if response.status != 200:
                raise NotVerified(f"status {response.status}")
            media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if url.raw_path == WELL_KNOWN and media_type != MEDIA_TYPE:
                raise NotVerified(f"its Content-Type is not {MEDIA_TYPE}")
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise NotVerified("it is compressed, which was not accepted")
            body = await _body_of(response)
            reply = SignedResponse(200, response.headers, SignedRequest("GET", str(url), headers))
            return proven_keys(reply, body, time.time()), _lifetime(response.headers)


async def _body_of(response: ClientResponse) -> bytes:
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > MOST_BYTES:
            raise NotVerified(f"it has more than {MOST_BYTES} bytes")
    return bytes(body)


def _lifetime(headers: Headers) -> float:
    cache_rules = directives(headers)
    if cache_rules.keys() & {"no-store", "no-cache"}:
        return _SHORTEST_SECONDS
    age = cache_rules.get("max-age", "")
    seconds = float(age[:9]) if age.isascii() and age.isdigit() else FRESH_SECONDS
    return min(max(seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)


def proven_keys(reply: SignedResponse, body: bytes, now: float) -> dict[str, Key]:
    """The keys of a response, by thumbprint, without those that it signs wrongly. Raises NotVerified.

    Signatures are optional: TLS proves that the keys are from this host. But where a key signs, it has
    to sign for this host and these keys ("Possession Proof on the Directory Response").
    """
    keys = keys_of(body)
    lines = [value for name, value in reply.headers.items() if name.lower() == "signature-input"]
    for proof in signatures(", ".join(lines), PROOF_TAG) if lines else []:
        key = keys.get(proof.keyid)
        if key is None:
            continue
        try:
            proof.check_time(now)
            if not proof.covers("@authority", req=True):
                raise NotVerified('its signature does not cover "@authority";req')
            # Earlier drafts did not require a digest.
            digested = any(name == "content-digest" for name, _ in proof.components)
            verify(reply, proof, key.public, body if digested else None)
        except NotVerified as problem:
            log.info("agent_key_ignored", keyid=proof.keyid, reason=str(problem))
            del keys[proof.keyid]
    return keys


def keys_of(body: bytes) -> dict[str, Key]:
    """The Ed25519 keys of a JWK Set (RFC 7517, RFC 8037) by thumbprint (RFC 7638). Raises NotVerified.

    ``kid`` is ignored, since the thumbprint is what a signature names.
    """
    try:
        entries = json.loads(body)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        entries = None
    if not isinstance(entries, list):
        raise NotVerified("it is not a JWK Set")
    if len(entries) > MOST_KEYS:
        raise NotVerified(f"it has more than {MOST_KEYS} keys")
    keys = {}
    for entry in entries:
        if isinstance(entry, dict) and (pair := _key(entry)) is not None:
            keys[pair[0]] = pair[1]
    return keys


def _key(entry: Mapping[str, object]) -> tuple[str, Key] | None:
    x = entry.get("x")
    if (entry.get("kty"), entry.get("crv")) != ("OKP", "Ed25519") or not isinstance(x, str):
        return None
    if entry.get("use", "sig") != "sig":
        return None
    try:
        raw = urlsafe_b64decode(f"{x}{'=' * (-len(x) % 4)}")
        public = Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        return None
    thumbprint = thumbprint_of(raw)
    if thumbprint in _TEST_KEYS:
        log.info("agent_key_ignored", keyid=thumbprint, reason="its private key is published")
        return None
    return thumbprint, Key(public, _time(entry, "nbf", -inf), _time(entry, "exp", inf))


def thumbprint_of(public_bytes: bytes) -> str:
    """The thumbprint of an Ed25519 key (RFC 8037, appendix A.3)."""
    x = urlsafe_b64encode(public_bytes).rstrip(b"=")
    digest = hashlib.sha256(b'{"crv":"Ed25519","kty":"OKP","x":"%s"}' % x).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def _time(entry: Mapping[str, object], name: str, default: float) -> float:
    value = entry.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        return default
    # Some directories have milliseconds.
    return value / 1000 if value > 1e11 else value
