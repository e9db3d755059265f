"""Signed agents: their rules, and the directories of their keys, fetched from a real server."""

import asyncio
import base64
import gzip
import hashlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from prerender.crawlers import key_directories, web_bot_auth
from prerender.crawlers.key_directories import (
    FRESH_SECONDS,
    MEDIA_TYPE,
    MOST_BYTES,
    MOST_FETCHES,
    MOST_KEYS,
    MOST_PER_MINUTE,
    PROOF_TAG,
    RETRY_SECONDS,
    STALE_SECONDS,
    WELL_KNOWN,
    KeyDirectories,
    agent_of,
    keys_of,
)
from prerender.crawlers.message_signatures import NotVerified
from prerender.crawlers.web_bot_auth import (
    LONGEST_FIELDS,
    LONGEST_PARSED,
    SignedAgents,
)
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.upstream import open_session
from prerender.http.message_head import Request, parse_request
from prerender.urls.hosts import Hosts
from tests.support.renders import PUBLIC, Clock
from tests.support.signed_agent import Directory, SignedAgent, directory_server, jwk, signed

PATIENCE = 20.0


def _request(
    fields: dict[str, str],
    method: str = "GET",
    target: str = "/page?a=b",
    host: str = "www.example.com",
) -> Request:
    lines = [f"{name}: {value}" for name, value in ({"Host": host} | fields).items()]
    return parse_request("\r\n".join((f"{method} {target} HTTP/1.1", *lines)).encode("latin-1"))


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Directory]:
    async with directory_server(tmp_path) as running:
        yield running


@asynccontextmanager
async def _agents(
    directory: Directory | None = None,
    *,
    clock: Clock | None = None,
    hosts: tuple[str, ...] = (),
    allow: tuple[str, ...] | None = None,
) -> AsyncIterator[SignedAgents]:
    if allow is None:
        allow = (directory.origin,) if directory else ()
    async with open_session(AddressPolicy(Hosts(allow)), 20, 20) as session:
        directories = KeyDirectories(session, clock or time.monotonic)
        yield SignedAgents(directories, PUBLIC, Hosts(hosts))
        await directories.close()


def _published(directory: Directory, **more: object) -> SignedAgent:
    agent = SignedAgent(directory.origin)
    directory.keys = [jwk(agent.key, **more)]
    return agent


async def _reason(agents: SignedAgents, request: Request, patience: float = PATIENCE) -> str:
    """Why a request is not verified; '' if it is."""
    result = await agents.check(request, patience)
    assert bool(result.agent) != bool(result.reason)
    return result.reason


@pytest.mark.parametrize("bare", [False, True])
async def test_a_signed_request(directory: Directory, bare: bool) -> None:
    agent = _published(directory, kid="any", alg="EdDSA", use="sig")
    async with _agents(directory) as agents:
        more = [('"@method"', "GET"), ('"@path"', "/page"), ('"@query"', "?a=b")]
        extras: tuple[dict[str, Any], ...] = ({}, {"nonce": "n"}, {"alg": "ed25519"})
        for extra in extras:
            fields = agent.headers(more=more, bare=bare, **extra)
            result = await agents.check(_request(fields), PATIENCE)
            assert (result.agent, result.reason) == (f"localhost:{directory.port}", "")
        assert "does not match" in await _reason(agents, _request(fields, target="/other?a=b"))
        assert "does not match" in await _reason(agents, _request(fields, method="POST"))
    [fetch] = directory.requests
    assert fetch.path == WELL_KNOWN
    assert fetch.headers["Accept"].startswith(MEDIA_TYPE)
    assert fetch.headers["User-Agent"].startswith("prerender-proxy/")


