"""``prerender serve`` as a process: start, stop, and every way to end it."""

import asyncio
import json
import os
import re
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession, web
from yarl import URL

from tests.conftest import StartOrigin
from tests.support import processes, raw
from tests.support.programs import run
from tests.support.raw import SECONDS
from tests.support.sampling import sampled
from tests.support.serve_command import StartCommand


class SlowSite:
    """An origin whose responses can be held back. ``asked`` is set by each request."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.url = ""

    @classmethod
    async def open(cls, start_origin: StartOrigin) -> "SlowSite":
        site = cls()
        application = web.Application()

        async def slow(_: web.Request) -> web.Response:
            site.asked.set()
            await site.go_on.wait()
            return web.Response(text="<p>at last", content_type="text/html")

        application.router.add_get("/{path:.*}", slow)
        site.url = (await start_origin(application)).url
        return site


async def test_a_stop_lets_running_requests_finish(
    start_command: StartCommand, start_origin: StartOrigin, client: ClientSession
) -> None:
    site = await SlowSite.open(start_origin)
    command = await start_command(site.url)
    await command.ready(client)
    forward = asyncio.create_task(client.get(f"{command.url}/slow"))
    await site.asked.wait()
    site.asked.clear()
    render = asyncio.create_task(client.get(f"{command.url}/?_escaped_fragment_=1"))
    await site.asked.wait()
    command.process.terminate()
    # It refuses new connections first; what is under way goes on.
    async with asyncio.timeout(SECONDS):
        while await raw.accepts(int(command.url.rpartition(":")[2])):
            await asyncio.sleep(0.01)
    assert not forward.done()
    site.go_on.set()
    for task in (forward, render):
        answer = await task
        assert answer.status == 200
        assert "<p>at last" in await answer.text()
    assert await command.ended() == 0
    assert "Traceback" not in await command.rest()
    await command.nothing_left()


async def test_a_stop_waits_only_so_long(
    start_command: StartCommand, start_origin: StartOrigin, client: ClientSession
) -> None:
    site = await SlowSite.open(start_origin)
    command = await start_command(site.url, SERVER_GRACE="0.3")
    await command.ready(client)
    hanging = asyncio.create_task(client.get(f"{command.url}/slow"))
    await site.asked.wait()
    started = time.monotonic()
    command.process.terminate()
    assert await command.ended() == 0
    assert time.monotonic() - started > 0.3
    with pytest.raises(ClientConnectionError):
        await hanging
    await command.nothing_left()


async def test_asked_twice_it_ends_at_once(
    start_command: StartCommand, start_origin: StartOrigin, client: ClientSession
) -> None:
    site = await SlowSite.open(start_origin)
    command = await start_command(site.url, SERVER_GRACE="60")
    await command.ready(client)
    hanging = asyncio.create_task(client.get(f"{command.url}/slow"))
    await site.asked.wait()
    command.process.send_signal(signal.SIGINT)
    while "shutting_down" not in await command.line():
        pass
    command.process.terminate()
    assert await command.ended() == 1
    with pytest.raises(ClientConnectionError):
        await hanging
    await command.nothing_left()


@pytest.mark.parametrize("browser_too", [False, True])
async def test_killed_it_leaves_nothing(
    start_command: StartCommand, client: ClientSession, browser_too: bool
) -> None:
    command = await start_command()
    await command.ready(client)
    if browser_too:
        processes.kill(max(command.sessions), "browser")
    command.process.kill()
    assert await command.ended() == -signal.SIGKILL
    await command.nothing_left()


@pytest.mark.ci_only
async def test_killed_together_with_its_guardian(
    start_command: StartCommand, client: ClientSession
) -> None:
    """No process is left. The profile stays until the next start removes it."""
    command = await start_command()
    await command.ready(client)
    os.kill(max(command.sessions), signal.SIGKILL)
    command.process.kill()
    assert await command.ended() == -signal.SIGKILL
    await processes.all_gone(command.sessions)
    (profile,) = command.folder.glob("prerender-*")
    following = await start_command()
    await following.ready(client)
    assert not profile.exists()
    # That of the running one is not touched by a third.
    (profile,) = command.folder.glob("prerender-*")
    third = await start_command(BROWSER_PATH="/nonexistent")
    await third.serving()
    assert profile.exists()
    for running in (following, third):
        running.process.terminate()
        assert await running.ended() == 0


@pytest.mark.parametrize("name", ["SERVER", "ADMIN"])
async def test_a_port_in_use(start_command: StartCommand, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = await start_command(**{f"{name}_PORT": str(port)})
        await command.launching()
        assert await command.ended() == 2
        text = await command.rest()
    told = [line for line in text.splitlines() if "sandbox" not in line]
    at = f"prerender serve: [{name.lower()}] host, port: cannot listen on 127.0.0.1:{port}: "
    assert told[0].startswith(at)
    assert told[0].lower().endswith("address already in use")
    assert len(told) == 1
    await command.nothing_left()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("milliseconds", sampled([0, 50], 2))
async def test_ended_while_a_browser_starts(
    start_command: StartCommand, number: signal.Signals, milliseconds: int
) -> None:
    command = await start_command()
    await command.launching()
    await asyncio.wait([asyncio.create_task(command.ended())], timeout=milliseconds / 1000)
    command.process.send_signal(number)
    assert await command.ended() == (0 if number == signal.SIGTERM else -number)
    assert "Traceback" not in await command.rest()
    command.see()
    await command.nothing_left()


async def test_a_line_for_each_request_with_no_secret_in_it(start_command: StartCommand) -> None:
    command = await start_command(
        LOG_FORMAT="json",
        LOG_LEVEL="debug",
        BROWSER_PATH="/nonexistent",
        ADMIN_TOKEN="s3cret-of-the-owner",
        DROP_IN_ENABLED="true",
        DROP_IN_TOKEN="s3cret-of-a-middleware",
        CACHE_URL=f"redis://user:s3cret@127.0.0.1:{raw.free_port()}/0",
    )
    before = []
    while (line := json.loads(await command.line()))["event"] != "serving":
        before.append(line)
    assert "store_unavailable" in [line["event"] for line in before]
    reader, writer = await asyncio.open_connection("127.0.0.1", URL(line["url"]).port)
    writer.write(
        b"GET /a?token=s3cret HTTP/1.1\r\nHost: a\r\nAuthorization: Basic s3cret\r\n"
        b'Cookie: sid=s3cret\r\nUser-Agent: x"\\\xff\r\nConnection: close\r\n\r\n'
    )
    await reader.read()
    writer.close()
    command.process.send_signal(signal.SIGTERM)
    assert await command.ended() == 0
    text = await command.rest()
    lines = [json.loads(line) for line in text.splitlines()]
    assert "s3cret" not in f"{before} {line} {text}"
    told = [line for line in lines if line["event"] == "request"]
    assert [(line["target"], line["status"]) for line in told] == [("/a?token=***", 502)]
    assert told[0]["user_agent"] == 'x"\\\xff'
    failed = [line for line in lines if line["event"] == "origin_unreachable"]
    assert [line["target"] for line in failed] == ["/a?token=***"]


async def test_a_generated_token(start_command: StartCommand, client: ClientSession) -> None:
    """As in the image: the log shows the dashboard's token."""
    command = await start_command(ADMIN_TOKEN="auto", BROWSER_PATH="/nonexistent")
    await command.serving()
    assert command.admin_token
    for token, status in ((command.admin_token, 200), ("auto", 401), ("", 401)):
        headers = {"Authorization": f"Bearer {token}"}
        async with client.get(f"{command.admin_url}/api/v1/summary", headers=headers) as answer:
            assert answer.status == status
    command.process.terminate()
    assert await command.ended() == 0


