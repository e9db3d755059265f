"""What an HTML page says to a crawler: its title, links, canonical, opt-in and text. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

from prerender.http.robots_tags import is_noindex
from prerender.snapshots.parsed_html import parse, texts_of
from prerender.urls.ajax_crawling import UGLY_TOKEN

_SPACE = re.compile(r"\s+")
_IN_HEAD = "not(ancestor::body) and not(ancestor::template)"
_LOWER = "translate(%s, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"


@dataclass(frozen=True, slots=True)
class PageContent:
    """The content of a page. ``links`` and ``canonicals`` are absolute, in document order.

    ``opted_in``: it has ``<meta name="fragment" content="!">`` in its head. ``misplaced``: invalid
    tags of this kind. ``ugly``: absolute URLs in attributes that contain ``_escaped_fragment_``.
    ``texts``: the text between tags, without scripts and the like. ``scripts``: the number of
    executable scripts.
    """

    titles: tuple[str, ...]
    descriptions: tuple[str, ...]
    canonicals: tuple[str, ...]
    links: tuple[str, ...]
    opted_in: bool
    misplaced: tuple[str, ...]
    ugly: tuple[str, ...]
    noindex: bool
    scripts: int
    texts: tuple[str, ...]


def read_page(body: bytes, url: str, charset: str | None = None) -> PageContent:
    """Parse the page at an absolute URL. Never raises for its content."""
    root = _parse(body, charset)
    if root is None:
        return PageContent((), (), (), (), False, (), (), False, 0, ())
    base = _absolute(url, next(iter(root.xpath("//base/@href")), ""), otherwise=url)
    return PageContent(
        titles=tuple(
            _plain("".join(title.itertext()))
            for title in root.xpath("//title[not(ancestor::svg) and not(ancestor::template)]")
        ),
        descriptions=tuple(map(_plain, _metas(root, "description"))),
        canonicals=tuple(
            _absolute(base, link.get("href", ""))
            for link in root.xpath("//link[@rel]")
            if "canonical" in link.get("rel", "").lower().split()
        ),
        links=tuple(_absolute(base, href) for href in root.xpath("//a/@href | //area/@href")),
        opted_in="!" in _metas(root, "fragment", _IN_HEAD),
        misplaced=tuple(_misplaced(root)),
        ugly=tuple(dict.fromkeys(_absolute(base, value) for value in _ugly(root))),
        noindex=is_noindex([*_metas(root, "robots"), *_metas(root, "googlebot")]),
        scripts=sum(map(_runs, root.xpath("//script"))),
        # The last one: it changes the tree.
        texts=tuple(texts_of(root)),
    )


def _parse(body: bytes, charset: str | None) -> Any:
    # The default is UTF-8.
    return parse(body, charset or ("utf-8" if b"charset" not in body[:2048].lower() else None))


def _metas(root: Any, name: str, where: str = "true()") -> list[str]:
    contents = root.xpath(f"//meta[{_LOWER % '@name'} = '{name}'][{where}]/@content")
    return [str(content) for content in contents]


def _misplaced(root: Any) -> Iterator[str]:
    """The faults of invalid opt-in tags (specification, "Pages without hash fragments")."""
    for content in _metas(root, "fragment", _IN_HEAD):
        if content != "!":
            yield f'content="{content}", not "!"'
    if _metas(root, "fragment", f"not({_IN_HEAD})"):
        yield "not in the head"


def _ugly(root: Any) -> Iterator[str]:
    """Attribute values that are URLs with the scheme's token. Values with spaces are text."""
    for value in root.xpath(f"//@*[contains(., '{UGLY_TOKEN}')]"):
        if not re.search(r"\s|\(", value.strip()):
            yield str(value)


def _runs(script: Any) -> bool:
    kind = (script.get("type") or "").strip().lower()
    return kind in ("", "module") or "javascript" in kind or "ecmascript" in kind


def _absolute(base: str, reference: str, otherwise: str = "") -> str:
    """An absolute URL; if it is malformed, ``otherwise`` or the reference."""
    try:
        return urljoin(base, reference.strip())
    except ValueError:
        return otherwise or reference.strip()


def _plain(text: str) -> str:
    return _SPACE.sub(" ", text).strip()
