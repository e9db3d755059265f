"""``prerender check --readiness``: what AI agents need, the score, and JUnit XML."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from prerender.crawlers.known import built_in
from prerender.tools.check.readiness import WEIGHTS
from prerender.tools.check.structured_data import RULES, problems_of
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


AUTHOR = {"@type": "Person", "name": "Ann"}
OFFER = {"@type": "Offer", "price": 0}
REVIEW = {"@type": "Review", "author": AUTHOR, "reviewRating": {"ratingValue": "60%"}}
RATING = {"@type": "AggregateRating", "ratingValue": 4.4, "reviewCount": 9}
PLACE = {"@type": "Place", "address": {"streetAddress": "1 Main St", "addressCountry": "US"}}
QUESTION = {"name": "Why?", "answerCount": 1, "suggestedAnswer": [{"text": "Because."}]}
# What Google's pages require, and nothing else; properties with a "?" may be left out.
COMPLETE: dict[str, dict[str, Any]] = {
    "AggregateOffer": {"lowPrice": 1, "priceCurrency": "EUR"},
    "AggregateRating": RATING | {"itemReviewed": {"name": "Soup"}},
    "BreadcrumbList": {"itemListElement": [
        {"position": 1, "name": "Home", "item": "/"}, {"position": 2, "item": {"name": "Lamps"}},
        {"position": 3, "name": "Arc"},
    ]},
    "Course": {"name": "Greek", "description": "For beginners"},
    "Dataset": {"name": "Snow", "description": "Its depth", "?distribution": {"contentUrl": "/a.csv"}},
    "DiscussionForumPosting": {
        "author": AUTHOR, "datePublished": "2026-09-01T10:00:00Z", "text": "Hello",
        "?comment": [{"author": AUTHOR, "datePublished": "2026-09-02", "image": "/a.png"}],
    },
    "EmployerAggregateRating": RATING | {"itemReviewed": {"name": "Arc Inc."}},
    "Event": {"name": "Sale", "startDate": "2026-12-01T19:00-05:00", "location": PLACE},
    "JobPosting": {
        "title": "Smith", "description": "Forging", "datePosted": "2026-09-01",
        "hiringOrganization": "confidential", "jobLocation": [PLACE],
    },
    "LocalBusiness": {"name": "Arc", "address": "1 Main St"},
    "MathSolver": {
        "url": "/", "usageInfo": "/privacy",
        "potentialAction": [{"target": "/?q={x}", "mathExpression-input": "required name=x"}],
    },
    "Movie": {"name": "Arc", "image": "/a.jpg"},
    "Product": {"name": "Arc", "offers": [OFFER, {"priceSpecification": {"price": 9}}]},
    "ProductGroup": {"name": "Arc"},
    "ProfilePage": {"mainEntity": {"@type": "Person", "alternateName": "ann"}},
    "QAPage": {"mainEntity": QUESTION},
    "Quiz": {"hasPart": [
        {"text": "2 + 2?", "eduQuestionType": "Flashcard", "acceptedAnswer": {"text": "4"}},
    ]},
    "Recipe": {"name": "Soup", "image": ["/a.jpg"]},
    "Review": REVIEW | {"itemReviewed": {"@type": "Product", "name": "Arc"}},
    "SoftwareApplication": {"name": "Arc", "offers": OFFER, "aggregateRating": RATING},
    "VideoObject": {"name": "Arc", "thumbnailUrl": ["/a.jpg"], "uploadDate": "2026-09-01"},
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted({where.split(".")[0].strip("/") for where in RULES}))
def test_what_google_requires(kind: str) -> None:
    properties = {name.removeprefix("?"): value for name, value in COMPLETE[kind].items()}
    complete = _typed(kind, **properties)
    assert _problems(complete) == []
    for name in COMPLETE[kind]:
        if not name.startswith(("?", "@")):
            without = {key: value for key, value in complete.items() if key != name}
            assert any(name in problem for problem in _problems(without)), name


def _lacks(what: str, kind: str, **properties: object) -> tuple[dict[str, object], list[str]]:
    name = f" “{properties['name']}”" if "name" in properties else ""
    return _typed(kind, **properties), [f"{kind}{name} lacks {what}"]


@pytest.mark.parametrize(
    ("data", "problems"),
    [
        (PRODUCT, []),
        _lacks("review or aggregateRating or offers", "Product", name="Arc"),
        _lacks(
            "offers.price or offers.priceSpecification.price or offers.lowPrice", "Product",
            name="Arc", offers=[OFFER, {"availability": "InStock"}],
        ),
        _lacks("image", "Recipe", name="Soup", image=""),
        _lacks("address", "Bakery", name="Arc"),
        _lacks("location.address", "Festival", name="Arc", startDate="2026-12-01", location="Rome"),
        _lacks("location.address", "Event", name="Arc", startDate="2026-12-01", location={"@id": "#a"}),
        _lacks("itemListElement.item", "BreadcrumbList", itemListElement=[
            {"position": 1, "name": "Home"}, {"position": 2, "name": "Arc"},
        ]),
        _lacks("comment.author", "SocialMediaPosting", **(COMPLETE["DiscussionForumPosting"] | {
            "comment": {"datePublished": "2026-09-02", "text": "Yes"},
        })),
        _lacks("jobLocation or jobLocationType", "JobPosting", **(COMPLETE["JobPosting"] | {
            "jobLocation": [], "applicantLocationRequirements": {"@type": "Country", "name": "USA"},
        })),
        _lacks("jobLocation.address.addressCountry", "JobPosting", **(COMPLETE["JobPosting"] | {
            "jobLocation": {"address": "1 Main St"},
        })),
        _lacks("mainEntity.suggestedAnswer.text", "QAPage", mainEntity=QUESTION | {
            "suggestedAnswer": "Because.",
        }),
        _lacks("itemReviewed.name", "Review", **REVIEW),
        (_typed("QAPage", mainEntity={"name": "Why?", "answerCount": 0}), []),
        (
            _typed("Event", name="Sale", startDate="2026-12-01", location=[
                PLACE, {"@type": "VirtualLocation", "url": "/"},
            ]),
            [],
        ),
        # Reviews and ratings within what they are of, and the latter within them.
        (_typed("Book", name="Arc", review=[REVIEW], aggregateRating=RATING), []),
        (_typed("Review", **REVIEW, itemReviewed={"@type": "Restaurant", "name": "Arc"}), []),
        # Types and features without requirements, or retired ones.
        ([_typed("Article"), _typed("Organization"), _typed("Offer"), _typed("VideoGame")], []),
        (_typed("FAQPage", mainEntity=[{"@type": "Question", "name": "?"}]), []),
        (_typed("ItemList", itemListElement=[{"@type": "ListItem", "name": "a"}]), []),
        (_typed("Article", publisher={"@type": "Store", "name": "Arc"}), []),
        # A variant on another page.
        (_typed("Product", isVariantOf={"@id": "#a"}, url="/blue"), []),
        ({"@id": "#a", "@type": "Product", "@context": "https://schema.org"}, []),
        # Dates.
        (
            _typed("VideoObject", **(COMPLETE["VideoObject"] | {"uploadDate": "Sep 1, 2026"})),
            ["VideoObject “Arc” has uploadDate that is not an ISO 8601 date: Sep 1, 2026"],
        ),
        # Forms of types and contexts.
        (
            _typed(["Thing", "Movie"], name="Arc") | {"@context": {"@vocab": "http://www.schema.org/"}},
            ["Movie “Arc” lacks image"],
        ),
        (_typed("https://schema.org/Movie", name="Arc"), ["Movie “Arc” lacks image"]),
        (_typed(["LocalBusiness", "Hotel"], name="Arc"), ["LocalBusiness “Arc” lacks address"]),
        ({"@graph": [_typed("Movie", name="Arc")]}, ["Movie “Arc” lacks image"]),
    ],
)  # fmt: skip
def test_structured_data(data: object, problems: list[str]) -> None:
    assert _problems(data) == problems


@pytest.mark.parametrize("data", [{"@type": "Product"}, [_typed("Article"), {}], [], 5])
def test_structured_data_without_a_context(data: object) -> None:
    assert _problems(data) == [f"no @context of schema.org: {json.dumps(data)[:80]}"]


def test_objects_of_several_blocks_are_one() -> None:
    blocks = (
        _typed("Event", name="Sale", startDate="2026-12-01", location={"@id": "#shop"}),
        {"@context": "https://schema.org", "@graph": [
            {"@id": "#shop", "@type": "Store", "name": "Arc"},
            {"@id": "#arc", "@type": "Product", "name": "Arc", "review": {"@id": "#review"}},
            {"@id": "#review", **REVIEW},
        ]},
        _typed("Store", **{"@id": "#shop"}, address="1 Main St"),
    )  # fmt: skip
    scripts = [f"<script type=application/ld+json>{json.dumps(block)}</script>" for block in blocks]
    assert problems_of("".join(scripts).encode()) == []
    assert problems_of("".join(scripts[:2]).encode()) == [
        "Event “Sale” lacks location.address",
        "Store “Arc” lacks address",
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ',
        '{"a": 1,}',
        "<!-- {} -->",
        "//<![CDATA[\n{}\n//]]>",
        '{"a": "\n"}',
        '{"a": NaN}',
        "",
    ],
)
def test_structured_data_that_is_no_json(text: str) -> None:
    script = f'<script type="Application/LD+JSON; charset=utf-8">{text}</script>'
    (problem,) = problems_of(script.encode())
    assert problem.startswith("not valid JSON (")
    assert problems_of(b"") == problems_of(b"<p>none") == []


def test_what_is_nested_deeply_ends() -> None:
    data: object = {"@type": "Movie", "name": "Arc"}
    for _ in range(300):
        data = {"a": [data]}
    found = _problems({"@context": "https://schema.org", "b": data})
    assert found == ["Movie “Arc” lacks image"]


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


async def test_where_no_junit_can_be_written(start_origin: StartOrigin, tmp_path: Path) -> None:
    site = await pages(start_origin, {"/": _page(PRODUCT)})
    file = tmp_path / "none" / "junit.xml"
    check = ("check", f"{site.url}/", "--no-browser", "--junit")
    ended = await run(*check, str(file))
    assert (ended.status, ended.out) == (1, b"")
    assert ended.err == f"prerender: {file}: cannot write: No such file or directory\n"
    assert site.requests == []
    file = tmp_path / "junit.xml"
    assert (await run("check", "http://127.0.0.1:1", "--junit", str(file))).status == 1
    assert not file.exists()
    ended = await run(*check, "/dev/full")
    assert ended.status == 1
    assert b"\n1 page, " in ended.out
    assert ended.err == "prerender: /dev/full: cannot write: No space left on device\n"


async def test_the_report_for_people(start_origin: StartOrigin) -> None:
    site = await pages(start_origin, {"/": _page(PRODUCT)})
    ended = await run("check", f"{site.url}/", "--no-browser", "--fail-under", "99")
    assert ended.status == 1
    assert (
        "\nreadiness 70 of 100: content 30/30, crawlers 15/15, markdown 0/15, "
        in ended.out.decode()
    )
    assert ended.err == "prerender: the score is 70, less than 99\n"
    assert (await run("check", f"{site.url}/", "--fail-under", "101")).status == 2


def test_the_weights() -> None:
    assert sum(WEIGHTS.values()) == 100
    assert any(one.crawler == "ai_training" for one in built_in().crawlers)