async def test_sighup_reloads_the_settings(
    start_command: StartCommand, client: ClientSession, tmp_path: Path
) -> None:
    """As after the rotation of a token. Wrong settings change nothing."""
    file = tmp_path / "prerender.toml"

    async def status(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        async with client.get(f"{command.admin_url}/api/v1/status", headers=headers) as response:
            return response.status

    file.write_text('[admin]\ntoken = "the-first-token-1"\n')
    command = await start_command(config=str(file), BROWSER_PATH="/nonexistent")
    await command.serving()
    assert await status("the-first-token-1") != 401
    file.write_text("[admin]\ntoken = 1\n")
    command.process.send_signal(signal.SIGHUP)
    await command.logged("reload_failed")
    assert await status("the-first-token-1") != 401
    file.write_text('[admin]\ntoken = "the-second-token-2"\n[cache]\nttl = "5m"\n')
    command.process.send_signal(signal.SIGHUP)
    line = re.sub(r"\x1b\[[0-9;]*m", "", await command.logged("reloaded"))
    assert "[admin] token" in line
    assert "[cache] ttl" in line
    assert await status("the-first-token-1") == 401
    assert await status("the-second-token-2") != 401
    # What was not applied is named again, and a token is never removed without another one.
    file.write_text('[cache]\nttl = "5m"\n')
    command.process.send_signal(signal.SIGHUP)
    line = re.sub(r"\x1b\[[0-9;]*m", "", await command.logged("reloaded"))
    assert "applied=nothing" in line
    assert "[admin] token" in line
    assert "[cache] ttl" in line
    assert await status("") == 401
    assert await status("the-second-token-2") != 401


async def test_sighup_before_it_has_read_its_settings(
    start_command: StartCommand, tmp_path: Path
) -> None:
    file = tmp_path / "prerender.toml"
    os.mkfifo(file)
    command = await start_command(config=str(file), BROWSER_PATH="/nonexistent")
    settings = -1
    async with asyncio.timeout(SECONDS):
        while settings < 0:
            await asyncio.sleep(0.01)
            with suppress(OSError):  # ENXIO: it does not read yet
                settings = os.open(file, os.O_WRONLY | os.O_NONBLOCK)
    command.process.send_signal(signal.SIGHUP)
    os.close(settings)
    await command.serving()
    command.process.terminate()
    assert await command.ended() == 0


async def test_the_admin_token_is_rotated_without_a_restart(
    start_command: StartCommand, client: ClientSession, tmp_path: Path
) -> None:
    """Both tokens are accepted until the old one is removed from the file."""
    old, new = "the-first-token-1", "the-second-token-2"
    file = tmp_path / "tokens"

    async def accepted(url: str) -> tuple[bool, ...]:
        found = []
        for token in (old, new, ""):
            headers = {"Authorization": f"Bearer {token}"}
            async with client.get(f"{url}/api/v1/summary", headers=headers) as response:
                found.append(response.status == 200)
        return tuple(found)

    async def until(*expected: bool) -> None:
        async with asyncio.timeout(20):
            while await accepted(command.admin_url) != expected:
                await asyncio.sleep(0.05)

    file.write_text(f"{old}\n")
    command = await start_command(
        ADMIN_TOKEN_FILE=str(file), ADMIN_HOST="0.0.0.0", BROWSER_PATH="/nonexistent"
    )
    await command.serving()
    assert await accepted(command.admin_url) == (True, False, False)
    file.write_text(f"{new}\n{old}\n")
    await until(True, True, False)
    purged = await run(
        *("purge", "--all", "--admin", command.admin_url),
        environ={"PRERENDER_ADMIN_TOKEN_FILE": str(file)},
    )
    assert (purged.status, purged.err) == (0, "")
    file.write_text(f"{new}\n")
    await until(False, True, False)
    # A file that is empty for a moment opens nothing, and locks nobody out.
    file.write_text("")
    logged = asyncio.create_task(command.logged("admin_tokens_unreadable"))
    while not logged.done():
        assert await accepted(command.admin_url) == (False, True, False)
        await asyncio.sleep(0.05)
    await logged


async def test_two_tokens_in_the_settings(
    start_command: StartCommand, client: ClientSession
) -> None:
    tokens = "the-first-token-1, the-second-token-2"
    command = await start_command(ADMIN_TOKEN=tokens, BROWSER_PATH="/nonexistent")
    await command.serving()
    for token, status in (("the-first-token-1", 200), ("the-second-token-2", 200), ("x", 401)):
        headers = {"Authorization": f"Bearer {token}"}
        async with client.get(f"{command.admin_url}/api/v1/summary", headers=headers) as response:
            assert response.status == status
