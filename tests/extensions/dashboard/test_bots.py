"""Clients that look automated and are not in the list of crawlers."""

from dataclasses import replace
from pathlib import Path

import pytest

from prerender.config import load
from prerender.crawlers.from_settings import triggers_of
from prerender.extensions.dashboard.bots import LEAST_PAGES, MOST_NAMES, Bots, client_of
from prerender.snapshots.stores.from_settings import open_store
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.notes import Notes
from prerender.telemetry.records import RequestRecord
from prerender.telemetry.remembered import size_bytes
from tests.conftest import StartOrigin, StartProxy, pages, settings_for
from tests.crawlers.test_user_agents import ANDROID, PEOPLE, WINDOWS
from tests.extensions.dashboard.test_crawlers import RECORD
from tests.support.redis_server import redis_server

BROWSER = f"{WINDOWS} Chrome/91.0.4472.124 Safari/537.36"
VISIT = replace(
    RECORD, crawler=None, kind="forward", source="origin", cache=None, accept_language=False
)


def _after(*records: RequestRecord) -> Bots:
    bots = Bots()
    for record in records:
        bots(record)
    return bots


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("Mozilla/5.0 (compatible; FancyBot/2.0; +https://fancy.example/bot)", "FancyBot"),
        ("Mozilla/5.0 (compatible; Fancy Search/2.0; https://fancy.example)", "Fancy Search"),
        ("python-requests/2.32.3", "python-requests"),
        ("curl/8.14.1", "curl"),
        ("Go-http-client/2.0", "Go-http-client"),
        (f"{WINDOWS} HeadlessChrome/138.0.0.0 Safari/537.36", "HeadlessChrome"),
        (
            f"{ANDROID} Chrome/137.0.0.0 Mobile Safari/537.36 (compatible; Fancy-Agent)",
            "Fancy-Agent",
        ),
        ("fancy_crawler", "fancy_crawler"),
        ("", ""),
    ],
)
def test_programs_are_told_by_their_user_agent(user_agent: str, name: str) -> None:
    if user_agent.endswith("(compatible; Fancy-Agent)"):
        assert client_of(user_agent) == (name, False)
    else:
        assert client_of(user_agent) == (name, True)
    if name:
        more = [{"class": "feed", "name": name}]
        settings = load(
            environ={"PRERENDER_ORIGIN": "http://a"}, overrides={"triggers": {"more": more}}
        )
        assert triggers_of(settings).class_of(user_agent) == "feed"


@pytest.mark.parametrize(
    "user_agent", [one for one in PEOPLE if one and not one.startswith("curl")]
)
def test_people_are_no_programs(user_agent: str) -> None:
    assert not client_of(user_agent).program


def test_what_a_bot_got() -> None:
    bot = replace(VISIT, user_agent="FancyBot/1.0")
    (found,) = _after(
        bot,
        replace(bot, user_agent="fancybot/2.0", target="/robots.txt", status=404),
        replace(bot, target="/app.js", source="proxy", status=502, time=2000.0),
        replace(bot, kind="render", source="snapshot"),
        replace(bot, crawler="search"),  # a known one
    ).most_first()
    assert (found.name, found.why, found.user_agent) == ("FancyBot", "name", "FancyBot/1.0")
    assert (found.pages, found.files, found.robots, found.missing) == (2, 1, 1, 1)
    assert dict(found.got) == {"forwarded": 2, "snapshots": 1, "errors": 1}


@pytest.mark.parametrize(
    ("one_more", "listed"),
    [
        (VISIT, True),
        (replace(VISIT, target="/app.js"), False),
        (replace(VISIT, accept_language=True), False),
    ],
)
def test_readers_request_files_in_a_language(one_more: RequestRecord, listed: bool) -> None:
    visit, one_more = replace(VISIT, user_agent=BROWSER), replace(one_more, user_agent=BROWSER)
    assert not _after(*[visit] * (LEAST_PAGES - 1)).most_first()
    for records in ([visit] * LEAST_PAGES + [one_more], [one_more] + [visit] * 500):
        found = _after(*records).most_first()
        assert [(bot.name, bot.why) for bot in found] == [("", "behavior")] * listed