async def test_a_directory_at_a_path(directory: Directory) -> None:
    """The current draft: the value is the URL of a JWK Set, with any JSON type."""
    agent = _published(directory)
    directory.headers = {"Content-Type": "application/json"}
    agent.url = f"{directory.origin}/jwks.json"
    async with _agents(directory) as agents:
        result = await agents.check(_request(agent.headers()), PATIENCE)
        assert result.agent == f"localhost:{directory.port}/jwks.json"
        # At the well-known path, the type is prescribed.
        agent.url = f"{directory.origin}{WELL_KNOWN}"
        reason = await _reason(agents, _request(agent.headers()))
        assert f"Content-Type is not {MEDIA_TYPE}" in reason
        # It is the same agent as that of the origin.
        agent.url = directory.origin
        assert await _reason(agents, _request(agent.headers())) == reason
    assert [fetch.path for fetch in directory.requests] == ["/jwks.json", WELL_KNOWN]


async def test_only_signatures_for_this_site_count(directory: Directory) -> None:
    """Otherwise the owner of any site could send on the requests that an agent signed for it."""
    agent = _published(directory)
    async with _agents(directory, hosts=("shop.example.com", "*.example.net")) as agents:
        for authority, host, verified in (
            ("www.example.com", "www.example.com", True),
            # The proxy in front may pass another name, or none.
            ("www.example.com", "www.example.com:443", True),
            ("www.example.com", "10.0.0.2:8080", True),
            ("www.example.com", "app", True),
            ("www.example.com", "evil.example", True),
            ("shop.example.com", "shop.example.com", True),
            ("a.example.net", "A.example.net:443", True),
            ("evil.example", "evil.example", False),
            ("evil.example", "www.example.com", False),
            ("10.0.0.2:8080", "10.0.0.2:8080", False),
            ("www.example.com", "shop.example.com", False),
            ("shop.example.com", "www.example.com", False),
            ("www.example.com:8443", "www.example.com:8443", False),
        ):
            request = _request(agent.headers(authority), host=host)
            reason = await _reason(agents, request)
            assert (reason == "") is verified, (authority, host, reason)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"created": None}, "created, expires and keyid are required"),
        ({"expires": None}, "created, expires and keyid are required"),
        ({"keyid": None}, "created, expires and keyid are required"),
        ({"keyid": ""}, "created, expires and keyid are required"),
        ({"keyid": "other"}, "no Ed25519 key with the thumbprint 'other'"),
        ({"tag": None}, "no signature has the tag web-bot-auth"),
        ({"tag": "other"}, "no signature has the tag web-bot-auth"),
        ({"alg": "rsa-pss-sha512"}, "Unexpected algorithm"),
        ({"alg": "hmac-sha256"}, "Unexpected algorithm"),
        ({"created": int(time.time()) + 3600}, "in the future"),
        ({"expires": int(time.time()) - 3600}, "expired"),
        ({"expires": int(time.time()) + 100_000}, "more than 24 hours"),
        ({"created": "now"}, "created is not an integer"),
        ({"nonce": 1}, "nonce is not a string"),
    ],
)
async def test_parameters(directory: Directory, changes: dict[str, Any], reason: str) -> None:
    agent = _published(directory)
    async with _agents(directory) as agents:
        assert reason in await _reason(agents, _request(agent.headers(**changes)))


AUTHORITY = ('"@authority"', "www.example.com")


def _with(
    agent: SignedAgent, components: list[tuple[str, str]], signature_agent: str
) -> dict[str, str]:
    now = int(time.time())
    parameters = f';created={now};expires={now + 60};keyid="{agent.keyid}";tag="web-bot-auth"'
    return {"Signature-Agent": signature_agent, **signed(agent.key, components, parameters)}


