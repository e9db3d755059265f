"""``prerender export --static``: files at the paths of ordinary URLs, which nginx gives crawlers."""

import json
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from yarl import URL

from prerender.config.crawler_classes import PRESETS
from prerender.crawlers.known import built_in
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.target import Target
from prerender.tools.export.hydration import merged
from prerender.tools.export.static import StaticFiles, file_of
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import Site, StartOrigin
from tests.support import nginx_server, raw
from tests.support.programs import Ended, run

# An application with history mode, which responds to any path with this document.
SHELL = """<!DOCTYPE html><html lang="en"><head><title>Shop</title></head><body><div id="app"></div>
<noscript>Needs JavaScript</noscript><script src="/app.js"></script></body></html>"""
APP = """
  const page = { "/": "Home", "/lamps": "Lamps", "/lamps/arc": "Arc", "/lamps/mine": "Mine",
    "/a b": "Space" };
  const title = page[decodeURIComponent(location.pathname)];
  document.title = title ?? "Missing";
  document.head.insertAdjacentHTML("beforeend", title ? `<meta name=description content=${title}>` :
    `<meta name="prerender-status-code" content="404">`);
  const app = document.getElementById("app");
  app.innerHTML = `<h1>${title}</h1><button>0</button>`;
  app.querySelector("button").onclick = (event) => { event.target.textContent = "1"; };
  document.body.insertAdjacentHTML("beforeend", "<div class=dialog>dialog</div>");
"""
CONFIG = """
  include {export}/nginx-static-http.conf;
  server {{
    listen 127.0.0.1:{port};
    include {export}/nginx-static-server.conf;
    location / {{ proxy_pass {origin}; }}
  }}
"""
GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0"


@pytest.fixture
async def site(start_origin: StartOrigin) -> Site:
    application = web.Application()

    async def page(request: web.Request) -> web.Response:
        if request.path == "/away":
            raise web.HTTPServiceUnavailable
        kind = "text/javascript" if request.path == "/app.js" else "text/html"
        return web.Response(text=APP if request.path == "/app.js" else SHELL, content_type=kind)

    application.router.add_get("/{path:.*}", page)
    return await start_origin(application)


async def _export(site: Site, folder: Path, paths: list[str], *more: str) -> Ended:
    listed = "".join(f"{site.url}{path}\n" for path in paths).encode()
    return await run("export", "-", "--static", "--to", str(folder), *more, stdin=listed)


