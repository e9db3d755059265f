"""Checks JSON-LD: is it valid, and does it have what Google requires? Pure.

The requirements are in structured_data.toml, in the form of Google's documentation.
"""

import json
import re
import tomllib
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.resources import files
from typing import Any, NoReturn

from prerender.snapshots.parsed_html import json_ld_of, parse

_TABLES = tomllib.loads(
    files(__package__).joinpath("structured_data.toml").read_text(encoding="utf-8")
)
# By type and path.
RULES: dict[str, list[str]] = {
    where: properties.split()
    for page in _TABLES["required"].values()
    for where, properties in page.items()
}
_TYPES = {name: kind for kind, names in _TABLES["subtypes"].items() for name in names.split()}
_DATES = ("startDate", "datePosted", "datePublished", "uploadDate")
_SCHEMA = re.compile(r"^https?://(www\.)?schema\.org/")
# An object that has only these, and its type, is described elsewhere.
_REFERENCE = {"@id", "url", "isVariantOf"}
# Whose values need only a name.
_ROLES = {
    "author", "hiringOrganization", "itemReviewed", "organizer", "provider", "publisher", "seller",
}  # fmt: skip
_MOST_NODES = 2000
_SHOWN = 80


def problems_of(html: bytes) -> list[str]:
    """What is wrong with the JSON-LD of a page."""
    page = parse(html)
    problems: list[str] = []
    blocks: list[object] = []
    for text in [] if page is None else json_ld_of(page):
        shown = " ".join(text.split())[:_SHOWN]
        try:
            data = json.loads(text, parse_constant=_refuse)
            own = data if isinstance(data, list) else [data]
            if own and all(map(_has_context, own)):
                blocks.append(data)
            else:
                problems.append(f"no @context of schema.org: {shown}")
        except (ValueError, RecursionError) as error:
            problems.append(f"not valid JSON ({error}): {shown}")
    problems += _Graph(blocks).problems()
    return list(dict.fromkeys(problems))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


def _has_context(block: object) -> bool:
    if not isinstance(block, dict):
        return False
    if "schema.org" in json.dumps(block.get("@context", "")).lower():
        return True
    graph = block.get("@graph")
    return isinstance(graph, list) and bool(graph) and all(map(_has_context, graph))


class _Graph:
    """The objects of a page, over all its blocks: objects with the same @id are one."""

    def __init__(self, blocks: list[object]) -> None:
        self._nodes: list[tuple[str, dict[str, Any]]] = list(_nodes(blocks))
        self._described: dict[str, dict[str, Any]] = {}
        # The properties whose values refer to an @id.
        self._uses: dict[str, set[str]] = defaultdict(set)
        for place, node in self._nodes:
            if isinstance(name := node.get("@id"), str):
                self._uses[name].add(place)
                if not _is_reference(node):
                    self._described[name] = self._described.get(name, {}) | node

    def problems(self) -> Iterator[str]:
        for place, own in self._nodes:
            node = self._whole(own)
            if _is_reference(node):
                continue
            name = node.get("@id")
            places = {place} | (self._uses[name] if isinstance(name, str) else set())
            if "itemReviewed" not in places and places - _ROLES:
                nested = bool(places & {"review", "reviews", "aggregateRating"})
                yield from self._missing(node, nested=nested)

    def _missing(self, node: dict[str, Any], *, nested: bool) -> Iterator[str]:
        kinds = [
            _SCHEMA.sub("", kind) for kind in _list(node.get("@type")) if isinstance(kind, str)
        ]
        types = {_TYPES.get(kind, kind): kind for kind in reversed(kinds)}
        name = node.get("name")
        named = f" “{name[:_SHOWN]}”" if isinstance(name, str) else ""
        for where, properties in RULES.items():
            kind, *path = where.removeprefix("/").split(".")
            if kind not in types or (where[0] == "/" and nested):
                continue
            prefix = "".join(f"{step.removesuffix('[:-1]')}." for step in path)
            for value in self._values(node, path):
                for wanted in properties:
                    if problem := self._problem(value, wanted, prefix):
                        yield f"{types[kind]}{named} {problem}"

    def _problem(self, value: object, wanted: str, prefix: str) -> str:
        either = wanted.split("|")
        values = [one for way in either for one in self._fitting(value, way)]
        if not values:
            return "lacks " + " or ".join(f"{prefix}{way}" for way in either if "=" not in way)
        if wanted in _DATES and not any(map(_is_date, values)):
            return f"has {prefix}{wanted} that is not an ISO 8601 date: {str(values[0])[:_SHOWN]}"
        return ""

    def _fitting(self, value: object, way: str) -> list[object]:
        path, _, only = way.partition("=")
        values = (one for one in self._values(value, path.split(".")) if one not in (None, "", {}))
        return [one for one in values if not only or str(one) == only]

    def _values(self, value: object, path: Sequence[str]) -> list[Any]:
        values = [value]
        for step in path:
            inner = (
                _list(self._whole(one).get(step.removesuffix("[:-1]")))
                for one in values
                if isinstance(one, dict)
            )
            last = -1 if step.endswith("[:-1]") else None
            values = [one for every in inner for one in every[:last]]
        return values

    def _whole(self, node: dict[str, Any]) -> dict[str, Any]:
        name = node.get("@id")
        return self._described.get(name, node) if isinstance(name, str) else node


def _nodes(blocks: list[object]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All objects at any depth, each with the property that it is a value of ("" for none)."""
    waiting: deque[tuple[str, object]] = deque([("", blocks)])
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        place, value = waiting.popleft()
        if isinstance(value, list):
            waiting.extend((place, one) for one in value)
        elif isinstance(value, dict):
            yield place, value
            waiting.extend(
                (place if name in ("@graph", "@list") else name, inner)
                for name, inner in value.items()
                if isinstance(inner, (dict, list))
            )


def _is_reference(node: dict[str, Any]) -> bool:
    own = node.keys() - {"@context", "@type"}
    return bool(own) and own <= _REFERENCE


def _list(value: object) -> list[Any]:
    if isinstance(value, dict) and "@list" in value:
        value = value["@list"]
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_date(value: object) -> bool:
    with suppress(ValueError):
        return isinstance(value, str) and bool(datetime.fromisoformat(value.strip()))
    return False