async def test_the_member_of_signature_agent(directory: Directory) -> None:
    agent = _published(directory)
    mine, other = f'"{directory.origin}"', '"https://other.example"'

    def covered(*keys: str) -> list[tuple[str, str]]:
        values = {"sig1": mine, "g": mine, "other": other}
        return [(f'"signature-agent";key="{key}"', values[key]) for key in keys]

    whole = f"sig1={mine}, other={other}"
    target = ('"@target-uri"', "https://www.example.com/page?a=b")
    async with _agents(directory) as agents:
        for components, field_value, reason in (
            ([AUTHORITY, *covered("sig1")], f"sig1={mine}", ""),
            ([target, *covered("sig1")], f"sig1={mine}", ""),
            # The key is not always the label.
            ([AUTHORITY, *covered("g")], f"g={mine}", ""),
            ([AUTHORITY, *covered("other", "sig1")], whole, ""),
            ([AUTHORITY, ('"signature-agent"', whole)], whole, ""),
            ([AUTHORITY, ('"signature-agent"', f"g={mine}")], f"g={mine}", ""),
            (covered("sig1"), f"sig1={mine}", "neither @authority nor @target-uri"),
            ([AUTHORITY], f"sig1={mine}", "does not cover signature-agent"),
            ([AUTHORITY, *covered("sig1")], f"g={mine}", "no member sig1"),
            (
                [AUTHORITY, *covered("g", "other")],
                f"g={mine}, other={other}",
                "none with its label",
            ),
            ([AUTHORITY, ('"signature-agent"', "")], f"a={mine}, b={mine}", "none with its label"),
            ([AUTHORITY, *covered("sig1")], f"sig1={mine}, sig1={other}", "sig1 twice"),
            ([AUTHORITY, *covered("sig1")], f"sig1={mine};type=directory", "parameters"),
            ([AUTHORITY, ('"signature-agent"', mine)], f"{mine};a", "parameters"),
            ([AUTHORITY, *covered("sig1")], "sig1=token", "not a string"),
            ([AUTHORITY, *covered("sig1")], f"sig1=({mine})", "not a string"),
            ([AUTHORITY, *covered("sig1")], "sig1", "not a string"),
            ([AUTHORITY, *covered("sig1")], "sig1=", "malformed"),
            ([AUTHORITY, *covered("sig1")], mine, "no member sig1"),
            ([AUTHORITY, ('"signature-agent"', "")], '"https', "malformed"),
            ([AUTHORITY, ('"signature-agent"', "")], f"{mine}, {mine}", "malformed"),
        ):
            request = _request(_with(agent, components, field_value))
            found = await _reason(agents, request)
            assert reason in found if reason else not found, (components, field_value, found)


@pytest.mark.parametrize(
    ("url", "directory_url", "name"),
    [
        ("https://chatgpt.com", f"https://chatgpt.com{WELL_KNOWN}", "chatgpt.com"),
        ("https://ChatGPT.com:443/", f"https://chatgpt.com{WELL_KNOWN}", "chatgpt.com"),
        (f"https://chatgpt.com{WELL_KNOWN}", f"https://chatgpt.com{WELL_KNOWN}", "chatgpt.com"),
        ("https://a.example/k.json", "https://a.example/k.json", "a.example/k.json"),
        ("https://a.example:8443", f"https://a.example:8443{WELL_KNOWN}", "a.example:8443"),
        ("https://a.example/../b/./k", "https://a.example/b/k", "a.example/b/k"),
    ],
)
def test_the_url_of_a_directory(url: str, directory_url: str, name: str) -> None:
    agent = agent_of(url)
    assert (agent.directory, agent.name) == (directory_url, name)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://a.example", "not an https URL"),
        ("data:application/json,{}", "not a URL"),
        ("ftp://a.example", "not an https URL"),
        ("a.example", "not a URL"),
        ("", "not a URL"),
        ("https://", "not a URL"),
        ("https:///path", "not a URL"),
        ("https://a.example:99999", "not a URL"),
        ("https://a b.example", "not a URL"),
        ("https://[::1", "not a URL"),
        ("https://a[::1]@", "not a URL"),
        ("https://user@a.example", "a user"),
        ("https://a.example/?q", "a query"),
        ("https://a.example/#f", "a fragment"),
        ("https://a.example/" + "a" * 256, "more than 256 characters"),
    ],
)
def test_urls_that_are_refused(url: str, reason: str) -> None:
    with pytest.raises(NotVerified, match=reason):
        agent_of(url)


