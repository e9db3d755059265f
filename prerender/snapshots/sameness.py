"""Whether two snapshots of a page say the same, or a snapshot and its document. Pure."""

from typing import Any

from lxml import etree

from prerender.snapshots.parsed_html import parse, texts_of
from prerender.snapshots.snapshot import Snapshot

# What crawlers read beside the text: metadata without the charset, links, images with their texts.
_READ = etree.XPath(
    "//html | //title | //meta[@content][not(contains(@content, 'charset='))] | //link"
    " | //script[@type='application/ld+json'] | //a[@href] | //img"
)
_ATTRIBUTES = ("lang", "name", "property", "content", "rel", "hreflang", "href", "alt", "src")


def same_content(one: Snapshot, other: Snapshot) -> bool:
    """Whether status, headers, visible text and metadata are the same. Slow for long pages."""
    if one.etag == other.etag:
        return True
    if (one.status, one.headers) != (other.status, other.headers):
        return False
    return _content(parse(one.body)) == _content(parse(other.body))


def needs_no_render(document: bytes, charset: str | None, snapshot: bytes) -> bool:
    """Whether a document shows without scripts what its snapshot shows: the same visible text and
    metadata. Slow for long pages."""
    roots = [parse(document, charset), parse(snapshot)]
    for root in roots:
        for element in () if root is None else list(root.iter("noscript")):
            element.clear(keep_tail=True)
    one, other = map(_content, roots)
    return bool(one[1]) and one == other


def section_pattern(path: str) -> str:
    """A pattern of pages like that at a path: of its first folder, or of itself."""
    folder, slash, _ = path.partition("?")[0].removeprefix("/").partition("/")
    return f"/{folder}/*" if slash else f"/{folder}"


def _content(root: Any) -> tuple[list[Any], str]:
    if root is None:
        return [], ""
    read = [
        (it.tag, it.text if it.tag in ("title", "script") else "", *map(it.get, _ATTRIBUTES))
        for it in _READ(root)
    ]
    # This empties the head.
    return read, " ".join(texts_of(root))
