"""What has changed in a page for those who read it: text, title, metadata, links, status. Pure.

Bytes do not count: names of classes, scripts and styles, whitespace, and the order of parts.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prerender.content.page_metadata import reading_of
from prerender.content.text_comparison import Passage, compare
from prerender.snapshots.parsed_html import parse, texts_of
from prerender.snapshots.snapshot import Snapshot

_LONGEST_TEXT = 262_144
_LONGEST_LINK = 500
_MOST_LINKS = 2000
# Of a description.
_MOST_SHOWN = 10
_LONGEST_SHOWN = 300
_HEADERS = ("x-robots-tag", "content-language", "location")


@dataclass(frozen=True, slots=True)
class Content:
    """What is read of a page. ``metadata``: by name; ``links``: as they are written, sorted; ``text``:
    words with a space between them."""

    status: int
    title: str
    metadata: tuple[tuple[str, str], ...]
    links: tuple[str, ...]
    text: str

    def reads_as(self, other: "Content") -> bool:
        """Whether both have the same words, title, metadata and status."""
        return (
            (self.status, self.title, self.metadata) == (other.status, other.title, other.metadata)
        ) and Counter(self.text.split()) == Counter(other.text.split())


def content_of(snapshot: Snapshot, url: str, volatile: Iterable[re.Pattern[str]] = ()) -> Content:
    """The content of the snapshot of ``url`` without its ``volatile`` parts. Slow for long pages."""
    html = snapshot.body.decode("utf-8", "replace")
    for pattern in volatile:
        html = pattern.sub("", html)
    root = parse(html.encode())
    reading = reading_of(root, url)
    links: set[str] = set()
    text = ""
    if root is not None:
        links = {link.strip()[:_LONGEST_LINK] for link in root.xpath("//a/@href")}
        text = " ".join(" ".join(texts_of(root)).split())[:_LONGEST_TEXT]
    named = {
        "description": reading.description,
        "canonical": reading.canonical,
        "robots": reading.robots,
        "language": reading.language,
        "alternates": ", ".join(" ".join(one) for one in reading.alternates),
        "structured_data": "\n".join(data.text for data in reading.structured_data),
        **dict(reversed(reading.open_graph)),
        **{name.lower(): text for name, text in snapshot.headers if name.lower() in _HEADERS},
    }
    return Content(
        snapshot.status,
        reading.title,
        tuple(sorted((name, text) for name, text in named.items() if text)),
        tuple(sorted(links)[:_MOST_LINKS]),
        text,
    )


def changes(before: Content, after: Content) -> dict[str, Any]:
    """What has changed, by name, shortened for people; empty if nothing has."""
    changed: dict[str, Any] = {}
    if before.status != after.status:
        changed["status"] = {"before": before.status, "after": after.status}
    if before.title != after.title:
        changed["title"] = _both(before.title, after.title)
    old, new = Counter(before.text.split()), Counter(after.text.split())
    if old != new:
        passages = compare([before.text], [after.text])
        changed["text"] = {
            "words_added": (new - old).total(),
            "words_removed": (old - new).total(),
            "added": _shown(passages.only_second),
            "removed": _shown(passages.only_first),
        }
    added, removed = {*after.links} - {*before.links}, {*before.links} - {*after.links}
    if added or removed:
        changed["links"] = {
            "links_added": len(added),
            "links_removed": len(removed),
            "added": [_cut(link) for link in sorted(added)[:_MOST_SHOWN]],
            "removed": [_cut(link) for link in sorted(removed)[:_MOST_SHOWN]],
        }
    was, is_now = dict(before.metadata), dict(after.metadata)
    names = [name for name in sorted(was | is_now) if was.get(name) != is_now.get(name)]
    if names:
        changed["metadata"] = {
            name: _both(was.get(name, ""), is_now.get(name, "")) for name in names[:_MOST_SHOWN]
        }
    return changed


def _both(before: str, after: str) -> dict[str, str]:
    return {"before": _cut(before), "after": _cut(after)}


def _shown(passages: Sequence[Passage]) -> list[str]:
    return [_cut(passage.text) for passage in passages[:_MOST_SHOWN]]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"
