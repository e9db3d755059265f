"""Checks the metadata of a page: title, description, robots, canonical, links and opt-in."""

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from prerender.errors import FetchFailed
from prerender.http.robots_tags import is_noindex
from prerender.snapshots.snapshot import UNUSABLE
from prerender.tools.check.findings import Report
from prerender.tools.crawler import Fetched
from prerender.tools.html import PageContent
from prerender.tools.link_following import PageFetcher, canonicals
from prerender.urls.addresses import after_host, is_ugly, pretty_of, same_page, site_of
from prerender.urls.ajax_crawling import UGLY_TOKEN, pretty_to_ugly
from prerender.urls.markdown_urls import page_of

_VERDICTS = ("moved", "cut-off", "refused", *UNUSABLE)
NEEDLESS = (
    'the page is the same without JavaScript: <meta name="fragment"> only doubles the requests'
)
_NO_TEXT_CHARACTERS = 3


def verdict(response: Fetched) -> str:
    """The verdict of a render that is not complete, from the proxy's Cache-Status; or ''."""
    detail = (response.cache_status or {}).get("detail", "").removesuffix("-coalesced")
    return detail if detail in _VERDICTS else ""


def tags_and_links(page: PageContent, response: Fetched, report: Report) -> None:
    """Check title, description, robots and links."""
    report.title = next(iter(page.titles), "")
    report.description = next(iter(page.descriptions), "")
    report.canonical = next(iter(canonicals(response, page)), "")
    if not report.title:
        report.add("title-missing", "no title")
    if len(page.titles) > 1:
        report.add("title-several", f"{len(page.titles)} titles: {', '.join(page.titles)}")
    if not report.description and response.status == 200:
        report.add("description-missing", "no description")
    noindex = page.noindex or is_noindex(response.headers.getall("X-Robots-Tag", ()))
    if response.status == 200 and noindex:
        report.add("noindex", "excluded from indexes (noindex)")
    if page.opted_in and report.kind == "snapshot":
        report.add("meta-fragment", 'the snapshot contains <meta name="fragment" content="!">')
    for link in sorted(ugly(page.ugly, report.url) - {*page.canonicals}):
        report.add("link-ugly", f"a link with an ugly URL: {link}")
    # The Markdown of a state has no other URL than an ugly one, and the proxy itself names it.
    headers = {
        link
        for link, relations in response.links
        if "canonical" not in relations
        and not ("alternate" in relations and page_of(after_host(link)) is not None)
    }
    for link in sorted(ugly(headers, report.url)):
        report.add("link-ugly", f"a Link header with an ugly URL: {link}")
    routes(page.links, report)
    if len("".join(page.texts)) < _NO_TEXT_CHARACTERS and response.status == 200:
        report.add("empty", "no text")


def opt_in(page: PageContent, document: PageContent | None, report: Report) -> None:
    """Check that the meta tag is valid and needed ("Pages without hash fragments")."""
    if "#" in report.url:
        return
    for reason in dict.fromkeys((*page.misplaced, *(document.misplaced if document else ()))):
        report.add("opt-in-invalid", f'<meta name="fragment"> is invalid: {reason}')
    if document is not None and document.opted_in and not document.scripts:
        report.add("opt-in-needless", NEEDLESS)


async def canonical(urls: Sequence[str], fetcher: PageFetcher, report: Report) -> None:
    """Check the canonical URLs."""
    if len(set(urls)) > 1:
        report.add("canonical-broken", f"several canonicals: {', '.join(urls)}")
    for url in dict.fromkeys(urls):
        if UGLY_TOKEN in url:
            report.add("canonical-ugly", f"the canonical is an ugly URL: {url}")
            continue
        try:
            pretty = pretty_of(url)
        except ValueError:
            report.add("canonical-broken", f"the canonical is not a URL of a page: {url!r}")
            continue
        if same_page(url, report.url):
            continue
        if site_of(url) != site_of(report.url):
            report.add("canonical-broken", f"the canonical is on another site: {url}")
            continue
        own = pretty_of(report.url)
        if pretty.path == own.path and own.fragment and not pretty.fragment:
            report.add(
                "canonical-state",
                f"the canonical lacks the #! state, so all states count as one page: {url}",
            )
            continue
        try:
            requested = pretty_to_ugly(url) or url.partition("#")[0]
            status = (await fetcher.once(requested)).status
        except FetchFailed:
            status = 0
        if status == 200:
            report.add("canonical-elsewhere", f"the canonical is another page: {url}")
        else:
            why = f"status {status}" if status else "no response"
            report.add("canonical-broken", f"the canonical does not exist ({why}): {url}")


def routes(links: Iterable[str], report: Report) -> None:
    """Check for # routes, which crawlers cannot request. Anchors do not begin with a slash."""
    own = [link for link in dict.fromkeys(links) if site_of(link) == site_of(report.url)]
    if routes := [link for link in own if link.partition("#")[2].startswith("/")]:
        more = f" and {len(routes) - 1} more" if len(routes) > 1 else ""
        report.add(
            "link-hash", f"links to # routes, which crawlers follow only with #!: {routes[0]}{more}"
        )


def ugly(links: Iterable[str], page: str) -> set[str]:
    """The links of a page that are ugly URLs of its site, with http or https."""
    host = urlsplit(page).hostname
    return {link for link in links if is_ugly(link) and _host(link) == host}


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
