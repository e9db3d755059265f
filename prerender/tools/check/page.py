"""Checks one page: compares what a crawler gets with what a visitor sees."""

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urljoin

from prerender.content.accessibility import lost
from prerender.content.page_views import Seen
from prerender.content.text_comparison import Comparison, Passage, compare
from prerender.errors import FetchFailed, RenderError
from prerender.snapshots.page_changes import Changes, changes_of
from prerender.tools.check import metadata
from prerender.tools.check.alternation import Alternation
from prerender.tools.check.findings import Report
from prerender.tools.check.readiness import Readiness
from prerender.tools.check.visitor_view import Unsettled, VisitorBrowser, VisitorView
from prerender.tools.crawler import Fetched
from prerender.tools.html import PageContent, read_page
from prerender.tools.link_following import CrawledPage, PageFetcher, canonicals, led_to
from prerender.urls.addresses import is_ugly, same_page
from prerender.urls.ajax_crawling import UGLY_TOKEN

SLOW_SECONDS = 5.0
# Shorter passages are times or counters rather than content.
PASSAGE_WORDS = 5
# Below this similarity, the crawler gets a different page.
SHELL_SIMILARITY = 0.5
# Less text is rarely what a page is about.
THIN_CHARACTERS = 150
_SHOWN_CHARACTERS = 160
_SHOWN_PASSAGES = 5
_NO_SNAPSHOT = (
    "made by JavaScript, and crawlers get it without what its JavaScript adds. This proxy gives "
    'them snapshots with [triggers] preset = "crawlers"'
)


@dataclass(slots=True)
class PageChecks:
    """Shared by the checks of single pages.

    ``allowed``: whether robots.txt allows a URL. ``readiness``: for AI agents, if it is checked.
    """

    fetcher: PageFetcher
    visitor: VisitorBrowser | None
    allowed: Callable[[str], bool] = lambda _: True
    readiness: Readiness | None = None
    turns: Alternation = field(default_factory=Alternation)


async def check_page(url: str, pages: PageChecks) -> tuple[Report, PageContent | None]:
    """Check a pretty URL. Returns the report, and the snapshot for following its links."""
    report = Report(url)
    try:
        async with pages.turns.crawling():
            crawled = await pages.fetcher.fetch(url)
    except FetchFailed as error:
        report.add("unreachable", str(error))
        return report, None
    response, document = crawled.response, crawled.document
    report.asked, report.status, report.seconds = (
        response.url,
        response.status,
        response.seconds,
    )
    if not pages.allowed(report.asked):
        report.add("robots", f"robots.txt disallows {report.asked}")
    if response.seconds > SLOW_SECONDS:
        report.add("slow", f"took {response.seconds:.1f} s; crawlers wait only a few seconds")
    if verdict := metadata.verdict(response):
        report.add("verdict", f"the render was {verdict}: see the proxy's log or dashboard")
    if response.status // 100 == 3:
        _redirect(crawled, report)
        return report, None
    if response.status in (404, 410):
        why = "crawlers drop the page"
        if document is not None and document.opted_in and "#" not in url:
            why = "the page has the meta tag, but the server does not know its ugly URL"
        report.add("not-found", f"status {response.status}: {why}")
    elif response.status != 200:
        report.add("status", f"status {response.status}")
        if metadata.verdict(response):
            async with pages.turns.looking():
                await _explained(url, pages, report)
        return report, None
    if not response.is_html:
        report.kind = "file"
        return report, None
    report.needless = crawled.needless
    page = read_page(response.body, url, response.charset)
    report.kind = "snapshot" if crawled.dynamic or UGLY_TOKEN in response.url else "page"
    metadata.tags_and_links(page, response, report)
    metadata.opt_in(page, document, report)
    if response.status == 200:
        async with pages.turns.crawling():
            await metadata.canonical(canonicals(response, page), pages.fetcher, report)
        async with pages.turns.looking():
            changes = changes_of(response.headers.items())
            view = await _compared(url, page, document, pages, report, changes=changes)
            if view is not None and (report.kind == "snapshot" or page.scripts):
                await _listened(url, response, view, pages, report)
        _thin(page, report)
        async with pages.turns.crawling():
            await _ready(pages.readiness, response, page, report)
    return report, page


async def _ready(
    readiness: Readiness | None, response: Fetched, page: PageContent, report: Report
) -> None:
    if readiness is not None:
        await readiness.page(response, page, report)


