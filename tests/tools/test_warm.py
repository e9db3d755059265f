"""``prerender warm`` with running proxies: what it requests, how often, and how it resumes."""

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from prerender.tools.concurrency import Pace, work_through
from tests.conftest import Proxy, Site, StartOrigin, StartProxy, pages
from tests.support.programs import at_terminal, run

TOKEN = "a-token-of-some-length"
PAGE = """<!DOCTYPE html><title>Page</title><p id=out>loading</p><script>
  const state = location.hash.slice(2);
  out.textContent = "state " + state;
  if (state.length < 4) for (const next of ["a", "b"]) {
    document.body.insertAdjacentHTML("beforeend", `<a href="#!${state}${next}">${next}</a>`);
  }
</script>"""


@pytest.fixture
async def site(start_origin: StartOrigin) -> Site:
    return await pages(start_origin, {"/": PAGE})


@pytest.fixture
async def proxy(site: Site, start_proxy: StartProxy) -> Proxy:
    return await start_proxy(site.url, {"admin": {"token": TOKEN}})


def sitemap(folder: Path, site: str, states: dict[str, str]) -> str:
    """A file that lists states with their lastmod."""
    entries = "".join(
        f"<url><loc>{site}/#!{state}</loc><lastmod>{lastmod}</lastmod></url>"
        for state, lastmod in states.items()
    )
    file = folder / "sitemap.xml"
    file.write_text(f"<urlset>{entries}</urlset>", "utf-8")
    return str(file)


def finished(state: Path) -> int:
    """The number of finished pages in a state file."""
    with closing(sqlite3.connect(state)) as database:
        (count,) = database.execute("SELECT count(done) FROM pages").fetchone()
    return int(count)


async def warmed(*arguments: str, **options: Any) -> dict[str, Any]:
    ended = await run("warm", "--json", *arguments, **options)
    told: dict[str, Any] = json.loads(ended.out)
    assert ended.status == (1 if told["failures"] else 0), ended.err
    return told


async def test_it_fills_the_cache(site: Site, proxy: Proxy, tmp_path: Path) -> None:
    listed = sitemap(tmp_path, site.url, dict.fromkeys("xyz", "2020-01-01"))
    told = await warmed(listed, "--via", proxy.url)
    assert (told["pages"], told["outcomes"]) == (3, {"rendered": 3})
    assert site.count("/") == 3
    told = await warmed(listed, "--via", proxy.url)
    assert told["outcomes"] == {"fresh": 3}
    assert site.count("/") == 3
    assert (await proxy.crawl("/#!x")).headers["Cache-Status"].startswith("prerender; hit")


async def test_a_list_from_standard_input(site: Site, proxy: Proxy) -> None:
    # The forms in which people have them.
    listed = f"{site.url}/#!x\n{site.url}/?_escaped_fragment_=x\n{site.url}\n{site.url}/#!y\n"
    told = await warmed("-", "--via", proxy.url, stdin=listed.encode())
    assert told["outcomes"] == {"rendered": 3}


