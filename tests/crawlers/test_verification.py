"""Verification of crawlers by DNS (with a name server of the test) and by address ranges."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from ipaddress import ip_address, ip_network
from pathlib import Path

import dns.reversename
import pytest

from prerender.crawlers.from_settings import published_of
from prerender.crawlers.known import built_in
from prerender.crawlers.ranges import LOOK_SECONDS, RangesFile, networks_of
from prerender.crawlers.verification import (
    KNOWN_SECONDS,
    MOST_KNOWN,
    MOST_LOOKUPS,
    RETRY_SECONDS,
    STALE_SECONDS,
    Identity,
    Names,
    Verifier,
)
from prerender.errors import ConfigError
from prerender.http.client_address import client_address
from prerender.http.message_head import parse_request
from tests.conftest import StartOrigin, StartProxy, pages, settings_for
from tests.support.dns_server import FAILS, SILENT, NameServer, name_server
from tests.support.renders import Clock, until

GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
GPTBOT = "Mozilla/5.0 (compatible; GPTBot/1.3; +https://openai.com/gptbot)"
ADDRESSES = {
    "66.249.66.1": ["crawl-66-249-66-1.googlebot.com"],
    "2001:db8::1": ["crawl-six.googlebot.com"],
    # Capitals are the same, and an address may have several names.
    "66.249.66.2": ["other.example", "Rate-Limited-Proxy.Google.COM"],
    "157.55.39.1": ["msnbot-157-55-39-1.search.msn.com"],
    # Their owners may call them what they like.
    "203.0.113.1": ["crawl-66-249-66-1.googlebot.com"],
    "203.0.113.2": ["crawl.googlebot.com.evil.example"],
    "203.0.113.3": ["evilgooglebot.com"],
    "203.0.113.4": ["googlebot.com"],
    "203.0.113.5": ["nowhere.googlebot.com"],
    "203.0.113.6": FAILS,
    "203.0.113.7": SILENT,
    "203.0.113.8": ["fails.googlebot.com"],
}
NAMES = {
    "crawl-66-249-66-1.googlebot.com": ["66.249.66.1"],
    "crawl-six.googlebot.com": ["2001:db8::1"],
    "rate-limited-proxy.google.com": ["66.249.66.9", "66.249.66.2"],
    "msnbot-157-55-39-1.search.msn.com": ["157.55.39.1"],
    "crawl.googlebot.com.evil.example": ["203.0.113.2"],
    "evilgooglebot.com": ["203.0.113.3"],
    "googlebot.com": ["203.0.113.4"],
    "fails.googlebot.com": FAILS,
}


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    async with name_server(ADDRESSES, NAMES) as running:
        yield running


def _verifier(server: NameServer, clock: Clock | None = None, **more: Identity) -> Verifier:
    identities = {one.name: Identity(one.domains) for one in built_in().crawlers if one.domains}
    names = Names([("127.0.0.1", server.port)])
    return Verifier(identities | more, names, clock or Clock())


@pytest.mark.parametrize(
    ("address", "genuine"),
    [
        ("66.249.66.1", True),
        ("2001:db8::1", True),
        ("66.249.66.2", True),
        ("157.55.39.1", False),
        ("203.0.113.1", False),
        ("203.0.113.2", False),
        ("203.0.113.3", False),
        ("203.0.113.4", False),
        ("203.0.113.5", False),
        ("203.0.113.6", False),
        ("203.0.113.8", False),
        ("203.0.113.99", False),
    ],
)
async def test_addresses_of_googlebot(server: NameServer, address: str, genuine: bool) -> None:
    verifier = _verifier(server)
    assert await verifier.is_genuine(GOOGLEBOT, ip_address(address)) is genuine


async def test_each_crawler_has_its_own_domains(server: NameServer) -> None:
    verifier = _verifier(server)
    bing = ip_address("157.55.39.1")
    assert await verifier.is_genuine("Mozilla/5.0 (compatible; bingbot/2.0)", bing)
    assert not await verifier.is_genuine("Mozilla/5.0 (compatible; YandexBot/3.0)", bing)
    # Who has none is believed, and so are people.
    asked = len(server.questions)
    assert await verifier.is_genuine("Twitterbot/1.0", ip_address("203.0.113.99"))
    assert await verifier.is_genuine("Mozilla/5.0 Firefox/145.0", ip_address("203.0.113.99"))
    assert len(server.questions) == asked
    assert not await verifier.is_genuine(GOOGLEBOT, None)


async def test_verdicts_are_remembered(server: NameServer) -> None:
    clock = Clock()
    verifier = _verifier(server, clock)
    for address in ("66.249.66.1", "203.0.113.99"):
        server.questions.clear()
        first = await verifier.is_genuine(GOOGLEBOT, ip_address(address))
        asked = len(server.questions)
        assert asked
        clock.now += KNOWN_SECONDS - 1
        assert await verifier.is_genuine(GOOGLEBOT, ip_address(address)) is first
        assert len(server.questions) == asked
        clock.now += 2
        assert await verifier.is_genuine(GOOGLEBOT, ip_address(address)) is first
        assert len(server.questions) == 2 * asked


async def test_a_nameserver_that_is_away_helps_nobody(server: NameServer) -> None:
    clock = Clock()
    verifier = _verifier(server, clock)
    known, stranger = ip_address("66.249.66.1"), ip_address("203.0.113.6")
    assert await verifier.is_genuine(GOOGLEBOT, known)
    for address in ADDRESSES:
        server.records[dns.reversename.from_address(address).to_text()] = FAILS
    clock.now += KNOWN_SECONDS + 1
    # Who was genuine an hour ago still is, and strangers are not.
    assert await verifier.is_genuine(GOOGLEBOT, known)
    assert not await verifier.is_genuine(GOOGLEBOT, stranger)
    asked = len(server.questions)
    assert await verifier.is_genuine(GOOGLEBOT, known)
    assert len(server.questions) == asked
    clock.now += RETRY_SECONDS
    assert await verifier.is_genuine(GOOGLEBOT, known)
    assert len(server.questions) > asked
    # But not forever.
    clock.now += STALE_SECONDS
    assert not await verifier.is_genuine(GOOGLEBOT, known)


async def test_lookups_are_bounded(server: NameServer) -> None:
    server.silent = True
    verifier = _verifier(server)
    flood = [
        asyncio.create_task(verifier.is_genuine(GOOGLEBOT, ip_address(f"203.0.113.{number}")))
        for number in range(MOST_LOOKUPS)
    ]
    try:
        await until(lambda: len(set(server.questions)) == MOST_LOOKUPS)
        # A further one is refused at once; one that is already being looked up waits with the others.
        assert not await verifier.is_genuine(GOOGLEBOT, ip_address("198.51.100.1"))
        assert len(set(server.questions)) == MOST_LOOKUPS
        # Nobody waits for a silent server for long.
        async with asyncio.timeout(10):
            assert not any(await asyncio.gather(*flood))
    finally:
        await verifier.close()


async def test_what_is_remembered_is_bounded(server: NameServer, tmp_path: Path) -> None:
    file = _written(tmp_path, "198.51.100.0/24")
    verifier = _verifier(server, GPTBot=Identity(ranges=(RangesFile(file),)))
    first = int(ip_address("10.0.0.0"))
    for number in range(MOST_KNOWN + 10):
        assert not await verifier.is_genuine(GPTBOT, ip_address(first + number))
    assert len(verifier._known) == MOST_KNOWN


# ---- ranges


def _written(folder: Path, *prefixes: str) -> Path:
    file = folder / "ranges.json"
    entries = [{"ipv6Prefix" if ":" in it else "ipv4Prefix": it} for it in prefixes]
    file.write_text(json.dumps({"creationTime": "2026-11-01", "prefixes": entries}))
    return file


@pytest.mark.parametrize(
    "text",
    [
        '{"prefixes": [{"ipv4Prefix": "192.0.2.1/24"}, {"ipv6Prefix": "2001:db8::/32"}]}',
        '{"prefixes": [{"ip_prefix": "192.0.2.0/24", "a": 1}, {"ipv6_prefix": "2001:db8::/32"}]}',
        '["192.0.2.0/24", "2001:db8::/32"]',
        "# ours\n192.0.2.0/24\n\n2001:db8::/32 # new\n",
    ],
)
def test_published_lists(text: str) -> None:
    assert networks_of(text) == (ip_network("192.0.2.0/24"), ip_network("2001:db8::/32"))


@pytest.mark.parametrize("network", ["0.0.0.0/0", "128.0.0.0/1", "::/0", "2000::/16"])
def test_a_list_that_lets_everybody_pass(network: str) -> None:
    with pytest.raises(ValueError, match="is too wide"):
        networks_of(f"192.0.2.1\n{network}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"prefixes": []}',
        '{"prefixes": [1]}',
        '{"prefixes": [{"ipv4Prefix": "x"}]}',
        "<!doctype html>",
        "[" * 100_000,
    ],
)
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a list|does not appear"):
        networks_of(text)


async def test_ranges_are_read_again(server: NameServer, tmp_path: Path) -> None:
    clock = Clock()
    file = _written(tmp_path, "198.51.100.0/24", "2001:db8:2::/48")
    verifier = _verifier(server, clock, GPTBot=Identity(ranges=(RangesFile(file, clock),)))
    old, new = ip_address("198.51.100.7"), ip_address("192.0.2.7")
    assert await verifier.is_genuine(GPTBOT, old)
    assert await verifier.is_genuine(GPTBOT, ip_address("2001:db8:2::1"))
    assert not await verifier.is_genuine(GPTBOT, new)
    file.write_text("half of a li")
    clock.now += LOOK_SECONDS
    assert await verifier.is_genuine(GPTBOT, old)
    _written(tmp_path, "192.0.2.0/24")
    os.utime(file, ns=(1, 1))
    clock.now += LOOK_SECONDS
    assert await verifier.is_genuine(GPTBOT, new)
    assert not await verifier.is_genuine(GPTBOT, old)
    file.unlink()
    clock.now += LOOK_SECONDS
    assert await verifier.is_genuine(GPTBOT, new)
    assert not server.questions


async def test_ranges_beside_domains(server: NameServer, tmp_path: Path) -> None:
    file = _written(tmp_path, "203.0.113.0/30")
    identity = Identity(("googlebot.com",), (RangesFile(file),))
    verifier = _verifier(server, Googlebot=identity)
    assert await verifier.is_genuine(GOOGLEBOT, ip_address("203.0.113.1"))
    assert not server.questions
    assert await verifier.is_genuine(GOOGLEBOT, ip_address("66.249.66.1"))


# ---- who asks


@pytest.mark.parametrize(
    ("remote", "fields", "client"),
    [
        ("203.0.113.1", "", "203.0.113.1"),
        ("127.0.0.1", "", "127.0.0.1"),
        # Only what trusted ones say counts, and nothing that is further away than somebody else.
        ("203.0.113.1", "X-Forwarded-For: 66.249.66.1", "203.0.113.1"),
        ("127.0.0.1", "X-Forwarded-For: 66.249.66.1", "66.249.66.1"),
        ("127.0.0.1", "X-Forwarded-For: 66.249.66.1, 203.0.113.1", "203.0.113.1"),
        ("127.0.0.1", "X-Forwarded-For: 66.249.66.1, 203.0.113.1, 10.0.0.1", "203.0.113.1"),
        ("127.0.0.1", "X-Forwarded-For: 66.249.66.1\r\nX-Forwarded-For: 10.0.0.1", "66.249.66.1"),
        ("127.0.0.1", "X-Forwarded-For: 66.249.66.1, unknown", None),
        ("127.0.0.1", "X-Forwarded-For: unknown, 66.249.66.1", "66.249.66.1"),
        ("127.0.0.1", "X-Forwarded-For:", None),
        ("127.0.0.1", "X-Forwarded-For: 10.0.0.2, 10.0.0.1", "10.0.0.2"),
        ("127.0.0.1", "X-Forwarded-For: 66.249.66.1:4711", "66.249.66.1"),
        ("127.0.0.1", "X-Forwarded-For: [2001:db8::1]:4711", "2001:db8::1"),
        ("127.0.0.1", "X-Forwarded-For: ::ffff:66.249.66.1", "66.249.66.1"),
        ("127.0.0.1", "Forwarded: for=66.249.66.1;proto=https, For=10.0.0.1", "66.249.66.1"),
        ("127.0.0.1", 'Forwarded: proto=https; for="[2001:db8::1]:4711"', "2001:db8::1"),
        ("127.0.0.1", "Forwarded: for=_hidden", None),
        ("127.0.0.1", "Forwarded: proto=https", None),
        ("127.0.0.1", "Forwarded: for=1.1.1.1\r\nX-Forwarded-For: 66.249.66.1", "66.249.66.1"),
    ],
)
def test_who_asks(remote: str, fields: str, client: str | None) -> None:
    head = "\r\n".join(["GET / HTTP/1.1", "Host: a", *([fields] if fields else [])])
    trusted = (ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8"))
    found = client_address(remote, parse_request(head.encode()).headers, trusted)
    assert found == (ip_address(client) if client else None)


# ---- by way of the proxy

PAGE = "<title>t</title><p id=out>shell</p><script>out.textContent = 'rendered'</script>"


async def test_a_false_googlebot_gets_what_people_get(
    start_origin: StartOrigin, start_proxy: StartProxy, server: NameServer, tmp_path: Path
) -> None:
    file = _written(tmp_path, "198.51.100.0/24")
    triggers = {
        "search": "render",
        "ai_training": "render",
        "verify": True,
        "renew_ranges": False,
        "nameservers": [f"127.0.0.1:{server.port}"],
        "ranges": [{"name": "gptbot", "file": str(file)}],
    }
    origin = await pages(start_origin, {"/": PAGE})
    proxy = await start_proxy(
        origin.url, {"triggers": triggers, "site": {"url": "https://www.example.com"}}
    )

    async def shown(user_agent: str, address: str, path: str = "/") -> str:
        answer = await proxy.get(
            path, headers={"User-Agent": user_agent, "X-Forwarded-For": address}
        )
        assert answer.status == 200
        # A cache does not know whose address it is.
        assert (answer.headers["Vary"] == "*") is (">shell<" in answer.text)
        return "rendered" if ">rendered<" in answer.text else "forwarded"

    for address in ("203.0.113.1", "203.0.113.6", "66.249.66.1, 203.0.113.5", "unknown"):
        assert await shown(GOOGLEBOT, address) == "forwarded"
    assert await shown(GPTBOT, "203.0.113.1") == "forwarded"
    assert proxy.running.store.state().memory_entries == 0
    assert not [request for request in origin.requests if "X-Prerender" in request.headers]
    asked = origin.count("/")
    for _ in range(2):
        assert await shown(GOOGLEBOT, "66.249.66.1") == "rendered"
        assert await shown(GPTBOT, "198.51.100.1") == "rendered"
        # Ugly URLs are for everybody.
        assert await shown(GOOGLEBOT, "203.0.113.1", "/?_escaped_fragment_=") == "rendered"
    assert origin.count("/") == asked + 1


@pytest.mark.parametrize("name", ["GPTBot", "gptbot"])
def test_a_file_replaces_the_published_list(name: str) -> None:
    triggers = {"preset": "all", "verify": True, "ranges": [{"name": name, "file": "/gptbot.json"}]}
    settings = settings_for("http://127.0.0.1:1", {"triggers": triggers})
    crawlers = built_in()
    replaced = {url for one in crawlers.crawlers if one.name == "GPTBot" for url in one.ranges}
    others = {url for one in crawlers.crawlers if one.name != "GPTBot" for url in one.ranges}
    assert replaced - others
    assert not (replaced - others) & published_of(settings, crawlers).keys()


async def test_a_list_of_no_known_crawler_stops_the_start(
    start_proxy: StartProxy, tmp_path: Path
) -> None:
    """Ignored, it would let everybody pass who names the crawler."""
    file = str(_written(tmp_path, "198.51.100.0/24"))
    ranges = [{"name": name, "file": file} for name in ("GTPBot", "whatsapp", "Nobody-Knows-It")]
    triggers = {"verify": True, "ranges": ranges, "nameservers": ["127.0.0.1:1"]}
    with pytest.raises(ConfigError) as error:
        await start_proxy("http://127.0.0.1:1", {"triggers": triggers})
    assert error.value.problems == [
        "[triggers] ranges: 'GTPBot' is no known crawler: did you mean GPTBot?",
        "[triggers] ranges: 'Nobody-Knows-It' is no known crawler: add it to [triggers] more",
    ]


async def test_a_list_that_cannot_be_read_stops_the_start(
    start_proxy: StartProxy, tmp_path: Path
) -> None:
    (tmp_path / "list.json").write_text("{}")
    for name, reason in (("missing.json", "No such file"), ("list.json", "expected a list")):
        ranges = [{"name": "GPTBot", "file": str(tmp_path / name)}]
        triggers = {"verify": True, "ranges": ranges, "nameservers": ["127.0.0.1:1"]}
        with pytest.raises(ConfigError, match=rf"\[triggers\] ranges: .*{name}: {reason}"):
            await start_proxy("http://127.0.0.1:1", {"triggers": triggers})
