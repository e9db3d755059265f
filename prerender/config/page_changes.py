"""What snapshots change of pages: elements to remove, and tags to add to the head. Pure.

Both are checked when the settings are loaded. Selectors are a common part of Selectors Level 4, all of
which Chromium knows; tags are parsed here, so that nothing depends on how a page would parse them.
"""

import json
import re
from html.parser import HTMLParser
from typing import NamedTuple

_ESCAPE = r"\\(?:[0-9a-fA-F]{1,6}\s?|[^\n\r\f0-9a-fA-F])"
_START, _NAME = rf"(?:[A-Za-z_\x80-\U0010ffff]|{_ESCAPE})", rf"(?:[\w\x80-\U0010ffff-]|{_ESCAPE})"
_IDENT = rf"(?:--{_NAME}*|-?{_START}{_NAME}*)"
_STRING = r""""(?:[^"\\\n\r\f]|\\[^\n\r\f])*"|'(?:[^'\\\n\r\f]|\\[^\n\r\f])*'"""
_VALUE = rf"(?:(?:{_STRING})\s*[iI]?|{_IDENT}(?:\s+[iI])?)"
_ATTRIBUTE = rf"\[\s*{_IDENT}\s*(?:[~|^$*]?=\s*{_VALUE}\s*)?\]"
_STATES = (
    "any-link|checked|defined|disabled|empty|enabled|first-child|first-of-type|last-child|last-of-type|"
    "link|modal|only-child|only-of-type|popover-open|root"
)
_STEP = r"(?:even|odd|[+-]?\d{1,6}|[+-]?\d{0,6}n(?:\s*[+-]\s*\d{1,6})?)"
_NTH = rf"nth-(?:last-)?(?:child|of-type)\(\s*{_STEP}\s*\)"
_PSEUDO = rf":(?:(?:{_STATES})(?![\w(-])|{_NTH}|lang\(\s*{_IDENT}\s*\))"
_TYPE = re.compile(rf"\*|{_IDENT}")
_SIMPLE = re.compile(rf"[#.]{_IDENT}|{_ATTRIBUTE}|{_PSEUDO}")
_NESTED = re.compile(r":(is|where|not|has)\(\s*")
_COMBINATOR = re.compile(r"\s*[>+~]\s*|\s+(?![\s,)]|\Z)")
_RELATIVE = re.compile(r"[>+~]\s*")
_SPACE = re.compile(r"\s*")
_DEEPEST = 5

_RUNS = {"modulepreload", "import"}
_OF_THE_PROXY = re.compile(r"prerender-|render:|fragment$", re.IGNORECASE)
_ATTRIBUTE_NAME = re.compile(r"(?!on)[a-z][a-z0-9:-]*")


def problem_of_selector(selector: str) -> str:
    """Why a selector cannot be used, or ''."""
    try:
        end = _list(selector, _skip(selector, 0), 0, within=frozenset())
    except ValueError as error:
        return str(error)
    if end < len(selector):
        return f"{selector[end:][:20]!r} is not understood"
    return ""


def _list(text: str, at: int, depth: int, *, within: frozenset[str], has: bool = False) -> int:
    """The end of a selector list. ``within``: the names of the pseudo-classes around it; ``has``: it is
    directly in :has()."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    while True:
        if has and (relative := _RELATIVE.match(text, at)):
            at = relative.end()
        at = _complex(text, at, depth, within)
        at = _skip(text, at)
        if text[at : at + 1] != ",":
            return at
        at = _skip(text, at + 1)


def _complex(text: str, at: int, depth: int, within: frozenset[str]) -> int:
    while True:
        at = _compound(text, at, depth, within)
        combinator = _COMBINATOR.match(text, at)
        if combinator is None:
            return at
        at = combinator.end()


def _compound(text: str, at: int, depth: int, within: frozenset[str]) -> int:
    start = at
    if kind := _TYPE.match(text, at):
        at = kind.end()
    while True:
        if simple := _SIMPLE.match(text, at):
            at = simple.end()
        elif nested := _NESTED.match(text, at):
            if nested[1] == "has" and "has" in within:
                raise ValueError(":has() cannot be within :has()")
            around, has = within | {nested[1]}, nested[1] == "has"
            at = _list(text, nested.end(), depth + 1, within=around, has=has)
            if text[at : at + 1] != ")":
                raise ValueError(f":{nested[1]}( is not closed")
            at += 1
        else:
            break
    if at == start:
        raise ValueError(f"{text[at:][:20]!r} is not understood" if text[at:] else "it ends early")
    return at


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


class Tag(NamedTuple):
    """A tag of the head: its name, its attributes, and the text of a script or style."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    text: str = ""


def tags_of(fragment: str) -> tuple[Tag, ...]:
    """The tags of an HTML fragment for the head. Raises ValueError."""
    parser = _Tags()
    parser.feed(fragment)
    parser.close()
    if parser.open is not None:
        raise ValueError(f"<{parser.open.name}> is not closed")
    if not parser.tags:
        raise ValueError("it has no tag")
    return tuple(map(_checked, parser.tags))


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[Tag] = []
        self.open: Tag | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add a tag."""
        new = Tag(tag, tuple((name, value or "") for name, value in attrs))
        if tag in ("script", "style"):
            self.open = new
        else:
            self.tags.append(new)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Browsers ignore the slash, so ``<script/>`` is an open one."""
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """Close a script or style."""
        if self.open is None or self.open.name != tag:
            raise ValueError(f"</{tag}> closes nothing")
        self.tags.append(self.open)
        self.open = None

    def handle_data(self, data: str) -> None:
        """Add the text of a script or style; other text does not belong into a head."""
        if self.open is not None:
            self.open = self.open._replace(text=self.open.text + data)
        elif data.strip():
            raise ValueError(f"{data.strip()[:20]!r} is not a complete tag")

    def handle_comment(self, data: str) -> None:
        """Comments, and what browsers read as such."""
        raise ValueError(f"comments are not allowed: {data[:20]!r}")

    def handle_decl(self, decl: str) -> None:
        """As a comment."""
        self.handle_comment(decl)

    unknown_decl = handle_pi = handle_comment


def _checked(tag: Tag) -> Tag:
    given = dict(tag.attributes)
    if len(given) < len(tag.attributes):
        raise ValueError(f"an attribute of <{tag.name}> is given twice")
    for name in given:
        if not _ATTRIBUTE_NAME.fullmatch(name):
            raise ValueError(f"<{tag.name}> must not have the attribute {name!r}")
    match tag.name:
        case "meta":
            name = given.get("name", "")
            if given.keys() & {"charset", "http-equiv"} or _OF_THE_PROXY.match(name):
                raise ValueError("a <meta> must have a name or property, not one of the proxy's")
        case "link":
            kinds = set(given.get("rel", "").lower().split())
            if not kinds or kinds & _RUNS or given.get("as", "").lower() == "script":
                raise ValueError("a <link> must have a rel, and must not load scripts")
        case "script":
            if given.get("type", "").strip().lower() != "application/ld+json":
                raise ValueError("the only scripts of snapshots are of type application/ld+json")
            try:
                json.loads(tag.text)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"not JSON: {error}") from None
        case "style":
            pass
        case _:
            raise ValueError(f"<{tag.name}>: give only meta, link, style, and JSON-LD scripts")
    return tag