async def test_several_signatures(directory: Directory) -> None:
    """One of them suffices, and others must not disturb it."""
    agent = _published(directory)
    good = agent.headers(nonce="a")
    other = _with(SignedAgent("https://other.example"), [AUTHORITY], "")

    def joined(*labels: str) -> Request:
        fields = dict(good)
        for name in ("Signature-Input", "Signature"):
            more = [other[name].replace("sig1", label, 1) for label in labels]
            fields[name] = ", ".join((*more, good[name]))
        return _request(fields)

    async with _agents(directory) as agents:
        assert not await _reason(agents, joined("a"))
        assert "more than 2 signatures" in await _reason(agents, joined("a", "b"))
        assert "more than 8 signatures" in await _reason(agents, joined(*"abcdefgh"))
        repeated = dict(good)
        repeated["Signature-Input"] += f", {good['Signature-Input']}"
        assert "sig1 twice" in await _reason(agents, _request(repeated))


async def test_headers_that_are_missing_or_long(directory: Directory) -> None:
    agent = _published(directory)
    async with _agents(directory) as agents:
        for name in ("Signature-Agent", "Signature-Input", "Signature"):
            fields = agent.headers()
            del fields[name]
            assert await _reason(agents, _request(fields)) == f"there is no {name} header"
        # Their names are in any case, and other signatures are none of its business.
        assert not await _reason(
            agents, _request({k.upper(): v for k, v in agent.headers().items()})
        )
        long = agent.headers(nonce="n" * LONGEST_FIELDS)
        assert "more than 4096 bytes" in await _reason(agents, _request(long))
        # Parsing long headers would take long.
        cases: tuple[tuple[str, dict[str, Any]], ...] = (
            ('"x-d";key="a"', {"fields": {"X-D": "a=1, " * 1000 + "b"}}),
            ('"x-d";bs', {"fields": {"X-D": "a" * LONGEST_PARSED}}),
            ('"@query-param";name="a"', {"target": "/?a=1" + "&b" * LONGEST_PARSED}),
        )
        for component, longer in cases:
            request = agent.headers(more=[(component, "1")])
            asked = _request(request | longer.pop("fields", {}), **longer)
            assert "components with parameters have more" in await _reason(agents, asked)
            short = _request(request | {"X-D": "a=1"}, target="/?a=1")
            assert "components with parameters" not in await _reason(agents, short)


async def test_a_nonce_counts_once(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_bot_auth, "MOST_NONCES", 9)
    agent = _published(directory)
    async with _agents(directory) as agents:
        request = _request(agent.headers(nonce="first"))
        # /explain only looks.
        assert (await agents.check(request, PATIENCE, remember=False)).agent
        assert not await _reason(agents, request)
        for _ in range(2):
            assert await _reason(agents, request) == "its nonce was used before"
        # A forged request must not use up a nonce.
        forged = agent.headers(nonce="second")
        forged["Signature"] = "sig1=:YQ==:"
        assert "does not match" in await _reason(agents, _request(forged))
        assert not await _reason(agents, _request(agent.headers(nonce="second")))
        # Without one, a request may be repeated until it expires.
        again = _request(agent.headers())
        assert not await _reason(agents, again)
        assert not await _reason(agents, again)
        for number in range(20):
            await agents.check(_request(agent.headers(nonce=str(number))), PATIENCE)
        [nonces] = agents._nonces.values()
        assert len(nonces) == 9


async def test_keys_are_cached_and_renewed(directory: Directory) -> None:
    clock = Clock()
    agent = _published(directory)
    async with _agents(directory, clock=clock) as agents:
        for _ in range(3):
            assert not await _reason(agents, _request(agent.headers()))
        assert len(directory.requests) == 1
        clock.now += FRESH_SECONDS - 1
        assert not await _reason(agents, _request(agent.headers()), patience=0)
        assert len(directory.requests) == 1
        # Renewed in the background.
        clock.now += 2
        assert not await _reason(agents, _request(agent.headers()), patience=0)
        await _fetched(agents)
        assert len(directory.requests) == 2
        # A removed key ends with the next fetch.
        directory.keys = []
        clock.now += FRESH_SECONDS + 1
        assert not await _reason(agents, _request(agent.headers()), patience=0)
        await _fetched(agents)
        assert "no Ed25519 key" in await _reason(agents, _request(agent.headers()))


