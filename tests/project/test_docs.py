"""The documentation builds without warnings, and everything in it that can run is run.

Blocks are treated by their language. ``console``: bash runs each ``$ command``, which must
print what follows it (``...`` stands for any text). For the pages that a newcomer reads first,
that is one shell, which has only what the page has led to. For the others, the example shop and
a proxy run, and commands must succeed. Ports are others than the page says. ``toml`` is loaded
as settings; ``nginx`` and ``yaml`` must occur in the file named by the comment before them:
``<!-- excerpt of FILE -->``. What cannot be run here says why: ``<!-- not run: REASON -->``. In
indented blocks, settings are loaded, and calls of ``curl`` and ``prerender`` must succeed;
their output is an example.
"""

import asyncio
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from sphinx.search.en import SearchEnglish

from prerender.config import load
from prerender.config.settings import FIRST
from tests.conftest import StartOrigin, StartProxy
from tests.support import example, raw
from tests.support.commands import ROOT, answered, in_, running
from tests.support.redis_server import redis_server
from tests.support.sampling import sampled

DOCS = ROOT / "docs"
LEVELS = {
    "info": "info",
    "warning": "warning",
    "warn": "warning",
    "error": "error",
    "exception": "error",
}
# The access log and the loggers of aiohttp's servers do not use structlog.
LOGGED_ELSEWHERE = {("request", "info"), ("malformed_request", "info")}
NAMED_FILE = re.compile(
    r"`((?:\w+/)*\w+\.py\b|(?:deploy|benchmarks|scripts|examples|tests)/[\w./-]*\w)"
)
NAMED_MODULE = re.compile(r"(?<![\w/.])((?:[a-z_]+/)+[a-z_]+\.py)\b")
BLOCK = re.compile(r"(?:<!-- (.*?) -->\n)?```(\w+)[^\n]*\n(.*?)```", re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:(?: {4}.*)?\n)*(?: {4}.*\n)")
CALL = re.compile(r"(?:\$ )?((?:[A-Z_]+=\S+ )?(?:curl|prerender) .*)")
RENDER_CRAWLERS = {"triggers": {"search": "render"}}
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
SEARCHES = (
    *("react", "vue", "angular", "angularjs", "svelte", "vite", "wordpress", "shopify"),
    *("cloudflare", "netlify", "login", "log rotation", "slow API", "token rotation", "upgrade"),
)
NEWCOMER = ("README.md", "quickstart.md", "commands.md")
NOT_RUN = re.compile(r"not run: .{10,}")
EXCERPT = re.compile(r"excerpt of (\S+)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the comment before it."""

    page: str
    comment: str
    language: str
    text: str

    @property
    def is_run(self) -> bool:
        return not NOT_RUN.fullmatch(self.comment)


def blocks() -> Iterator[Block]:
    for file in PAGES:
        for comment, language, text in BLOCK.findall(file.read_text("utf-8")):
            yield Block(file.name, comment, language, text)


def of(language: str) -> list[object]:
    found = [block for block in blocks() if block.language == language and block.is_run]
    return [pytest.param(block, id=f"{block.page}-{n}") for n, block in enumerate(found)]


def commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with its expected output."""
    parts = re.split(r"^\$ ", block.text.replace("\\\n", ""), flags=re.MULTILINE)
    assert parts[0] == "", f"{block.page}: a console block begins with a command"
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts[1:]]


def lost(searches: Iterable[str], index: dict[str, Any]) -> list[str]:
    """The searches that find no page with all of their words in Sphinx's index."""
    stem = SearchEnglish({}).stem

    def pages(word: str) -> set[int]:
        known = [index[terms].get(stem(word), []) for terms in ("terms", "titleterms")]
        return {page for one in known for page in (one if isinstance(one, list) else [one])}

    return [
        search
        for search in searches
        if not set.intersection(*(pages(word) for word in search.lower().split()))
    ]


def build(builder: str, folder: Path) -> None:
    """Build it, and fail by any warning."""
    in_(ROOT, sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder, DOCS, folder,
        seconds=120)  # fmt: skip


@pytest.mark.ci_only
def test_it_is_built_without_a_warning(tmp_path: Path) -> None:
    """All pages are read and their links resolved. To write HTML takes as long again."""
    build("dummy", tmp_path)


@pytest.mark.long
def test_its_pages_make_no_requests_and_are_found(tmp_path: Path) -> None:
    build("html", tmp_path)
    for page in DOCS.glob("*.md"):
        html = (tmp_path / f"{page.stem}.html").read_text("utf-8")
        assert not re.search(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?:https?:)?//", html)
    text = (tmp_path / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert lost((*SEARCHES, "rendertron zebra"), index) == ["rendertron zebra"]


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


def test_named_files_are_there() -> None:
    """Files of the repository in the documentation, and modules in comments."""
    folders = ("prerender", "tests", "benchmarks", "deploy", "scripts", "examples")
    there = [str(path) for folder in folders for path in (ROOT / folder).rglob("*")]
    pages = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
    for file in [*pages, *(ROOT / "prerender").rglob("*.py")]:
        named = (NAMED_FILE if file in pages else NAMED_MODULE).findall(file.read_text("utf-8"))
        lost = [name for name in named if not any(path.endswith(f"/{name}") for path in there)]
        assert not lost, file


def test_urls_with_an_exclamation_mark_are_quoted() -> None:
    """Unquoted, an interactive bash replaces ``!`` and what follows by a command of its history."""
    run = [
        command
        for block in blocks()
        if block.language == "console"
        for command, _ in commands(block)
    ]
    for command in [*run, *itertools.chain(*CALLS.values())]:
        assert "!" not in re.sub(r"'[^']*'", "", command), command


def test_each_rule_of_the_scheme_has_its_place_and_its_test() -> None:
    rules = re.findall(
        r"^\|.* \| `(\S+)` \| `(\S+)::(\w+)` \|$", (DOCS / "scheme.md").read_text(), re.MULTILINE
    )
    assert len(rules) > 30
    for where, file, test in rules:
        assert (ROOT / "prerender" / where).is_file(), where
        assert re.search(
            rf"^(async )?def {test}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE
        ), test


@dataclass(frozen=True)
class Reader:
    """Runs what the pages say, at the addresses of the test."""

    where: dict[str, str]
    environment: dict[str, str]
    # In place of /tmp, because several test runs may share a machine.
    folder: Path

    async def run(self, command: str) -> str:
        """The output of a command, which must succeed."""
        changed = command.replace("/tmp/", f"{self.folder}/")
        for name, address in self.where.items():
            changed = changed.replace(name, address)
        process = await asyncio.create_subprocess_exec(
            *("bash", "-o", "pipefail", "-c", changed),
            cwd=ROOT,
            env=os.environ | self.environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(110):
            out, err = await process.communicate()
        assert process.returncode == 0, f"{changed}\n{out.decode()}\n{err.decode()}"
        return out.decode().replace("\r\n", "\n").replace(f"{self.folder}/", "/tmp/")


@pytest.fixture
async def reader(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Reader]:
    """The shop, a proxy in front of it, and Redis.

    The site's public URL is the shop's own, as with ``make run``, or the proxy's, as in production.
    """
    shop = await start_origin(example.shop())
    port = raw.free_port()
    in_production = getattr(request, "param", "shop") == "proxy"
    site = f"http://127.0.0.1:{port}" if in_production else shop.url
    overrides = {"server": {"port": port}, "site": {"url": site}} | RENDER_CRAWLERS
    proxy = await start_proxy(shop.url, overrides)
    config = tmp_path / "prerender.toml"
    config.write_text(
        f'origin = {{ url = "{shop.url}" }}\nsite = {{ url = "{site}" }}\n'
        f"admin = {{ port = {proxy.running.admin_port} }}\n"
        f'cache = {{ url = "file://{tmp_path}/cache" }}\n'
    )
    async with redis_server(tmp_path) as redis:
        where = {
            "127.0.0.1:8080": proxy.url.removeprefix("http://"),
            "127.0.0.1:8081": proxy.admin_url.removeprefix("http://"),
            "http://10.0.0.5:8081": proxy.admin_url,
            "http://127.0.0.1:3000": shop.url,
            "https://www.example.com": proxy.url,
            "-p 6379": f"-p {redis.port}",
            "/etc/prerender.toml": str(config),
            "--config FILE": f"--config {config}",
            "/srv/": f"{tmp_path}/",
            "> sitemap.xml": f"> {tmp_path}/sitemap.xml",
        }
        if in_production:
            # Of the whole site the page of the commands tells.
            where["prerender check"] = "prerender check --max-pages 3"
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PRERENDER_ORIGIN_URL": shop.url,
            # Those of the proxy are taken.
            "PRERENDER_SERVER_PORT": "0",
            "PRERENDER_ADMIN_PORT": str(proxy.running.admin_port),
            "PRERENDER_BROWSER_PAGES": "2",
            # The machine may be slow.
            "PRERENDER_RENDER_TIMEOUT": "60",
        }
        folder = tmp_path / "written"
        folder.mkdir()
        yield Reader(where, environment, folder)


def pages_with_commands() -> list[str]:
    pages = {block.page for block in blocks() if block.language == "console" and block.is_run}
    return sorted(pages - {*NEWCOMER})


async def run_commands(
    page: str, run: Callable[[str], Awaitable[str]], first: int | None = None
) -> None:
    """All commands of a page, in order, or those of the first blocks."""
    found = (one for one in blocks() if one.page == page and one.language == "console")
    for block in itertools.islice((one for one in found if one.is_run), first):
        for command, expected in commands(block):
            printed = await run(command)
            pattern = re.escape(expected).replace(r"\.\.\.", ".*")
            assert re.fullmatch(pattern, printed, re.DOTALL), f"{command}\nprints: {printed}"


@pytest.mark.parametrize("page", sampled(pages_with_commands(), 2))
async def test_commands(page: str, reader: Reader) -> None:
    await run_commands(page, reader.run)


@dataclass
class Newcomer:
    """Types what a page says into one shell, and what runs until Ctrl-C into another."""

    shell: asyncio.subprocess.Process
    where: dict[str, str]
    environment: dict[str, str]
    own_site: str
    serving: AsyncExitStack

    async def run(self, command: str) -> str:
        """The output of a command; '' if it serves."""
        if command.startswith("make run"):
            origin = command.partition("ORIGIN=")[2].strip()
            await self._serve(f"scripts/run {origin}")
            return ""
        if "prerender serve" in command:
            await self._serve(f". .venv/bin/activate; exec {command}")
            return ""
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        self.shell.stdin.write(f"{self._moved(command)}\nprintf '\\0'\n".encode())
        async with asyncio.timeout(110):
            printed = await self.shell.stdout.readuntil(b"\0")
        text = printed[:-1].decode().replace("\r\n", "\n")
        return text.replace(self.where["/tmp/"], "/tmp/")

    async def _serve(self, command: str) -> None:
        await self.serving.aclose()
        command = command.replace("http://127.0.0.1:3000", self.own_site)
        shell = ("bash", "-c", self._moved(command))
        quiet = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL}
        await self.serving.enter_async_context(
            running(*shell, cwd=ROOT, env=self.environment, **quiet)
        )
        client = await self.serving.enter_async_context(ClientSession())
        await answered(client, f"http://{self.where['127.0.0.1:8080']}/")

    def _moved(self, command: str) -> str:
        for name, address in self.where.items():
            command = command.replace(name, address)
        return command


@pytest.fixture
async def newcomer(start_origin: StartOrigin, tmp_path: Path) -> AsyncIterator[Newcomer]:
    """A shell in a clone of the repository, and a site of the newcomer's own."""
    own_site = await start_origin(example.shop())
    example_port, public, admin = raw.free_ports(3)
    programs = str(Path(sys.executable).parent)
    path = [part for part in os.environ["PATH"].split(":") if part != programs]
    environment = {
        "HOME": str(tmp_path),
        "PATH": ":".join(path),
        "EXAMPLE_PORT": str(example_port),
        "PRERENDER_SERVER_PORT": str(public),
        "PRERENDER_ADMIN_PORT": str(admin),
        "PRERENDER_BROWSER_PAGES": "2",
        # The machine may be slow.
        "PRERENDER_RENDER_TIMEOUT": "60",
    }
    where = {
        "127.0.0.1:3000": f"127.0.0.1:{example_port}",
        "127.0.0.1:8080": f"127.0.0.1:{public}",
        "127.0.0.1:8081": f"127.0.0.1:{admin}",
        "/tmp/": f"{tmp_path}/",
    }
    async with (
        running(
            "bash",
            cwd=ROOT,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        ) as shell,
        AsyncExitStack() as serving,
    ):
        yield Newcomer(shell, where, environment, own_site.url, serving)


@pytest.mark.ci_only
@pytest.mark.skipif(
    not (ROOT / ".venv/bin/python").exists(), reason="needs the .venv that make install makes"
)
@pytest.mark.timeout(300)  # a browser for each command
@pytest.mark.parametrize(
    ("page", "first"),
    [
        # The start, and the first requests.
        (NEWCOMER[0], 2),
        *(pytest.param(page, None, marks=pytest.mark.long) for page in NEWCOMER),
    ],
)
async def test_what_a_newcomer_types(page: str, first: int | None, newcomer: Newcomer) -> None:
    await run_commands(page, newcomer.run, first)


def indented(page: Path) -> list[str]:
    """The indented blocks of a page, without their indentation."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    return [textwrap.dedent(found.strip("\n")) + "\n" for found in INDENTED.findall(text)]


def calls(page: Path) -> list[str]:
    """The calls in a block, without comments at the ends of their lines."""
    joined = (block.replace("\\\n", " ") for block in indented(page))
    lines = (re.sub(r"\s+# .*", "", line) for block in joined for line in block.splitlines())
    return [found[1] for line in lines if (found := CALL.match(line))]


# Each is run once, for the first page that has it.
CALLS: dict[Path, list[str]] = {}
for _page in PAGES:
    _known = {call for run in CALLS.values() for call in run}
    if _new := [call for call in dict.fromkeys(calls(_page)) if call not in _known]:
        CALLS[_page] = _new


INDENTED_SETTINGS = [
    pytest.param(block, id=f"{page.name}-{n}")
    for page in PAGES
    for n, block in enumerate(indented(page))
    if re.match(r"\[\[?[a-z_.]+\]", block)
]


@pytest.mark.parametrize("block", INDENTED_SETTINGS)
def test_indented_settings(block: str, tmp_path: Path) -> None:
    file = tmp_path / "prerender.toml"
    file.write_text(block)
    load(file, {"PRERENDER_ORIGIN": "http://app"})


@pytest.mark.long
@pytest.mark.parametrize("reader", ["proxy"], indirect=True)
async def test_indented_commands(reader: Reader) -> None:
    for command in itertools.chain(*CALLS.values()):
        await reader.run(command)


def test_the_settings_that_matter_first_stand_first() -> None:
    """In the same order in the README and on the settings page, and in the example."""
    names = [f"PRERENDER_{section}_{key}".upper() for section, key in FIRST]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert re.findall(r"^\| `(PRERENDER_\w+)`", readme, re.MULTILINE)[: len(names)] == names
    page = (DOCS / "configuration.md").read_text("utf-8")
    assert re.findall(r"^\| `\[(\w+)\] (\w+)`", page, re.MULTILINE) == list(FIRST)


def logged_events() -> Iterator[tuple[str, str]]:
    """The events that the code logs at level info and above, each with its level."""
    for file in (ROOT / "prerender").rglob("*.py"):
        text = file.read_text("utf-8")
        for method, event in re.findall(r"\.(\w+)\(\s*\"(\w+)\"", text):
            if level := LEVELS.get(method):
                yield event, level
        # Of files that are read again.
        for event in re.findall(r"unreadable=\"(\w+)\"", text):
            yield event, "warning"
        # Of exceptions, which the handler logs.
        for event in re.findall(r"^    event = \"(\w+)\"", text, re.MULTILINE):
            yield event, "warning"


def test_each_event_of_the_log_is_described() -> None:
    text = (DOCS / "operating.md").read_text("utf-8")
    table = text.partition("| event | level |")[2].partition("\n\n")[0]
    described = set()
    for row in re.findall(r"^\| (`.*?) \| ([a-z, ]+) \|", table, re.MULTILINE):
        events, levels = re.findall(r"`(\w+)`", row[0]), row[1].split(", ")
        # A level for each event, or the same level or levels for all.
        pairs = zip(events, levels, strict=True) if len(events) == len(levels) else ()
        described |= {*pairs} or {*itertools.product(events, levels)}
    assert described == {*logged_events()} | LOGGED_ELSEWHERE
