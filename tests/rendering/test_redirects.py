"""Pages that redirect their visitors, and pages that only seem to."""

import asyncio
import time

import pytest
from aiohttp import web

from prerender.gateway.resource_kind import replaces_page
from tests.conftest import StartOrigin, StartProxy, pages
from tests.support.plain_browser import plain_browser

SITE = "https://www.example.com"
REDIRECTS = {
    "location": ("location.href = '/b?x=1#!state'", f"{SITE}/b?x=1#!state"),
    "later": ("setTimeout(() => { location.href = '/b'; }, 3000)", f"{SITE}/b"),
    "replace": ("location.replace('/b')", f"{SITE}/b"),
    "ugly": ("location.replace('/b?_escaped_fragment_=q%26z')", f"{SITE}/b#!q&z"),
    "form": ("document.forms[0].submit()", f"{SITE}/b?a="),
    "other site": ("location.href = 'https://other.example/x'", "https://other.example/x"),
}
NOT_REDIRECTS = {
    "fragment": "location.hash = '!other'",
    "pushState": "history.pushState({}, '', '/pushed')",
    "replaceState": "history.replaceState({}, '', '/replaced')",
    "data URL": "location.href = 'data:text/html,foreign'",
    "javascript URL": "location.href = 'javascript:void(0)'",
    "mail": "location.href = 'mailto:nobody@example.com'",
    "one reload": "if (!sessionStorage.again) { sessionStorage.again = 1; location.reload(); }",
    "opened window": "window.open('/b')",
    "frame": "document.forms[0].target = 'frame'; document.forms[0].submit()",
}
PAGE = '<p>here</p><iframe name="frame"></iframe><form action="/b"><input name="a"></form>'


def _content(scripts: dict[str, str]) -> dict[str, str]:
    bodies = {f"/{i}": f"{PAGE}<script>{js}</script>" for i, js in enumerate(scripts.values())}
    return bodies | {"/b": "<p>the other page", "/after": "<p id=o></p><script>setTimeout("
        "() => { o.textContent = 'complete'; }, 5000)</script>"}  # fmt: skip


@pytest.mark.ci_only
async def test_scripts_that_redirect(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(start_origin, _content({k: js for k, (js, _) in REDIRECTS.items()}))
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}, "browser": {"pages": 1}})
    for number, (name, (_, location)) in enumerate(REDIRECTS.items()):
        answer = await proxy.crawl(f"/{number}")
        assert (answer.status, answer.headers.get("Location")) == (302, location), name
        # The page is as good as new: nothing of the interrupted render is left in its clock.
        assert "complete" in (await proxy.crawl(f"/after#!{number}")).text, name


async def test_meta_refresh(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    refresh = '<meta http-equiv="refresh" content="{}"><p>here'
    content = {"/now": refresh.format("0; url=/b"), "/again": refresh.format("300"), "/b": "<p>b"}
    origin = await pages(start_origin, content)
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}})
    answer = await proxy.crawl("/now")
    assert (answer.status, answer.headers["Location"]) == (302, f"{SITE}/b")
    assert answer.headers["Cache-Control"] == "no-cache"
    assert (await proxy.crawl("/again")).status == 200


@pytest.mark.parametrize("control", ["no-store", "private, max-age=60", "max-age=60"])
async def test_redirects_that_no_cache_may_store(
    control: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    headers = {"Cache-Control": control}
    script = f"<p>here<script>{REDIRECTS['location'][0]}</script>"
    content: dict[str, str | web.Response] = {
        "/moved": web.Response(status=301, headers={"Location": "/b", **headers}),
        "/script": web.Response(text=script, content_type="text/html", headers=headers),
        "/b": "<p>b",
    }
    proxy = await start_proxy((await pages(start_origin, content)).url, {"site": {"url": SITE}})
    for path, status in (("/moved", 301), ("/script", 302)):
        answer = await proxy.crawl(path)
        assert answer.status == status
        expected = "no-cache" if control == "max-age=60" else "no-store"
        assert answer.headers["Cache-Control"] == expected


COUNTDOWN = "let left = 5; setInterval(() => { if (!--left) location.href = '/b' }, 1000)"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("<script>location.replace('/b')</script>", 302),
        ('<meta http-equiv="refresh" content="0; url=/b">', 302),
        ("<script>setTimeout(() => location.replace('/b'), 3000)</script>", 404),
        (f"<script>{COUNTDOWN}</script>", 404),
        ('<meta http-equiv="refresh" content="5; url=/b">', 404),
    ],
)
async def test_an_error_page_redirects_only_at_once(
    body: str, status: int, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    gone = web.Response(status=404, text=f"{body}<p>no such page", content_type="text/html")
    origin = await pages(start_origin, {"/a": gone, "/b": "<p>b"})
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}})
    answer = await proxy.crawl("/a")
    assert answer.status == status
    if status == 404:
        assert "no such page" in answer.text
    else:
        assert answer.headers["Location"] == f"{SITE}/b"