async def _fetched(agents: SignedAgents) -> None:
    """Wait for the fetches that are running."""
    tasks = list(agents.directories._fetches.values())
    assert tasks
    await asyncio.wait(tasks, timeout=PATIENCE)


async def test_a_new_key_is_looked_for_once_a_minute(directory: Directory) -> None:
    clock = Clock()
    agent = _published(directory)
    async with _agents(directory, clock=clock) as agents:
        assert not await _reason(agents, _request(agent.headers()))
        rotated = SignedAgent(directory.origin)
        directory.keys.append(jwk(rotated.key))
        for _ in range(3):
            assert "no Ed25519 key" in await _reason(agents, _request(rotated.headers()))
        assert len(directory.requests) == 1
        clock.now += RETRY_SECONDS + 1
        assert not await _reason(agents, _request(rotated.headers()))
        assert not await _reason(agents, _request(agent.headers()))
        assert len(directory.requests) == 2


async def test_an_outage_of_a_directory_does_not_revoke_its_keys(directory: Directory) -> None:
    clock = Clock()
    agent = _published(directory)
    async with _agents(directory, clock=clock) as agents:
        assert not await _reason(agents, _request(agent.headers()))
        directory.answer = lambda _: web.Response(status=503)
        clock.now += FRESH_SECONDS + 1
        for _ in range(3):
            assert not await _reason(agents, _request(agent.headers()), patience=0)
            if agents.directories._fetches:
                await _fetched(agents)
        assert len(directory.requests) == 2
        clock.now += STALE_SECONDS
        assert "status 503" in await _reason(agents, _request(agent.headers()))
        # A failure is remembered for a minute.
        assert "status 503" in await _reason(agents, _request(agent.headers()))
        assert len(directory.requests) == 3
        directory.answer = None
        clock.now += RETRY_SECONDS + 1
        assert not await _reason(agents, _request(agent.headers()))


@pytest.mark.parametrize(
    ("cache_control", "seconds"),
    [
        ("max-age=120", 120),
        ("max-age=1", 60),
        ("no-store", 60),
        ("max-age=99999999999999", 86400),
        ("max-age=x", FRESH_SECONDS),
    ],
)
async def test_cache_control(directory: Directory, cache_control: str, seconds: float) -> None:
    clock = Clock()
    agent = _published(directory)
    directory.headers = {"Cache-Control": cache_control}
    async with _agents(directory, clock=clock) as agents:
        assert not await _reason(agents, _request(agent.headers()))
        clock.now += seconds - 1
        assert not await _reason(agents, _request(agent.headers()))
        assert not agents.directories._fetches
        clock.now += 2
        assert not await _reason(agents, _request(agent.headers()))
        assert agents.directories._fetches


def _json(body: str | bytes, **more: str) -> web.Response:
    data = body.encode() if isinstance(body, str) else body
    return web.Response(body=data, headers={"Content-Type": MEDIA_TYPE, **more})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: web.Response(status=404), "status 404"),
        (lambda: web.Response(status=301, headers={"Location": "/jwks.json"}), "status 301"),
        (lambda: web.Response(text="<html>", content_type="text/html"), "Content-Type is not"),
        (lambda: _json("<html>"), "not a JWK Set"),
        (lambda: _json("[]"), "not a JWK Set"),
        (lambda: _json("[" * 60_000), "not a JWK Set"),
        (lambda: _json('{"keys": {}}'), "not a JWK Set"),
        (lambda: _json(b"\xff"), "not a JWK Set"),
        (lambda: _json('{"keys": []}'), "no Ed25519 key"),
        (lambda: _json('{"keys": [1, null, {}, {"kty": "RSA"}]}'), "no Ed25519 key"),
        (lambda: _json(json.dumps({"keys": [{}] * (MOST_KEYS + 1)})), "more than 32 keys"),
        (lambda: _json(b" " * (MOST_BYTES + 1)), "more than 65536 bytes"),
        (lambda: _json(gzip.compress(b"{}"), **{"Content-Encoding": "gzip"}), "compressed"),
        (lambda: _json("{}", **{"Signature-Input": "a=("}), "not a JWK Set"),
        (lambda: _json('{"keys": []}', **{"Signature-Input": "a=("}), "malformed"),
    ],
)
async def test_responses_that_are_no_directory(
    directory: Directory, answer: Any, reason: str
) -> None:
    agent = _published(directory)
    directory.answer = lambda _: answer()
    async with _agents(directory) as agents:
        for _ in range(2):
            assert reason in await _reason(agents, _request(agent.headers()))
    assert len(directory.requests) == 1


