"""What becomes of a request: facts in, a decision out. Pure."""

import re
from dataclasses import dataclass
from functools import lru_cache

from prerender.ajax_crawling import UGLY_TOKEN, PrettyURL, ugly_to_pretty

# A browser resolves these before it asks (WHATWG URL, section 4.4), so no page has them in its URL:
# rendering would show the crawler another page than the one it asked the origin for.
_UNRESOLVED = re.compile(r"(^|/)(\.|%2e){1,2}(/|$)|\\", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Render:
    """Answer with the snapshot of a page."""

    pretty: PrettyURL


@dataclass(frozen=True, slots=True)
class Forward:
    """Pass the request to the origin, and why."""

    reason: str


Decision = Render | Forward

_NORMAL = Forward("not an ugly URL")
_METHOD = Forward("neither GET nor HEAD")
_MARKED = Forward("from a renderer")
_UPGRADE = Forward("an upgrade")
_PATH = Forward("a path that no browser asks for")


def decide(method: str, target: str, *, marked: bool, upgrade: bool) -> Decision:
    """What to do with a request.

    ``target`` is the request target in origin form, byte for byte; ``marked``: a renderer sent it;
    ``upgrade``: it asks for another protocol.
    """
    if UGLY_TOKEN not in target:
        return _NORMAL
    if method not in ("GET", "HEAD"):
        return _METHOD
    if marked:
        # A page that asks for ugly URLs of its own site would render without end.
        return _MARKED
    if upgrade:
        return _UPGRADE
    return _remembered(target) if len(target) <= _LONGEST_REMEMBERED else _read(target)


def _read(target: str) -> Decision:
    """What a target asks for, of itself."""
    pretty = ugly_to_pretty(target)
    if pretty is None:
        return _NORMAL
    if _UNRESOLVED.search(pretty.path.partition("?")[0]):
        return _PATH
    return Render(pretty)


# Crawlers ask again for the same pages, and reading a target is a third of a cached answer's cost.
_remembered = lru_cache(maxsize=1024)(_read)
_LONGEST_REMEMBERED = 2048
