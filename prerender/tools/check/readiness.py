"""How ready a site is for AI agents: a score from 0 to 100, and what each part of it is made of.

Parts of pages count by the share of pages that have them. Redirects, files and missing pages are not
among them.
"""

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise

from protego import Protego

from prerender.config.crawler_classes import CrawlerClass
from prerender.content.page_metadata import read
from prerender.crawlers.known import built_in
from prerender.errors import FetchFailed
from prerender.snapshots.tokens import tokens_of
from prerender.tools.check.findings import Finding, Report
from prerender.tools.check.structured_data import problems_of
from prerender.tools.crawler import CrawlerClient, Fetched
from prerender.tools.html import PageContent
from prerender.urls.markdown_urls import markdown_url

# The weight of each part; all are 100.
WEIGHTS = {
    "content": 30,
    "crawlers": 15,
    "markdown": 15,
    "structured data": 10,
    "llms.txt": 10,
    "size": 5,
    "headings": 5,
    "language": 5,
    "Content-Signal": 5,
}
# Agents cut longer texts.
MOST_TOKENS = 25_000
_AI: tuple[CrawlerClass, ...] = ("ai_search", "ai_user", "ai_training")
_MARKDOWN = "text/markdown"
_SHOWN = 8
_SIGNAL_LINE = re.compile(r"^\s*content-signal\s*:", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the score: ``share`` of its ``weight`` is reached."""

    name: str
    weight: int
    share: float


class Readiness:
    """Collects what pages and the site have. ``site``: scheme and host."""

    def __init__(self, site: str, crawler: CrawlerClient) -> None:
        self._site = site
        self._crawler = crawler
        self._pages = 0
        self._good: Counter[str] = Counter()
        self._shares: dict[str, float] = {}
        self._signal = False

    async def page(self, response: Fetched, page: PageContent, report: Report) -> None:
        """Check a page with status 200, and add findings to its report, which is complete otherwise."""
        self._pages += 1
        self._good["content"] += report.worst != "error"
        reading = read(response.body, report.url)
        levels = [level for level, _ in reading.headings]
        ones = levels.count(1)
        if ones != 1:
            report.add("headings", f"{ones} headings of level 1")
        elif skipped := next((two for one, two in pairwise(levels) if two > one + 1), 0):
            report.add("headings", f"a heading of level {skipped} follows one of {skipped - 2}")
        else:
            self._good["headings"] += 1
        if reading.language:
            self._good["language"] += 1
        else:
            report.add("language", "no language: <html lang>")
        problems = problems_of(response.body)
        for problem in problems[:_SHOWN]:
            report.add("structured-data", problem)
        # Not every page is of a type that has some.
        self._good["structured data"] += not problems
        markdown = await self._markdown(response, report)
        text = " ".join(page.texts) if markdown is None else markdown
        if (tokens := tokens_of(text)) > MOST_TOKENS:
            report.add("tokens", f"about {tokens} tokens of text; agents cut at {MOST_TOKENS}")
        else:
            self._good["size"] += 1

    async def _markdown(self, response: Fetched, report: Report) -> str | None:
        path = report.url.removeprefix(self._site)
        urls = [url for url, relations in response.links if "alternate" in relations]
        own = f"{self._site}{markdown_url(path)}"
        wanted = [(url, "") for url in dict.fromkeys((*urls, own)) if url.startswith(self._site)]
        for url, accept in (*wanted, (response.url, _MARKDOWN)):
            with suppress(FetchFailed):
                fetched = await self._crawler.get(url, accept=accept)
                if fetched.status == 200 and fetched.media_type == _MARKDOWN:
                    self._good["markdown"] += 1
                    self._signal = self._signal or "Content-Signal" in fetched.headers
                    return fetched.body.decode("utf-8", "replace")
        report.add("markdown-missing", f"no Markdown at {own}, nor by Accept: {_MARKDOWN}")
        return None

    async def site(self, urls: Iterable[str]) -> list[Finding]:
        """Check what belongs to the whole site. ``urls``: of its pages."""
        findings: list[Finding] = []
        robots = await self._text("/robots.txt")
        rules = Protego.parse(robots)
        first = next(iter(urls), f"{self._site}/").partition("#")[0]
        known = [one.name for one in built_in().crawlers if one.crawler in _AI]
        barred = [name for name in known if not rules.can_fetch(first, name)]
        self._shares["crawlers"] = 1 - len(barred) / len(known)
        if barred:
            more = f" and {len(barred) - _SHOWN} more" if len(barred) > _SHOWN else ""
            text = f"robots.txt disallows {first} for {', '.join(barred[:_SHOWN])}{more}"
            findings.append(Finding("ai-robots", text))
        self._signal = self._signal or bool(_SIGNAL_LINE.search(robots))
        self._shares["Content-Signal"] = float(self._signal)
        if not self._signal:
            text = "no Content-Signal, neither in robots.txt nor with Markdown"
            findings.append(Finding("content-signal", text))
        llms = await self._text("/llms.txt")
        self._shares["llms.txt"] = float(llms.lstrip().startswith("# "))
        if not self._shares["llms.txt"]:
            why = "does not begin with a title (# ...)" if llms else "no such text"
            findings.append(Finding("llms-txt", f"{self._site}/llms.txt: {why}"))
        return findings

    async def _text(self, path: str) -> str:
        with suppress(FetchFailed):
            response = await self._crawler.get(f"{self._site}{path}")
            if response.status == 200 and not response.is_html:
                return response.body.decode("utf-8", "replace")
        return ""

    def parts(self) -> list[Part]:
        """The parts of the score."""
        pages = max(1, self._pages)
        return [
            Part(name, weight, round(self._shares.get(name, self._good[name] / pages), 4))
            for name, weight in WEIGHTS.items()
        ]

    def score(self) -> int:
        """The score, rounded down: 100 means that nothing is missing."""
        return int(sum(part.weight * part.share for part in self.parts()) + 1e-6)

    def facts(self) -> dict[str, object]:
        """The score and its parts, for JSON."""
        return {"score": self.score(), "parts": [asdict(part) for part in self.parts()]}
