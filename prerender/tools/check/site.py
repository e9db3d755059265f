"""Checks a site: all its pages, and what only shows across pages."""

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from prerender.errors import FetchFailed
from prerender.snapshots.sameness import section_pattern
from prerender.tools.check.findings import Finding, Report
from prerender.tools.check.page import PageChecks, check_page
from prerender.tools.check.readiness import Readiness
from prerender.tools.check.visitor_view import VisitorBrowser
from prerender.tools.concurrency import work_through
from prerender.tools.crawler import USER_AGENT, CrawlerClient
from prerender.tools.html import read_page
from prerender.tools.link_following import Frontier, PageFetcher, read_robots
from prerender.urls.addresses import after_host, is_ugly


@dataclass(slots=True)
class Result:
    """All reports, findings about the whole site, and the number of skipped pages."""

    pages: list[Report] = field(default_factory=list)
    site: list[Finding] = field(default_factory=list)
    left_out: int = 0


class SiteCheck:
    """Checks the pages of one ``site`` (scheme and host). ``on_report`` is called with each report.

    ``follow``: check linked pages, too. ``most``: maximum number of pages. ``readiness``: for AI
    agents, if it is checked.
    """

    def __init__(
        self,
        site: str,
        crawler: CrawlerClient,
        visitor: VisitorBrowser | None,
        *,
        follow: bool,
        most: int,
        concurrency: int,
        user_agent: str = USER_AGENT,
        readiness: Readiness | None = None,
        on_report: Callable[[Report], None] = lambda _: None,
        on_new_pages: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._site = site
        self._crawler = crawler
        self._follow = follow
        self._concurrency = concurrency
        self._user_agent = user_agent
        self._on_report = on_report
        self._pages = PageChecks(PageFetcher(crawler), visitor, readiness=readiness)
        self._frontier = Frontier(site, most, on_new_pages)
        self.result = Result()

    async def run(self, urls: Iterable[str]) -> Result:
        """Check these pages and, if ``follow``, those they link to."""
        self._pages.allowed = await read_robots(self._crawler, self._site, self._user_agent)
        urls = list(urls)
        if not self._follow:
            self._listed(urls)
        first = self._frontier.new(urls)
        try:
            await work_through(first, self._check, concurrency=self._concurrency)
            await self._missing()
        finally:
            await self._pages.fetcher.close()
        self.result.left_out = self._frontier.left_out
        if self._pages.readiness is not None:
            good = (report.asked for report in self.result.pages if report.status == HTTPStatus.OK)
            self.result.site += await self._pages.readiness.site(good)
        self._duplicates("title", "title-duplicate", lambda report: report.title)
        self._duplicates("description", "description-duplicate", lambda report: report.description)
        self._needless()
        return self.result

    async def _check(self, url: str) -> list[str]:
        report, page = await check_page(url, self._pages)
        self.result.pages.append(report)
        self._on_report(report)
        if not self._follow:
            return []
        # Crawlers follow redirects but no ugly links (specification, "Hyperlinks and Sitemaps").
        links = [link for link in (page.links if page else ()) if not is_ugly(link)]
        return self._frontier.new([*links, report.location])

    def _listed(self, urls: Iterable[str]) -> None:
        """Check the URLs of a sitemap."""
        for url in urls:
            if is_ugly(url):
                text = f"the sitemap lists an ugly URL: {url}"
                self.result.site.append(Finding("sitemap-ugly", text))
            elif url.partition("#")[2].startswith("/"):
                text = f"the sitemap lists a # route, which crawlers request only with #!: {url}"
                self.result.site.append(Finding("link-hash", text))

    def _duplicates(self, name: str, code: str, text_of: Callable[[Report], str]) -> None:
        by_text: dict[str, list[Report]] = defaultdict(list)
        for report in self.result.pages:
            # Pages with another canonical are no duplicates.
            elsewhere = any(finding.code.startswith("canonical-") for finding in report.findings)
            if report.status == 200 and text_of(report) and not elsewhere:
                by_text[text_of(report)].append(report)
        for text, reports in by_text.items():
            if len(reports) > 1:
                urls = ", ".join(report.url for report in reports[:5])
                more = f" and {len(reports) - 5} more" if len(reports) > 5 else ""
                self.result.site.append(
                    Finding(code, f"{len(reports)} pages have the {name} “{text}”: {urls}{more}")
                )

    def _needless(self) -> None:
        """Report sections all of whose snapshots show what the pages show without scripts."""
        sections: dict[str, list[bool]] = defaultdict(list)
        for report in self.result.pages:
            if report.needless is not None or report.kind == "snapshot":
                path = after_host(report.url)
                sections[section_pattern(path)].append(bool(report.needless))
        for pattern, needless in sorted(sections.items()):
            if all(needless):
                pages = "1 page" if len(needless) == 1 else f"all {len(needless)} pages"
                text = (
                    f"the snapshots of {pages} like {pattern} show what the origin's HTML shows "
                    f'without scripts: add "{pattern}" to [triggers] exclude'
                )
                self.result.site.append(Finding("render-needless", text))

    async def _missing(self) -> None:
        """Check that a random path and a random state get a 404."""
        made_up = secrets.token_hex(8)
        wanted = [f"{self._site}/{made_up}"]
        # The document of an existing state.
        if states := [
            r.url for r in self.result.pages if "#!" in r.url and r.status == HTTPStatus.OK
        ]:
            wanted.append(f"{states[0].partition('#')[0]}#!/{made_up}")
        for url in wanted:
            with suppress(FetchFailed):
                response = (await self._pages.fetcher.fetch(url)).response
                if response.status == HTTPStatus.OK and response.is_html:
                    title = next(iter(read_page(response.body, url).titles), "")
                    text = f"a page that does not exist has status 200 (“{title}”): {response.url}"
                    self.result.site.append(Finding("soft-404", text))
