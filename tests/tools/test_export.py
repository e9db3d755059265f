"""``prerender export`` and ``import``: files that nginx serves by itself, and that a proxy loads."""

import asyncio
import gzip
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientSession, web
from yarl import URL

from prerender.snapshots.snapshot import Snapshot, etag_of
from prerender.snapshots.target import Target
from prerender.tools.export.archive import Archive, Archived
from prerender.tools.export.imports import OUTCOMES
from prerender.tools.export.nginx import STEPS
from prerender.urls.ajax_crawling import PrettyURL, pretty_to_ugly
from tests.conftest import Proxy, Reply, Site, StartOrigin, StartProxy, pages
from tests.support import nginx_server, raw
from tests.support.programs import at_terminal, run
from tests.support.redis_server import redis_server

TOKEN = "a-token-of-some-length"
NOTHING = dict.fromkeys(OUTCOMES, 0)
PAGE = """<!DOCTYPE html><html lang="en"><head><title>Page</title></head><body><p id=out>loading
<script>
  let state = location.hash.slice(2);
  try { state = decodeURIComponent(state); } catch { /* octets that are no text */ }
  out.textContent = "state [" + state + "] " + "long enough to be compressed ".repeat(40);
  if (state === "/gone") document.head.insertAdjacentHTML(
    "beforeend", `<meta name="prerender-status-code" content="404">`);
</script>"""
# What nginx reads its configuration with, and what crawlers do not escape.
STATES = [
    "/a", "/A", "/Aa", "/aA", "", "/$1/${x}", '/"quoted"', "/it's", "/back\\slash", "/a;b{c}", "/~x",
    "/ü", "/x%20y", "/x&y=1", "/?a=1#b", "/%41b", "/100%", "/%zz", "/a+b",
    "/long/" + "x" * 300, "/gone",
]  # fmt: skip

ESCAPES = re.compile(rb"%([01][0-9A-F]|20|22|3C|3E|60|7F|[89A-F][0-9A-F])")
CRAWLERS = "".join(chr(octet) for octet in range(0x21, 0x7F) if chr(octet) not in "#%&+")
PAGES = len(STATES) + 1  # and one with a query

CONFIG = """
  include {export}/nginx-http.conf;
  server {{
    listen 127.0.0.1:{port};
    include {export}/nginx-server.conf;
    location / {{ proxy_pass {origin}; }}
  }}
"""


@pytest.fixture
async def site(start_origin: StartOrigin) -> Site:
    application = web.Application()

    async def page(request: web.Request) -> web.Response:
        if request.method == "POST":
            return web.Response(text="posted")
        if request.path == "/none":
            raise web.HTTPNotFound
        if request.path == "/moved":
            raise web.HTTPMovedPermanently("/")
        headers = {"X-Robots-Tag": "max-snippet:50, $x"} if request.path == "/tagged" else {}
        if request.path == "/private":
            headers = {"Cache-Control": "private"}
        return web.Response(text=PAGE, content_type="text/html", headers=headers)

    application.router.add_route("*", "/{path:.*}", page)
    return await start_origin(application)


def pages_of(site: Site) -> list[str]:
    return [f"{site.url}/#!{state}" for state in STATES] + [f"{site.url}/tagged?q=1"]


async def exported(site: Site, folder: Path, *urls: str) -> dict[str, Any]:
    listed = "\n".join(urls or pages_of(site)).encode()
    ended = await run("export", "-", "--to", str(folder), "--json", stdin=listed)
    told: dict[str, Any] = json.loads(ended.out)
    assert ended.status == (1 if told["failures"] else 0), ended.err
    return told


@pytest.fixture(scope="module")
def exports() -> dict[str, Path]:
    """The exports of all pages, by site."""
    return {}


