"""Triggers: the action for each class of crawlers, and the paths that are rendered. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from prerender.config.crawler_classes import CrawlerClass
from prerender.config.types import Action
from prerender.crawlers.known import Crawlers, built_in
from prerender.crawlers.user_agents import UserAgents
from prerender.urls.patterns import comparable, matches

# Extensions that are not pages. Only a shortcut: for all others the origin's Content-Type decides.
_NO_PAGE = re.compile(
    r"""\.(?:
      7z | ai | apk | atom | avi | avif | bmp | br | cjs | css | csv | dat | dmg | docx? | eot | exe
    | flac | flv | gif | gz | heic | ico | ics | ipa | iso | jpe?g | js | json | jsonld | less
    | m3u8 | m4[av] | map | md | mjs | mov | mp[34] | mpe?g | og[gv] | opus | otf | pdf | png | pptx?
    | psd | rar | rss
    | svg | swf | tar | tiff? | torrent | tsx? | ttf | txt | vcf | wasm | wav | webm | webmanifest
    | webp | wm[av] | woff2? | xlsx? | xml | ya?ml | zip
    )$""",
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)

# The actions whose response is another one than that of visitors, by kind of URL.
_SELECTING: dict[str, tuple[Action, ...]] = {
    "page": ("render", "markdown", "refuse"),
    "ugly": ("markdown", "refuse"),
    "markdown": ("refuse",),
}


@dataclass(frozen=True, slots=True)
class Paths:
    """The pages that may be rendered: those in ``include`` (all if empty) and not in ``exclude``.

    Patterns match path and query, with or without the ``#!`` state: "/account" means all states of that
    page, "/#!/account/*" some of the first one.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def allow(self, page: str) -> bool:
        """Whether a page may be rendered, by its path, query and ``#!`` state."""
        forms = _known_forms(page) if len(page) <= _LONGEST_REMEMBERED else _forms(page)
        if _match(self.exclude, forms):
            return False
        return not self.include or _match(self.include, forms)


def _forms(page: str) -> tuple[str, ...]:
    """The page in the form for comparison, with and without its state."""
    whole = comparable(page)
    path, mark, _ = whole.partition("#!")
    return (whole, path) if mark else (whole,)


# Crawlers request the same pages repeatedly.
_known_forms = lru_cache(maxsize=1024)(_forms)
_LONGEST_REMEMBERED = 2048


def _match(patterns: Iterable[str], forms: Collection[str]) -> bool:
    return any(matches(pattern, form) for pattern in patterns for form in forms)


class Triggers:
    """``actions``: by class of crawlers; ``crawlers``: the known ones, by default the built-in ones.

    ``accept_markdown``: clients that prefer Markdown get it.
    """

    def __init__(
        self,
        actions: Mapping[CrawlerClass, Action] | None = None,
        crawlers: Crawlers | None = None,
        paths: Paths | None = None,
        *,
        accept_markdown: bool = False,
    ) -> None:
        self._actions = dict(actions or {})
        self.crawlers = crawlers or built_in()
        self.user_agents = UserAgents(self.crawlers.crawlers)
        self._paths = paths
        self.accept_markdown = accept_markdown

    def action(self, crawler: CrawlerClass | None) -> Action:
        """The action for a class of crawlers; None means visitors."""
        return "forward" if crawler is None else self._actions.get(crawler, "forward")

    def class_of(self, user_agent: str) -> CrawlerClass | None:
        """The class of crawlers of a User-Agent; None for visitors."""
        return self.user_agents.class_of(user_agent)

    def vary(self, at: Literal["page", "ugly", "markdown"] = "page") -> tuple[str, ...]:
        """The request headers that select the response at an ordinary, ugly or Markdown URL."""
        selecting = _SELECTING[at]
        selected = [known for known, action in self._actions.items() if action in selecting]
        names = ["Signature-Agent" if known == "signed" else "User-Agent" for known in selected]
        by_accept = self.accept_markdown and at != "markdown"
        return (*sorted(set(names), reverse=True), *("Accept",) * by_accept)

    @property
    def need_signatures(self) -> bool:
        """Whether responses depend on the signatures of agents."""
        return self.action("signed") != "forward"

    def may_render(self, page: str) -> bool:
        """Whether a page may be rendered, by its path, query and ``#!`` state."""
        return self._paths is None or self._paths.allow(page)


def may_be_page(target: str) -> bool:
    """Whether a request target may be a page, judging by its extension."""
    return not _NO_PAGE.search(target.partition("?")[0])