@pytest.mark.ci_only
async def test_crawlers_get_the_files_until_a_new_export_replaces_them(
    site: Site, tmp_path: Path, client: ClientSession
) -> None:
    export = tmp_path / "static"
    paths = [
        "/",
        "/lamps",
        "/lamps/arc",
        "/a%20b",
        "/missing",
        "/lamps?page=2",
        "/#!/state",
        "/away",
    ]
    ended = await _export(site, export, paths)
    assert ended.status == 1
    out = ended.out.decode()
    assert out.startswith(f"4 pages in {export}; nginx serves them with its nginx-static-http.conf")
    assert "/missing: status 404: a file would have status 200" in out
    assert "/lamps?page=2: a file cannot depend on the query" in out
    assert "/#!/state: a #! state has no path of its own" in out
    assert "/away: status 503\n" in out
    files = sorted(str(file.relative_to(export)) for file in export.rglob("*.html"))
    assert files == ["a b/index.html", "index.html", "lamps/arc/index.html", "lamps/index.html"]
    assert "<script" not in (export / "lamps/index.html").read_text("utf-8")
    port = raw.free_port()

    async def title(path: str, user_agent: str, method: str = "GET") -> str:
        url = URL(f"http://127.0.0.1:{port}{path}", encoded=True)
        headers = {"User-Agent": user_agent}
        async with client.request(method, url, headers=headers) as answer:
            text = await answer.text()
            assert answer.status == 200
            of_export = "Cache-Control" in answer.headers
            assert ("User-Agent" in answer.headers.getall("Vary", [])) is of_export
            assert answer.content_type == ("text/html" if path != "/app.js" else "text/javascript")
            return (
                text.partition("<title>")[2].partition("<")[0] if of_export else "the application"
            )

    config = CONFIG.format(export=export, port=port, origin=site.url)
    async with nginx_server.running(tmp_path, config, port):
        for path, expected in (
            ("/", "Home"), ("/lamps", "Lamps"), ("/lamps/", "Lamps"), ("/lamps/arc", "Arc"),
            ("/a%20b", "Space"),
        ):  # fmt: skip
            assert await title(path, GOOGLEBOT) == expected
            assert await title(path, CHROME) == "the application"
        for path in (
            "/lamps?page=2", "/missing", "/app.js", "/prerender-static.json",
            "/nginx-static-http.conf", "/Lamps",
        ):  # fmt: skip
            assert await title(path, GOOGLEBOT) == "the application", path
        assert await title("/lamps", f"{CHROME} like Googlebot") == "the application"
        async with client.get(f"http://127.0.0.1:{port}/.prerender-static/lamps") as answer:
            assert answer.status == 404
        # Each known crawler of the preset is recognized, as by the proxy.
        named = [one for one in built_in().crawlers if one.crawler in PRESETS["ai"]]
        for one in named[:: len(named) // 20]:
            anchored = one.name.startswith("^")
            agent = f"{one.name[1:]} 1.0" if anchored else f"Mozilla/5.0 (compatible; {one.name})"
            assert await title("/lamps", agent) == "Lamps", one.name

    owners = export / "lamps/mine/index.html"
    owners.parent.mkdir()
    owners.write_text("the owner's")
    ended = await _export(site, export, ["/", "/lamps/mine"])
    assert ended.status == 1
    assert f"{owners} exists, and is not of an export" in ended.out.decode()
    assert owners.read_text() == "the owner's"
    assert not (export / "lamps/index.html").exists()
    assert not (export / "lamps/arc").exists()
    index = export / "prerender-static.json"
    assert json.loads(index.read_text())["files"] == ["index.html"]
    index.write_text('{"files": ["../x.html"]}')
    ended = await _export(site, export, ["/"])
    assert ended.err.endswith("prerender-static.json: is not the index of a static export\n")


@pytest.mark.ci_only
async def test_applications_start_from_the_files(site: Site, tmp_path: Path) -> None:
    export = tmp_path / "static"
    ended = await _export(site, export, ["/lamps"], "--keep-scripts")
    assert ended.status == 0, ended.out
    html = (export / "lamps/index.html").read_text("utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert "<title>Lamps</title>" in html
    assert '<div id="app"><h1>Lamps</h1>' in html
    assert html.count('<script src="/app.js"></script>') == 1
    # What scripts add elsewhere, they add again.
    assert "dialog" not in html
    port = raw.free_port()
    config = f"""server {{ listen 127.0.0.1:{port}; root {export};
      location /lamps {{ try_files $uri/index.html =404; types {{ }} default_type text/html; }}
      location / {{ proxy_pass {site.url}; }} }}"""
    async with nginx_server.running(tmp_path, config, port):
        ended = await run("render", f"http://127.0.0.1:{port}/lamps")
    started = ended.out.decode()
    assert started.count("<h1>Lamps</h1>") == started.count(">dialog</div>") == 1


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("/", "index.html"),
        ("/a", "a/index.html"),
        ("/a/", "a/index.html"),
        ("/a.html", "a.html"),
        ("/%C3%A4?x", "ä/index.html"),
        ("/a/%2e%2e/%2e%2e/etc", None),
        ("/.git/a", None),
        ("/a//b", None),
        ("//a", None),
        ("/a%00", None),
        ("/a%5Cb", None),
        (f"/{'x' * 256}", None),
    ],
)
def test_files_of_pages(path: str, file: str | None) -> None:
    assert file_of(path) == file


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("path", "other", "problem"),
    [
        ("/a", "/a/", "/a has the same file, a/index.html"),
        ("/a/", "/a", "/a/ has the same file, a/index.html"),
        ("/b.html", "/b.html/c", "a part of .*/b.html/c is a file"),
        ("/b.html", "/b.html/c/d", "a part of .*/b.html/c/d is a file"),
        ("/b.html/c", "/b.html", "b.html is a folder"),
    ],
)
def test_pages_that_need_the_same_name(
    tmp_path: Path, path: str, other: str, problem: str, *, again: bool
) -> None:
    """The first one gets it, and the second one is a page that cannot be exported, not an end."""
    for _ in range(2 if again else 1):
        files = StaticFiles.create(tmp_path, "https://www.example.com")
        files.add(*page_of(path))
        with pytest.raises(ValueError, match=f"{problem}$"):
            files.add(*page_of(other))
        files.finish({})
    name = file_of(path)
    assert name is not None
    assert (tmp_path / name).read_bytes() == path.encode()
    assert [file.name for file in tmp_path.rglob("*.html*") if file.is_file()] == [
        name.rpartition("/")[2]
    ]


def page_of(path: str) -> tuple[Target, Snapshot, float]:
    target = Target.of(URL("https://www.example.com"), PrettyURL(path, ""))
    return target, Snapshot(200, (), path.encode(), '"1"', 0), 0.0


@pytest.mark.parametrize(
    ("made", "document", "expected"),
    [
        # Without a mount point, the scripts of the body are at its end.
        (
            "<head><title>t</title></head><body><p>new</p></body>",
            "<head><script>h()</script></head><body><p>old</p><script>b()</script></body>",
            "<head><title>t</title><script>h()</script></head>"
            "<body><p>new</p><script>b()</script></body>",
        ),
        # A page that is rendered by its server stays as it came.
        (
            "<head></head><body><div id=a><b>same</b></div><div id=b>1</div></body>",
            "<head></head><body><div id=a>same</div><div id=b></div><script>b()</script></body>",
            '<head></head><body><div id="a">same</div><div id="b">1</div><script>b()</script></body>',
        ),
        # Structured data is that of the snapshot; a mount point with a script is not filled.
        (
            "<head><script type='application/ld+json'>1</script></head>"
            "<body><div id=a>text</div></body>",
            "<head><script type='application/ld+json'>0</script></head>"
            "<body><div id=a><script>a()</script></div></body>",
            '<head><script type="application/ld+json">1</script></head>'
            '<body><div id="a">text</div><script>a()</script></body>',
        ),
    ],
)
def test_scripts_in_their_places(made: str, document: str, expected: str) -> None:
    found = merged(f"<html>{made}</html>".encode(), f"<html>{document}</html>".encode()).decode()
    assert found == f"<!DOCTYPE html><html>{expected}</html>\n"