def _thin(page: PageContent, report: Report) -> None:
    """Report that the page has little text, unless its lack is reported already."""
    text = " ".join(" ".join(page.texts).split())
    made_by_script = report.kind == "snapshot" or page.scripts > 0
    known = any(finding.code in ("empty", "incomplete") for finding in report.findings)
    if made_by_script and report.kind != "shell" and not known and len(text) < THIN_CHARACTERS:
        report.add(
            "thin-text",
            f"only {len(text)} characters of text, perhaps a loading state, or a wall of cookies or a "
            f"login: “{text}”",
        )


def _redirect(crawled: CrawledPage, report: Report) -> None:
    response = crawled.response
    report.kind = "redirect"
    report.location = led_to(report.url, response)
    if not report.location:
        report.add("status", f"status {response.status} without a Location that is a URL")
        return
    # Resolved like by a crawler, without the #! state.
    location = urljoin(response.url, response.headers.get("Location", ""))
    if is_ugly(location):
        report.add("redirect-ugly", f"status {response.status} to the ugly URL {location}")
    elif same_page(report.location, crawled.moved) and not same_page(location, crawled.moved):
        report.add(
            "redirect-state",
            f"status {response.status} to {location}: visitors keep the state and get {crawled.moved}",
        )
    else:
        report.location = location
        report.add("redirect", f"status {response.status} to {location}: link to that directly")


async def _explained(url: str, pages: PageChecks, report: Report) -> None:
    """Report what a visitor's browser shows about a page of which the proxy had no usable render."""
    if pages.visitor is None:
        return
    try:
        view = await pages.visitor.view(url)
    except RenderError as error:
        _not_seen(error, report)
        return
    _troubles(view, report)
    _refused(view, report)


def _not_seen(error: RenderError, report: Report) -> None:
    report.add("no-look", f"the browser could not open the page: {error}")
    if isinstance(error, Unsettled):
        for missing in error.missing[:_SHOWN_PASSAGES]:
            report.add("request-failed", missing)


def _troubles(view: VisitorView, report: Report) -> None:
    for failure in view.failures[:_SHOWN_PASSAGES]:
        report.add("request-failed", failure)
    for complaint in view.errors[:_SHOWN_PASSAGES]:
        report.add("script-error", complaint)


def _refused(view: VisitorView, report: Report) -> None:
    for refused in view.withheld[:_SHOWN_PASSAGES]:
        report.add("request-refused", refused)


async def _compared(
    url: str,
    page: PageContent,
    document: PageContent | None,
    pages: PageChecks,
    report: Report,
    *,
    changes: Changes,
) -> VisitorView | None:
    """Compare the page with what a visitor sees. Returns that, unless it is a different page."""
    if pages.visitor is None:
        made_by_script = report.kind == "snapshot" and document is not None and document.scripts
        if made_by_script and _likeness(page, document) == 1.0:
            report.kind = "shell"
            report.add("shell", "its text is that of the page before its JavaScript has run")
        return None
    try:
        view, comparison = await _viewed(pages.visitor, url, page, changes)
    except RenderError as error:
        _not_seen(error, report)
        return None
    if view.seen is None or comparison is None:
        report.add("differs", f"visitors are redirected to {view.url}")
        return None
    _troubles(view, report)
    _changed(view.seen, changes, report)
    _links_of_people(view.seen, page, report)
    _needless(document, view, report)
    report.similarity = round(comparison.similarity, 4)
    if comparison.similarity < SHELL_SIMILARITY and report.kind == "page" and page.scripts:
        report.kind = "shell"
        report.add("no-snapshot", _NO_SNAPSHOT)
        return None
    made_by_script = document is not None and document.scripts
    if made_by_script and _likeness(page, document) > comparison.similarity < SHELL_SIMILARITY:
        report.kind = "shell"
        report.add("shell", "it is the page before its JavaScript has run")
        return None
    _passages(comparison, view, page, report)
    if any(finding.code == "incomplete" for finding in report.findings):
        _refused(view, report)
    return view


def _changed(seen: Seen, changes: Changes, report: Report) -> None:
    """Report what the proxy says that it changes of the page."""
    texts = "; ".join(one.text for one in seen.removed if one.text)[:_SHOWN_CHARACTERS]
    if seen.removed:
        names = ", ".join(dict.fromkeys(one.selector for one in seen.removed))
        number = len(seen.removed)
        elements = "1 element" if number == 1 else f"{number} elements"
        report.add(
            "changed", f"[snapshot] remove takes {elements} from crawlers ({names}): “{texts}”"
        )
    for html in changes.add:
        report.add("changed", f"[snapshot] add gives crawlers: {html}")


