"""The guides in docs/, tried with applications of their frameworks."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from tests.conftest import StartOrigin, StartProxy, pages
from tests.sites.frameworks import origin
from tests.sites.frameworks.routes import ROUTES
from tests.support import nginx_server, raw
from tests.support.commands import ROOT

DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples/nginx"
FRAMEWORKS = {"react": "react19", "vue": "vue3", "angular": "angular", "svelte": "svelte5"}
GPTBOT = {"User-Agent": "Mozilla/5.0 (compatible; GPTBot/1.3; +https://openai.com/gptbot)"}


def settings_of(page: str) -> dict[str, Any]:
    """The first settings on a page, without the address of the origin."""
    found = re.search(r"```toml\n(.*?)```", (DOCS / f"{page}.md").read_text("utf-8"), re.DOTALL)
    assert found
    settings = tomllib.loads(found[1])
    assert settings.pop("origin") == {"url": "http://127.0.0.1:3000"}
    return settings


def example(name: str, **addresses: str) -> str:
    """An example of nginx with addresses replaced."""
    text = (EXAMPLES / name).read_text("utf-8")
    for old, new in addresses.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.ci_only
async def test_applications_behind_nginx(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path, client: ClientSession
) -> None:
    """Built files and the API come from nginx, and crawlers get snapshots, as the guides say."""
    settings = settings_of("react")
    assert all(settings_of(page) == settings for page in (*FRAMEWORKS, "angularjs"))
    api = await start_origin(origin.application())
    port = raw.free_port()
    # Each application is in a folder of its own here.
    served = example(
        "origin.conf",
        **{
            "127.0.0.1:3000": f"127.0.0.1:{port}",
            "http://127.0.0.1:4000": api.url,
            "/var/www/app": str(origin.BUILT),
            "/index.html": "/$application/index.html",
            "location /assets/": "location ~ ^/[^/]+/assets/",
        },
    )
    # Debian's nginx.conf has these types.
    named = (
        'map $uri $application { "~^/([^/]+)/" $1; }\n'
        "types { text/html html; text/javascript js; text/css css; }\n"
    )
    async with nginx_server.running(tmp_path, named + served, port):
        proxy = await start_proxy(f"http://127.0.0.1:{port}", settings)
        for folder in FRAMEWORKS.values():
            for route in (one for one in ROUTES if one.path.startswith(f"/{folder}/")):
                if route.path.endswith(("/birds", "/nowhere")):
                    path = route.path.replace("#!", "?_escaped_fragment_=")
                    async with client.get(proxy.url + path, headers=GPTBOT) as answer:
                        problem = route.problem(await answer.text())
                        assert (answer.status, problem) == (route.status, ""), path
        async with client.get(f"{proxy.url}/react19/assets/of-last-week.js") as answer:
            assert answer.status == 404


async def test_a_static_host_gets_its_own_name(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    host = await pages(start_origin, {"/": "<p>static"})
    port = raw.free_port()
    addresses = {"127.0.0.1:3000": f"127.0.0.1:{port}", "https://example.netlify.app": host.url}
    async with nginx_server.running(tmp_path, example("static-host.conf", **addresses), port):
        proxy = await start_proxy(f"http://127.0.0.1:{port}", settings_of("static-hosts"))
        async with proxy.client.get(proxy.url, headers={"Host": "www.example.com"}) as answer:
            assert "static" in await answer.text()
    assert host.requests[-1].headers["Host"] == "example.netlify.app"


@pytest.mark.parametrize("listed", [True, False])
async def test_an_api_at_another_port_is_listed(
    listed: bool, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    allowed = web.Response(text="[]", headers={"Access-Control-Allow-Origin": "*"})
    api = await pages(start_origin, {"/birds": allowed})
    script = f"fetch('{api.url}/birds').then(r => document.body.append('Birds ' + r.status))"
    site = await pages(start_origin, {"/": f"<p>Text<script>{script}</script>"})
    # Otherwise the name of the origin, which is that of the API, would be the site's.
    settings = settings_of("react") | {"network": {"allow": [api.url] if listed else []}}
    answer = await (await start_proxy(site.url, settings)).crawl("/")
    assert (answer.status, "Birds 200" in answer.text) == ((200, True) if listed else (200, False))


async def test_pages_of_wordpress_that_are_not_rendered(
    start_origin: StartOrigin, start_proxy: StartProxy, client: ClientSession
) -> None:
    text = "<p>plain<script>document.write('+')</script>"
    excluded = ("/wp-admin/index.php", "/wp-login.php", "/cart/", "/my-account/orders")
    site = await pages(start_origin, dict.fromkeys((*excluded, "/a-post/"), text))
    found = re.search(r"```toml\n(.*?)```", (DOCS / "wordpress.md").read_text("utf-8"), re.DOTALL)
    assert found
    settings = tomllib.loads(found[1])
    del settings["origin"]
    proxy = await start_proxy(site.url, settings)
    for path in (*excluded, "/a-post/"):
        async with client.get(proxy.url + path, headers=GPTBOT) as answer:
            assert ("plain+" in await answer.text()) == (path == "/a-post/"), path
