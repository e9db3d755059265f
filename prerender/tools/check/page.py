"""Checks one page: what a crawler of the scheme gets for it, and what a person sees."""

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urljoin

from prerender.browser.accessibility import lost
from prerender.browser.rendered import Seen
from prerender.errors import FetchFailed, RenderError
from prerender.tools.check import said
from prerender.tools.check.findings import Report
from prerender.tools.check.person import Look, Person
from prerender.tools.check.texts import Comparison, Passage, compare
from prerender.tools.check.turns import Turns
from prerender.tools.crawler import SEARCH_ENGINE, Fetched
from prerender.tools.html import Page, read_page
from prerender.tools.visiting import Visit, Visitor, canonicals, led_to
from prerender.urls.addresses import is_ugly, same_page
from prerender.urls.ajax_crawling import UGLY_TOKEN

SLOW_SECONDS = 5.0
# From so many words on a passage is something that is said, and no time or counter.
PASSAGE_WORDS = 5
# With less in common the crawler has another page than people have.
SHELL_SIMILARITY = 0.5
_SHOWN_CHARACTERS = 160
_SHOWN_PASSAGES = 5
_NOT_OPTED_IN = (
    "made by JavaScript, but it has neither #! nor the meta tag: crawlers get no snapshot"
)


@dataclass(slots=True)
class Pages:
    """What checks of single pages share. ``allowed``: whether robots.txt lets a URL be asked for."""

    visitor: Visitor
    person: Person | None
    allowed: Callable[[str], bool] = lambda _: True
    turns: Turns = field(default_factory=Turns)


async def check_page(url: str, pages: Pages) -> tuple[Report, Page | None]:
    """Check a pretty URL; what its snapshot says is there for who follows its links."""
    report = Report(url)
    try:
        async with pages.turns.crawling():
            visit = await pages.visitor.visit(url)
    except FetchFailed as error:
        report.add("unreachable", str(error))
        return report, None
    answer, document = visit.answer, visit.document
    report.asked, report.status, report.seconds = answer.url, answer.status, answer.seconds
    if not pages.allowed(report.asked):
        report.add("robots", f"robots.txt forbids {report.asked}")
    if answer.seconds > SLOW_SECONDS:
        report.add("slow", f"took {answer.seconds:.1f} s; crawlers wait for a few seconds")
    if verdict := said.verdict(answer.headers.get("Cache-Status", "")):
        report.add("verdict", f"the render was {verdict}: the proxy's log and dashboard say why")
    if answer.status // 100 == 3:
        _redirect(visit, report)
        return report, None
    if answer.status in (404, 410):
        why = "crawlers forget a page with it"
        if document is not None and document.opted_in and "#" not in url:
            why = "the page has the meta tag, but the server does not know its ugly URL"
        report.add("not-found", f"status {answer.status}: {why}")
    elif answer.status != 200:
        report.add("status", f"status {answer.status}")
        return report, None
    if not answer.is_html:
        report.kind = "file"
        return report, None
    page = read_page(answer.body, url, answer.charset)
    report.kind = "snapshot" if UGLY_TOKEN in answer.url else "page"
    said.said(page, answer, report)
    said.opt_in(page, document, report)
    if answer.status == 200:
        async with pages.turns.crawling():
            await said.canonical(canonicals(answer, page), pages.visitor, report)
        async with pages.turns.looking():
            look = await _compared(url, page, document, pages, report)
            if look is not None and (report.kind == "snapshot" or page.scripts):
                await _listened(url, answer, look, pages, report)
    return report, page


def _redirect(visit: Visit, report: Report) -> None:
    answer = visit.answer
    report.kind = "redirect"
    # As a crawler resolves it, which knows of no state.
    location = urljoin(answer.url, answer.headers.get("Location", ""))
    report.location = led_to(report.url, answer)
    if not report.location:
        report.add("status", f"status {answer.status} without a Location that is a URL")
    elif is_ugly(location):
        report.add("redirect-ugly", f"status {answer.status} to the ugly URL {location}")
    elif same_page(report.location, visit.moved) and not same_page(location, visit.moved):
        report.add(
            "redirect-state",
            f"status {answer.status} to {location}: people keep the state and come to {visit.moved}",
        )
    else:
        report.location = location
        report.add("redirect", f"status {answer.status} to {location}: link to that at once")