# How a placeholder with status 404 loads itself again.
AGAIN = {
    "location": "location.href = location.href",
    "replace": "location.replace(location.pathname)",
    "cache-buster": "location.search = '?v=' + Date.now()",
    "form": "document.forms[0].submit()",
}


@pytest.mark.parametrize("name", AGAIN)
async def test_an_error_page_may_load_itself_again(
    name: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    application = web.Application()
    script = f"setTimeout(() => {{ document.cookie = 'made=1'; {AGAIN[name]} }}, 3000)"
    placeholder = f"<p>wait<form method=post></form><script>{script}</script>"

    async def respond(request: web.Request) -> web.Response:
        made = "made" in request.cookies
        text, status = ("<p>made", 200) if made else (placeholder, 404)
        return web.Response(text=text, status=status, content_type="text/html")

    application.router.add_route("*", "/a", respond)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}})
    answer = await proxy.crawl("/a")
    assert "<p>made" in answer.text


@pytest.mark.parametrize("start", ["{}", "addEventListener('load', () => {{ {} }})"])
async def test_an_error_page_may_handle_its_navigations(
    start: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """The 404.html of a static host, with an application whose router uses the Navigation API."""
    listen = """navigation.addEventListener('navigate', (event) => event.intercept({
      async handler() { o.append('view') }
    }))"""
    script = f"{start.format(listen)}; setTimeout(() => {{ location.href = '/view' }}, 3000)"
    text = f"<p id=o></p><script>{script}</script>"
    fallback = web.Response(status=404, text=text, content_type="text/html")
    origin = await pages(start_origin, {"/a": fallback})
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}})
    assert ">view<" in (await proxy.crawl("/a")).text


SAVED = {"Content-Disposition": 'attachment; filename="a.txt"'}
# Responses for which a browser does not leave its page.
NOT_SHOWN = {
    "/nothing": web.Response(status=204),
    "/attachment": web.Response(text="a", headers=SAVED),
    "/archive": web.Response(body=bytes(100), content_type="application/zip"),
    "/table": web.Response(text="a,b", content_type="text/csv"),
    "/redirect": web.Response(status=302, headers={"Location": "/archive"}),
}


async def test_a_page_that_a_browser_does_not_leave_is_no_redirect(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    content = {
        f"/page{path}": f"<p>here<script>setTimeout(() => {{ location = '{path}' }}, 500)</script>"
        for path in NOT_SHOWN
    }
    refresh = {"/refresh": '<meta http-equiv="refresh" content="3; url=/archive"><p>here'}
    origin = await pages(start_origin, {**NOT_SHOWN, **content, **refresh})
    proxy = await start_proxy(origin.url, {"network": {"max_response_bytes": 50}})
    for path in (*content, "/refresh"):
        answer = await proxy.crawl(path)
        assert (answer.status, "<p>here" in answer.text) == (200, True), path
        assert "stored; ttl=3600" in answer.headers["Cache-Status"], path


@pytest.mark.parametrize("part", ["<img src=/hanging>", "<iframe src=/hanging></iframe>"])
async def test_a_page_stays_while_it_still_loads(
    part: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    application = web.Application()
    ended = asyncio.Event()

    async def respond(request: web.Request) -> web.Response:
        if request.path == "/hanging":
            await ended.wait()
        if request.path != "/":
            return web.Response(text="a", headers=SAVED)
        text = f"<p>here{part}<script>location = '/attachment'</script>"
        return web.Response(text=text, content_type="text/html")

    application.router.add_get("/{path:.*}", respond)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}, "render": {"patience": "0.5s"}})
    try:
        async with asyncio.timeout(15):
            answer = await proxy.crawl("/")
    finally:
        ended.set()
    assert (answer.status, "<p>here" in answer.text) == (200, True)


