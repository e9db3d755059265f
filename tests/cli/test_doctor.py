"""``prerender doctor`` with real services, present and missing."""

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiohttp import web

from prerender.cli import diagnosis as doctor
from prerender.crawlers.known import built_in
from tests.conftest import StartOrigin, StartProxy, pages, settings_for
from tests.support.origins import only_for_its_own_host
from tests.support.programs import run
from tests.support.redis_server import redis_server
from tests.support.s3_server import s3_server

PAGE = "<!DOCTYPE html><title>Lamp</title><p>A lamp."
NO_BROWSER: dict[str, Mapping[str, object]] = {"browser": {"path": "/nonexistent/chromium"}}


async def looked(
    origin: str, overrides: Mapping[str, Mapping[str, object]]
) -> dict[str, doctor.Line]:
    settings = settings_for(origin, overrides)
    return {line.name: line async for line in doctor.examine(settings)}


async def test_all_is_well(start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    environ = {
        "PRERENDER_ORIGIN": origin.url,
        "PRERENDER_SERVER_PORT": "0",
        "PRERENDER_ADMIN_PORT": "0",
    }
    ended = await run("doctor", "--json", environ=environ)
    assert (ended.status, ended.err) == (0, "")
    lines = {line["name"]: line for line in json.loads(ended.out)}
    assert "Chrom" in lines["browser"]["text"]
    assert lines["rendering"]["state"] == "ok"
    assert "status 200, 7 characters of text" in lines["first page"]["text"]
    for line in lines.values():
        assert bool(line["remedy"]) == (line["state"] != "ok"), line


async def test_nothing_is_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environ = {
            "PRERENDER_ORIGIN": "http://127.0.0.1:9",
            "PRERENDER_SERVER_PORT": str(port),
            "PRERENDER_ADMIN_HOST": "192.0.2.1",
            "PRERENDER_ADMIN_TOKEN": "a-token-of-some-length",
            "PRERENDER_BROWSER_PATH": "/nonexistent/chromium",
            "PRERENDER_CACHE_URL": f"unix://{tmp_path}/no.sock",
        }
        ended = await run("doctor", environ=environ)
    assert (ended.status, ended.err) == (1, "")
    said = ended.out.decode()
    for expected in (
        "problem  origin       http://127.0.0.1:9: ",
        "problem  browser      /nonexistent/chromium: is not an executable program",
        "problem  store        unix: ",
        f"warning  server port  127.0.0.1:{port}: already in use",
        "problem  admin port   192.0.2.1:8081: ",
        "→ start the origin, or correct [origin] url",
    ):
        assert expected in said, said
    assert "rendering" not in said


@pytest.mark.parametrize(
    ("status", "state"), [(200, "ok"), (404, "warning"), (503, "problem"), (301, "ok")]
)
async def test_what_the_origin_answers(start_origin: StartOrigin, status: int, state: str) -> None:
    headers = {"Location": "/en/"} if status == 301 else {}
    origin = await pages(start_origin, {"/": web.Response(status=status, headers=headers)})
    lines = await looked(origin.url, NO_BROWSER)
    assert lines["origin"].state == state


async def test_an_origin_that_refuses_the_public_host(start_origin: StartOrigin) -> None:
    origin = await start_origin(only_for_its_own_host())
    lines = await looked(origin.url, NO_BROWSER | {"site": {"url": "https://www.example.com"}})
    line = lines["origin"]
    assert line.state == "problem"
    own = origin.url.removeprefix("http://")
    assert f"with Host: {own} instead of www.example.com, status 200" in line.text
    assert "server.allowedHosts" in line.remedy


async def test_what_a_program_that_is_no_browser_does(
    start_origin: StartOrigin, tmp_path: Path
) -> None:
    program = tmp_path / "chromium"
    program.write_text('#!/bin/sh\ntest "$1" = --version && exec echo Chromium 1.0\nexit 1\n')
    program.chmod(0o755)
    origin = await pages(start_origin, {"/": PAGE})
    lines = await looked(origin.url, {"browser": {"path": str(program)}})
    assert lines["browser"].text == f"{program}: Chromium 1.0"
    assert lines["rendering"].state == "problem"
    assert "exit status 1" in lines["rendering"].text


async def test_the_first_page_is_looked_at(start_origin: StartOrigin) -> None:
    page = PAGE + "<script src=/gone.js></script>"
    lines = await looked((await pages(start_origin, {"/": page})).url, {})
    assert lines["first page"].state == "warning"
    assert "/gone.js" in lines["first page"].text


@pytest.mark.parametrize(
    ("triggers", "state", "said"),
    [
        (
            {"preset": "crawlers"},
            "warning",
            "without a snapshot in the last hour: ClaudeBot (2)",
        ),
        ({"preset": "crawlers", "ai_training": "forward"}, "ok", "in the last hour: ClaudeBot (2)"),
        ({"preset": "ai"}, "ok", "no crawler missed a snapshot in the last hour"),
    ],
)
async def test_who_got_no_snapshot(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    triggers: dict[str, object],
    state: str,
    said: str,
) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    proxy = await start_proxy(origin.url, {"triggers": triggers})
    for _ in range(2):
        await proxy.get("/", headers={"User-Agent": "ClaudeBot/1.0"})
    settings = NO_BROWSER | {"triggers": triggers, "admin": {"port": proxy.running.admin_port}}
    line = (await looked(origin.url, settings))["preset"]
    assert (line.state, line.text[-len(said) :]) == (state, said)
    if line.remedy:
        assert line.remedy.startswith('set [triggers] preset = "ai", or set their classes')


async def test_the_list_of_crawlers(start_origin: StartOrigin, tmp_path: Path) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    line = (await looked(origin.url, NO_BROWSER))["crawlers"]
    assert line.state == "ok"
    assert f"the built-in list is of {built_in().date}" in line.text
    file = tmp_path / "crawlers.toml"
    file.write_text("[serch]")
    own = NO_BROWSER | {"triggers": {"crawlers_file": str(file)}}
    line = (await looked(origin.url, own))["crawlers"]
    assert (line.state, line.remedy) == ("problem", "correct the file or the setting")
    assert "[serch]: unknown class" in line.text


async def test_redis(tmp_path: Path) -> None:
    origin = "http://127.0.0.1:9"
    async with redis_server(tmp_path) as redis:
        overrides = NO_BROWSER | {"cache": {"url": f"unix://{redis.socket}"}}
        await redis.client.config_set("maxmemory-policy", "allkeys-lru")
        line = (await looked(origin, overrides))["store"]
        assert (line.state, "allkeys-lru" in line.text) == ("warning", True)
        await redis.client.config_set("maxmemory-policy", "volatile-lru")
        assert (await looked(origin, overrides))["store"].state == "ok"


@pytest.mark.ci_only
async def test_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = "http://127.0.0.1:9"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with s3_server() as s3, redis_server(tmp_path) as redis:
        cache = {"url": s3.url}
        line = (await looked(origin, NO_BROWSER | {"cache": cache}))["store"]
        assert (line.state, line.text) == ("ok", "s3: responds; each replica renders for itself")
        both = cache | {"hot_url": redis.url}
        await redis.client.config_set("maxmemory-policy", "volatile-lru")
        assert (await looked(origin, NO_BROWSER | {"cache": both}))["store"].state == "ok"
        elsewhere = {"url": s3.url.replace("//snapshots", "//another")}
        line = (await looked(origin, NO_BROWSER | {"cache": elsewhere}))["store"]
        assert (line.state, line.text) == ("problem", "s3: the bucket does not exist")


async def test_a_folder(tmp_path: Path) -> None:
    cache = {"url": f"file://{tmp_path}/not/yet/there"}
    assert (await looked("http://127.0.0.1:9", NO_BROWSER | {"cache": cache}))[
        "store"
    ].state == "ok"
    assert not os.listdir(tmp_path)
    (tmp_path / "file").touch()
    cache = {"url": f"file://{tmp_path}/file"}
    line = (await looked("http://127.0.0.1:9", NO_BROWSER | {"cache": cache}))["store"]
    assert line.state == "problem"


async def test_files_that_the_settings_name(tmp_path: Path) -> None:
    """Without them the proxy does not start."""
    tokens, ranges = tmp_path / "tokens", tmp_path / "ranges.json"
    overrides: dict[str, dict[str, object]] = {
        "browser": {"path": "/nonexistent/chromium"},
        "admin": {"token_file": str(tokens)},
        "triggers": {"verify": True, "ranges": [{"name": "GPTBot", "file": str(ranges)}]},
    }
    lines = await looked("http://127.0.0.1:9", overrides)
    for name, file in (("token file", tokens), ("ranges", ranges)):
        assert lines[name].state == "problem"
        assert lines[name].text.endswith(f"{file}: No such file or directory")
    tokens.write_text("a-token-of-some-length\n")
    ranges.write_text('{"prefixes": [{"ipv4Prefix": "192.0.2.0/24"}]}')
    lines = await looked("http://127.0.0.1:9", overrides)
    assert (lines["token file"].state, lines["ranges"].state) == ("ok", "ok")
    assert lines["crawlers"].state != "problem"
    overrides["triggers"]["ranges"] = [{"name": "GTPBot", "file": str(ranges)}]
    line = (await looked("http://127.0.0.1:9", overrides))["crawlers"]
    assert (line.state, line.text.partition(": ")[0]) == ("problem", "[triggers] ranges")
