"""scripts/pin-base, with a registry that behaves like Docker Hub."""

import asyncio
import os
import sys
from pathlib import Path

from aiohttp import web

from tests.conftest import StartOrigin
from tests.support.commands import ROOT

DIGEST = f"sha256:{'a1' * 32}"
LINE = "ARG BASE=docker.io/library/debian:13-slim"


def registry(digest: str = DIGEST) -> web.Application:
    """A registry that requires a token, which anyone can get."""

    async def token(request: web.Request) -> web.Response:
        assert dict(request.query) == {"service": "s", "scope": "repository:library/debian:pull"}
        return web.json_response({"token": "t"})

    async def manifest(request: web.Request) -> web.Response:
        assert "image.index" in request.headers["Accept"]
        if request.headers.get("Authorization") != "Bearer t":
            realm = f"http://{request.host}/token"
            challenge = f'Bearer realm="{realm}",service="s",scope="repository:library/debian:pull"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        return web.Response(headers={"Docker-Content-Digest": digest})

    application = web.Application()
    application.router.add_get("/token", token)
    application.router.add_route("HEAD", "/v2/library/debian/manifests/13-slim", manifest)
    return application


async def pin(url: str, *arguments: str | Path) -> tuple[int | None, str]:
    """Exit status and output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        ROOT / "scripts/pin-base",
        *arguments,
        env=os.environ | {"REGISTRY": url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        told, _ = await process.communicate()
    return process.returncode, told.decode()


async def test_the_base_image_is_pinned(start_origin: StartOrigin, tmp_path: Path) -> None:
    url = (await start_origin(registry())).url
    file = tmp_path / "Dockerfile"
    file.write_text(f"# a comment\n{LINE}\nFROM ${{BASE}}\n")
    status, told = await pin(url, "--check", file)
    assert (status, told) == (1, f"library/debian:13-slim is now {DIGEST}, but pinned to nothing\n")
    assert (await pin(url, file))[0] == 0
    assert file.read_text() == f"# a comment\n{LINE}@{DIGEST}\nFROM ${{BASE}}\n"
    assert (await pin(url, "--check", file))[0] == 0


async def test_what_is_wrong_is_said_in_one_line(start_origin: StartOrigin, tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text(f"{LINE}\n")
    for application, reason in (
        (registry("none"), "the response has no Docker-Content-Digest"),
        (web.Application(), "HTTP Error 404: Not Found"),
    ):
        url = (await start_origin(application)).url
        assert await pin(url, file) == (1, f"{url}: {reason}\n")
    assert file.read_text() == f"{LINE}\n"


async def test_the_dockerfile_can_be_pinned(start_origin: StartOrigin, tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    text = (ROOT / "Dockerfile").read_text("utf-8")
    file.write_text(text, "utf-8")
    status, told = await pin((await start_origin(registry())).url, file)
    assert (status, told.rpartition(" ")[2].strip()) == (0, DIGEST)
    assert file.read_text("utf-8").count(f"@{DIGEST}\n") == 1
