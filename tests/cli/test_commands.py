"""The commands as programs: output, exit status, and what they leave behind."""

import asyncio
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from aiohttp import ClientSession, web

from prerender import __version__
from prerender.cli import main
from prerender.cli.common import with_scheme
from tests.conftest import StartOrigin, StartProxy, pages
from tests.support import raw
from tests.support.programs import Ended, at_terminal, ended, newly_started, run, started
from tests.support.sampling import sampled

PAGE = """<!DOCTYPE html><title>Lamp</title><p id="state">loading<script>
  state.textContent = "größe " + decodeURIComponent(location.hash);
</script>"""
URL_HELP = "URL: give the absolute URL of a page, http or https, without user and password"


@pytest.mark.parametrize(
    "urls",
    sampled(
        [
            ("/p#!/lamp", "/p#!/lamp"),
            ("", "/"),
            ("/p?_escaped_fragment_=/lamp%26%20shade", "/p#!/lamp& shade"),
        ],
        2,
    ),
)
async def test_render_prints_the_snapshot_and_nothing_else(
    start_origin: StartOrigin, start_proxy: StartProxy, urls: tuple[str, str]
) -> None:
    url, pretty = urls
    origin = await pages(start_origin, {"/": PAGE, "/p": PAGE})
    printed = await run("render", origin.url + url)
    assert printed == Ended(0, printed.out, "")
    assert "größe".encode() in printed.out
    proxy = await start_proxy(origin.url)
    assert printed.out == (await proxy.crawl(pretty)).body


async def test_render_asks_the_origin_of_the_settings_for_a_path_as_browsers_do(
    start_origin: StartOrigin,
) -> None:
    page = "<script>document.write(location.href)</script>"
    origin = await pages(start_origin, {"/ü b": page})
    url = "https://www.example.com/ü b?q=%c3%bc%2f&ß#!/a"
    printed = await run("render", url, environ={"PRERENDER_ORIGIN": origin.url})
    assert printed.status == 0, printed.err
    path = "/%C3%BC%20b?q=%c3%bc%2f&%C3%9F"
    assert f"https://www.example.com{path.replace('&', '&amp;')}#!/a".encode() in printed.out
    assert [request.raw_path for request in origin.requests] == [path]


async def test_render_notes_a_status_that_is_not_200(
    start_origin: StartOrigin, tmp_path: Path
) -> None:
    gone = web.Response(status=404, body=b"<p>nothing here", content_type="text/html")
    moved = web.Response(status=301, headers={"Location": "/p#!new"})
    origin = await pages(start_origin, {"/gone": gone, "/old": moved})
    # The origin of a file.
    file = tmp_path / "settings.toml"
    file.write_text(f'[origin]\nurl = "{origin.url}"\n')
    url = "https://www.example.com/gone#!a"
    printed = await run("render", url, "--config", str(file))
    assert b"nothing here" in printed.out
    assert (printed.status, printed.err) == (0, f"prerender: {url}: status 404\n")
    # The Markdown of nothing is nothing, too.
    printed = await run("render", f"{origin.url}/old", "--markdown")
    assert printed == Ended(0, b"", f"prerender: {origin.url}/old: status 301, Location: /p#!new\n")