async def test_a_page_goes_where_a_browser_goes(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    back = {"Location": "/bounced", "Set-Cookie": "known=1; Path=/"}
    content: dict[str, str | web.Response] = {
        "/a.pdf": web.Response(body=b"%PDF-", content_type="application/pdf"),
        "/nothing": web.Response(status=204),
        "/to-a-pdf": "<script>location = '/a.pdf'</script>",
        "/download-first": "<script>location = '/nothing'; setTimeout(() => { location = '/b#c' }, 500)"
        "</script>",
        "/b": "<script>document.cookie = 'another=page'</script>",
        # By way of another page, which only sets a cookie.
        "/bounced": "<p id=o></p><script>document.cookie ? o.append('known') : location = '/set'"
        "</script>",
        "/set": web.Response(status=302, headers=back),
    }
    origin = await pages(start_origin, content)
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}, "browser": {"pages": 1}})
    for path, location in (("/to-a-pdf", "/a.pdf"), ("/download-first", "/b#c")):
        answer = await proxy.crawl(path)
        assert (answer.status, answer.headers["Location"]) == (302, f"{SITE}{location}")
    answer = await proxy.crawl("/bounced")
    assert (answer.status, ">known<" in answer.text) == (200, True)


# Responses to a page that posts a form by itself, and what it becomes: status, Location, whether it is
# shown.
POSTED: dict[str, tuple[int, dict[str, str], tuple[int, str | None, bool]]] = {
    "download": (200, SAVED, (200, None, True)),
    "back": (303, {"Location": "/", "Set-Cookie": "a=b"}, (200, None, True)),
    "on": (302, {"Location": "/b#!c"}, (302, "/b#!c", False)),
    "repeated": (307, {"Location": "/b"}, (503, None, False)),
    "page": (200, {"Content-Type": "text/html"}, (503, None, False)),
    "refused by the policy": (204, {}, (200, None, True)),
}


@pytest.mark.parametrize("name", POSTED)
@pytest.mark.parametrize("site", [SITE, "http://www.example.com"])
async def test_a_form_that_is_posted(
    name: str, site: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    posted, headers, (status, location, shown) = POSTED[name]
    policy = {"Content-Security-Policy": "form-action 'none'"} if "policy" in name else {}
    application = web.Application()
    form = "<form method=post action=/posted><input name=a value=b></form>"

    async def respond(request: web.Request) -> web.Response:
        if request.path == "/posted":
            assert (request.method, await request.text()) == ("POST", "a=b")
            return web.Response(status=posted, text="<p>b", headers=headers)
        script = "" if request.cookies else "<script>document.forms[0].submit()</script>"
        text = f"<p>here{form}{script}"
        return web.Response(text=text, content_type="text/html", headers=policy)

    application.router.add_route("*", "/{path:.*}", respond)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, {"site": {"url": site}})
    answer = await proxy.crawl("/")
    assert (answer.status, "<p>here" in answer.text) == (status, shown)
    assert answer.headers.get("Location") == (location and site + location)


# What the page does while it waits for another page.
REPLACED = {
    "another": ("location = '/b'", (302, f"{SITE}/b")),
    "a download": ("location = '/nothing'", (200, None)),
    "itself": ("document.cookie = 'a=b'; location.reload()", (200, None)),
}


@pytest.mark.parametrize("name", REPLACED)
async def test_the_last_navigation_counts(
    name: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    script, expected = REPLACED[name]
    leaving = f"""onload = () => setTimeout(() => {{
        location = "/slow"; fetch("/data").then(() => {{ {script} }});
    }})"""
    application = web.Application()
    asked, ended = asyncio.Event(), asyncio.Event()

    async def respond(request: web.Request) -> web.Response:
        match request.path:
            case "/slow":
                asked.set()
                await ended.wait()
            case "/data":
                await asked.wait()
            case "/nothing":
                return web.Response(status=204)
        text = "<p>here" if request.cookies else f"<p>here<script>{leaving}</script>"
        return web.Response(text=text, content_type="text/html")

    application.router.add_get("/{path:.*}", respond)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}, "browser": {"pages": 1}})
    try:
        async with asyncio.timeout(15):
            answer = await proxy.crawl("/")
    finally:
        ended.set()
    assert (answer.status, answer.headers.get("Location")) == expected


