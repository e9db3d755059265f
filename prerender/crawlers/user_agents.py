"""Finds known crawlers by User-Agent."""

import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from prerender.config.crawler_classes import CLASSES, CrawlerClass
from prerender.crawlers.key_directories import agent_of
from prerender.crawlers.known import Crawler
from prerender.crawlers.message_signatures import NotVerified

# Longer User-Agents are truncated, to bound the cache.
_LONGEST = 1024
_WORDS = re.compile(r"\w+", re.ASCII)
_WORD = re.compile(r"\w", re.ASCII)
_RANKS = {known: rank for rank, known in enumerate(CLASSES)}


class UserAgents:
    """Finds ``crawlers`` by their names, which must stand in a User-Agent as words of their own.

    The time does not depend on the number of crawlers: each word of a User-Agent is looked up.
    """

    def __init__(self, crawlers: Iterable[Crawler]) -> None:
        # By the first word of the name: where that is in the name, the name, whether it is anchored.
        self._by_word: defaultdict[str, list[tuple[int, str, bool, Crawler]]] = defaultdict(list)
        for crawler in crawlers:
            name = crawler.name.lower()
            token = name.removeprefix("^")
            if first := _WORDS.search(token):
                entry = (first.start(), token, token != name, crawler)
                self._by_word[first[0]].append(entry)
        self._remembered = lru_cache(maxsize=1024)(self._search)

    def class_of(self, user_agent: str) -> CrawlerClass | None:
        """The class of a crawler; None for visitors and unknown clients."""
        crawlers = self.crawlers_of(user_agent)
        return crawlers[0].crawler if crawlers else None

    def crawlers_of(self, user_agent: str) -> tuple[Crawler, ...]:
        """The crawlers that a User-Agent names, the one that it is first; usually none or one.

        If they are of several classes, the order of the classes decides, then their places.
        """
        return self._remembered(user_agent[:_LONGEST])

    def signer_of(self, user_agent: str) -> str:
        """The name of the agent that signs the requests of the crawlers; '' if it is not the same for
        all that the User-Agent names."""
        urls = {one.signature_agent for one in self.crawlers_of(user_agent)}
        if len(urls) != 1 or "" in urls:
            return ""
        with suppress(NotVerified):
            return agent_of(urls.pop()).name
        return ""

    def _search(self, user_agent: str) -> tuple[Crawler, ...]:
        text = user_agent.lower()
        # By place, the longest name there: AI2Bot-DeepResearchEval is not AI2Bot.
        longest: dict[int, tuple[int, Crawler]] = {}
        for word in _WORDS.finditer(text):
            for offset, token, anchored, crawler in self._by_word.get(word[0], ()):
                start, end = word.start() - offset, word.start() - offset + len(token)
                if start and (anchored or start < 0 or _WORD.match(text, start - 1)):
                    continue
                if _WORD.match(token[-1]) and _WORD.match(text, end):
                    continue
                if text.startswith(token, start) and end > longest.get(start, (0,))[0]:
                    longest[start] = (end, crawler)
        # "like Googlebot" is said by others.
        own = [at for at in longest if not text.endswith("like ", 0, at)]
        crawlers = [longest[at][1] for at in own or longest]
        # Stable: within a class, in the order of their places.
        return tuple(dict.fromkeys(sorted(crawlers, key=lambda one: _RANKS[one.crawler])))
