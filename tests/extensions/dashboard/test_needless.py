"""Sections whose pages show the same without scripts are named, with the setting that excludes them."""

import json
from collections.abc import Iterable

from multidict import CIMultiDict
from yarl import URL

from prerender.extensions.dashboard.needless import Needless
from prerender.gateway.document import Document
from prerender.snapshots.snapshot import Facts, Snapshot
from prerender.snapshots.target import Target
from prerender.telemetry.config_notices import Notices
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import StartOrigin, StartProxy, pages
from tests.support.programs import run

LOREM = "A page about lamps, bulbs and lights of all kinds, with much text for its readers. " * 3
STATIC = (
    "<!doctype html><title>Lamps</title><meta name=description content=Lamps><link rel=icon href=/i>"
    "<noscript><img src=/count></noscript><h1>Lamps</h1><a href=/blog/2?a=1&amp;b=2>More</a>"
    f"<p>{LOREM}<script>document.cookie = 'a=1'</script>"
)
APPLICATION = f"{STATIC}<script>document.body.append('Only with scripts')</script>"
PUBLIC = URL("https://www.example.com")


def named(paths: Iterable[str], *, changed: str = "", facts: Facts = Facts()) -> list[str]:
    """The remedies after renders of static pages, except that scripts have an effect on one."""
    notices = Notices()
    needless = Needless(notices)
    for path in paths:
        document = Document(200, CIMultiDict({"Content-Type": "text/html"}), STATIC.encode())
        html = STATIC.replace("Lamps</title>", "3 lamps</title>") if path == changed else STATIC
        snapshot = Snapshot(200, (), html.encode(), '"a"', 0, facts=facts)
        needless.built(snapshot, Target.of(PUBLIC, PrettyURL(path, "")), document)
        needless.rendered(None)  # type: ignore[arg-type]
    return [notice.remedy for notice in notices]


def test_sections_without_a_difference_are_named() -> None:
    blog = [f"/blog/{n}?page=2" for n in range(10)]
    assert named(blog) == ['add "/blog/*" to [triggers] exclude']
    assert named(blog[:9]) == []
    assert named(["/about"] * 10 + blog) == ['add "/about", "/blog/*" to [triggers] exclude']


def test_one_difference_is_enough() -> None:
    blog = [f"/blog/{n}" for n in range(33)]
    assert named(blog, changed="/blog/5") == []
    assert named(blog, changed="/blog/32") == []
    assert named([f"/blog/{n}" for n in range(20)], facts=Facts("incomplete")) == []


async def test_check_names_them(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    site = {"/blog/1": STATIC, "/blog/2": STATIC, "/app/1": APPLICATION, "/app/2": STATIC}
    links = "".join(f"<a href={path}>a page</a>" for path in site)
    origin = await pages(start_origin, {"/": f"{APPLICATION}{links}", **site})
    settings = {"site": {"url": origin.url}, "triggers": {"preset": "crawlers"}}
    proxy = await start_proxy(origin.url, settings)
    ended = await run("check", f"{origin.url}/", "--json", "--no-browser", "--via", proxy.url)
    found = {one["code"]: one["text"] for one in json.loads(ended.out)["findings"]}
    assert found["render-needless"] == (
        "the snapshots of all 3 pages like /blog/* show what the origin's HTML shows without "
        'scripts: add "/blog/*" to [triggers] exclude'
    )
