"""Checks JSON-LD: is it valid, and does it have what Google requires of its types? Pure.

The required properties are those that Google documents for the common types:
https://developers.google.com/search/docs/appearance/structured-data/search-gallery.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from lxml.etree import XPath

from prerender.snapshots.parsed_html import parse

# By type: the required properties. "a.b" is b of a, "a|b" is one of both.
_PRODUCT = ("name", "review|aggregateRating|offers")
_REVIEW = ("author", "reviewRating.ratingValue")
_RATING = ("ratingValue", "ratingCount|reviewCount")
_APPLICATION = ("name", "offers.price|offers.priceSpecification", "aggregateRating|review")
_BUSINESS = ("name", "address")
_DISCUSSION = ("author", "datePublished", "text|image|video|sharedContent")
REQUIRED: dict[str, tuple[str, ...]] = {
    "AggregateOffer": ("lowPrice", "priceCurrency"),
    "AggregateRating": _RATING,
    "BreadcrumbList": ("itemListElement",),
    "Course": ("name", "description"),
    "Dataset": ("name", "description"),
    "DiscussionForumPosting": _DISCUSSION,
    "Event": ("name", "startDate", "location"),
    "FAQPage": ("mainEntity.name", "mainEntity.acceptedAnswer.text"),
    "JobPosting": (
        "title", "description", "datePosted", "hiringOrganization",
        "jobLocation|applicantLocationRequirements",
    ),
    "ListItem": ("position", "name|item"),
    "LocalBusiness": _BUSINESS,
    "Movie": ("name", "image"),
    "Offer": ("price|priceSpecification.price",),
    "Product": _PRODUCT,
    "ProfilePage": ("mainEntity.name",),
    "QAPage": ("mainEntity.name", "mainEntity.acceptedAnswer|mainEntity.suggestedAnswer"),
    "Recipe": ("name", "image"),
    "Restaurant": _BUSINESS,
    "Review": _REVIEW,
    "SocialMediaPosting": _DISCUSSION,
    "SoftwareApplication": _APPLICATION,
    "MobileApplication": _APPLICATION,
    "Store": _BUSINESS,
    "VideoObject": ("name", "thumbnailUrl", "uploadDate"),
    "WebApplication": _APPLICATION,
}  # fmt: skip
_SCRIPTS = XPath('//script[@type="application/ld+json"]')
_MOST_NODES = 2000
_SHOWN = 80


def problems_of(html: bytes) -> list[str]:
    """What is wrong with the JSON-LD of a page."""
    page = parse(html)
    scripts = [] if page is None else _SCRIPTS(page)
    problems: list[str] = []
    for script in scripts:
        text = script.text or ""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            problems.append(f"not valid JSON ({error}): {' '.join(text.split())[:_SHOWN]}")
            continue
        if not _has_context(data):
            problems.append(f"no @context of schema.org: {' '.join(text.split())[:_SHOWN]}")
            continue
        for node in _nodes(data):
            problems += _missing(node)
    return list(dict.fromkeys(problems))


def _has_context(data: object) -> bool:
    blocks = data if isinstance(data, list) else [data]
    return bool(blocks) and all(
        isinstance(block, dict) and "schema.org" in json.dumps(block.get("@context", ""))
        for block in blocks
    )


def _nodes(data: object) -> Iterator[dict[str, Any]]:
    """All objects with a type, at any depth."""
    waiting: list[object] = [data]
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        value = waiting.pop(0)
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            if "@type" in value:
                yield value
            waiting += value.values()


def _missing(node: dict[str, Any]) -> Iterator[str]:
    types = node["@type"] if isinstance(node["@type"], list) else [node["@type"]]
    # A node with nothing but an id refers to another one.
    if "@id" in node and not node.keys() - {"@type", "@id", "@context"}:
        return
    name = node.get("name")
    named = f" “{name[:_SHOWN]}”" if isinstance(name, str) else ""
    for kind in types:
        for wanted in REQUIRED.get(kind, ()) if isinstance(kind, str) else ():
            if not any(_has(node, path.split(".")) for path in wanted.split("|")):
                either = wanted.replace("|", " or ")
                yield f"{kind}{named} lacks {either}"


def _has(value: Any, path: Sequence[str]) -> bool:
    """Whether a value, or each one of a list, has a property."""
    if isinstance(value, list):
        return bool(value) and all(_has(one, path) for one in value)
    if not path:
        return value not in (None, "", {})
    if not isinstance(value, dict):
        return False
    if "@id" in value and not value.keys() - {"@type", "@id"}:
        return True  # it is described elsewhere
    return path[0] in value and _has(value[path[0]], path[1:])
