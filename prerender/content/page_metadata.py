"""Reads the metadata of a page from its HTML. Pure.

Pages are untrusted: reading always ends, and all results are bounded.
"""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

from prerender.http.robots_tags import is_noindex
from prerender.snapshots.parsed_html import json_ld_of, parse

_LONGEST_VALUE = 1000
_MOST_VALUES = 40
_LONGEST_DATA = 8000
_MOST_DATA = 20
_MOST_HEADINGS = 50


@dataclass(frozen=True, slots=True)
class StructuredData:
    """A block of JSON-LD: its types, and its text, formatted if it is ``valid``."""

    types: tuple[str, ...]
    valid: bool
    text: str


@dataclass(frozen=True, slots=True)
class LinkPreview:
    """A link preview: from Open Graph, Twitter cards, or title and description."""

    title: str
    description: str
    image: str
    site: str


@dataclass(frozen=True, slots=True)
class PageMetadata:
    """The metadata of a page. URLs are unresolved, except in ``preview``."""

    title: str
    description: str
    canonical: str
    robots: str
    noindex: bool
    language: str
    headings: tuple[tuple[int, str], ...]
    alternates: tuple[tuple[str, str], ...]
    open_graph: tuple[tuple[str, str], ...]
    structured_data: tuple[StructuredData, ...]
    preview: LinkPreview
    links: int
    images: int
    images_without_text: int


def read(body: bytes, url: str) -> PageMetadata:
    """Read the HTML (UTF-8) of the page at ``url``."""
    return reading_of(parse(body), url)


def reading_of(root: Any, url: str) -> PageMetadata:
    """Read the parsed page at ``url``; None is an empty one. It is not changed."""
    if root is None:
        root = parse(b"<html></html>")
    metas = _metas(root)
    robots = [value for name, value in metas if name in ("robots", "googlebot")]
    title = _text(root.xpath("string(//title[not(ancestor::svg)])"))
    description = dict(metas).get("description", "")
    first: dict[str, str] = {}
    for name, value in metas:
        first.setdefault(name, value)
    return PageMetadata(
        title=title,
        description=description,
        canonical=_link(root, "canonical"),
        robots=", ".join(robots),
        noindex=is_noindex(robots),
        language=_text(root.get("lang", "")),
        headings=tuple(
            (int(heading.tag[1]), _text(heading.text_content()))
            for heading in root.xpath("//h1 | //h2 | //h3")[:_MOST_HEADINGS]
        ),
        alternates=tuple(
            (_text(link.get("hreflang", "")), _text(link.get("href", "")))
            for link in root.xpath("//link[@rel='alternate'][@hreflang]")[:_MOST_VALUES]
        ),
        open_graph=tuple(
            (name, value)
            for name, value in metas
            if name.startswith(("og:", "twitter:", "article:", "product:"))
        )[:_MOST_VALUES],
        structured_data=tuple(_structured(text) for text in json_ld_of(root)[:_MOST_DATA]),
        preview=LinkPreview(
            title=first.get("og:title") or first.get("twitter:title") or title,
            description=first.get("og:description")
            or first.get("twitter:description")
            or description,
            image=_absolute(url, first.get("og:image") or first.get("twitter:image") or ""),
            site=first.get("og:site_name") or "",
        ),
        links=int(root.xpath("count(//a[@href])")),
        images=int(root.xpath("count(//img)")),
        images_without_text=int(root.xpath("count(//img[not(@alt)])")),
    )


def _metas(root: Any) -> list[tuple[str, str]]:
    """Lower-case names (or properties) and contents of meta tags."""
    metas = []
    for meta in root.xpath("//meta[@content][@name or @property]"):
        name = (meta.get("property") or meta.get("name") or "").strip().lower()
        metas.append((name[:100], _text(meta.get("content"))))
    return metas


def _link(root: Any, rel: str) -> str:
    for link in root.xpath("//link[@rel][@href]"):
        if rel in link.get("rel").lower().split():
            return _text(link.get("href"))
    return ""


def _structured(text: str) -> StructuredData:
    try:
        data = json.loads(text)
        # Python 3.12 reads deeper data than it writes.
        shown = json.dumps(data, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return StructuredData((), False, text.strip()[:_LONGEST_DATA])
    return StructuredData(_types(data), True, shown[:_LONGEST_DATA])


def _types(data: object) -> tuple[str, ...]:
    items = data if isinstance(data, list) else [data]
    graph = [item.get("@graph") for item in items if isinstance(item, dict)]
    items = [*items, *(node for nodes in graph if isinstance(nodes, list) for node in nodes)]
    types: list[str] = []
    for item in items:
        kind = item.get("@type") if isinstance(item, dict) else None
        kinds = kind if isinstance(kind, list) else [kind]
        types += [text[:100] for text in kinds if isinstance(text, str)]
    return tuple(types[:_MOST_VALUES])


def _absolute(url: str, reference: str) -> str:
    """An absolute http(s) URL, or ''."""
    try:
        absolute = urljoin(url, reference) if reference else ""
    except ValueError:
        return ""
    return absolute if absolute.startswith(("http://", "https://")) else ""


def _text(text: object) -> str:
    return " ".join(str(text).split())[:_LONGEST_VALUE]