def _links_of_people(seen: Seen, page: PageContent, report: Report) -> None:
    """Check the links of the live page, which the prerender server may have fixed in the snapshot."""
    known = metadata.ugly((*page.ugly, *page.canonicals), report.url)
    for link in sorted(metadata.ugly(seen.links, report.url) - known):
        report.add("link-ugly", f"visitors get a link or canonical with an ugly URL: {link}")
    if not any(finding.code == "link-hash" for finding in report.findings):
        metadata.routes(seen.links, report)


async def _listened(
    url: str, response: Fetched, view: VisitorView, pages: PageChecks, report: Report
) -> None:
    """Compare what a screen reader announces in the snapshot and on the page (the scheme's FAQ)."""
    if pages.visitor is None or any(finding.code == "incomplete" for finding in report.findings):
        return
    try:
        missing = lost(view.announced, await pages.visitor.listen(url, response))
    except RenderError as error:
        report.add("no-look", f"the browser could not open the snapshot: {error}")
        return
    if missing:
        more = (
            f" and {len(missing) - _SHOWN_PASSAGES} more" if len(missing) > _SHOWN_PASSAGES else ""
        )
        shown = "; ".join(missing[:_SHOWN_PASSAGES])
        report.add("accessibility", f"screen readers miss: {shown}{more}")


def _needless(document: PageContent | None, view: VisitorView, report: Report) -> None:
    """Check whether an opted-in page is complete without its scripts."""
    if document is None or not (document.opted_in and document.scripts) or "#" in report.url:
        return
    assert view.seen is not None
    shown = [text for text, is_shown in view.seen.texts if is_shown]
    if shown and compare(document.texts, shown).similarity == 1.0:
        report.add("opt-in-needless", metadata.NEEDLESS)


def _likeness(page: PageContent, document: PageContent | None) -> float:
    """The similarity of a snapshot and the page before its scripts have run."""
    return compare(page.texts, document.texts if document else ()).similarity


async def _viewed(
    visitor: VisitorBrowser, url: str, page: PageContent, changes: Changes
) -> tuple[VisitorView, Comparison | None]:
    """What a visitor sees, and the comparison with what the crawler got.

    If they differ, the page is opened twice and the better result counts: content that differs on
    each load is not cloaking.
    """
    view = await visitor.view(url, changes.remove)
    comparison = _seen_by(view, page)
    passages = () if comparison is None else (*comparison.only_first, *comparison.only_second)
    if all(passage.words < PASSAGE_WORDS for passage in passages):
        return view, comparison
    again = await visitor.view(url, changes.remove)
    second = _seen_by(again, page)
    if comparison is None or (second is not None and second.similarity > comparison.similarity):
        return again, second
    return view, comparison


def _seen_by(view: VisitorView, page: PageContent) -> Comparison | None:
    if view.seen is None:
        return None
    shown = [text for text, is_shown in view.seen.texts if is_shown]
    hidden = [text for text, is_shown in view.seen.texts if not is_shown]
    return compare(page.texts, shown, hidden)


def _passages(comparison: Comparison, view: VisitorView, page: PageContent, report: Report) -> None:
    assert view.seen is not None
    few = 0
    for code, passages, whom in (
        ("cloaked", comparison.only_first, "crawlers get this text, visitors do not"),
        ("incomplete", comparison.only_second, "visitors get this text, crawlers do not"),
    ):
        long = [passage for passage in passages if passage.words >= PASSAGE_WORDS]
        few += sum(passage.words for passage in passages if passage.words < PASSAGE_WORDS)
        for passage in long[:_SHOWN_PASSAGES]:
            report.add(code, f"{whom}: {_quoted(passage)}")
        if len(long) > _SHOWN_PASSAGES:
            report.add(code, f"{whom}: {len(long) - _SHOWN_PASSAGES} more passages")
    if few:
        short = [*comparison.only_first, *comparison.only_second]
        words = ", ".join(_quoted(one) for one in short if one.words < PASSAGE_WORDS)
        report.add("differs", f"{few} words differ: {words[:_SHOWN_CHARACTERS]}")
    shown = compare(page.texts, [text for text, is_shown in view.seen.texts if is_shown])
    hidden = sum(passage.words for passage in shown.only_first) - sum(
        passage.words for passage in comparison.only_first
    )
    if hidden >= PASSAGE_WORDS:
        longest = max(shown.only_first, key=lambda passage: passage.words)
        report.add(
            "hidden", f"{hidden} words are hidden from visitors at first: {_quoted(longest)}"
        )


def _quoted(passage: Passage) -> str:
    text = passage.text
    return f"“{text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + '…'}”"
