"""Checks one page: what a crawler of the scheme gets for it, and what a person sees."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urljoin

from prerender.errors import FetchFailed, RenderError
from prerender.tools.check.findings import Report
from prerender.tools.check.person import Look, Person
from prerender.tools.check.texts import Comparison, Passage, compare
from prerender.tools.crawler import Fetched
from prerender.tools.html import Page, read_page
from prerender.tools.visiting import Visitor
from prerender.urls.addresses import after_host, pretty_of, same_page, site_of
from prerender.urls.ajax_crawling import UGLY_TOKEN, pretty_to_ugly, ugly_to_pretty

SLOW_SECONDS = 5.0
# From so many words on a passage is something that is said, and no time or counter.
PASSAGE_WORDS = 5
# With less in common the crawler has another page than people have.
SHELL_SIMILARITY = 0.5
_SHOWN_CHARACTERS = 160
_SHOWN_PASSAGES = 5
_NO_TEXT_WORDS = 3


@dataclass(slots=True)
class Pages:
    """What checks of single pages share. ``allowed``: whether robots.txt lets a URL be asked for."""

    visitor: Visitor
    person: Person | None
    allowed: Callable[[str], bool] = lambda _: True


async def check_page(url: str, pages: Pages) -> tuple[Report, Page | None]:
    """Check a pretty URL; what its snapshot says is there for who follows its links."""
    report = Report(url)
    try:
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
    if answer.status // 100 == 3:
        _redirect(answer, report)
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
    _said(page, answer, report)
    if answer.status == 200:
        await _canonical(page, pages, report)
        await _compared(url, page, document, pages, report)
    return report, page


def _redirect(answer: Fetched, report: Report) -> None:
    report.kind = "redirect"
    location = urljoin(answer.url, answer.headers.get("Location", ""))
    if UGLY_TOKEN in location:
        report.add("redirect-ugly", f"status {answer.status} to the ugly URL {location}")
    elif not answer.headers.get("Location"):
        report.add("status", f"status {answer.status} without a Location")
    else:
        report.location = location
        report.add("redirect", f"status {answer.status} to {location}: link to that at once")


def _said(page: Page, answer: Fetched, report: Report) -> None:
    """What the page says about itself."""
    report.title = next(iter(page.titles), "")
    report.description = next(iter(page.descriptions), "")
    report.canonical = next(iter(page.canonicals), "")
    if not report.title:
        report.add("title-missing", "no title")
    if len(page.titles) > 1:
        report.add("title-several", f"{len(page.titles)} titles: {', '.join(page.titles)}")
    if not report.description and answer.status == 200:
        report.add("description-missing", "no description")
    robots = answer.headers.get("X-Robots-Tag", "").lower()
    if answer.status == 200 and (page.noindex or "noindex" in robots):
        report.add("noindex", "crawlers are told not to keep it (noindex)")
    if page.opted_in and report.kind == "snapshot":
        report.add("meta-fragment", '<meta name="fragment" content="!"> is left in the snapshot')
    for link in sorted(_ugly(page.links, report.url)):
        report.add("link-ugly", f"a link in ugly form: {link}")
    if len("".join(page.texts)) < _NO_TEXT_WORDS and answer.status == 200:
        report.add("empty", "no text")


async def _canonical(page: Page, pages: Pages, report: Report) -> None:
    """Whether the canonical can be what is meant."""
    if len(set(page.canonicals)) > 1:
        report.add("canonical-broken", f"several canonicals: {', '.join(page.canonicals)}")
    for canonical in dict.fromkeys(page.canonicals):
        if UGLY_TOKEN in canonical:
            report.add("canonical-ugly", f"the canonical is in ugly form: {canonical}")
            continue
        try:
            pretty = pretty_of(canonical)
        except ValueError:
            report.add("canonical-broken", f"the canonical is no URL of a page: {canonical!r}")
            continue
        if same_page(canonical, report.url):
            continue
        if site_of(canonical) != site_of(report.url):
            report.add("canonical-broken", f"the canonical is on another site: {canonical}")
            continue
        own = pretty_of(report.url)
        if pretty.path == own.path and own.fragment and not pretty.fragment:
            report.add(
                "canonical-state",
                f"the canonical leaves out the #! state, so all states are one page: {canonical}",
            )
            continue
        try:
            asked = pretty_to_ugly(canonical) or canonical.partition("#")[0]
            status = (await pages.visitor.once(asked)).status
        except FetchFailed:
            status = 0
        if status == 200:
            report.add("canonical-elsewhere", f"the canonical is another page: {canonical}")
        else:
            why = f"status {status}" if status else "no answer"
            report.add("canonical-broken", f"the canonical is not there ({why}): {canonical}")


async def _compared(
    url: str, page: Page, document: Page | None, pages: Pages, report: Report
) -> None:
    """Compare it with what a person sees."""
    if pages.person is None:
        made_by_script = report.kind == "snapshot" and document is not None and document.scripts
        if made_by_script and _likeness(page, document) == 1.0:
            report.kind = "shell"
            report.add("shell", "it says what the page says before its JavaScript has run")
        return
    try:
        look, comparison = await _looked(pages.person, url, page)
    except RenderError as error:
        report.add("no-look", f"no browser could open it: {error}")
        return
    if look.seen is None or comparison is None:
        report.add("differs", f"people are led on to {look.url}")
        return
    # A server of snapshots may have mended them there.
    for link in sorted(_ugly(look.seen.links, url) - _ugly((*page.links, *page.canonicals), url)):
        report.add("link-ugly", f"people get a link or a canonical in ugly form: {link}")
    report.similarity = round(comparison.similarity, 4)
    if comparison.similarity < SHELL_SIMILARITY and report.kind == "page" and page.scripts:
        report.kind = "shell"
        report.add(
            "not-opted-in",
            "made by JavaScript, but it has neither #! nor the meta tag: crawlers get no snapshot",
        )
        return
    made_by_script = document is not None and document.scripts
    if made_by_script and _likeness(page, document) > comparison.similarity < SHELL_SIMILARITY:
        report.kind = "shell"
        report.add("shell", "it is the page before its JavaScript has run")
        return
    _passages(comparison, look, page, report)


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


def _ugly(links: Iterable[str], page: str) -> set[str]:
    """Those links of a page that are ugly URLs of its site."""
    return {
        link
        for link in links
        if UGLY_TOKEN in link
        and site_of(link) == site_of(page)
        and ugly_to_pretty(after_host(link).partition("#")[0]) is not None
    }