@pytest.mark.ci_only
async def test_scripts_that_stay(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(start_origin, _content(NOT_REDIRECTS))
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}, "browser": {"pages": 1}})
    for number, name in enumerate(NOT_REDIRECTS):
        answer = await proxy.crawl(f"/{number}")
        assert answer.status == 200, name
        assert "<p>here</p>" in answer.text, name
        assert "foreign" not in answer.text, name


@pytest.mark.parametrize(
    "script",
    [
        "location.href = URL.createObjectURL(new Blob(['foreign'], {type: 'text/html'}))",
        "location.href = 'about:blank'",
    ],
)
async def test_a_page_that_is_not_of_the_site_is_no_snapshot(
    script: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, _content({"leave": script}))
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}, "browser": {"pages": 1}})
    answer = await proxy.crawl("/0")
    assert answer.status == 503
    assert "foreign" not in answer.text
    assert "complete" in (await proxy.crawl("/after")).text


async def test_a_reload_past_caches_is_the_same_page(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    reload = "if (!location.search) location = '?v=' + Date.now() + {}; else o.append('new')"
    scripts = {
        "": reload.format("location.hash"),
        "state": reload.format("'#!/home'"),
        "way": "if (!location.search) location = '/set'; else o.append('new')",
        "move": f"{reload.format('String()')}, history.replaceState(0, '', '/new' + location.search)",
    }
    content: dict[str, str | web.Response] = {
        f"/{path}": f"<p id=o></p><script>{script}</script>" for path, script in scripts.items()
    }
    back = {"Location": f"/way?v={time.time():.0f}"}
    content["/set"] = web.Response(status=302, headers=back)
    origin = await pages(start_origin, content)
    settings = {"site": {"url": SITE}, "snapshot": {"add_canonical": True}}
    proxy = await start_proxy(origin.url, settings)
    for asked, canonical in (
        ("/", "/"),
        ("/#!/items/3", "/#!/items/3"),
        ("/way", "/way"),
        ("/move", "/new"),
        ("/state#!/items/3", "/state#!/home"),
    ):
        answer = await proxy.crawl(asked)
        assert (answer.status, ">new<" in answer.text) == (200, True), asked
        assert f'<link rel="canonical" href="{SITE}{canonical}">' in answer.text, answer.text
        assert "v=" not in answer.text, asked


@pytest.mark.parametrize(
    ("asked", "location"),
    [
        ("/item?id=123456789", "/item?id=987654321"),
        ("/item", "/item?user=400012345678"),
    ],
)
async def test_a_page_with_another_id_is_another_page(
    asked: str, location: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    script = f"location.href.endsWith('{location}') || location.replace('{location}')"
    origin = await pages(start_origin, {"/item": f"<p>an item</p><script>{script}</script>"})
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}})
    answer = await proxy.crawl(asked)
    assert (answer.status, answer.headers.get("Location")) == (302, f"{SITE}{location}")


