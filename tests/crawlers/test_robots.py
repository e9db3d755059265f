"""The scheme's opt-out: robots.txt rules about ugly URLs apply, and no others."""

import pytest
from aiohttp import web
from protego import Protego

from prerender.crawlers.robots import opt_out_of
from tests.conftest import StartOrigin, StartProxy, pages

OPT_OUT = "User-agent: *\nDisallow: /*_escaped_fragment_\n"
UGLY = "https://www.example.com/shop?_escaped_fragment_=/1"


@pytest.mark.parametrize(
    ("text", "url", "user_agent", "forbidden"),
    [
        (OPT_OUT, UGLY, "Googlebot/2.1", True),
        (OPT_OUT, UGLY, "", True),
        (OPT_OUT, "https://www.example.com/shop", "", False),
        ("User-agent: *\nDisallow: /*?_escaped_fragment_\n", UGLY, "", True),
        ("User-agent: *\nDisallow: /*?*_escaped_fragment_=\n", UGLY, "", True),
        ("user-agent: *\r\ndisallow: /*_escaped_fragment_\r\n", UGLY, "", True),
        ("User-agent: *\nDisallow: /news/*_escaped_fragment_\n", UGLY, "", False),
        (f"{OPT_OUT}Allow: /shop?_escaped_fragment_\n", UGLY, "", False),
        ("User-agent: bingbot\nDisallow: /*_escaped_fragment_\n", UGLY, "Googlebot/2.1", False),
        ("User-agent: bingbot\nDisallow: /*_escaped_fragment_\n", UGLY, "bingbot/2.0", True),
        (f"User-agent: *\nDisallow: /\nUser-agent: Googlebot\n{OPT_OUT}", UGLY, "Other", True),
    ],
)
def test_rules_about_ugly_urls(text: str, url: str, user_agent: str, forbidden: bool) -> None:
    rules = opt_out_of(text)
    assert rules is not None
    assert rules.can_fetch(url, user_agent) is not forbidden


@pytest.mark.parametrize(
    ("between", "closes"),
    [
        ("Disallow: /private", True),
        ("Allow: /", True),
        ("allow : / # all", True),
        ("Disallow:", True),
        ("Crawl-delay: 10", True),
        ("Content-Signal: ai-train=no", True),
        ("Sitemap: https://www.example.com/sitemap.xml\nDisallow: /private", True),
        ("Sitemap: https://www.example.com/sitemap.xml", False),
        ("Host: www.example.com", False),
        ("# Disallow: /private\n", False),
        ("User-agent: Slurp", False),
    ],
)
@pytest.mark.parametrize("field", ["User-agent", "user agent ", "Useragent"])
def test_a_group_without_rules_about_ugly_urls_is_not_part_of_the_next(
    between: str, closes: bool, field: str
) -> None:
    """Groups are those of the whole file."""
    text = f"User-agent: Googlebot\n{between}\n{field}: BadBot\nDisallow: /*_escaped_fragment_\n"
    for rules in (opt_out_of(text), Protego.parse(text)):
        assert rules is not None
        assert rules.can_fetch(UGLY, "Googlebot/2.1") is closes
        assert not rules.can_fetch(UGLY, "BadBot/1.0")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "User-agent: *\nDisallow: /\n",
        "<html>not found</html>",
        "\0\xff",
        "Disallow: /\n" * 1000,
    ],
)
def test_other_rules_are_not_for_us(text: str) -> None:
    assert opt_out_of(text) is None


def test_comments_are_no_rules() -> None:
    rules = opt_out_of("User-agent: *\nDisallow: / # not _escaped_fragment_\n")
    assert rules is None or rules.can_fetch(UGLY, "")


async def test_the_opt_out_is_heeded(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    # With the byte order mark that editors of Windows write.
    robots = web.Response(text="\ufeffUser-agent: *\nDisallow: /private*_escaped_fragment_\n")
    page = "<p id=out>shell</p><script>out.textContent = 'rendered'</script>"
    origin = await pages(start_origin, {"/robots.txt": robots, "/private": page, "/public": page})
    proxy = await start_proxy(origin.url, {"triggers": {"robots_opt_out": True}})
    for _ in range(2):
        assert ">shell<" in (await proxy.get("/private?_escaped_fragment_=")).text
        assert ">rendered<" in (await proxy.get("/public?_escaped_fragment_=")).text
    assert origin.count("/robots.txt") == 1

    heedless = await start_proxy(origin.url)
    assert ">rendered<" in (await heedless.get("/private?_escaped_fragment_=")).text


@pytest.mark.parametrize(
    ("query", "forbidden"),
    [
        ("?_escaped_fragment_=/private", True),
        ("?_escaped_fragment_=%2Fprivate", True),
        ("?_escaped_fragment_=/%70rivate/x", True),
        ("?utm_source=a&_escaped_fragment_=/private", True),
        ("?_escaped_fragment_=/caf%25c3%25a9", True),
        ("?_escaped_fragment_=%2Fpublic", False),
        ("?a=1&_escaped_fragment_=/private", False),
    ],
)
async def test_every_spelling_of_a_disallowed_state_is_disallowed(
    query: str, forbidden: bool, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    rule = "Disallow: /?_escaped_fragment_="
    robots = web.Response(text=f"User-agent: *\n{rule}/private\n{rule}/caf%C3%A9\n")
    page = "<p id=out>shell</p><script>out.textContent = 'rendered'</script>"
    origin = await pages(start_origin, {"/robots.txt": robots, "/": page})
    overrides = {"triggers": {"robots_opt_out": True}, "markdown": {"enabled": True}}
    proxy = await start_proxy(origin.url, overrides)
    assert (">shell<" in (await proxy.get(f"/{query}")).text) is forbidden
    answer = await proxy.get(f"/index.md{query}")
    assert (answer.status == 404) is forbidden
    assert forbidden or answer.headers["Vary"] == "Accept-Encoding, User-Agent"
    assert (await proxy.get("/index.md")).text.endswith("rendered\n")


async def test_caches_know_that_robots_txt_selects(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    robots = web.Response(text=f"User-agent: BadBot\n{OPT_OUT.partition(chr(10))[2]}")
    origin = await pages(start_origin, {"/robots.txt": robots, "/": "<p>shell"})
    overrides = {"triggers": {"preset": "none", "robots_opt_out": True}}
    proxy = await start_proxy(origin.url, overrides)
    for user_agent, vary in (
        ("BadBot/1.0", "User-Agent"),
        ("Other/1.0", "Accept-Encoding, User-Agent"),
    ):
        answer = await proxy.get("/?_escaped_fragment_=", headers={"User-Agent": user_agent})
        assert answer.headers.getall("Vary") == [vary]
    assert "Vary" not in (await proxy.get("/")).headers


@pytest.mark.parametrize("status", [404, 500])
async def test_without_a_robots_txt_nothing_is_forbidden(
    status: int, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    robots = web.Response(status=status, text="User-agent: *\nDisallow: /*_escaped_fragment_\n")
    page = "<p id=out>shell</p><script>out.textContent = 'rendered'</script>"
    origin = await pages(start_origin, {"/robots.txt": robots, "/": page})
    proxy = await start_proxy(origin.url, {"triggers": {"robots_opt_out": True}})
    assert ">rendered<" in (await proxy.get("/?_escaped_fragment_=")).text
