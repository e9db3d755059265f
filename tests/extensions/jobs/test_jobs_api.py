"""The API of jobs, with a browser: lists and sitemaps, results, and what is refused."""

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from tests.conftest import Site, StartOrigin, StartProxy
from tests.extensions.dashboard.test_api import Api
from tests.support.serve_command import StartCommand

PAGE = "<title>Lamps</title><main></main><script>document.write('of steel')</script>"


@pytest.fixture
async def site(start_origin: StartOrigin) -> Site:
    async def page(request: web.Request) -> web.Response:
        path = request.path
        if path == "/sitemap.xml":
            maps = "".join(f"<sitemap><loc>{own.url}/{n}.gz</loc></sitemap>" for n in (1, 2))
            return web.Response(text=f"<sitemapindex>{maps}</sitemapindex>")
        if path == "/1.gz":
            urls = ("/#!a", "/#!b", "/#!a", "https://other.example/")
            locs = "".join(f"<url><loc>{own.url if one[0] == '/' else ''}{one}</loc>"
                           "<lastmod>garbage</lastmod></url>" for one in urls)  # fmt: skip
            return web.Response(body=gzip.compress(f"<urlset>{locs}</urlset>".encode()))
        if path == "/moved":
            raise web.HTTPFound("/")
        status = {"/gone": 404, "/down": 503, "/2.gz": 500}.get(path, 200)
        return web.Response(text=PAGE, content_type="text/html", status=status)

    app = web.Application()
    app.router.add_get("/{path:.*}", page)
    own = await start_origin(app)
    return own


async def ended(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while (job := await api.get(f"/jobs/{job['id']}"))["state"] not in ("done", "cancelled"):
            await asyncio.sleep(0.05)
    return job


async def test_jobs(site: Site, start_proxy: StartProxy) -> None:
    proxy = await start_proxy(site.url)
    api = Api(proxy)
    assert await api.get("/jobs") == {"kept_in": "memory", "items": []}

    made = await api.post("/jobs", {"url": ["/#!x", "/gone", f"{site.url}/#!x", "/moved"]})
    assert (made["pages"], made["duplicates"], made["priority"]) == (3, 1, "normal")
    job = await ended(api, made)
    assert job["outcomes"] == {"rendered": 1, "missing": 1, "redirected": 1}
    pages = (await api.get(f"/jobs/{job['id']}/pages?outcome=missing"))["items"]
    assert [(one["url"], one["status"]) for one in pages] == [(f"{site.url}/gone", 404)]
    assert (await proxy.crawl("/#!x")).headers["Cache-Status"].startswith("prerender; hit")

    job = await ended(api, await api.post("/jobs", {"sitemap": "/sitemap.xml", "stale_only": True}))
    assert job["outcomes"] == {"rendered": 2, "invalid": 1}
    assert job["duplicates"] == 1
    assert job["note"] == f"{site.url}/2.gz: status 500"
    again = {"url": ["/#!a", "/#!b"], "lastmod": [None, 4e9], "stale_only": True}
    job = await ended(api, await api.post("/jobs", again))
    assert job["outcomes"] == {"fresh": 1, "rendered": 1}

    made = await api.post("/jobs", {"url": [f"/{n}" for n in range(1500)], "priority": "low"})
    cancelled = await api.ask("DELETE", f"/jobs/{made['id']}")
    assert cancelled["state"] == "cancelled"
    assert cancelled["waiting"]
    listed = await api.get(f"/jobs/{made['id']}/pages?outcome=waiting&limit=1000")
    assert len(listed["items"]) == 1000
    assert len((await api.get("/jobs"))["items"]) == 4
    async with proxy.client.get(f"{proxy.admin_url}/metrics") as response:
        metrics = await response.text()
    assert 'prerender_job_pages_total{outcome="missing"} 1.0' in metrics


async def test_what_is_refused(site: Site, start_proxy: StartProxy) -> None:
    api = Api(await start_proxy(site.url))
    wrong: list[tuple[object, str]] = [
        ({}, "give either url or sitemap"),
        ({"url": ["/"], "sitemap": ["/s.xml"]}, "give either url or sitemap"),
        ({"url": [1]}, "url: 1: give a string"),
        ({"url": ["/"] * 100_001}, "give at most 100000"),
        ({"sitemap": ["https://other.example/s.xml"]}, f"give a URL of {site.url}, or a path"),
        ({"url": ["/"], "lastmod": [1, 2]}, "lastmod: give as many as URLs"),
        ({"url": ["/"], "rate": -1}, "rate: -1: give at least 0"),
        ({"url": ["/"], "priority": "now"}, "priority: 'now': give "),
        ({"urls": ["/"]}, "'urls' is unknown"),
    ]
    for body, message in wrong:
        assert message in (await api.post("/jobs", body, 400))["detail"]
    for path in ("/jobs/none", "/jobs/none/pages"):
        await api.get(path, 404)
    await api.ask("DELETE", "/jobs/none", 404)


@pytest.mark.long
async def test_a_job_survives_kill_9(
    site: Site, start_command: StartCommand, client: ClientSession, tmp_path: Path
) -> None:
    settings = {"CACHE_URL": f"file://{tmp_path}/store"}
    proxy = await start_command(site.url, **settings)
    await proxy.ready(client)
    body = {"url": [f"/#!{n}" for n in range(12)]}

    async def state(url: str) -> dict[str, Any]:
        async with client.get(f"{url}/api/v1/jobs") as response:
            return (await response.json())["items"][0]  # type: ignore[no-any-return]

    async with client.post(f"{proxy.admin_url}/api/v1/jobs", json=body) as response:
        assert response.status == 200
    async with asyncio.timeout(60):
        while not (await state(proxy.admin_url))["outcomes"].get("rendered"):
            await asyncio.sleep(0.01)
    proxy.process.kill()
    await proxy.process.wait()
    after = await start_command(site.url, **settings)
    await after.ready(client)
    async with asyncio.timeout(60):
        while (job := await state(after.admin_url))["state"] != "done":
            await asyncio.sleep(0.05)
    assert job["outcomes"] == {"rendered": 12}
