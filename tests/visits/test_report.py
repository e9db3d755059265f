"""What crawlers got, as the report API tells it, over a restart."""

import csv
import io
import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from prerender import app
from prerender.visits import report
from tests.conftest import Proxy, StartOrigin, StartProxy, _start, settings_for
from tests.support import programs
from tests.support.browsers import Browsers

GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
GPTBOT = "Mozilla/5.0 (compatible; GPTBot/1.2; +https://openai.com/gptbot)"
SITE = "https://www.example.com"


def application() -> web.Application:
    site = web.Application()

    def page(text: str, status: int = 200) -> web.Response:
        return web.Response(text=text, content_type="text/html", status=status)

    async def item(_: web.Request) -> web.Response:
        return page(
            "<title>Same</title><meta name=robots content=noindex>"
            "<link rel=canonical href=https://other.example/>Short"
        )

    async def long(_: web.Request) -> web.Response:
        return page(f"<title>Same</title><p>{'word ' * 200}")

    async def sitemap(_: web.Request) -> web.Response:
        urls = "".join(
            f"<url><loc>{SITE}{path}</loc></url>" for path in ("/items/1", "/long", "/new")
        )
        return web.Response(text=f"<urlset>{urls}</urlset>", content_type="text/xml")

    async def missing(_: web.Request) -> web.Response:
        return page("<title>Gone</title>Not here", 404)

    site.router.add_get("/items/{number}", item)
    site.router.add_get("/long", long)
    site.router.add_get("/sitemap.xml", sitemap)
    site.router.add_get("/{rest:.*}", missing)
    return site


async def ask(proxy: Proxy, path: str, expected: int = 200) -> Any:
    async with proxy.client.get(f"{proxy.admin_url}/api/v1/report{path}") as response:
        assert response.status == expected, await response.text()
        if response.content_type == "text/csv":
            return list(csv.DictReader(io.StringIO(await response.text())))
        return await response.json(content_type=None)


async def come(proxy: Proxy, path: str, user_agent: str, expected: int = 200) -> None:
    async with proxy.client.get(
        f"{proxy.url}{path}", headers={"User-Agent": user_agent}
    ) as response:
        assert response.status == expected
        await response.read()


async def visit(proxy: Proxy) -> None:
    await come(proxy, "/items/1?utm_source=x&token=secret", GOOGLEBOT)
    await come(proxy, "/items/1?token=secret", GOOGLEBOT)
    await come(proxy, "/gone/1", GOOGLEBOT, 404)
    await come(proxy, "/long", GPTBOT)
    await come(proxy, "/items/1", "Mozilla/5.0 Firefox/140.0")


async def test_what_crawlers_got_survives_a_restart(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    client: ClientSession,
    browsers: Browsers,
    tmp_path: Path,
) -> None:
    origin = await start_origin(application())
    settings = {
        "site": {"url": SITE},
        "triggers": {"preset": "crawlers"},
        "cache": {"url": f"file://{tmp_path}/store"},
    }
    async with AsyncExitStack() as stack:
        loaded = settings_for(origin.url, settings)
        parts = await stack.enter_async_context(browsers.lend(loaded))
        await visit(await _start(stack, app.proxying(loaded, parts), loaded, client))

    proxy = await start_proxy(origin.url, settings)
    today = datetime.fromtimestamp(time.time(), UTC).date().isoformat()
    about = await ask(proxy, "")
    assert about == {
        "since": today, "kept_in": "file", "days": 730, "available": True, "dropped": 0
    }  # fmt: skip
    google, gpt = (await ask(proxy, "/visits"))["items"]
    assert google["crawler"] == "Googlebot"
    assert (google["rendered"], google["fresh"], google["not_found"]) == (1, 1, 1)
    assert google["p95_seconds"] > 0
    assert (gpt["crawler"], gpt["kind"], gpt["forwarded"]) == ("GPTBot", "ai_training", 1)

    recent = await ask(proxy, "/recent")
    assert recent["since"] % 3600 == 0
    assert [(one["crawler"], one["requests"]) for one in recent["items"]] == [
        ("Googlebot", 3), ("GPTBot", 1)
    ]  # fmt: skip
    rows = await ask(proxy, "/visits?by=day,folder&format=csv")
    assert {(row["day"], row["folder"], row["requests"]) for row in rows} == {
        (today, "/items/", "2"), (today, "/gone/", "1"), (today, "/", "1")
    }  # fmt: skip
    (errors,) = (await ask(proxy, "/visits?only=errors"))["items"]
    assert errors["crawler"] == "Googlebot"

    found = (await ask(proxy, "/pages"))["items"]
    kinds = {page["url"]: (page["status"], *page["kinds"]) for page in found}
    assert kinds == {
        f"{SITE}/items/1?token=***": (200, "search"),
        f"{SITE}/gone/1": (404, "search"),
        f"{SITE}/long": (200, "ai_training"),
    }
    assert "secret" not in str(found)

    assert await ask(proxy, "/pages?search=x&limit=1") == {
        "count": 0, "known": 3, "items": [], "next": None
    }  # fmt: skip
    urls: list[str] = []
    cursor: Any = ""
    for _ in range(3):
        page = await ask(proxy, f"/pages?limit=1&cursor={cursor}")
        urls += [one["url"] for one in page["items"]]
        cursor = page["next"]
    assert cursor is None
    assert (page["count"], sorted(urls)) == (3, sorted(kinds))
    assert (await ask(proxy, "/pages?cursor=x", 400))["detail"].startswith("cursor: ")

    change = (await ask(proxy, f"/change?date={today}&days=1"))["items"]
    assert [(one["crawler"], one["requests_before"], one["requests_after"]) for one in change] == [
        ("Googlebot", 0, 3), ("GPTBot", 0, 1)
    ]  # fmt: skip