async def test_redirects_are_followed(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    """With the page's state, only on the site, and not in circles."""

    def to(location: str) -> web.Response:
        return web.Response(status=301, headers={"Location": location})

    content: dict[str, str | web.Response] = {
        "/old": to("/new"),
        "/new": PAGE,
        "/away": to("https://elsewhere.example/"),
        "/a": to("/b"),
        "/b": to("/a"),
    }
    site = await pages(start_origin, content)
    proxy = await start_proxy(site.url)
    listed = "".join(f"{site.url}/{page}\n" for page in ("old#!x", "old#!y", "away", "a"))
    told = await warmed("-", "--via", proxy.url, stdin=listed.encode())
    assert told["outcomes"] == {"redirected": 5, "rendered": 2}
    for state in "xy":
        answer = await proxy.crawl(f"/new#!{state}")
        assert answer.headers["Cache-Status"].startswith("prerender; hit")


@pytest.mark.ci_only
async def test_links_are_followed_to_a_depth(site: Site, proxy: Proxy) -> None:
    told = await warmed(f"{site.url}/#!", "--via", proxy.url, "--follow", "2")
    assert told["outcomes"] == {"rendered": 1 + 2 + 4}
    told = await warmed(
        f"{site.url}/#!",
        "--via",
        proxy.url,
        "--follow",
        "9",
        "--max-pages",
        "10",
        "--concurrency",
        "1",
    )
    assert (told["outcomes"], told["left_out"] > 0) == ({"fresh": 7, "rendered": 3}, True)


async def test_pages_that_changed_since_are_rendered_again(
    site: Site, proxy: Proxy, tmp_path: Path
) -> None:
    await warmed(sitemap(tmp_path, site.url, {"x": "", "y": ""}), "--via", proxy.url)
    listed = sitemap(tmp_path, site.url, {"x": "2020-01-01", "y": "2199-01-01"})
    told = await warmed(listed, "--via", proxy.url)
    assert told["outcomes"] == {"fresh": 1, "outdated": 1}


async def test_a_named_proxy_renders_the_pages_itself(
    site: Site, proxy: Proxy, tmp_path: Path
) -> None:
    listed = sitemap(tmp_path, site.url, {"x": "2020-01-01", "y": "2020-01-01"})
    by_job = ("--admin", proxy.admin_url)
    environ = {"PRERENDER_ADMIN_TOKEN": TOKEN}
    told = await warmed(listed, *by_job, environ=environ)
    assert (told["pages"], told["outcomes"]) == (2, {"rendered": 2})
    sitemap(tmp_path, site.url, {"x": "2199-01-01", "y": "2020-01-01", "z": "2020-01-01"})
    told = await warmed(listed, *by_job, "--max-pages", "2", environ=environ)
    assert (told["outcomes"], told["left_out"]) == ({"rendered": 1, "fresh": 1}, 1)
    assert site.count("/") == 3
    told = await warmed("-", *by_job, stdin=b"https://other.example/\n", environ=environ)
    assert told["outcomes"] == {"invalid": 1}
    wrong = f"{site.url}/missing\nhttps://other.example/\n".encode()
    told = await warmed("-", *by_job, stdin=wrong, environ=environ)
    assert told["outcomes"] == {"missing": 1, "invalid": 1}
    assert {one["reason"] for one in told["failures"]} == {
        "status 404", f"url: 'https://other.example/': give a URL of {site.url}, or a path",
    }  # fmt: skip
    ended = await run("warm", listed, *by_job, "--follow", "1")
    assert (ended.status, "--follow: not with --admin" in ended.err) == (2, True)
    for useless in (("--max-age", "1d"), ("--rate", "0"), ("--rate", "0.00")):
        ended = await run("warm", listed, *useless)
        assert (ended.status, f"{useless[0]}: " in ended.err) == (2, True)
    ended = await run("warm", listed, *by_job)
    assert ended.status == 1
    assert "the token is missing or wrong" in ended.err


async def test_what_was_done_is_left_out(site: Site, proxy: Proxy, tmp_path: Path) -> None:
    state = tmp_path / "state"
    listed = sitemap(tmp_path, site.url, {"x": "2020-01-01", "y": "2020-01-01"})
    arguments = (listed, "--via", proxy.url, "--state", str(state))
    assert (await warmed(*arguments))["outcomes"] == {"rendered": 2}
    told = await warmed(*arguments)
    assert (told["pages"], told["skipped"]) == (0, 2)
    sitemap(tmp_path, site.url, {"x": "2199-01-01", "y": "2020-01-01", "z": "2020-01-01"})
    told = await warmed(*arguments)
    assert (told["outcomes"], told["skipped"]) == ({"outdated": 1, "rendered": 1}, 1)


async def test_failures_are_told(site: Site, proxy: Proxy, tmp_path: Path) -> None:
    listed = f"{site.url}/#!x\n{site.url}/missing#!y\n"
    state = tmp_path / "state"
    ended = await run("warm", "-", "--via", proxy.url, "--state", str(state), stdin=listed.encode())
    assert ended.status == 1
    assert "1 rendered" in ended.out.decode()
    assert f"failed: {site.url}/missing#!y: status 404" in ended.out.decode()
    assert "failed: " not in ended.err  # once is enough
    # They are asked for again.
    told = await warmed("-", "--via", proxy.url, "--state", str(state), stdin=listed.encode())
    assert (told["skipped"], len(told["failures"])) == (1, 1)


async def test_what_is_no_proxy(site: Site) -> None:
    told = await warmed(f"{site.url}/#!x")
    assert told["outcomes"] == {"no_proxy": 1}
    assert told["failures"][0]["reason"] == "the response is not a snapshot of this proxy"


async def test_a_busy_proxy_is_asked_again(start_origin: StartOrigin) -> None:
    application = web.Application()
    asked: list[float] = []

    async def answer(_: web.Request) -> web.Response:
        asked.append(time.monotonic())
        if len(asked) < 3:
            return web.Response(status=503, headers={"Retry-After": "0"})
        headers = {"Cache-Status": "cdn; fwd=miss, prerender; fwd=miss; stored; ttl=9"}
        return web.Response(headers=headers, text="<p>", content_type="text/html")

    application.router.add_get("/", answer)
    busy = await start_origin(application)
    told = await warmed(f"{busy.url}/#!x")
    assert (told["outcomes"], len(asked)) == ({"rendered": 1}, 3)


async def test_no_more_at_once_and_no_more_a_second_than_was_said(
    start_origin: StartOrigin,
) -> None:
    application = web.Application()
    running, most, times = 0, 0, list[float]()

    async def answer(request: web.Request) -> web.Response:
        nonlocal running, most
        times.append(time.monotonic())
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0.05)
        running -= 1
        assert request.headers["Host"] == "shop.example"
        headers = {"Cache-Status": "prerender; hit; age=0", "Date": formatdate(usegmt=True)}
        return web.Response(headers=headers, text="<p>", content_type="text/html")

    application.router.add_get("/", answer)
    proxy = await start_origin(application)
    listed = "".join(f"https://shop.example/#!{n}\n" for n in range(12)).encode()
    await warmed("-", "--via", proxy.url, "--concurrency", "3", stdin=listed)
    assert (most, len(times)) == (3, 12)
    began = time.monotonic()
    await warmed("-", "--via", proxy.url, "--rate", "20", stdin=listed)
    assert times[-1] - began >= 11 / 20 - 0.05


