"""The documentation: built without a warning, and everything in it that can be run is run.

Blocks of a page are told by their language. ``console``: each ``$ command`` is run by bash, where it
has to succeed, and prints what follows it (``...`` stands for anything). The example shop and a proxy
in front of it run meanwhile, on other ports than the page says. ``toml`` is loaded as settings;
``nginx`` and ``yaml`` have to occur in the file that the comment before them names:
``<!-- excerpt of FILE -->``. What cannot be run here says why: ``<!-- not run: REASON -->``.
"""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.hashbang.origin import make_app
from prerender.config import load
from tests.commands import ROOT
from tests.conftest import Proxy, StartOrigin, StartProxy
from tests.redis_server import RedisServer, redis_server

DOCS = ROOT / "docs"
BLOCK = re.compile(r"(?:<!-- (.*?) -->\n)?```(\w+)[^\n]*\n(.*?)```", re.DOTALL)
RENDER_CRAWLERS = {"triggers": {"search": "render"}}
NOT_RUN = re.compile(r"not run: .{10,}")
EXCERPT = re.compile(r"excerpt of (\S+)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the comment right before it."""

    page: str
    comment: str
    language: str
    text: str

    @property
    def is_run(self) -> bool:
        return not NOT_RUN.fullmatch(self.comment)


def blocks() -> Iterator[Block]:
    for file in sorted(DOCS.glob("*.md")):
        for comment, language, text in BLOCK.findall(file.read_text("utf-8")):
            yield Block(file.name, comment, language, text)


def of(language: str) -> list[object]:
    found = [block for block in blocks() if block.language == language and block.is_run]
    return [pytest.param(block, id=f"{block.page}-{n}") for n, block in enumerate(found)]


def commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with what it prints."""
    parts = re.split(r"^\$ ", block.text.replace("\\\n", ""), flags=re.MULTILINE)
    assert parts[0] == "", f"{block.page}: a console block begins with a command"
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts[1:]]


def test_it_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", DOCS, tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for page in DOCS.glob("*.md"):
        html = (tmp_path / f"{page.stem}.html").read_text("utf-8")
        # Whoever reads it asks nobody else for anything.
        assert not re.search(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?:https?:)?//", html)


def test_the_settings_are_those_of_the_program() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "scripts/settings-page"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert (DOCS / "configuration.md").read_text("utf-8") == made, "run: make docs"


def test_every_block_is_run_or_says_why_not() -> None:
    for block in blocks():
        assert block.language in ("console", "toml", "nginx", "yaml", "html"), block
        if block.language in ("nginx", "yaml") and block.is_run:
            assert EXCERPT.fullmatch(block.comment), block


@pytest.mark.parametrize("block", of("toml"))
def test_settings(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "prerender.toml"
    file.write_text(block.text)
    settings = load(file, {} if "[origin]" in block.text else {"PRERENDER_ORIGIN": "http://app"})
    assert settings != load(None, {"PRERENDER_ORIGIN": settings.origin.url}), "all are defaults"


@pytest.mark.parametrize("block", [*of("nginx"), *of("yaml")])
def test_excerpts(block: Block) -> None:
    found = EXCERPT.fullmatch(block.comment)
    assert found
    assert block.text in (ROOT / found[1]).read_text("utf-8")


def test_files_in_commands_are_there() -> None:
    for block in blocks():
        if block.language == "console":
            for command, _ in commands(block):
                for word in shlex.split(command, comments=True):
                    if re.match(r"(deploy|benchmarks|scripts|examples)/", word):
                        assert (ROOT / word).exists(), command


@pytest.fixture
async def environment(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> AsyncIterator[tuple[Proxy, str, RedisServer]]:
    """The shop, the proxy in front of it, and a Redis."""
    shop = await start_origin(make_app())
    proxy = await start_proxy(shop.url, RENDER_CRAWLERS)
    async with redis_server(tmp_path) as redis:
        yield proxy, shop.url, redis


def pages_with_commands() -> list[str]:
    return sorted(
        {block.page for block in blocks() if block.language == "console" and block.is_run}
    )


@pytest.mark.parametrize("page", pages_with_commands())
async def test_commands(page: str, environment: tuple[Proxy, str, RedisServer]) -> None:
    """One after the other, as a reader runs them."""
    proxy, shop, redis = environment
    where = {
        "http://127.0.0.1:8080": proxy.url,
        "http://127.0.0.1:8081": proxy.admin_url,
        "http://127.0.0.1:3000": shop,
        "-p 6379": f"-p {redis.port}",
    }
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = [block for block in blocks() if block.page == page and block.is_run]
    for command, expected in (
        found for block in run if block.language == "console" for found in commands(block)
    ):
        changed = command
        for name, address in where.items():
            changed = changed.replace(name, address)
        process = await asyncio.create_subprocess_exec(
            *("bash", "-o", "pipefail", "-c", changed),
            cwd=ROOT,
            env=os.environ | {"PATH": path},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        assert process.returncode == 0, f"{command}\n{err.decode()}"
        printed = out.decode().replace("\r\n", "\n")
        pattern = re.escape(expected).replace(r"\.\.\.", ".*")
        assert re.fullmatch(pattern, printed, re.DOTALL), f"{command}\nprints: {printed}"
