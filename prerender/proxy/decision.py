"""Decides what to do with a request: render, forward or refuse. Pure."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

from prerender.config.types import CLASSES, CrawlerClass
from prerender.crawlers.triggers import Triggers, may_be_page
from prerender.errors import CrawlerRefused, PageTooLong, Refused
from prerender.urls.ajax_crawling import UGLY_TOKEN, PrettyURL, ugly_to_pretty

# Search engines do not index URLs of more than about 2,000 characters, and each render of a longer one
# would need a multiple of its length.
LONGEST_PAGE = 8192
# Browsers resolve these before they send a request (WHATWG URL, section 4.4), so the snapshot would be
# of another page than the requested one.
_UNRESOLVED = re.compile(r"(^|/)(\.|%2e){1,2}(/|$)|\\", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Render:
    """Respond with the snapshot of a page.

    ``by_user_agent``: decided by User-Agent or Accept, so visitors get the original page at the same
    URL. ``markdown``: as Markdown. ``drop_in``: requested by a middleware. ``signed``: decided by the
    signature of an agent.
    """

    kind: ClassVar[Literal["render"]] = "render"

    pretty: PrettyURL
    by_user_agent: bool = False
    markdown: bool = False
    drop_in: bool = False
    signed: bool = False

    @property
    def reason(self) -> str:
        """The reason, one of a small set of phrases."""
        if self.drop_in:
            return "a middleware"
        if self.markdown:
            return "a client that prefers Markdown"
        if self.signed:
            return "a signed agent"
        return "a crawler by its User-Agent" if self.by_user_agent else "an ugly URL"


@dataclass(frozen=True, slots=True)
class Forward:
    """Forward the request to the origin."""

    kind: ClassVar[Literal["forward"]] = "forward"

    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Respond with an error: a setting or a limit says so."""

    kind: ClassVar[Literal["refuse"]] = "refuse"

    error: type[Refused] = CrawlerRefused
    reason: str = "a refused class of crawlers"


Decision = Render | Forward | Refuse

_NORMAL = Forward("neither an ugly URL nor a crawler")
_METHOD = Forward("neither GET nor HEAD")
_MARKED = Forward("from a renderer")
_UPGRADE = Forward("a protocol upgrade")
_PATH = Forward("a path with dot segments or a backslash")
_EXCLUDED = Forward("an excluded path")
_LONG = Forward("longer than the URLs of pages")
_NO_PAGE = Forward("not a page, by its extension")
# The reason names the setting, to explain why a crawler gets no snapshot.
_CLASS_FORWARDED: dict[CrawlerClass, Forward] = {
    crawler: Forward(
        f"a {'signed agent' if crawler == 'signed' else 'crawler'}, forwarded by [triggers] "
        f'{crawler} = "forward"'
    )
    for crawler in CLASSES
}
# Signed agents are not among them: most drive a browser, so that nothing is wrong.
FORWARDED_CLASSES = frozenset(
    forward.reason for crawler, forward in _CLASS_FORWARDED.items() if crawler != "signed"
)
FOREIGN_HOST = Forward("a host name that is not the site's")
UNVERIFIED = Forward("an unverified crawler")
OPTED_OUT = Forward("disallowed by robots.txt")


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
    """Decide what to do with a request.

    ``target``: the request target in origin form, unchanged; ``crawler``: the class of crawlers
    of its User-Agent or signature; ``marked``: a renderer sent it; ``upgrade``: it asks for another
    protocol; ``wants_markdown``: the client prefers Markdown; ``drop_in``: a middleware sent it.
    """
    ugly = UGLY_TOKEN in target
    if not ugly and not crawler and not wants_markdown and not drop_in:
        return _NORMAL
    if marked:
        # A page that requests ugly URLs of its own site would cause endless renders.
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
    if crawler == "signed" and isinstance(decision, Render) and decision.by_user_agent:
        return replace(decision, signed=True)
    return decision


def _read(target: str, ordinary_too: bool, markdown: bool, drop_in: bool) -> Decision:
    """The decision for a target; ordinary URLs are rendered only if ``ordinary_too``."""
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
    if len(pretty.path) + len(pretty.fragment) > LONGEST_PAGE:
        return Refuse(PageTooLong, _LONG.reason) if ugly or drop_in else _LONG
    return Render(pretty, by_user_agent=not ugly, markdown=markdown, drop_in=drop_in)


# Crawlers request the same pages repeatedly, and parsing a target is a third of the cost of a hit.
_remembered = lru_cache(maxsize=1024)(_read)
_LONGEST_REMEMBERED = 2048