async def test_an_interruption_ends_it_and_it_goes_on(
    site: Site, proxy: Proxy, tmp_path: Path
) -> None:
    listed = sitemap(tmp_path, site.url, {f"s{n}": "2020-01-01" for n in range(24)})
    state = tmp_path / "state"
    arguments = (listed, "--via", proxy.url, "--state", str(state), "--concurrency", "2")
    async with at_terminal("warm", *arguments) as terminal:
        await terminal.until(rb" ([3-9]|1\d)/24 ")
        terminal.press(b"\x03")
        assert await terminal.rest() == 130
    shown = terminal.shown.decode()
    assert "Traceback" not in shown
    assert f"interrupted: continue with --state {state}" in shown
    done = finished(state)
    assert 3 <= done < 24
    told = await warmed(*arguments)
    assert told["skipped"] == done
    assert told["pages"] == 24 - done
    # At most those that were under way are asked for twice, and they are in the cache then.
    assert site.count("/") == 24


async def test_an_application_that_responds_to_everything_with_its_page(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": PAGE, "/sitemap.xml": PAGE, "/sitemap": PAGE})
    proxy = await start_proxy(origin.url, {})
    ended = await run("warm", f"{origin.url}/sitemap.xml", "--via", proxy.url)
    assert (ended.status, ended.out) == (1, b"")
    assert ended.err == f"prerender: {origin.url}/sitemap.xml: an HTML page, not a sitemap\n"
    ended = await run("warm", f"{origin.url}/none.xml", "--via", proxy.url)
    assert ended.err == f"prerender: {origin.url}/none.xml: status 404\n"
    assert (await warmed(f"{origin.url}/sitemap", "--via", proxy.url))["outcomes"] == {
        "rendered": 1
    }


async def test_nothing_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty.xml").write_text("<urlset></urlset>")
    for source, said in (
        ("empty.xml", "no pages listed"),
        ("none.xml", "cannot be read: No such file or directory"),
    ):
        ended = await run("warm", str(tmp_path / source))
        assert (ended.status, ended.out) == (1, b"")
        assert ended.err == f"prerender: {tmp_path / source}: {said}\n"


async def test_an_error_ends_the_whole_work() -> None:
    async def do(number: int) -> list[int]:
        if number == 7:
            raise RuntimeError("seven")
        return [number + 1]

    with pytest.raises(RuntimeError, match="seven"):
        await work_through([0], do, concurrency=3)


async def test_a_pace() -> None:
    pace = Pace(100)
    started = time.monotonic()
    for _ in range(11):
        await pace.wait()
    assert time.monotonic() - started >= 0.09