@pytest.mark.ci_only
@pytest.mark.heavy
def test_memory_is_bounded() -> None:
    bots = Bots()
    for number in range(MOST_NAMES + 50):
        for user_agent in (
            f"Robot{number}bot/1.0 {'x' * 900}",
            f"Mozilla/5.0 {number} {'x' * 900}",
        ):
            bots(replace(VISIT, user_agent=user_agent))
    assert len(bots.most_first()) == MOST_NAMES
    assert size_bytes(bots) < 4 * 1024**2


async def test_bots_at_a_proxy(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(start_origin, {"/": "<p>a"})
    more = [{"class": "feed", "name": "OtherBot"}]
    proxy = await start_proxy(origin.url, {"triggers": {"more": more}})
    for user_agent in ("FancyBot/1.0", "OtherBot/1.0", "Googlebot/2.1"):
        await proxy.get("/", headers={"User-Agent": user_agent})
    for fields in ({"Accept-Language": "de"}, {}):
        for _ in range(LEAST_PAGES):
            agent = BROWSER + "1" * len(fields)
            await proxy.get("/", headers={"User-Agent": agent, **fields})
    async with proxy.client.get(f"{proxy.admin_url}/api/v1/bots") as response:
        found = await response.json()
    assert found["more"] == more
    assert [(bot["user_agent"], bot["why"], bot["pages"]) for bot in found["items"]] == [
        (BROWSER, "behavior", LEAST_PAGES),
        ("FancyBot/1.0", "name", 1),
    ]
    assert "127.0.0.1" not in str(found)


async def test_bots_that_could_not_be_read_are_not_replaced(tmp_path: Path) -> None:
    """Redis takes a note, but did not give the one that is there."""
    named = replace(VISIT, user_agent="FancyBot/1.0")
    async with redis_server(tmp_path) as redis:
        store = await open_store(settings_for("http://127.0.0.1:1", {"cache": {"url": redis.url}}))
        first, second, third = Bots(lambda: 2000.0), Bots(lambda: 3000.0), Bots(lambda: 4000.0)
        async with first.storing(store.notes):
            first(named)
        await redis.client.execute_command("ACL", "SETUSER", "default", "-mget")
        async with second.storing(store.notes):
            second(named)
        await redis.client.execute_command("ACL", "SETUSER", "default", "+mget")
        async with third.storing(store.notes):
            assert third.most_first() == first.most_first()
        await redis.client.execute_command("ACL", "SETUSER", "default", "-mget")
        async with second.storing(store.notes):
            await redis.client.execute_command("ACL", "SETUSER", "default", "+mget")
        assert second.most_first()[0].got.total() == 2
        await store.close()


async def test_bots_survive_a_restart() -> None:
    notes = Notes(None, BoundedMemoryCache(10**6))
    named = replace(VISIT, user_agent="FancyBot/1.0")
    plain = replace(VISIT, user_agent=BROWSER)
    first = Bots(lambda: 2000.0)
    async with first.storing(notes):
        for record in [named] * 3 + [plain] * LEAST_PAGES:
            first(record)
    second = Bots(lambda: 3000.0)
    async with second.storing(notes):
        assert second.since == 2000.0
        assert second.most_first() == first.most_first()
        second(named)
        assert [(bot.name, bot.got.total()) for bot in second.most_first()] == [
            ("", 20),
            ("FancyBot", 4),
        ]
    old = Bots(lambda: 10.0**8)
    async with old.storing(notes):
        assert old.most_first() == []
    await notes.set("unknown-bots", b"[nonsense", 60)
    third = Bots(lambda: 3000.0)
    async with third.storing(notes):
        assert (third.since, third.most_first()) == (3000.0, [])
