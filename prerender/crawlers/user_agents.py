"""Maps a User-Agent to a class of crawlers. The names are in user_agents.toml."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from prerender.config.types import CLASSES, CrawlerClass

# Longer User-Agents are truncated, to bound the cache.
_LONGEST = 1024


def known_names() -> dict[CrawlerClass, tuple[str, ...]]:
    """The built-in names by class."""
    names = _data()
    return {known: tuple(names.get(known, ())) for known in CLASSES}


def known_domains() -> dict[str, tuple[str, ...]]:
    """The domains of the host names of crawlers, by name of the crawler."""
    return {name: tuple(domains) for name, domains in _data()["domains"].items()}


def _data() -> dict[str, Any]:
    text = (files("prerender.crawlers") / "user_agents.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


class UserAgents:
    """Finds crawlers by ``names``: words in a User-Agent, in any case; ``^`` anchors at its start."""

    def __init__(self, names: Mapping[CrawlerClass, Iterable[str]]) -> None:
        self._patterns = {known: words_of(names[known]) for known in CLASSES if names.get(known)}
        self._remembered = lru_cache(maxsize=1024)(self._search)

    def class_of(self, user_agent: str) -> CrawlerClass | None:
        """The class of a crawler; None for visitors and unknown clients."""
        return self._remembered(user_agent[:_LONGEST])

    def _search(self, user_agent: str) -> CrawlerClass | None:
        for known, pattern in self._patterns.items():
            if pattern.search(user_agent):
                return known
        return None


def words_of(names: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds one of these names in a User-Agent."""
    return re.compile("|".join(_word(name) for name in names), re.ASCII | re.IGNORECASE)


def _word(name: str) -> str:
    word = name.removeprefix("^")
    before = "^" if name.startswith("^") else r"(?<!\w)"
    after = r"(?!\w)" if re.fullmatch(r"\w", word[-1], re.ASCII) else ""
    return f"{before}{re.escape(word)}{after}"