async def test_a_slow_directory_delays_nobody(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = _published(directory)
    directory.gate.clear()
    async with _agents(directory) as agents:
        reasons = await asyncio.gather(
            *(_reason(agents, _request(agent.headers()), patience=0.01) for _ in range(20))
        )
        assert set(reasons) == {f"the keys of localhost:{directory.port} are being fetched"}
        directory.gate.set()
        await _fetched(agents)
        assert not await _reason(agents, _request(agent.headers()), patience=0)
        # All of them waited for one fetch.
        assert len(directory.requests) == 1
    monkeypatch.setattr(key_directories, "FETCH_SECONDS", 0.01)
    directory.gate.clear()
    async with _agents(directory) as agents:
        assert "timeout" in await _reason(agents, _request(agent.headers()))
    directory.gate.set()


async def test_a_flood_of_invented_agents_is_bounded(directory: Directory) -> None:
    clock = Clock()
    agent = _published(directory)
    async with _agents(directory, clock=clock) as agents:
        assert not await _reason(agents, _request(agent.headers()))
        reasons = [
            await _reason(agents, _request(SignedAgent(f"{directory.origin}/{number}").headers()))
            for number in range(2 * MOST_PER_MINUTE)
        ]
        assert len(directory.requests) == MOST_PER_MINUTE
        assert reasons[-1] == "too many unknown agents at the same time"
        # Known agents are not concerned.
        assert not await _reason(agents, _request(agent.headers()))
        clock.now += 2 * 60 / MOST_PER_MINUTE + 0.1
        for number in range(5):
            await _reason(
                agents, _request(SignedAgent(f"{directory.origin}/new{number}").headers())
            )
        assert len(directory.requests) == MOST_PER_MINUTE + 2
        # At the same time, even fewer.
        clock.now += 60
        flood = [SignedAgent(f"{directory.origin}/at-once{number}") for number in range(20)]
        before = len(directory.requests)
        await asyncio.gather(*(_reason(agents, _request(one.headers())) for one in flood))
        assert len(directory.requests) == before + MOST_FETCHES


async def test_directories_on_private_addresses_are_not_fetched(directory: Directory) -> None:
    agent = _published(directory)
    async with _agents(allow=()) as agents:
        reason = await _reason(agents, _request(agent.headers()))
        assert "localhost has no address that pages may reach" in reason
        for url, said in (
            ("https://169.254.169.254", "is not a public address"),
            ("https://10.0.0.1/keys", "is not a public address"),
            ("https://[::1]", "is not a public address"),
            ("https://2130706433", "is not a canonical address"),
        ):
            private = SignedAgent(url)
            assert said in await _reason(agents, _request(private.headers())), url
    assert directory.requests == []


async def test_an_untrusted_certificate(tmp_path: Path, directory: Directory) -> None:
    agent = _published(directory)
    agent.url = f"https://127.0.0.1:{directory.port}"  # the certificate is for localhost
    async with _agents(allow=(agent.url,)) as agents:
        assert "the certificate is not valid" in await _reason(agents, _request(agent.headers()))


def test_keys() -> None:
    key = Ed25519PrivateKey.generate()
    good = jwk(key, nbf=1712793600, exp=1715385600)
    for changed in (
        {"kty": "EC"},
        {"crv": "X25519"},
        {"use": "enc"},
        {"x": "AAAA"},
        {"x": "\xe9"},
        {"x": None},
        {"x": 1},
    ):
        assert keys_of(json.dumps({"keys": [good | changed]}).encode()) == {}
    for times, expected in (
        ({}, (1712793600, 1715385600)),
        ({"nbf": 1712793600000, "exp": 1715385600000}, (1712793600, 1715385600)),
        ({"nbf": "x", "exp": True}, (-float("inf"), float("inf"))),
        ({"nbf": 10**400, "exp": float("nan")}, (-float("inf"), float("inf"))),
    ):
        [found] = keys_of(json.dumps({"keys": [good | times]}).encode()).values()
        assert (found.not_before, found.expires) == expected


async def test_keys_that_have_expired(directory: Directory) -> None:
    now = time.time()
    for times in ({"exp": now - 60}, {"nbf": now + 60}):
        agent = _published(directory, **times)
        async with _agents(directory) as agents:
            assert "expired or is not valid yet" in await _reason(agents, _request(agent.headers()))


@pytest.mark.parametrize(
    ("authority", "covered", "parameters", "counts"),
    [
        ("", True, {}, True),
        ("", False, {}, True),
        ("evil.example", True, {}, False),
        ("", True, {"created": 4_000_000_000}, False),
        ("", True, {"expires": 1_000_000_000}, False),
        ("", True, {"tag": "other"}, True),
    ],
)
async def test_signed_directories(
    directory: Directory, authority: str, covered: bool, parameters: dict[str, Any], counts: bool
) -> None:
    """A proof that does not fit takes its key away; the other keys stay."""
    agent, other = SignedAgent(directory.origin), SignedAgent(directory.origin)
    directory.keys = [jwk(agent.key), jwk(other.key)]
    body = json.dumps({"keys": directory.keys}).encode()
    digest = f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"
    host = authority or f"localhost:{directory.port}"
    components = [('"@authority";req', host)]
    if covered:
        components.append(('"content-digest"', digest))
    values = {"created": 1, "expires": 4_000_000_000, "keyid": agent.keyid, "tag": PROOF_TAG}
    text = "".join(f";{name}={json.dumps(v)}" for name, v in (values | parameters).items())
    directory.headers = {"Content-Digest": digest, **signed(agent.key, components, text)}
    async with _agents(directory) as agents:
        reason = await _reason(agents, _request(agent.headers()))
        assert reason == "" if counts else "no Ed25519 key" in reason
        assert not await _reason(agents, _request(other.headers()))
    # The digest of other keys.
    if covered and counts and not parameters:
        directory.keys.append(jwk(Ed25519PrivateKey.generate()))
        async with _agents(directory) as agents:
            assert "no Ed25519 key" in await _reason(agents, _request(agent.headers()))


_TEXT = st.text(
    st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=60
)
_PIECES = st.lists(
    st.sampled_from(
        ["sig1", "=", "(", ")", '"', "@authority", "signature-agent", ";", "key", ",", " ", ":", "YQ==",
         "created", "expires", "keyid", "tag", "web-bot-auth", "1", "-1", "https://a.example", "?1",
         "@1", '%"', "\\", "\xe9"]
    ),
    max_size=30,
).map("".join)  # fmt: skip
_VALUES = st.one_of(_TEXT, _PIECES)


@given(agent=_VALUES, signature_input=_VALUES, signature=_VALUES)
def test_any_headers_have_a_reason(agent: str, signature_input: str, signature: str) -> None:
    fields = {
        "Signature-Agent": agent, "Signature-Input": signature_input, "Signature": signature
    }  # fmt: skip
    now = int(time.time())
    tail = f';created={now};expires={now + 9};keyid="k";tag="web-bot-auth"'
    known = fields | {
        "Signature-Agent": '"https://a.example"',
        "Signature-Input": f'sig1=("@authority" "signature-agent" {signature_input}){tail}',
    }

    async def check() -> None:
        async with _agents() as agents:
            for one in (fields, known):
                result = await agents.check(_request(one), 0)
                assert result.reason not in ("", "internal error"), result

    asyncio.run(check())