@pytest.fixture
async def export(
    site: Site, exports: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An export of all pages, which tests share: as the first origin, their site has one address."""
    if site.url not in exports:
        exports[site.url] = tmp_path_factory.mktemp("shared") / "export"
        told = await exported(site, exports[site.url])
        assert (told["pages"], told["failures"], told["doubtful"]) == (PAGES, [], [])
        site.requests.clear()
    return exports[site.url]


@asynccontextmanager
async def nginx(folder: Path, export: Path, origin: str) -> AsyncIterator[str]:
    port = raw.free_port()
    http = CONFIG.format(export=export, port=port, origin=origin)
    async with nginx_server.running(folder, http, port):
        yield f"http://127.0.0.1:{port}"


async def asked(client: ClientSession, url: str, method: str = "GET", **headers: str) -> Reply:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.request(method, URL(url, encoded=True), headers=sent) as answer:
        return Reply(answer.status, answer.headers, await answer.read())


def spellings(page: str) -> list[str]:
    """Ugly URLs of a page: by the scheme, as some crawlers write them, and unusual ones."""
    ugly = pretty_to_ugly(page, opted_in=True)
    assert ugly is not None
    before, token, _ = ugly.rpartition("_escaped_fragment_=")
    escaped = page.partition("#!")[2]
    # location.hash has escapes for these only; all other percent signs are the state's own.
    text = ESCAPES.sub(lambda found: bytes([int(found[1], 16)]), escaped.encode())
    every = "".join(f"%{octet:02x}" for octet in text)
    half = len(text) // 2
    values = [
        "".join(chr(octet) if chr(octet) in CRAWLERS else f"%{octet:02X}" for octet in text),
        *(quote(text, safe=safe) for safe in ("", "!'()*", "/?=:", "?=:", "/~!$'()*,;:@")),
        quote(text, safe="?=:").replace("%2F", "%2f"),
        quote(escaped, safe="/?=:"),
        every if len(text) <= STEPS else every[:120] + quote(text[40:], safe="/"),
        every[: 3 * half] + quote(text[half:]) if len(text) <= STEPS else quote(text, safe="/"),
    ]
    return [f"{before}{token}{value}" for value in dict.fromkeys(values)]


@pytest.mark.ci_only
async def test_nginx_serves_it_alone(
    site: Site, export: Path, tmp_path: Path, client: ClientSession
) -> None:
    entries = Archive.open(export).pages
    assert len(entries) == PAGES
    async with nginx(tmp_path, export, site.url) as url:
        for page, entry in entries.items():
            for target in spellings(page):
                reply = await asked(client, url + target)
                assert reply.body == (export / entry.file).read_bytes(), target
                assert reply.status == (404 if page == "/#!/gone" else 200)
                assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
                assert reply.headers["Cache-Control"] == "no-cache"
        assert not site.requests

        ugly = f"{url}/?_escaped_fragment_=/a"
        whole = await asked(client, ugly)
        assert b"state [/a]" in whole.body
        etag, changed = whole.headers["ETag"], whole.headers["Last-Modified"]
        for condition in ({"If_None_Match": etag}, {"If_Modified_Since": changed}):
            reply = await asked(client, ugly, **condition)
            assert (reply.status, reply.body) == (304, b"")
        packed = await asked(client, ugly, Accept_Encoding="gzip")
        assert packed.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(packed.body) == whole.body
        head = await asked(client, ugly, "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["Content-Length"] == str(len(whole.body))
        tagged = await asked(client, f"{url}/tagged?q=1&_escaped_fragment_=")
        assert tagged.headers["X-Robots-Tag"] == "max-snippet:50, $x"
        assert not site.requests

        # All else is the site's own business.
        for target in (
            "/",
            "/?_ESCAPED_FRAGMENT_=/a",
            "/?_escaped_fragment_=/AA",
            "/?_escaped_fragment_=/nothing",
            "/?_escaped_fragment_=%2Fa&x=1",
            "/?_escaped_fragment_=/x&_escaped_fragment_=/a",
            "/?_escaped_fragment_=%252Fa",
            "/?x_escaped_fragment_=/a",
            "/?%5Fescaped_fragment_=/a",
            "/?_escaped_fragment_=/../../../../etc/passwd",
            "/.prerender/200",
            "/index.json",
        ):
            site.requests.clear()
            reply = await asked(client, url + target)
            assert b"loading" in reply.body or reply.status == 404, target
            assert bool(site.requests) != target.startswith("/.prerender"), target
        assert (await asked(client, ugly, "POST")).body == b"posted"


@pytest.mark.ci_only
async def test_a_proxy_takes_it_in(site: Site, export: Path, start_proxy: StartProxy) -> None:
    proxy = await start_proxy(site.url, {"admin": {"token": TOKEN}})
    assert await imported(proxy, export) == NOTHING | {"stored": PAGES}
    for page, entry in Archive.open(export).pages.items():
        reply = await proxy.crawl(page)
        assert reply.headers["Cache-Status"].startswith("prerender; hit"), page
        assert reply.body == (export / entry.file).read_bytes()
        assert (reply.status, reply.headers["ETag"]) == (entry.status, entry.etag)
        for name, value in entry.headers:
            assert reply.headers[name] == value
        packed = await proxy.crawl(page, headers={"Accept-Encoding": "br"})
        assert packed.headers["Content-Encoding"] == "br"
    assert not site.requests
    # What is there already is not replaced by what is older.
    assert await imported(proxy, export) == NOTHING | {"newer": PAGES}
    assert await imported(proxy, export, "--fresh") == NOTHING | {"stored": PAGES}
    # A proxy of another site takes none of them.
    other = await start_proxy(
        site.url, {"site": {"url": "https://www.example.com"}, "admin": {"token": TOKEN}}
    )
    given = ("import", str(export), "--admin", other.admin_url)
    ended = await run(*given, environ={"PRERENDER_ADMIN_TOKEN": TOKEN})
    said = f"the export is of {site.url}, but this proxy serves https://www.example.com"
    assert (ended.status, ended.out) == (2, b"")
    assert ended.err == f"prerender: {other.admin_url} (--admin): site: {said}\n"


async def test_what_was_purged_since_does_not_come_back(
    site: Site, start_proxy: StartProxy, tmp_path: Path
) -> None:
    export = tmp_path / "export"
    await exported(site, export, f"{site.url}/#!/a")
    async with redis_server(tmp_path) as redis:
        cache = {"url": f"unix://{redis.socket}"}
        proxy = await start_proxy(site.url, {"admin": {"token": TOKEN}, "cache": cache})
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with proxy.client.post(
            f"{proxy.admin_url}/api/v1/purge", json={"all": True}, headers=headers
        ) as answer:
            assert answer.status == 200
        assert await imported(proxy, export) == NOTHING | {"purged": 1}
        assert "fwd=miss" in (await proxy.crawl("/#!/a")).headers["Cache-Status"]
        # It is rendered by now, under a lease, and stays.
        assert (await imported(proxy, export))["newer"] == 1


async def imported(proxy: Proxy, export: Path, *more: str) -> dict[str, int]:
    environ = {
        "PRERENDER_ADMIN_PORT": str(proxy.running.admin_port),
        "PRERENDER_ADMIN_TOKEN": TOKEN,
    }
    ended = await run("import", str(export), "--json", *more, environ=environ)
    assert (ended.status, ended.err) == (0, "")
    counts: dict[str, int] = json.loads(ended.out)
    return counts


@pytest.mark.ci_only
async def test_what_cannot_be_exported_is_told(site: Site, tmp_path: Path) -> None:
    export = tmp_path / "export"
    urls = [f"{site.url}{path}" for path in ("/#!/a", "/none", "/private", "/moved#!/a")]
    told = await exported(site, export, *urls, "http://other.example/")
    assert told["pages"] == 1
    assert {failure["url"]: failure["reason"] for failure in told["failures"]} == {
        f"{site.url}/moved#!/a": f"status 301 to {site.url}/#!/a: list that instead",
        f"{site.url}/none": "media type text/plain",
        f"{site.url}/private": "its Cache-Control says that it must not be stored",
    }
    listed = f"{site.url}/private".encode()
    ended = await run("export", "-", "--to", str(tmp_path / "none"), stdin=listed)
    assert ended.status == 1
    assert ended.out.startswith(f"0 pages in {tmp_path}/none\nfailed: ".encode())
    full = os.open("/dev/full", os.O_WRONLY)
    ended = await run(
        *("export", "-", "--to", str(tmp_path / "full")),
        stdin=f"{site.url}/#!/a".encode(),
        stdout=full,
    )
    os.close(full)
    assert ended.status == 1
    assert ended.err.endswith("cannot write to standard output: No space left on device\n")


async def test_a_page_without_its_data_is_rendered_again(
    start_origin: StartOrigin, tmp_path: Path
) -> None:
    responses = iter([web.Response(status=500), web.Response(text="the data")])

    async def data(_: web.Request) -> web.Response:
        return next(responses)

    async def page(_: web.Request) -> web.Response:
        script = """fetch("/data").then((response) => response.text())
          .then((text) => { document.body.textContent = text || "nothing"; });"""
        return web.Response(text=f"<script>{script}</script>", content_type="text/html")

    application = web.Application()
    application.router.add_get("/", page)
    application.router.add_get("/data", data)
    site = await start_origin(application)
    told = await exported(site, tmp_path / "export", f"{site.url}/")
    assert (told["pages"], told["failures"], told["doubtful"]) == (1, [], [])


async def test_a_page_whose_third_party_fails_is_doubtful(
    start_origin: StartOrigin, tmp_path: Path
) -> None:
    failing = "http://no-such-host.invalid/data"
    script = f"fetch('{failing}').catch(() => {{ document.body.textContent = 'none' }})"
    site = await pages(start_origin, {"/": f"<script>{script}</script>"})
    told = await exported(site, tmp_path / "export", f"{site.url}/")
    (doubtful,) = told["doubtful"]
    assert doubtful["url"] == f"{site.url}/"
    assert doubtful["reason"] == f"exported, but {failing} failed: the snapshot may be incomplete"


async def test_a_folder_of_other_things_is_left_alone(site: Site, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    listed = f"{site.url}/#!/a".encode()
    ended = await run("export", "-", "--to", str(tmp_path), stdin=listed)
    assert (ended.status, ended.out) == (1, b"")
    assert ended.err == f"prerender: {tmp_path}: is neither empty nor a previous export\n"
    assert os.listdir(tmp_path) == ["letter.txt"]


DAMAGES: list[tuple[dict[str, object], str]] = [
    ({"body": "<p>another"}, "does not match the ETag in the index"),
    ({"body": None}, "body is missing"),
    ({"status": 500}, "status 500"),
    ({"path": "a"}, "'a' is not a path"),
    ({"headers": [["Set-Cookie", "a=b"]]}, "headers that are not allowed in a snapshot"),
    ({"file": "../../etc/passwd"}, "is not a file name of an export"),
    ({"tags": ["two words"]}, "its tags are invalid"),
    ({"etag": '"x"'}, "is not the ETag"),
    ({"made": "now"}, "str instead of a number"),
    ({"made": float("nan")}, "float instead of a number of this size"),
    ({"made": -1.0}, "invalid time"),
    ({"last_modified": 10**30}, "invalid time"),
    ({"ttl": 1e300}, "a number of this size"),
    ({"ttl": -5}, "invalid TTL: -5 s"),
    ({"status": float("inf")}, "float instead of int"),
    ({"headers": "none"}, "str instead of []"),
    ({"headers": [["A"]]}, "an array of 2"),
    ({"tags": [1]}, "int instead of str"),
    ({"unknown": 1}, "an object of 11 members"),
]


async def test_what_is_damaged_is_not_taken_in(site: Site, start_proxy: StartProxy) -> None:
    page = exported_page()
    proxy = await start_proxy(
        site.url, {"admin": {"token": TOKEN}, "browser": {"path": "/nonexistent"}}
    )

    async def post(what: object, token: str = TOKEN) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"}
        async with proxy.client.post(
            f"{proxy.admin_url}/api/v1/import", json=what, headers=headers
        ) as answer:
            return answer.status, await answer.text()

    for change, said in DAMAGES:
        status, answer = await post({"site": site.url, "pages": [page | change]})
        assert status == 400, change
        assert said in answer
    assert (await post({"pages": [page]}, "wrong"))[0] == 401
    assert (await post({"site": site.url, "pages": 1}))[0] == 400
    status, answer = await post({"site": site.url, "pages": [page]})
    assert (status, json.loads(answer)) == (200, NOTHING | {"stored": 1})
    old = page | {"made": 1e9, "path": "/old"}
    status, answer = await post({"site": site.url, "pages": [old]})
    assert json.loads(answer) == NOTHING | {"expired": 1}


def exported_page() -> dict[str, object]:
    """A valid page of an export, for changes."""
    body = b"<p>a page"
    snapshot = Snapshot(200, (), body, etag_of(200, (), body), 1)
    target = Target.of(URL("http://a"), PrettyURL("/", "/x"))
    entry = Archived.of(target, snapshot, 1.0)
    told: dict[str, object] = json.loads(json.dumps(asdict(entry)))
    return told | {"body": body.decode(), "made": 4e9}


async def test_an_import_of_what_is_no_export(tmp_path: Path) -> None:
    ended = await run("import", str(tmp_path))
    assert ended.status == 1
    assert ended.err == f"prerender: {tmp_path}/index.json: No such file or directory\n"
    (tmp_path / "index.json").write_text("{}")
    ended = await run("import", str(tmp_path))
    assert ended.err.startswith(f"prerender: {tmp_path}/index.json: not the index of an export")


async def test_an_export_replaces_the_one_before_but_for_what_cannot_be_rendered(
    start_origin: StartOrigin, tmp_path: Path
) -> None:
    failing = ""
    hangs, never = asyncio.Event(), asyncio.Event()

    async def page(request: web.Request) -> web.Response:
        if request.path == failing:
            return web.Response(status=500)
        if failing == "all" and request.path == "/b":
            hangs.set()
            await never.wait()
        text = f"<p>{'long enough to be compressed ' * 40}<p>{request.path} {failing}"
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", page)
    site = await start_origin(application)
    export = tmp_path / "export"
    urls = [f"{site.url}/{name}" for name in "abc"]
    await exported(site, export, *urls)
    assert len(list(export.rglob("*.html*"))) == 6
    failing = "/b"
    told = await exported(site, export, *urls[:2])
    assert told["failures"] == [
        {"url": urls[1], "reason": "status 500; the snapshot of the last export stays"}
    ]
    archive = Archive.open(export)
    assert b"/a /b" in archive.body(archive.pages["/a"])
    assert archive.pages.keys() == {"/a", "/b"}
    assert len(list(export.rglob("*.html*"))) == 4

    # A sitemap that cannot be read may list the others.
    failing = ""
    gone = f"{site.url}/gone.xml"
    ended = await run("export", gone, urls[0], "--to", str(export), "--json")
    assert ended.status == 1
    assert f"not read: {gone}: " in ended.err
    told = json.loads(ended.out)
    assert (told["pages"], told["unread_sitemaps"]) == (1, 1)
    assert Archive.open(export).pages.keys() == {"/a", "/b"}

    failing = "all"
    file = tmp_path / "list"
    file.write_text("\n".join(urls[:2]))
    async with at_terminal("export", str(file), "--to", str(export)) as terminal:
        async with asyncio.timeout(30):
            await hangs.wait()
        await terminal.until(rb" 1/2 ")
        terminal.press(b"\x03")
        assert await terminal.rest() == 130
    never.set()
    archive = Archive.open(export)
    assert b"/a all" in archive.body(archive.pages["/a"])
    assert archive.body(archive.pages["/b"]).endswith(b"/b </p></body></html>")
