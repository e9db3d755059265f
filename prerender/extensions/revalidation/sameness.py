"""Whether two snapshots of a page say the same. Pure."""

from typing import Any

from lxml import etree

from prerender.snapshots.parsed_html import parse, texts_of
from prerender.snapshots.snapshot import Snapshot

# What crawlers read beside the text: metadata, links, and images with their texts.
_READ = etree.XPath(
    "//html | //title | //meta | //link | //script[@type='application/ld+json'] | //a[@href] | //img"
)
_ATTRIBUTES = ("lang", "name", "property", "content", "rel", "hreflang", "href", "alt", "src")


def same_content(one: Snapshot, other: Snapshot) -> bool:
    """Whether status, headers, visible text and metadata are the same. Slow for long pages."""
    if one.etag == other.etag:
        return True
    if (one.status, one.headers) != (other.status, other.headers):
        return False
    return _content(parse(one.body)) == _content(parse(other.body))


def _content(root: Any) -> tuple[list[Any], str]:
    if root is None:
        return [], ""
    read = [
        (it.tag, it.text if it.tag in ("title", "script") else "", *map(it.get, _ATTRIBUTES))
        for it in _READ(root)
    ]
    # This empties the head.
    return read, " ".join(texts_of(root))
