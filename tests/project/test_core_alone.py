"""The core works when the folders of all extensions are deleted, and when one of them is."""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import ClientSession, web

from prerender import plugins
from tests.conftest import StartOrigin, pages
from tests.support.commands import ROOT
from tests.support.raw import SECONDS
from tests.support.serve_command import Command

TOKEN = "a-token-of-some-length"
SCRIPT = "document.querySelector('main').append('of steel')"
PAGE = f"<title>Lamps</title><main></main><script>{SCRIPT}</script>"


def core_in(folder: Path) -> Path:
    """A copy of the package without extensions."""
    package = folder / "prerender"
    # With what is compiled: to compile it again takes seconds.
    shutil.copytree(ROOT / "prerender", package)
    found = list(plugins.having("extension"))
    assert len(found) >= 7
    for extension in found:
        shutil.rmtree(folder.joinpath(*extension.split(".")[:-1]))
    shutil.rmtree(package / "extensions")
    return package


@pytest.mark.heavy
async def test_core_serves_renders_caches_and_purges(
    start_origin: StartOrigin, tmp_path: Path, client: ClientSession
) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    core_in(tmp_path)
    settings = {
        "PYTHONPATH": str(tmp_path),
        "PRERENDER_ORIGIN": origin.url,
        "PRERENDER_SERVER_PORT": "0",
        "PRERENDER_ADMIN_PORT": "0",
        "PRERENDER_ADMIN_TOKEN": TOKEN,
        "PRERENDER_BROWSER_PAGES": "1",
        "PRERENDER_CACHE_URL": f"file://{tmp_path}/store",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prerender", "serve"),
        env=os.environ | settings,
        cwd=tmp_path,
        stderr=PIPE,
    )
    try:
        proxy = Command(cast("Any", process), tmp_path)
        await proxy.ready(client)
        async with client.get(f"{proxy.url}/") as forwarded:
            assert "of steel</main>" not in await forwarded.text()
        crawled = []
        for _ in range(2):
            async with client.get(f"{proxy.url}/?_escaped_fragment_=") as response:
                assert "of steel</main>" in await response.text()
                crawled.append(response.headers["Cache-Status"])
        assert "hit" in crawled[1]
        assert "hit" not in crawled[0]
        purge, all_of_them = f"{proxy.admin_url}/api/v1/purge", {"all": True}
        async with client.post(purge, json=all_of_them) as refused:
            assert refused.status == 401
        authorized = {"Authorization": f"Bearer {TOKEN}"}
        async with client.post(purge, json=all_of_them, headers=authorized) as purged:
            assert await purged.json() == {"purged": 1}
        async with client.get(f"{proxy.url}/?_escaped_fragment_=") as response:
            assert "hit" not in response.headers["Cache-Status"]
        async with client.get(f"{proxy.admin_url}/metrics") as metrics:
            assert "prerender_renders_total" in await metrics.text()
        async with client.get(f"{proxy.admin_url}/", headers=authorized) as dashboard:
            assert dashboard.status == 404
    finally:
        process.terminate()
        async with asyncio.timeout(SECONDS):
            await process.communicate()
    assert process.returncode == 0


@pytest.mark.heavy
async def test_core_commands(tmp_path: Path) -> None:
    core_in(tmp_path)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prerender", "--help"),
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        stdout=PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert b"  serve  " in out
    assert b"  warm  " not in out


async def _forwarded(_: web.Request) -> web.Response:
    return web.Response(text="forwarded")


def _parts() -> list[str]:
    found = (name.split(".")[1:-1] for name in plugins.having("extension"))
    others = ("extensions/mcp", "extensions/object_store")  # only have commands, or a kind of store
    return sorted({"/".join(part) for part in found}.union(others))


@pytest.mark.long
async def test_extensions_can_be_deleted_alone(start_origin: StartOrigin, tmp_path: Path) -> None:
    application = web.Application()
    application.router.add_get("/", _forwarded)
    origin = await start_origin(application)
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "tests.support.without_extension",
            str(tmp_path),
            origin.url,
            *_parts(),
        ),
        cwd=ROOT,
        stderr=PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert b"llms needs prerender.tools, which is not installed\n" in err
