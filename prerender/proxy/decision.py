"""Decides what to do with a request: render, forward or refuse. Pure."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

from prerender.config.crawler_classes import CrawlerClass
from prerender.crawlers.triggers import Triggers, may_be_page
from prerender.errors import CrawlerRefused, PageTooLong, Refused
from prerender.urls.ajax_crawling import UGLY_TOKEN, PrettyURL, ugly_to_pretty
from prerender.words import Word

# Search engines do not index URLs of more than about 2,000 characters, and each render of a longer one
# would need a multiple of its length.
LONGEST_PAGE = 8192
# Browsers resolve these before they send a request (WHATWG URL, section 4.4), so the snapshot would be
# of another page than the requested one.
_UNRESOLVED = re.compile(r"(^|/)(\.|%2e){1,2}(/|$)|\\", re.IGNORECASE)


class Reason(Word):
    """Why a request is rendered, forwarded or refused."""

    UGLY_URL = "ugly_url", "an ugly URL"
    CRAWLER = "crawler", "a crawler by its User-Agent"
    SIGNED_AGENT = "signed_agent", "a signed agent"
    PREFERS_MARKDOWN = "prefers_markdown", "a client that prefers Markdown"
    MARKDOWN_URL = "markdown_url", "a Markdown URL"
    MIDDLEWARE = "middleware", "a middleware"

    ORDINARY = "ordinary", "neither an ugly URL nor a crawler"
    METHOD = "method", "neither GET nor HEAD"
    RENDERER = "renderer", "from a renderer"
    UPGRADE = "upgrade", "a protocol upgrade"
    UNRESOLVED_PATH = "unresolved_path", "a path with dot segments or a backslash"
    EXCLUDED_PATH = "excluded_path", "an excluded path"
    LONG_URL = "long_url", "longer than the URLs of pages"
    EXTENSION = "extension", "not a page, by its extension"
    CLASS_FORWARDED = "class_forwarded", "a crawler of a class that [triggers] forwards"
    FOREIGN_HOST = "foreign_host", "a host name that is not the site's"
    UNVERIFIED = "unverified", "an unverified crawler"
    ROBOTS_TXT = "robots_txt", "disallowed by robots.txt"
    ORIGINS_FILE = "origins_file", "a file of the origin at a Markdown URL"

    CLASS_REFUSED = "class_refused", "a refused class of crawlers"
    MIDDLEWARE_REFUSED = "middleware_refused", "a middleware that is not allowed"


@dataclass(frozen=True, slots=True)
class Render:
    """Respond with the snapshot of a page.

    ``by_user_agent``: decided by User-Agent or Accept, so visitors get the original page at the same
    URL. ``markdown``: as Markdown. ``drop_in``: requested by a middleware.
    ``markdown_url``: requested at its Markdown URL.
    """

    kind: ClassVar[Literal["render"]] = "render"

    pretty: PrettyURL
    reason: Reason = Reason.UGLY_URL
    by_user_agent: bool = False
    markdown: bool = False
    drop_in: bool = False
    markdown_url: bool = False


@dataclass(frozen=True, slots=True)
class Forward:
    """Forward the request to the origin."""

    kind: ClassVar[Literal["forward"]] = "forward"

    reason: Reason


@dataclass(frozen=True, slots=True)
class Refuse:
    """Respond with an error: a setting or a limit says so."""

    kind: ClassVar[Literal["refuse"]] = "refuse"

    error: type[Refused] = CrawlerRefused
    reason: Reason = Reason.CLASS_REFUSED


Decision = Render | Forward | Refuse

_ORDINARY = Forward(Reason.ORDINARY)


def decide(
    method: str,
    target: str,
    *,
    triggers: Triggers,
    crawler: CrawlerClass | None = None,
    marked: bool = False,
    upgrade: bool = False,
    wants_markdown: bool = False,
    markdown_url: bool = False,
    drop_in: bool = False,
) -> Decision:
    """Decide what to do with a request.

    ``target``: the request target in origin form, unchanged; ``crawler``: the class of crawlers
    of its User-Agent or signature; ``marked``: a renderer sent it; ``upgrade``: it asks for a
    WebSocket; ``wants_markdown``: the client prefers Markdown; ``markdown_url``: ``target`` is the
    page of a requested Markdown URL; ``drop_in``: a middleware sent it.
    """
    ugly = UGLY_TOKEN in target
    wants_markdown = wants_markdown or markdown_url
    if not ugly and not crawler and not wants_markdown and not drop_in:
        return _ORDINARY
    if marked:
        # A page that requests ugly URLs of its own site would cause endless renders.
        return Forward(Reason.RENDERER)
    action = triggers.action(crawler)
    if action == "refuse":
        return Refuse()
    markdown = wants_markdown or action == "markdown"
    ordinary_too = drop_in or markdown or action == "render"
    if not ugly and not ordinary_too:
        return _ORDINARY if crawler is None else Forward(Reason.CLASS_FORWARDED)
    if method not in ("GET", "HEAD"):
        return Forward(Reason.METHOD)
    if upgrade:
        return Forward(Reason.UPGRADE)
    read = _remembered if len(target) <= _LONGEST_REMEMBERED else _read
    decision = read(target, ordinary_too, markdown, drop_in)
    if isinstance(decision, Render) and not triggers.may_render(str(decision.pretty)):
        return Forward(Reason.EXCLUDED_PATH)
    if markdown_url and isinstance(decision, Render):
        reason = decision.reason if drop_in else Reason.MARKDOWN_URL
        return replace(decision, reason=reason, by_user_agent=False, markdown_url=True)
    if crawler == "signed" and isinstance(decision, Render) and decision.reason is Reason.CRAWLER:
        return replace(decision, reason=Reason.SIGNED_AGENT)
    return decision


def _read(target: str, ordinary_too: bool, markdown: bool, drop_in: bool) -> Decision:
    """The decision for a target; ordinary URLs are rendered only if ``ordinary_too``."""
    pretty = ugly_to_pretty(target)
    ugly = pretty is not None
    if pretty is None:
        if not ordinary_too:
            return _ORDINARY
        if not may_be_page(target):
            return Forward(Reason.EXTENSION)
        pretty = PrettyURL(target, "")
    if not target.startswith("/") or _UNRESOLVED.search(pretty.path.partition("?")[0]):
        return Forward(Reason.UNRESOLVED_PATH)
    if len(pretty.path) + len(pretty.fragment) > LONGEST_PAGE:
        return Refuse(PageTooLong, Reason.LONG_URL) if ugly or drop_in else Forward(Reason.LONG_URL)
    if drop_in:
        reason = Reason.MIDDLEWARE
    elif markdown:
        reason = Reason.PREFERS_MARKDOWN
    else:
        reason = Reason.UGLY_URL if ugly else Reason.CRAWLER
    return Render(pretty, reason, by_user_agent=not ugly, markdown=markdown, drop_in=drop_in)


# Crawlers request the same pages repeatedly, and parsing a target is a third of the cost of a hit.
_remembered = lru_cache(maxsize=1024)(_read)
_LONGEST_REMEMBERED = 2048
