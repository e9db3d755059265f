"""docker-compose.yml: the settings, commands and files of its services, without Docker."""

import asyncio
import os
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from prerender.config import load
from tests.conftest import StartOrigin, pages
from tests.project.test_deploy import (
    DEPLOY,
    PAGE,
    PLAIN_FILES,
    compose,
    nginx,
    set_in_the_image,
    text_of,
)
from tests.support import raw
from tests.support.commands import ROOT, answered, running
from tests.support.nginx_server import running as nginx_running
from tests.support.redis_server import redis_server
from tests.support.serve_command import StartCommand

REPLICAS = ("prerender-1", "prerender-2", "prerender-3")
SERVE = (sys.executable, "-m", "prerender", "serve")


def moved(environment: dict[str, str], **addresses: str) -> dict[str, str]:
    """Settings of a service with other ports, and with the addresses of other services replaced."""
    public, admin = raw.free_ports(2)
    moved = environment | {
        "PRERENDER_SERVER_PORT": str(public),
        "PRERENDER_ADMIN_PORT": str(admin),
        "PRERENDER_BROWSER_PAGES": "1",
    }
    for name, address in addresses.items():
        there = re.compile(rf"(?<=//){name}:\d+")
        assert any(there.search(value) for value in moved.values())
        moved = {key: there.sub(address, value) for key, value in moved.items()}
    return moved


def test_the_profile_is_single_unless_another_one_is_named() -> None:
    assert "COMPOSE_PROFILES=single" in text_of(ROOT / ".env").splitlines()


def test_single_is_nginx_the_proxy_a_store_and_an_origin() -> None:
    services = compose("single")
    assert set(services) == {"nginx", "prerender", "valkey", "origin"}
    settings = load(None, set_in_the_image() | services["prerender"]["environment"])
    assert settings.server.host == "0.0.0.0"
    # The dashboard is for the host itself, with a token that the log tells.
    assert (settings.admin.host, settings.admin.token) == ("0.0.0.0", ("auto",))
    assert services["prerender"]["ports"] == ["127.0.0.1:8081:8081"]
    for file in PLAIN_FILES:
        assert re.search(rf"server prerender(-1)?:{settings.server.port}\b", text_of(file))
    assert settings.origin_url.host in services
    assert settings.cache.url == "redis://valkey:6379/0"


def test_scale_is_three_proxies_an_object_store_and_a_redis() -> None:
    services = compose("scale")
    assert set(services) == {"nginx-replicas", "valkey", "origin", "s3", "bucket", *REPLICAS}
    for name in REPLICAS:
        given = services[name]["environment"]
        assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= given.keys()
        settings = load(None, set_in_the_image() | _of_the_proxy(given))
        assert settings.cache.url.startswith("s3://snapshots/")
        assert settings.cache.hot_url == "redis://valkey:6379/0"
        text = text_of(DEPLOY / "nginx/replicas.conf")
        assert text.count(f"server {name}:{settings.server.port} ") == 1
    # The store that the tests run against.
    (version,) = re.findall(r"^moto==(\S+)", text_of(ROOT / "requirements-dev.lock"), re.MULTILINE)
    assert services["s3"]["image"].endswith(f"/moto:{version}")


def _of_the_proxy(environment: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key.startswith("PRERENDER_")}


@pytest.mark.parametrize("profile", ["single", "scale"])
def test_services_find_their_files_images_and_each_other(profile: str) -> None:
    services = compose(profile)
    (built,) = (service for service in services.values() if "build" in service)
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= services.keys(), name
        for volume in service.get("volumes", ()):
            assert (ROOT / volume.partition(":")[0]).exists()
        if service["image"] == built["image"] and service is not built:
            assert service["pull_policy"] == "never", name


async def test_what_single_starts(
    tmp_path: Path, start_origin: StartOrigin, start_command: StartCommand, client: ClientSession
) -> None:
    """With the same settings and the store's own options, at other addresses."""
    services = compose("single")
    site = await pages(start_origin, {"/": PAGE})
    async with redis_server(tmp_path, *_options(services)) as store:
        settings = moved(
            services["prerender"]["environment"],
            origin=site.url.removeprefix("http://"),
            valkey=f"127.0.0.1:{store.port}",
        )
        public, front = int(settings["PRERENDER_SERVER_PORT"]), raw.free_port()
        of_origin = settings.pop("PRERENDER_ORIGIN_URL")
        given = {name.removeprefix("PRERENDER_"): value for name, value in settings.items()}
        await start_command(of_origin, **given)
        async with nginx(tmp_path, DEPLOY / "nginx/everything.conf", front, public, 9):
            await answered(client, f"http://127.0.0.1:{public}/")
            async with client.get(f"http://127.0.0.1:{front}/?_escaped_fragment_=/a") as answer:
                assert "plain+" in await answer.text()
            assert (await store.client.config_get("maxmemory-policy"))["maxmemory-policy"]
            async with asyncio.timeout(10):
                while not await store.client.dbsize():
                    await asyncio.sleep(0.05)


def _options(services: dict[str, Any]) -> list[str]:
    program, *options = services["valkey"]["command"]
    assert program == "valkey-server"
    return list(options)


@pytest.mark.long
async def test_what_scale_starts(
    tmp_path: Path, start_origin: StartOrigin, client: ClientSession
) -> None:
    services = compose("scale")
    site = await pages(start_origin, {"/": PAGE})
    port, front = raw.free_ports(2)
    s3 = f"127.0.0.1:{port}"
    quiet = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL}
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(redis_server(tmp_path, *_options(services)))
        # ":5000" is the port of the service.
        options = [str(port) if part == "5000" else part for part in services["s3"]["command"]]
        environment = {
            key: value.replace("s3:5000", s3)
            for key, value in services["s3"]["environment"].items()
        }
        command = (sys.executable, "-m", "moto.server", *options)
        await stack.enter_async_context(running(*command, env=os.environ | environment, **quiet))
        await answered(client, f"http://{s3}/moto-api/")
        _, dash, script = services["bucket"]["entrypoint"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, dash, script.replace("s3:5000", s3)
        )
        assert await process.wait() == 0
        text = text_of(DEPLOY / "nginx/replicas.conf").replace("listen 80", f"listen {front}")
        for name in REPLICAS:
            settings = moved(
                services[name]["environment"],
                origin=site.url.removeprefix("http://"),
                valkey=f"127.0.0.1:{store.port}",
                s3=s3,
            )
            await stack.enter_async_context(running(*SERVE, env=os.environ | settings, **quiet))
            address = f"127.0.0.1:{settings['PRERENDER_SERVER_PORT']}"
            await answered(client, f"http://{address}/")
            text = text.replace(f"{name}:8080", address)
        await stack.enter_async_context(nginx_running(tmp_path, text, front))
        url = f"http://127.0.0.1:{front}/?_escaped_fragment_=/a"
        for _ in range(6):
            async with client.get(url) as answer:
                assert "plain+" in await answer.text()
        assert site.count("/") == len(REPLICAS) + 1
        async with client.get(f"http://{s3}/snapshots?list-type=2") as answer:
            assert (await answer.text()).count("<Key>") == 2  # the snapshot, and the purges