async def test_pages_that_nobody_fetched_and_faults_of_snapshots(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await start_origin(application())
    settings = {"site": {"url": SITE}, "triggers": {"preset": "crawlers"}}
    proxy = await start_proxy(origin.url, settings)
    for path in ("/items/1", "/long", "/long?page=2"):
        await come(proxy, path, GOOGLEBOT)
    gap = await ask(proxy, "/gap")
    assert (gap["known"], [one["url"] for one in gap["items"]]) == (3, [f"{SITE}/new"])
    found = await ask(proxy, "/snapshots")
    assert (found["snapshots"], found["read"]) == (3, 3)
    assert {(one["url"].removeprefix(SITE), one["finding"]) for one in found["items"]} == {
        ("/items/1", "noindex"), ("/items/1", "canonical-elsewhere"), ("/items/1", "thin-text"),
        ("/long", "title-duplicate"), ("/long?page=2", "title-duplicate"),
    }  # fmt: skip
    assert (await ask(proxy, ""))["kept_in"] == "memory"
    problem = await ask(proxy, "/gap?sitemap=/nothing.xml", 502)
    assert "status 404" in problem["detail"]
    for wrong in ("/visits?by=moon", "/visits?days=0", "/change", "/change?date=today"):
        assert re.match(r"(by|days|date): ", (await ask(proxy, wrong, 400))["detail"])


async def test_tables_are_made_in_threads(
    start_origin: StartOrigin, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, int] = {}

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def make(*arguments: Any) -> Any:
            threads[name] = threading.get_ident()
            return function(*arguments)

        return make

    made = ("pages", "gap", "findings", "as_csv", "as_json")
    for name in made:
        monkeypatch.setattr(report, name, noted(name, getattr(report, name)))
    origin = await start_origin(application())
    settings = {"site": {"url": SITE}, "browser": {"path": "/nonexistent/chromium"}}
    proxy = await start_proxy(origin.url, settings)
    await come(proxy, "/long", GPTBOT)
    for form in ("json", "csv"):
        for table in ("pages", "gap", "snapshots"):
            await ask(proxy, f"/{table}?format={form}")
    assert threads.keys() == set(made)
    assert threading.get_ident() not in threads.values()


def test_json_is_made_item_by_item() -> None:
    for items in ([], [{"url": "/é"}], [{"url": "/a", "kinds": {"search": 1}}, {"url": "/b"}]):
        content = {"count": len(items), "items": items, "next": None}
        assert json.loads(report.as_json(content)) == content


async def test_the_command_prints_tables(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await start_origin(application())
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}})
    await come(proxy, "/long", GPTBOT)
    environ = {
        "PRERENDER_ORIGIN_URL": origin.url,
        "PRERENDER_ADMIN_PORT": str(proxy.running.admin_port),
    }
    run = partial(programs.run, "report", environ=environ)
    table = await run("--days", "7")
    assert table.status == 0, table.err
    head, row = table.out.decode().splitlines()
    assert head.split()[:4] == ["crawler", "kind", "requests", "forwarded"]
    assert row.split()[:4] == ["GPTBot", "ai_training", "1", "1"]
    gap = await run("gap", "--limit", "1", "--json")
    assert json.loads(gap.out)["count"] == 2
    pages = await run("pages", "--csv")
    head, row = pages.out.decode().splitlines()
    assert head == "url,last,status,kinds"
    time_ = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(rf"{SITE}/long,({time_}),200,ai_training=\1", row)
    for arguments, said in (
        (["gap", "--days", "3"], "--days: gap does not take it"),
        (["change"], "change: give --date"),
        (["--by", "moon"], "by: 'moon': give"),
    ):
        wrong = await run(*arguments)
        assert wrong.status
        assert said in wrong.err


async def test_nothing_is_kept_with_0_days(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await start_origin(application())
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}, "visits": {"days": 0}})
    assert (await ask(proxy, ""))["kept_in"] == "off"
    assert "[visits] days" in (await ask(proxy, "/visits", 409))["detail"]
    assert (await ask(proxy, "/snapshots"))["snapshots"] == 0