async def test_render_of_a_page_that_cannot_be_converted(start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/": f"<p>a{'<ul><li>b' * 120}"})
    told = f"prerender: {origin.url}/: is nested too deep\n"
    assert await run("render", origin.url, "--markdown") == Ended(1, b"", told)


async def test_render_of_what_is_no_page(start_origin: StartOrigin) -> None:
    image = web.Response(body=b"<svg/>", content_type="image/svg+xml")
    origin = await pages(start_origin, {"/logo.svg": image})
    assert await run("render", f"{origin.url}/logo.svg") == Ended(
        1, b"", f"prerender: {origin.url}/logo.svg: not an HTML page: media type image/svg+xml\n"
    )


async def test_render_of_an_empty_page(start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/": "<html></html><script>1</script>"})
    failed = await run("render", origin.url)
    assert failed == Ended(1, b"", f"prerender: {origin.url}/: nothing shown\n")


async def test_render_of_a_site_that_is_not_there() -> None:
    url = f"http://127.0.0.1:{raw.free_port()}/"
    failed = await run("render", url)
    assert (failed.status, failed.out) == (1, b"")
    assert failed.err.startswith(f"prerender: {url}: the origin failed: ")
    assert failed.err.count("\n") == 1


async def test_render_without_chromium(start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    failed = await run("render", origin.url, environ={"PRERENDER_BROWSER_PATH": "/none"})
    assert (failed.status, failed.out) == (1, b"")
    assert failed.err.endswith("prerender: /none: is not an executable program ([browser] path)\n")
    assert "Traceback" not in failed.err


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://www.example.com/",
        "mailto:me@example.com",
        "http://",
        "http://[::1/",
        "http://www.example.com:99999/",
        "http://user:s3cret@www.example.com/",
        "http://www.example.com/\n",
    ],
)
def test_render_of_what_is_no_url(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", url]) == 2
    assert capsys.readouterr() == ("", f"prerender render: {URL_HELP}\n")


async def test_results_on_a_full_disk_or_a_closed_pipe(start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    full = os.open("/dev/full", os.O_WRONLY)
    read, closed_pipe = os.pipe()
    os.close(read)
    try:
        assert await run("render", origin.url, stdout=full) == Ended(
            1, b"", "prerender: cannot write to standard output: No space left on device\n"
        )
        # Every command writes in the same way.
        assert await run("config", "--example", stdout=closed_pipe) == Ended(1, b"", "")
    finally:
        os.close(full)
        os.close(closed_pipe)


def left_behind(processes: Sequence[psutil.Process], folder: Path) -> list[object]:
    """Files, and processes that do not end within some seconds."""
    _, alive = psutil.wait_procs(processes, timeout=10)
    return [*alive, *folder.iterdir()]


@pytest.mark.parametrize("hangs", ["/", "/x.json"])
async def test_render_interrupted(start_origin: StartOrigin, hangs: str) -> None:
    asked = asyncio.Event()
    never = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.path == hangs:
            asked.set()
            await never.wait()
        return web.Response(
            text="<p>hello<script>fetch('/x.json')</script>", content_type="text/html"
        )

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    origin = await start_origin(application)
    with tempfile.TemporaryDirectory() as folder:
        async with started("render", origin.url, environ={"TMPDIR": folder}) as process:
            async with asyncio.timeout(30):
                await asked.wait()
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGINT)
            assert await ended(process) == Ended(130, b"", "")
        never.set()
        assert children
        assert left_behind(children, Path(folder)) == []


async def test_serve_until_it_is_told_to_stop(
    start_origin: StartOrigin, client: ClientSession
) -> None:
    origin = await pages(start_origin, {"/": "<p>plain"})
    environ = {
        "PRERENDER_ORIGIN": origin.url,
        "PRERENDER_SERVER_PORT": "0",
        "PRERENDER_ADMIN_PORT": "0",
        "PRERENDER_LOG_FORMAT": "json",
        "PRERENDER_BROWSER_PAGES": "1",
        "PRERENDER_BROWSER_SANDBOX": "off",
    }
    with tempfile.TemporaryDirectory() as folder:
        async with started("serve", environ=environ | {"TMPDIR": folder}) as process:
            assert process.stderr is not None
            async with asyncio.timeout(30):
                warning = json.loads(await process.stderr.readline())
                assert (warning["event"], warning["level"]) == ("site_url_unset", "warning")
                assert warning["remedy"]
                line = json.loads(await process.stderr.readline())
                assert line["event"] == "serving"
                async with client.get(line["url"]) as answer:
                    assert await answer.text() == "<p>plain"
                async with client.get(f"{line['url']}?_escaped_fragment_=") as answer:
                    assert "plain" in await answer.text()
            children = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            last = await ended(process)
            assert (last.status, last.out) == (0, b"")
            assert "Traceback" not in last.err
        assert children
        assert left_behind(children, Path(folder)) == []


async def test_serve_while_nobody_reads_its_log(client: ClientSession) -> None:
    environ = {
        "PRERENDER_BROWSER_PAGES": "1",
        "PRERENDER_BROWSER_SANDBOX": "off",
        "PRERENDER_ORIGIN": f"http://127.0.0.1:{raw.free_port()}",
        # Where it is not set, the first line is a warning.
        "PRERENDER_SITE_URL": "https://www.example.com",
        "PRERENDER_SERVER_PORT": "0",
        "PRERENDER_ADMIN_PORT": "0",
        "PRERENDER_LOG_FORMAT": "json",
    }
    read, write = os.pipe()
    room = fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    async with started("serve", environ=environ, stderr=write) as process:
        os.close(write)
        # One line, and never again.
        line = await asyncio.to_thread(os.read, read, 4096)
        url = json.loads(line.split(b"\n")[0])["url"]
        async with asyncio.timeout(30):
            # Each of them logs that the origin cannot be reached.
            for number in range(room // 50):
                async with client.get(f"{url}/{number}") as answer:
                    assert answer.status == 502
            process.terminate()
            assert await process.wait() == 0
    unread = os.read(read, 65536)
    os.close(read)
    assert len(unread) > room // 2


async def test_serve_with_wrong_settings() -> None:
    environ = {"PRERENDER_SERVER_PORT": "http", "PRERENDER_BROWSER_PAGES": "0"}
    assert await run("serve", environ=environ) == Ended(
        2,
        b"",
        "prerender serve: 3 problems:\n"
        "  [origin] url: is required; set it in the file or as PRERENDER_ORIGIN_URL\n"
        "  [server] port (from PRERENDER_SERVER_PORT): 'http': "
        "give a whole number from 0 to 65535\n"
        "  [browser] pages (from PRERENDER_BROWSER_PAGES): '0': "
        'give a whole number from 1 to 256, or "auto"\n',
    )


async def test_serve_with_a_file_that_is_not_there() -> None:
    assert await run("serve", "--config", "/none.toml") == Ended(
        2, b"", "prerender serve: /none.toml: cannot be read: No such file or directory\n"
    )


async def test_serve_on_a_port_that_is_taken() -> None:
    environ = {"PRERENDER_ORIGIN": "http://127.0.0.1:9", "PRERENDER_ADMIN_PORT": "0"}
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        tempfile.TemporaryDirectory() as folder,
    ):
        port = taken.getsockname()[1]
        failed = await run(
            "serve", environ=environ | {"PRERENDER_SERVER_PORT": str(port), "TMPDIR": folder}
        )
        assert left_behind([], Path(folder)) == []
    assert (failed.status, failed.out) == (2, b"")
    last = failed.err.splitlines()[-1]
    told = f"prerender serve: [server] host, port: cannot listen on 127.0.0.1:{port}: "
    assert last.startswith(told)
    assert last.lower().endswith("address already in use")
    assert "Traceback" not in failed.err


async def test_serve_at_a_name_that_is_no_address() -> None:
    environ = {
        "PRERENDER_ORIGIN": "http://127.0.0.1:9",
        "PRERENDER_ADMIN_PORT": "0",
        "PRERENDER_SERVER_HOST": "none.invalid",
        "RES_OPTIONS": "timeout:1 attempts:1",
    }
    failed = await run("serve", environ=environ)
    last = failed.err.splitlines()[-1]
    begin = "prerender serve: [server] host, port: cannot listen on none.invalid:8080: "
    assert (failed.status, last.startswith(begin)) == (2, True)
    assert "nknown error" not in last


@pytest.mark.ci_only
async def test_closed_standard_streams(start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    command = f"{sys.executable} -m prerender render {origin.url} <&- 2>&-"
    process = await asyncio.create_subprocess_shell(
        command, env=dict(os.environ), stdout=PIPE, stderr=PIPE
    )
    printed = await ended(process)
    assert (printed.status, printed.err) == (0, "")
    assert "größe".encode() in printed.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--version"], f"prerender {__version__}\n"),
        (["--help"], "run the proxy"),
        (["render", "--help"], "pretty (#!) or ugly"),
    ],
)
def test_questions(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended_with:
        main(arguments)
    assert ended_with.value.code == 0
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["paint"], ["render"], ["serve", "--prot", "80"]])
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended_with:
        main(arguments)
    assert ended_with.value.code == 2
    assert capsys.readouterr().err.startswith("usage: prerender ")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_questions_import_little(arguments: list[str]) -> None:
    """``--help`` and ``--version`` take a tenth of a second, whatever the commands import."""
    script = (
        "import sys, prerender.cli\n"
        f"try: prerender.cli.main({arguments})\n"
        "except SystemExit: print(*sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    imported = set(out.decode().splitlines()[-1].split())
    assert "prerender.cli.program" in imported
    assert not imported & {"aiohttp", "asyncio", "pydantic", "structlog", "uvloop", "yarl"}


async def test_interrupted_while_it_imports(tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text(
        "import sys, time\nprint('importing', file=sys.stderr, flush=True)\ntime.sleep(60)"
    )
    async with newly_started("serve", environ={"PYTHONPATH": str(tmp_path)}) as process:
        assert process.stderr is not None
        async with asyncio.timeout(30):
            assert await process.stderr.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        assert await ended(process) == Ended(130, b"", "")


async def test_a_page_is_no_orders_to_the_terminal(start_origin: StartOrigin) -> None:
    """At a terminal, its HTML is shown; elsewhere it is data."""
    origin = await pages(start_origin, {"/": "<h1>a\x1b]0;owned\x07\x9b31m größe</h1>"})
    async with at_terminal("render", f"{origin.url}/") as terminal:
        assert await terminal.rest() == 0
    assert r"a\x1b]0;owned\x07\x9b31m größe".encode() in terminal.shown
    assert "a\x1b]0;owned\x07\x9b31m größe".encode() in (await run("render", f"{origin.url}/")).out


async def test_progress_is_shown_in_a_terminal_without_a_size(start_origin: StartOrigin) -> None:
    origin = await pages(start_origin, {"/": PAGE})
    arguments = ("warm", f"{origin.url}/", "--via", origin.url)
    async with at_terminal(*arguments, columns=0) as terminal:
        await terminal.rest()
    assert b"page" in terminal.shown
    assert re.search(rb"\d+/\d+ \[", terminal.shown)


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("www.example.com", "https://www.example.com"),
        ("www.example.com/#!/a?b=c:1", "https://www.example.com/#!/a?b=c:1"),
        ("www.example.com:8443/a", "http://www.example.com:8443/a"),
        ("localhost/a", "http://localhost/a"),
        ("127.0.0.1", "http://127.0.0.1"),
        ("[::1]:3000", "http://[::1]:3000"),
        (":3000", "http://127.0.0.1:3000"),
        ("http://a.example", "http://a.example"),
        ("mailto:me@example.com", "mailto:me@example.com"),
        ("", ""),
        ("\n", "\n"),
    ],
)
def test_urls_as_people_write_them(written: str, url: str) -> None:
    assert with_scheme(written) == url