@pytest.mark.parametrize(
    "script", ["location.href = '/b?' + long", "history.replaceState(0, '', '/b?' + long)"]
)
async def test_a_url_that_is_too_long_for_a_redirect(
    script: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = f"<title>t</title><p>here<script>const long = 'x'.repeat(9000); {script}</script>"
    origin = await pages(start_origin, {"/a": page, "/b": "<p>b"})
    settings = {"site": {"url": SITE}, "snapshot": {"moved": "redirect"}}
    proxy = await start_proxy(origin.url, settings)
    answer = await proxy.crawl("/a")
    assert (answer.status, answer.headers.get("Location")) == (503, None)


@pytest.mark.parametrize(
    "script", ["location.reload()", "location.href = '/0'", "location.href = '/0?' + Date.now()"]
)
async def test_endless_reloads_end(
    script: str, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, _content({"loop": script}))
    proxy = await start_proxy(origin.url)
    assert (await proxy.crawl("/0")).status == 503
    assert origin.count("/0") < 10
    assert "complete" in (await proxy.crawl("/after")).text


# Not application/pdf, which headless browsers save.
TYPES = """
text/html text/plain text/css text/markdown text/x-anything text/xml text/json text/javascript
text/calendar text/x-calendar text/vcalendar text/x-vcalendar text/vcard text/x-vcard text/x-vcf
text/directory text/ldif text/qif text/x-qif text/rtf text/ofx text/csv text/x-csv text/tsv
text/comma-separated-values text/tab-separated-values text/vnd.sun.j2me.app-descriptor
text/x-ms-iqy text/x-ms-odc text/csv-schema
application/json application/ld+json application/xml application/rss+xml application/atom+xml
application/xhtml+xml application/rdf+xml application/gpx+xml application/javascript
application/x-javascript application/ecmascript application/ogg application/zip application/rtf
application/octet-stream application/wasm application/x-sh application/unknown unknown/unknown */*
image/jpeg image/png image/apng image/gif image/webp image/avif image/bmp image/svg+xml image/x-icon
image/vnd.microsoft.icon image/tiff image/heic image/vnd.dwg image/anything+xml
audio/mpeg audio/mp4 audio/ogg audio/wav audio/flac audio/midi audio/basic audio/aiff
video/mp4 video/webm video/ogg video/mpeg video/quicktime video/x-msvideo
multipart/mixed font/woff2 model/gltf+json anything
"""


async def test_a_browser_shows_the_same_types(start_origin: StartOrigin) -> None:
    """``replaces_page`` agrees with a browser."""
    types = TYPES.split()
    found = {
        f"/{number}": web.Response(body=b"text", headers={"Content-Type": media_type})
        for number, media_type in enumerate(types)
    }
    origin = await pages(start_origin, found)
    async with plain_browser() as browser:
        target = await browser.call("Target.createTarget", url="about:blank")
        page = await browser.attach(target["targetId"])
        shown = {}
        for number, media_type in enumerate(types):
            opened = await page.call("Page.navigate", url=f"{origin.url}/{number}")
            shown[media_type] = opened.get("errorText") != "net::ERR_ABORTED"
    expected = {
        media_type: replaces_page(200, {"Content-Type": f"{media_type}; charset=utf-8"})
        for media_type in types
    }
    assert expected == shown


LOCATIONS = {
    "/b?x=1&_escaped_fragment_=a%2520b": "/b?x=1#!a%20b",
    "/b": "/b#!/items/3",
    "c": "c#!/items/3",
    "?x=1": "?x=1#!/items/3",
    "?_escaped_fragment_=x": "/here#!x",
    "page?_escaped_fragment_=x": "page#!x",
    "http://www.example.com/b": "http://www.example.com/b#!/items/3",
    "http://www.example.com/b?_escaped_fragment_=x": "http://www.example.com/b#!x",
    f"{SITE}:8443/b?_escaped_fragment_=x": f"{SITE}:8443/b#!x",
    "https://example.com/": "https://example.com/#!/items/3",
    "/b#!/other": "/b#!/other",
    "http://a[::1]@/": "http://a[::1]@/#!/items/3",
    "http://[/": "http://[/",
}


async def test_redirects_of_the_origin(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    application = web.Application()

    async def moved(request: web.Request) -> web.Response:
        location = bytes.fromhex(request.query["to"]).decode()
        headers = {"Location": location, "Set-Cookie": "visited=1"}
        return web.Response(status=301, headers=headers)

    application.router.add_get("/here", moved)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, {"site": {"url": SITE}, "browser": {"pages": 1}})
    for location, pretty in {**LOCATIONS, f"{origin.url}/b": f"{SITE}/b#!/items/3"}.items():
        answer = await proxy.crawl(f"/here?to={location.encode().hex()}#!/items/3")
        assert (answer.status, answer.headers["Location"]) == (301, pretty), location
    # Without a state there is none to keep.
    answer = await proxy.crawl(f"/here?to={b'/b'.hex()}")
    assert answer.headers["Location"] == "/b"


async def test_a_browser_keeps_the_state_of_a_redirect(start_origin: StartOrigin) -> None:
    """``references.redirected`` agrees with a browser."""
    moved = web.Response(status=301, headers={"Location": "/b/"})
    other = web.Response(status=301, headers={"Location": "/b/#!/other"})
    origin = await pages(start_origin, {"/a": moved, "/c": other, "/b/": "<p>b"})
    async with plain_browser() as browser:
        target = await browser.call("Target.createTarget", url="about:blank")
        page = await browser.attach(target["targetId"])
        await page.call("Page.enable")
        for url, shown in (("/a#!/items/3", "/b/#!/items/3"), ("/c#!/items/3", "/b/#!/other")):
            loaded = page.expect("Page.loadEventFired")
            await page.call("Page.navigate", url=origin.url + url)
            async with asyncio.timeout(15):
                await loaded
            assert await page.evaluate("location.href") == origin.url + shown
