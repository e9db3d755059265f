"""``prerender check --readiness``: what AI agents need, the score, and JUnit XML."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from prerender.crawlers.known import built_in
from prerender.tools.check.readiness import WEIGHTS
from prerender.tools.check.structured_data import problems_of
from tests.conftest import Site, StartOrigin, StartProxy, pages
from tests.support.programs import run

TEXT = "<p>Lamps of steel, which last for many years and can be repaired by anybody at home. " * 3
PRODUCT = {
    "@context": "https://schema.org",
    "@type": "Product",
    "name": "Arc",
    "offers": {"@type": "Offer", "price": "129", "priceCurrency": "EUR"},
}


def _page(
    data: object, head: str = "", lang: str = " lang=en", body: str = "<h1>Lamps</h1>"
) -> str:
    return f"""<!DOCTYPE html><html{lang}><head><title>Lamps</title>
      <meta name=description content="Lamps of steel">{head}
      <script type="application/ld+json">{json.dumps(data)}</script></head>
      <body>{body}{TEXT}</body></html>"""


def _problems(data: object) -> list[str]:
    return problems_of(_page(data).encode())


def _typed(kind: str | list[str], **properties: object) -> dict[str, object]:
    return {"@context": "http://schema.org/", "@type": kind} | properties


@pytest.mark.parametrize(
    ("data", "problems"),
    [
        (PRODUCT, []),
        (_typed("Product", name="Arc"), ["Product “Arc” lacks review or aggregateRating or offers"]),
        (
            {"@context": "https://schema.org", "@graph": [{"@type": "Offer", "availability": "x"}]},
            ["Offer lacks price or priceSpecification.price"],
        ),
        (_typed("Offer", priceSpecification={"price": 0}), []),
        (_typed("Recipe", name="Soup", image=""), ["Recipe “Soup” lacks image"]),
        (
            _typed("FAQPage", mainEntity=[{"@type": "Question", "name": "?"}]),
            ["FAQPage lacks mainEntity.acceptedAnswer.text"],
        ),
        (
            _typed("BreadcrumbList", itemListElement=[{"@type": "ListItem", "name": "Home"}]),
            ["ListItem “Home” lacks position"],
        ),
        (_typed("Event", name="Sale", startDate="2026-12-01", location={"@id": "#shop"}), []),
        (_typed(["Thing", "JobPosting"], title="Smith"), [
            "JobPosting lacks description", "JobPosting lacks datePosted",
            "JobPosting lacks hiringOrganization",
            "JobPosting lacks jobLocation or applicantLocationRequirements",
        ]),
        (
            _typed("AggregateRating", ratingValue=4),
            ["AggregateRating lacks ratingCount or reviewCount"],
        ),
        ([_typed("Article"), _typed("Organization")], []),
        ({"@id": "#a", "@type": "Product", "@context": "https://schema.org"}, []),
        ({"@type": "Product"}, ['no @context of schema.org: {"@type": "Product"}']),
        ([], ["no @context of schema.org: []"]),
        (5, ["no @context of schema.org: 5"]),
    ],
)  # fmt: skip
def test_structured_data(data: object, problems: list[str]) -> None:
    assert _problems(data) == problems


def test_structured_data_that_is_no_json() -> None:
    (problem,) = problems_of(b'<script type="application/ld+json">{"a": </script>')
    assert problem.startswith("not valid JSON (")
    assert problems_of(b"") == problems_of(b"<p>none") == []


def test_what_is_nested_deeply_ends() -> None:
    data: object = {"@type": "Offer"}
    for _ in range(300):
        data = {"a": [data]}
    found = _problems({"@context": "https://schema.org", "b": data})
    assert found == ["Offer lacks price or priceSpecification.price"]


async def _checked(site: Site, *more: str) -> tuple[int, dict[str, Any]]:
    ended = await run("check", f"{site.url}/", "--no-browser", "--json", *more)
    return ended.status, json.loads(ended.out)


def _shares(report: dict[str, Any]) -> dict[str, float]:
    return {part["name"]: part["share"] for part in report["readiness"]["parts"]}


async def test_a_site_that_is_ready(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    home = _page(PRODUCT, body="<h1>Lamps</h1><h2>Steel</h2><a href=/b>b</a>")
    origin = await pages(start_origin, {"/": home, "/b": home})
    settings = {"markdown": {"enabled": True, "content_signal": "search=yes"}}
    proxy = await start_proxy(origin.url, settings)
    for path in ("/", "/b"):
        await proxy.crawl(path)
    status, report = await _checked(origin, "--via", proxy.url, "--fail-under", "100")
    assert (status, report["readiness"]["score"]) == (0, 100), report
    assert set(_shares(report).values()) == {1.0}


async def test_what_is_missing(start_origin: StartOrigin, tmp_path: Path) -> None:
    robots = "User-agent: GPTBot\nUser-agent: ClaudeBot\nDisallow: /\n"
    home = _page({"@type": "Product"}, lang="", body="<h1>a</h1><h3>b</h3><a href=/long>l</a>")
    content: dict[str, str | web.Response] = {
        "/": home,
        "/long": _page(PRODUCT, body="<h1>a</h1>" + "<p>words " * 20_000),
        "/robots.txt": web.Response(text=robots),
        "/llms.txt": home,
    }
    site = await pages(start_origin, content)
    file = tmp_path / "junit.xml"
    status, report = await _checked(site, "--fail-under", "60", "--junit", str(file))
    assert status == 1
    found = {page["url"].removeprefix(site.url): page["findings"] for page in report["pages"]}
    codes = {path: {one["code"]: one["text"] for one in every} for path, every in found.items()}
    assert codes["/"].keys() == {"structured-data", "headings", "language", "markdown-missing"}
    assert codes["/"]["headings"] == "a heading of level 3 follows one of 1"
    assert codes["/long"]["tokens"].startswith("about ")
    of_site = {one["code"]: one["text"] for one in report["findings"]}
    assert {"ai-robots", "content-signal", "llms-txt"} <= of_site.keys()
    assert "GPTBot" in of_site["ai-robots"]
    shares = _shares(report)
    assert 0.9 < shares.pop("crawlers") < 1.0
    assert shares == {
        "content": 1.0, "markdown": 0.0, "structured data": 0.5, "llms.txt": 0.0, "size": 0.5,
        "headings": 0.5, "language": 0.5, "Content-Signal": 0.0,
    }  # fmt: skip
    assert report["readiness"]["score"] == 57
    suite = ET.parse(file).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "the score is 57, less than 60"
    assert "note: language: no language" in "".join(suite.itertext())


async def test_junit_of_errors(start_origin: StartOrigin, tmp_path: Path) -> None:
    broken = web.Response(status=500)
    site = await pages(start_origin, {"/": _page(PRODUCT, body="<a href=/b>b</a>"), "/b": broken})
    file = tmp_path / "junit.xml"
    status, report = await _checked(site, "--junit", str(file))
    assert status == 1
    assert "readiness" not in report
    cases = {case.get("name"): case for case in ET.parse(file).getroot()}
    assert cases.keys() == {f"{site.url}/", f"{site.url}/b", site.url}
    failure = cases[f"{site.url}/b"].find("failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("status", "status 500")
    assert cases[f"{site.url}/"].find("failure") is None


async def test_the_report_for_people(start_origin: StartOrigin) -> None:
    site = await pages(start_origin, {"/": _page(PRODUCT)})
    ended = await run("check", f"{site.url}/", "--no-browser", "--fail-under", "99")
    assert ended.status == 1
    assert (
        "\nreadiness 70 of 100: content 30/30, crawlers 15/15, markdown 0/15, "
        in ended.out.decode()
    )
    assert ended.err == "prerender: the score is 70, less than 99\n"


def test_the_weights() -> None:
    assert sum(WEIGHTS.values()) == 100
    assert any(one.crawler == "ai_training" for one in built_in().crawlers)