async def test_render_in_other_forms(start_origin: StartOrigin, tmp_path: Path) -> None:
    html = (
        "<title>Lamps</title><h1>Lamps</h1><p id=p>wait<script>p.textContent = 'of steel'</script>"
    )
    origin = await pages(start_origin, {"/": html})
    bare = origin.url.removeprefix("http://")
    told = json.loads((await run("render", bare, "--json")).out)
    assert (told["url"], told["status"], told["title"]) == (f"{origin.url}/", 200, "Lamps")
    assert (told["settled"], told["verdict"]) == ("nothing_pending", "complete")
    assert "of steel" in told["html"]
    assert told["requests"][0]["url"] == f"{origin.url}/"
    assert told["phases"]["settle"] > 0
    page, picture = tmp_path / "page.md", tmp_path / "page.png"
    files = ("--output", str(page), "--screenshot", str(picture))
    assert await run("render", bare, "--markdown", *files) == Ended(0, b"", "")
    assert "# Lamps\n\nof steel" in page.read_text("utf-8")
    assert picture.read_bytes().startswith(b"\x89PNG")
    failed = await run("render", bare, "--output", str(tmp_path / "none/page.html"))
    assert (failed.status, failed.out) == (1, b"")
    assert failed.err.endswith("page.html: cannot write: No such file or directory\n")


def test_settings_as_options(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--site", "www.example.com", "--port", "8090", "--preset", "crawlers", "--ttl", "1d"]
    assert main(["config", "127.0.0.1:3000", *options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["origin"]["url"]["value"] == "http://127.0.0.1:3000"
    assert told["site"]["url"]["value"] == "https://www.example.com"
    assert told["cache"]["ttl"] == {"value": 86400, "source": "the command line"}
    assert told["server"]["port"]["value"] == 8090
    assert main(["serve", "127.0.0.1:3000", "--port", "x"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("prerender serve: [server] port (from the command line): 'x': give a ")


def test_an_example_of_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--example"]) == 0
    root = Path(__file__).parents[2]
    assert capsys.readouterr().out == (root / "config.example.toml").read_text("utf-8")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("serve", "doctor", "--preset", "--soft", "--screenshot"):
        assert word in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
