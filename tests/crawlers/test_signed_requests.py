"""Signed requests to a whole proxy, with the keys of the agent on a real server."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from prerender.errors import ConfigError
from prerender.proxy.decision import Reason
from prerender.telemetry.records import RequestRecord
from tests.conftest import Proxy, StartOrigin, StartProxy, pages, settings_for
from tests.support.renders import until
from tests.support.signed_agent import Directory, SignedAgent, directory_server, jwk

CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/142.0.0.0 Safari/537.36"
PAGE = "<title>t</title><p>page<script>document.body.append('rendered')</script>"
SITE = {"url": "https://www.example.com"}


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Directory]:
    async with directory_server(tmp_path) as running:
        yield running


class Agent:
    """An agent and the proxy that it visits."""

    def __init__(self, proxy: Proxy, directory: Directory) -> None:
        self.proxy = proxy
        self.name = f"localhost:{directory.port}"
        self.signed = SignedAgent(directory.origin)
        directory.keys = [jwk(self.signed.key)]
        self.records: list[RequestRecord] = []
        proxy.running.telemetry.requests.subscribe(self.records.append)
        self.nonces = 0

    def headers(self, **more: Any) -> dict[str, str]:
        self.nonces += 1
        return self.signed.headers(nonce=str(self.nonces), **more)

    async def explained(self, headers: dict[str, str]) -> Any:
        asked = [("url", "/"), ("user_agent", CHROME)]
        asked += [("header", f"{name}: {value}") for name, value in headers.items()]
        url = URL(f"{self.proxy.admin_url}/api/v1/explain").with_query(asked)
        async with self.proxy.client.get(url) as answer:
            return await answer.json()

    async def known(self) -> None:
        """Wait until the proxy has the keys, however slow the machine is."""
        async with asyncio.timeout(30):
            while not (await self.explained(self.headers()))["signature"]["verified"]:
                pass

    async def visit(
        self, headers: dict[str, str], user_agent: str = CHROME, path: str = "/"
    ) -> tuple[int, str, RequestRecord]:
        """A request: its status, what it shows, and its record."""
        before = len(self.records)
        answer = await self.proxy.get(path, headers={"User-Agent": user_agent, **headers})
        await until(lambda: len(self.records) > before)
        shown = "page" if "<script>" in answer.text else "snapshot"
        return answer.status, shown, self.records[-1]


async def _start(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    directory: Directory,
    triggers: dict[str, object],
    **more: Any,
) -> Agent:
    origin = await pages(start_origin, {"/": PAGE})
    browser = {} if "render" in triggers.values() else {"path": "/nonexistent/chromium"}
    settings = {
        "site": SITE,
        "triggers": triggers,
        "browser": browser,
        "network": {"allow": [directory.origin]},
    }
    return Agent(await start_proxy(origin.url, settings | more), directory)


async def test_signed_agents_are_forwarded_and_named(
    start_origin: StartOrigin, start_proxy: StartProxy, directory: Directory
) -> None:
    agent = await _start(start_origin, start_proxy, directory, {"search": "refuse"})
    # Nothing depends on it, so the first response does not wait for keys.
    status, _, record = await agent.visit(agent.headers())
    assert (status, record.crawler, record.agent) == (200, None, "")
    assert "are being fetched" in record.agent_unverified
    await agent.known()
    status, shown, record = await agent.visit(agent.headers())
    assert (status, shown, record.crawler) == (200, "page", "signed")
    assert (record.agent, record.agent_unverified) == (agent.name, "")
    assert (record.reason, record.crawler) == (Reason.CLASS_FORWARDED, "signed")
    # A name in the User-Agent takes precedence.
    status, _, record = await agent.visit(agent.headers(), "Googlebot/2.1")
    assert (status, record.crawler, record.agent) == (403, "search", agent.name)
    api = f"{agent.proxy.admin_url}/api/v1"
    async with agent.proxy.client.get(f"{api}/crawlers?period=start") as answer:
        named = {item["name"]: item for item in (await answer.json())["items"]}
    assert (named[agent.name]["crawler"], named[agent.name]["requests"]) == ("signed", 1)
    assert named[agent.name]["without_snapshot"] == 0
    async with agent.proxy.client.get(f"{api}/requests?search={agent.name}") as answer:
        found = (await answer.json())["items"]
    assert [(item["crawler"], item["agent"]) for item in found] == [
        ("search", agent.name), ("signed", agent.name)
    ]  # fmt: skip


async def test_what_is_not_verified_gets_what_everybody_gets(
    start_origin: StartOrigin, start_proxy: StartProxy, directory: Directory
) -> None:
    agent = await _start(start_origin, start_proxy, directory, {"signed": "refuse"})
    await agent.known()
    assert (await agent.visit(agent.headers()))[0] == 403
    plain = await agent.proxy.get("/", headers={"User-Agent": CHROME})
    assert plain.headers["Vary"] == "Signature-Agent"
    good = agent.headers()
    for headers in (
        agent.headers(authority="evil.example"),
        agent.headers(expires=1),
        agent.headers(tag="other"),
        agent.headers(keyid="unknown"),
        good | {"Signature": "sig1=:YQ==:"},
        good | {"Signature": ":"},
        good | {"Signature-Input": "sig1=(" * 100},
        good | {"Signature-Agent": "sig1=!"},
        {"Signature-Agent": "x"},
    ):
        answer = await agent.proxy.get("/", headers={"User-Agent": CHROME, **headers})
        assert (answer.status, answer.body) == (200, plain.body)
        # A cache cannot verify signatures, so it must give this page to nobody.
        assert answer.headers["Vary"] == "*"
        changing = {"Date", "Connection", "Vary"}
        kept = [{k: v for k, v in a.headers.items() if k not in changing} for a in (answer, plain)]
        assert kept[0] == kept[1]
        await until(lambda: agent.records[-1].agent_unverified != "")
        explained = await agent.explained(headers)
        assert explained["signature"]["verified"] is False
        # A second may have passed.
        reasons = (explained["signature"]["reason"], agent.records[-1].agent_unverified)
        assert len({re.sub(r"\d+ s ago", "N s ago", reason) for reason in reasons}) == 1
        assert explained["crawler"] is None
    # Explaining does not use up a nonce, and a request that was answered cannot be repeated.
    once = agent.headers()
    for _ in range(2):
        assert (await agent.explained(once))["signature"]["agent"] == agent.name
    assert [(await agent.visit(once))[0] for _ in range(2)] == [403, 200]
    assert agent.records[-1].agent_unverified == "its nonce was used before"


async def test_snapshots_for_signed_agents(
    start_origin: StartOrigin, start_proxy: StartProxy, directory: Directory
) -> None:
    agent = await _start(start_origin, start_proxy, directory, {"signed": "render"})
    await agent.known()
    status, shown, record = await agent.visit(agent.headers())
    assert (status, shown, record.reason) == (200, "snapshot", Reason.SIGNED_AGENT)
    assert (await agent.visit({}))[1] == "page"
    # Neither cache in front may give one to the other, which has the same User-Agent.
    for headers in (agent.headers(), {}):
        answer = await agent.proxy.get("/", headers={"User-Agent": CHROME, **headers})
        assert "Signature-Agent" in answer.headers["Vary"]


async def test_it_can_be_switched_off(
    start_origin: StartOrigin, start_proxy: StartProxy, directory: Directory
) -> None:
    agent = await _start(start_origin, start_proxy, directory, {"verify_signatures": False})
    status, _, record = await agent.visit(agent.headers())
    assert (status, record.agent, record.agent_unverified) == (200, "", "")
    assert "signature" not in await agent.explained(agent.headers())
    assert directory.requests == []
    needed = r'\[triggers\] verify_signatures .*: must be true because .triggers. signed = "refuse"'
    with pytest.raises(ConfigError, match=needed):
        settings_for(
            "http://127.0.0.1:1", {"triggers": {"verify_signatures": False, "signed": "refuse"}}
        )


async def test_the_signature_of_its_operator_verifies_a_crawler(
    start_origin: StartOrigin, start_proxy: StartProxy, directory: Directory, tmp_path: Path
) -> None:
    """From an address that is not its own."""
    crawlers, ranges = tmp_path / "crawlers.toml", tmp_path / "ranges"
    crawlers.write_text(
        f'[ai_user]\nSignedBot = {{ signature_agent = "{directory.origin}" }}\nOtherBot = {{}}'
    )
    ranges.write_text("192.0.2.0/24")
    triggers = {
        "verify": True,
        "renew_ranges": False,
        "ai_user": "render",
        "crawlers_file": str(crawlers),
        "ranges": [{"name": name, "file": str(ranges)} for name in ("SignedBot", "OtherBot")],
    }
    agent = await _start(start_origin, start_proxy, directory, triggers)
    await agent.known()
    for user_agent, headers, expected in (
        ("SignedBot/1.0", agent.headers(), ("snapshot", Reason.CRAWLER)),
        ("SignedBot/1.0", {}, ("page", Reason.UNVERIFIED)),
        ("SignedBot/1.0", agent.headers(expires=1), ("page", Reason.UNVERIFIED)),
        ("OtherBot/1.0", agent.headers(), ("page", Reason.UNVERIFIED)),
        ("SignedBot/1.0 OtherBot/1.0", agent.headers(), ("page", Reason.UNVERIFIED)),
    ):
        _, shown, record = await agent.visit(headers, user_agent)
        assert (shown, record.reason) == expected, user_agent