async def _compared(
    url: str, page: Page, document: Page | None, pages: Pages, report: Report
) -> Look | None:
    """Compare it with what a person sees; that, if it is much the same page."""
    if pages.person is None:
        made_by_script = report.kind == "snapshot" and document is not None and document.scripts
        if made_by_script and _likeness(page, document) == 1.0:
            report.kind = "shell"
            report.add("shell", "it says what the page says before its JavaScript has run")
        return None
    try:
        look, comparison = await _looked(pages.person, url, page)
    except RenderError as error:
        report.add("no-look", f"no browser could open it: {error}")
        return None
    if look.seen is None or comparison is None:
        report.add("differs", f"people are led on to {look.url}")
        return None
    _links_of_people(look.seen, page, report)
    _needless(document, look, report)
    report.similarity = round(comparison.similarity, 4)
    if comparison.similarity < SHELL_SIMILARITY and report.kind == "page" and page.scripts:
        report.kind = "shell"
        report.add("not-opted-in", _NOT_OPTED_IN + await _by_user_agent(url, page, pages))
        return None
    made_by_script = document is not None and document.scripts
    if made_by_script and _likeness(page, document) > comparison.similarity < SHELL_SIMILARITY:
        report.kind = "shell"
        report.add("shell", "it is the page before its JavaScript has run")
        return None
    _passages(comparison, look, page, report)
    return look


def _links_of_people(seen: Seen, page: Page, report: Report) -> None:
    """What is wrong with links of the live page; a server of snapshots may have mended them there."""
    known = said.ugly((*page.ugly, *page.canonicals), report.url)
    for link in sorted(said.ugly(seen.links, report.url) - known):
        report.add("link-ugly", f"people get a link or a canonical in ugly form: {link}")
    if not any(finding.code == "link-hash" for finding in report.findings):
        said.routes(seen.links, report)


async def _listened(url: str, answer: Fetched, look: Look, pages: Pages, report: Report) -> None:
    """Compare what a screen reader says of it with what it says of the page (the scheme's FAQ)."""
    if pages.person is None or any(finding.code == "incomplete" for finding in report.findings):
        return
    try:
        missing = lost(look.announced, await pages.person.listen(url, answer))
    except RenderError as error:
        report.add("no-look", f"no browser could open the snapshot: {error}")
        return
    if missing:
        more = (
            f" and {len(missing) - _SHOWN_PASSAGES} more" if len(missing) > _SHOWN_PASSAGES else ""
        )
        shown = "; ".join(missing[:_SHOWN_PASSAGES])
        report.add("accessibility", f"screen readers miss in it: {shown}{more}")


def _needless(document: Page | None, look: Look, report: Report) -> None:
    """Whether a page with scripts that has opted in says all that people see without them."""
    if document is None or not (document.opted_in and document.scripts) or "#" in report.url:
        return
    assert look.seen is not None
    shown = [text for text, is_shown in look.seen.texts if is_shown]
    if shown and compare(document.texts, shown).similarity == 1.0:
        report.add("opt-in-needless", said.NEEDLESS)


async def _by_user_agent(url: str, page: Page, pages: Pages) -> str:
    """What to do if the site gives snapshots by User-Agent, or ''."""
    try:
        answer = await pages.visitor.as_search_engine(url)
    except FetchFailed:
        return ""
    theirs = read_page(answer.body, url, answer.charset) if answer.is_html else None
    if answer.status != 200 or theirs is None or len(theirs.texts) <= len(page.texts):
        return ""
    return (
        f". Search engines get more by their name: check that with --user-agent '{SEARCH_ENGINE}'"
    )


def _likeness(page: Page, document: Page | None) -> float:
    """How alike a snapshot is to the page before its scripts have run."""
    return compare(page.texts, document.texts if document else ()).similarity


async def _looked(person: Person, url: str, page: Page) -> tuple[Look, Comparison | None]:
    """What a person sees of a page, and how that compares with what the crawler has got.

    Of two looks the better one counts: what differs from look to look is no deceit, and a slow answer
    to the first one is none either.
    """
    look = await person.look(url)
    comparison = _seen_by(look, page)
    passages = () if comparison is None else (*comparison.only_first, *comparison.only_second)
    if all(passage.words < PASSAGE_WORDS for passage in passages):
        return look, comparison
    again = await person.look(url)
    second = _seen_by(again, page)
    if comparison is None or (second is not None and second.similarity > comparison.similarity):
        return again, second
    return look, comparison


def _seen_by(look: Look, page: Page) -> Comparison | None:
    if look.seen is None:
        return None
    shown = [text for text, is_shown in look.seen.texts if is_shown]
    hidden = [text for text, is_shown in look.seen.texts if not is_shown]
    return compare(page.texts, shown, hidden)


def _passages(comparison: Comparison, look: Look, page: Page, report: Report) -> None:
    assert look.seen is not None
    few = 0
    for code, passages, whom in (
        ("cloaked", comparison.only_first, "crawlers get this text, people do not"),
        ("incomplete", comparison.only_second, "people get this text, crawlers do not"),
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
    shown = compare(page.texts, [text for text, is_shown in look.seen.texts if is_shown])
    hidden = sum(passage.words for passage in shown.only_first) - sum(
        passage.words for passage in comparison.only_first
    )
    if hidden >= PASSAGE_WORDS:
        longest = max(shown.only_first, key=lambda passage: passage.words)
        report.add("hidden", f"{hidden} words are not shown to people at first: {_quoted(longest)}")


def _quoted(passage: Passage) -> str:
    text = passage.text
    return f"“{text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + '…'}”"
