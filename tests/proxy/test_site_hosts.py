"""Which host names get snapshots."""

import pytest

from prerender.proxy.site_hosts import SiteHosts
from prerender.urls.hosts import Hosts
from tests.conftest import StartOrigin, StartProxy, pages

SITE = SiteHosts("www.example.com", Hosts(["shop.example.com", "*.example.net"]))


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("www.example.com", True),
        ("WWW.example.com.:8080", True),
        ("shop.example.com", True),
        ("a.example.net", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("[::1]", True),
        ("prerender:8080", True),
        ("", True),
        ("example.com", False),
        ("www.example.com.evil.example", False),
        ("evil.example:443", False),
    ],
)
def test_hosts_of_the_site(host: str, own: bool) -> None:
    assert (host in SITE) == own
    assert host in SiteHosts("", Hosts(), guess="app:3000")


async def test_other_hosts_are_forwarded(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(
        start_origin, {"/": "<p id=o>shell</p><script>o.textContent = 'made'</script>"}
    )
    settings = {"site": {"url": "https://www.example.com"}, "triggers": {"preset": "crawlers"}}
    proxy = await start_proxy(origin.url, settings)
    for path, agent in (("/?_escaped_fragment_=", "any"), ("/", "Googlebot/2.1")):
        own = await proxy.get(path, headers={"Host": "www.example.com", "User-Agent": agent})
        foreign = await proxy.get(path, headers={"Host": "example.com", "User-Agent": agent})
        assert ">made<" in own.text
        assert ">shell<" in foreign.text
