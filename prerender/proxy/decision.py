"""What becomes of a request: facts in, a decision out. Pure."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

from prerender.config.types import CLASSES, CrawlerClass
from prerender.crawlers.triggers import Triggers, may_be_page
from prerender.errors import CrawlerRefused, Refused
from prerender.urls.ajax_crawling import UGLY_TOKEN, PrettyURL, ugly_to_pretty

# A browser resolves these before it asks (WHATWG URL, section 4.4), so no page has them in its URL:
# rendering would show the crawler another page than the one it asked the origin for.
_UNRESOLVED = re.compile(r"(^|/)(\.|%2e){1,2}(/|$)|\\", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Render:
    """Answer with the snapshot of a page.

    ``by_user_agent``: by what the client says of itself, User-Agent or Accept; people get the page
    itself under the same URL. ``markdown``: the snapshot in that form. ``drop_in``: a middleware asks.
    """

    kind: ClassVar[Literal["render"]] = "render"

    pretty: PrettyURL
    by_user_agent: bool = False
    markdown: bool = False
    drop_in: bool = False

    @property
    def reason(self) -> str:
        """Why, in the words of a small set."""
        if self.drop_in:
            return "a middleware"
        if self.markdown:
            return "a client that gets Markdown"
        return "a crawler by its User-Agent" if self.by_user_agent else "an ugly URL"


@dataclass(frozen=True, slots=True)
class Forward:
    """Pass the request to the origin, and why."""

    kind: ClassVar[Literal["forward"]] = "forward"

    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error of ours, because the site's owner wants so."""

    kind: ClassVar[Literal["refuse"]] = "refuse"

    error: type[Refused] = CrawlerRefused
    reason: str = "a class of crawlers that is refused"


Decision = Render | Forward | Refuse

_NORMAL = Forward("neither an ugly URL nor a crawler")
_METHOD = Forward("neither GET nor HEAD")
_MARKED = Forward("from a renderer")
_UPGRADE = Forward("an upgrade")
_PATH = Forward("a path that no browser asks for")
_EXCLUDED = Forward("an excluded path")
_NO_PAGE = Forward("no page, by its extension")
# The reason names the setting, because owners ask why a crawler gets no snapshot.
_CLASS_FORWARDED = {
    crawler: Forward(f'a crawler, forwarded by [triggers] {crawler} = "forward"')
    for crawler in CLASSES
}
FOREIGN_HOST = Forward("a host name that is not the site's")
UNVERIFIED = Forward("a crawler by its name, but not by its address")
OPTED_OUT = Forward("forbidden by robots.txt")


def decide(
    method: str,
    target: str,
    *,
    triggers: Triggers,
    crawler: CrawlerClass | None = None,
    marked: bool = False,
    upgrade: bool = False,
    wants_markdown: bool = False,
    drop_in: bool = False,
) -> Decision:
    """What to do with a request.

    ``target`` is the request target in origin form, byte for byte; ``crawler``: the class of crawlers
    that the client belongs to by its User-Agent; ``marked``: a renderer sent it;
    ``upgrade``: it asks for another protocol; ``wants_markdown``: it would rather have Markdown;
    ``drop_in``: it was a middleware's, for whatever it asks.
    """
    ugly = UGLY_TOKEN in target
    if not ugly and not crawler and not wants_markdown and not drop_in:
        return _NORMAL
    if marked:
        # A page that asks for ugly URLs of its own site would render without end.
        return _MARKED
    action = triggers.action(crawler)
    if action == "refuse":
        return Refuse()
    markdown = wants_markdown or action == "markdown"
    ordinary_too = drop_in or markdown or action == "render"
    if not ugly and not ordinary_too:
        return _NORMAL if crawler is None else _CLASS_FORWARDED[crawler]
    if method not in ("GET", "HEAD"):
        return _METHOD
    if upgrade:
        return _UPGRADE
    read = _remembered if len(target) <= _LONGEST_REMEMBERED else _read
    decision = read(target, ordinary_too, markdown, drop_in)
    if isinstance(decision, Render) and not triggers.may_render(decision.pretty.path):
        return _EXCLUDED
    return decision


def _read(target: str, ordinary_too: bool, markdown: bool, drop_in: bool) -> Decision:
    """What a target asks for, of itself; ordinary URLs only ``ordinary_too``."""
    pretty = ugly_to_pretty(target)
    ugly = pretty is not None
    if pretty is None:
        if not ordinary_too:
            return _NORMAL
        if not may_be_page(target):
            return _NO_PAGE
        pretty = PrettyURL(target, "")
    if not target.startswith("/") or _UNRESOLVED.search(pretty.path.partition("?")[0]):
        return _PATH
    return Render(pretty, by_user_agent=not ugly, markdown=markdown, drop_in=drop_in)


# Crawlers ask again for the same pages, and reading a target is a third of a cached answer's cost.
_remembered = lru_cache(maxsize=1024)(_read)
_LONGEST_REMEMBERED = 2048
