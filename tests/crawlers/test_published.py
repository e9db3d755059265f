"""Published address ranges, renewed from a server of the test."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from prerender.cli import diagnosis as doctor
from prerender.crawlers.known import built_in
from prerender.crawlers.published import RENEW_SECONDS, RETRY_SECONDS, PublishedRanges, Renewal
from prerender.crawlers.ranges import MOST_BYTES
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.upstream import open_session
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.notes import Notes
from prerender.urls.hosts import Hosts
from tests.conftest import Proxy, Site, StartOrigin, StartProxy, pages, settings_for
from tests.support.renders import Clock
from tests.telemetry.test_metrics import samples

INSIDE, OUTSIDE = "198.51.100.7", "203.0.113.7"
LIST = json.dumps({"prefixes": [{"ipv4Prefix": "198.51.100.0/24"}]})
OTHER = "203.0.113.0/24"
PAGE = "<p id=out>shell</p><script>out.textContent = 'made'</script>"
GPTBOT = "Mozilla/5.0 (compatible; GPTBot/1.3; +https://openai.com/gptbot)"


REDIRECTS = {
    "/moved": "/list",
    "/loop": "/loop",
    "/elsewhere": "http://localhost:1/list",
    "/ftp": "ftp://a/",
}


async def _redirect(location: str, _: web.Request) -> web.Response:
    return web.Response(status=302, headers={"Location": location})


class Operator:
    """Publishes a list at /list. ``body`` None: it is missing."""

    def __init__(self) -> None:
        self.body: str | None = LIST
        self.requests = 0

    async def list(self, _: web.Request) -> web.Response:
        self.requests += 1
        return web.Response(text=self.body) if self.body is not None else web.Response(status=404)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/list", self.list)
        for path, location in REDIRECTS.items():
            app.router.add_get(path, partial(_redirect, location))
        return app


def notes() -> Notes:
    return Notes(None, BoundedMemoryCache(10 * MOST_BYTES))


@asynccontextmanager
async def session_for(site: Site) -> AsyncIterator[tuple[AddressPolicy, ClientSession]]:
    policy = AddressPolicy(Hosts([site.url]))
    async with open_session(policy, 10, 10) as session:
        yield policy, session


async def test_lists_are_renewed_every_day(start_origin: StartOrigin) -> None:
    operator, clock, changes = Operator(), Clock(), []
    site = await start_origin(operator.app())
    one, kept = PublishedRanges(f"{site.url}/list"), notes()
    assert not one.known
    async with session_for(site) as (policy, session):
        renewal = Renewal([one], policy, kept, lambda: changes.append(1), clock)
        await renewal.renew(session)
        assert one.fetched == clock.now
        assert ip_address(INSIDE) in one
        assert len(changes) == operator.requests == 1
        await renewal.renew(session)
        clock.now += RENEW_SECONDS - 1
        await renewal.renew(session)
        assert operator.requests == 1
        operator.body = OTHER
        clock.now += 1
        await renewal.renew(session)
        assert (ip_address(INSIDE) in one, ip_address(OUTSIDE) in one) == (False, True)
        assert len(changes) == operator.requests == 2
        # Another replica, and the next process, do not ask again.
        other = PublishedRanges(one.url)
        clock.now += 1
        await Renewal([other], policy, kept, changes.clear, clock).renew(session)
        assert (other.fetched, other.networks) == (one.fetched, one.networks)
        assert operator.requests == 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, "status 404"),
        ("<!doctype html>", "does not appear to be"),
        ("0.0.0.0/0", "is too wide"),
        ("192.0.2.1\n" * (MOST_BYTES // 10 + 1), "is too large"),
        ("192.0.2.1\n" * 20_001, "has more than 20000"),
    ],
)
async def test_the_last_good_list_is_kept(
    start_origin: StartOrigin, body: str | None, reason: str
) -> None:
    operator, clock = Operator(), Clock()
    site = await start_origin(operator.app())
    one = PublishedRanges(f"{site.url}/list")
    async with session_for(site) as (policy, session):
        renewal = Renewal([one], policy, notes(), lambda: None, clock)
        await renewal.renew(session)
        fetched = one.fetched
        operator.body = body
        clock.now += RENEW_SECONDS
        await renewal.renew(session)
        assert reason in one.error
        assert one.fetched == fetched
        assert ip_address(INSIDE) in one
        operator.body = OTHER
        clock.now += RETRY_SECONDS
        await renewal.renew(session)
        assert one.error == ""
        assert ip_address(OUTSIDE) in one


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/moved", ""),
        ("/loop", "too many redirects"),
        ("/elsewhere", "localhost"),
        ("/ftp", "redirects to ftp"),
    ],
)
async def test_redirects(start_origin: StartOrigin, path: str, reason: str) -> None:
    site = await start_origin(Operator().app())
    one = PublishedRanges(f"{site.url}{path}")
    async with session_for(site) as (policy, session):
        await Renewal([one], policy, notes(), lambda: None).renew(session)
    assert one.known is (reason == "")
    assert reason in one.error


async def test_the_address_policy_applies(start_origin: StartOrigin) -> None:
    operator = Operator()
    site = await start_origin(operator.app())
    one = PublishedRanges(f"{site.url}/list")
    policy = AddressPolicy()
    async with open_session(policy, 10, 10) as session:
        await Renewal([one], policy, notes(), lambda: None).renew(session)
    assert "is not a public address" in one.error
    assert operator.requests == 0


async def test_a_bad_note_is_no_list(start_origin: StartOrigin) -> None:
    operator, kept = Operator(), notes()
    site = await start_origin(operator.app())
    one = PublishedRanges(f"{site.url}/list")
    async with session_for(site) as (policy, session):
        for note in (b"x", b"[]", b'["a", "b", "c"]', b"[1, 2, 3, 4]"):
            await kept.set(one.note, note, 1000)
            one.renew_at = 0
            await Renewal([one], policy, kept, lambda: None).renew(session)
            assert ip_address(INSIDE) in one


# ---- by way of the proxy


async def test_a_crawler_is_verified_by_its_published_list(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    operator = Operator()
    lists = await start_origin(operator.app())
    site = await pages(start_origin, {"/": PAGE})
    file = tmp_path / "crawlers.toml"
    file.write_text(
        f'[ai_training]\nGPTBot = {{ ranges = ["{lists.url}/list"] }}\n[left_out]\n{_others()}'
    )
    settings: dict[str, dict[str, object]] = {
        "site": {"url": "https://www.example.com"},
        "triggers": {
            "preset": "ai",
            "verify": True,
            "crawlers_file": str(file),
            "nameservers": ["127.0.0.1:1"],
        },
        "network": {"allow": [lists.url]},
    }
    proxy = await start_proxy(site.url, settings)
    async with asyncio.timeout(20):
        while not (found := await _crawlers(proxy))["ranges"][0]["fetched"]:
            await asyncio.sleep(0.02)
    assert [(one["url"], one["networks"], one["error"]) for one in found["ranges"]] == [
        (f"{lists.url}/list", 1, "")
    ]
    for address, shown in ((INSIDE, ">made<"), (OUTSIDE, ">shell<")):
        fields = {"User-Agent": GPTBOT, "X-Forwarded-For": address}
        assert shown in (await proxy.get("/", headers=fields)).text
    age = (await samples(proxy)).value("prerender_crawler_ranges_age_seconds")
    assert 0 <= age < 1000
    settings |= {"admin": {"port": proxy.running.admin_port}, "browser": {"path": "/nonexistent"}}
    lines = {line.name: line async for line in doctor.examine(settings_for(site.url, settings))}
    assert lines["verification"].state == "ok"
    assert (
        "1 of 1 published lists of addresses received, the oldest 0 h" in lines["verification"].text
    )


async def _crawlers(proxy: Proxy) -> dict[str, Any]:
    async with proxy.client.get(f"{proxy.admin_url}/api/v1/crawlers") as response:
        found: dict[str, Any] = await response.json()
        return found


def _others() -> str:
    """All other crawlers with published lists, which the test must not fetch."""
    names = [one.name for one in built_in().crawlers if one.ranges and one.name != "GPTBot"]
    return "\n".join(f'"{name}" = "not here"' for name in names)
