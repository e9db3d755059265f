"""llms.txt and llms-full.txt of a site (llmstxt.org): the links and the full text of its pages."""

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from yarl import URL

from prerender.errors import NotRenderable, OriginError, RenderError
from prerender.extensions.markdown.convert import markdown_of
from prerender.snapshots.snapshot import Snapshot, Snapshots
from prerender.snapshots.target import Target
from prerender.tools.concurrency import work_through
from prerender.tools.export.export import NOT_STORABLE
from prerender.tools.page_metadata import read
from prerender.urls.addresses import pretty_of

# The front matter that convert.py adds.
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)
_NOINDEX = re.compile(r"\b(noindex|none)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Page:
    """A page in the files; ``text`` is Markdown."""

    url: str
    title: str
    description: str
    text: str


@dataclass(slots=True)
class Pages:
    """The pages of a site by URL, and the reasons why others were left out."""

    found: dict[str, Page] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


async def collect(
    snapshots: Snapshots,
    site: str,
    urls: Iterable[str],
    concurrency: int,
    on_page: Callable[[], None] = lambda: None,
    *,
    obey_origin: bool = True,
) -> Pages:
    """Render pages of a site and read their content, in the order of ``urls``.

    Pages whose status is not 200, pages with robots noindex and, with ``obey_origin``, pages that the
    origin does not allow to be stored are left out.
    """
    urls = list(dict.fromkeys(urls))
    pages = Pages()

    async def take(url: str) -> tuple[str, ...]:
        target = Target.of(URL(site), pretty_of(url))
        try:
            snapshot = await _rendered(snapshots, target)
            if obey_origin and not snapshot.storable:
                raise ValueError(NOT_STORABLE)
            page = await asyncio.to_thread(_page, target.url, snapshot)
        except (RenderError, OriginError, NotRenderable, ValueError) as error:
            pages.failures[target.url] = " ".join(str(error).split())
        else:
            pages.found[url] = page
        on_page()
        return ()

    await work_through(dict.fromkeys(urls), take, concurrency=concurrency)
    pages.found = {url: pages.found[url] for url in urls if url in pages.found}
    return pages


async def _rendered(snapshots: Snapshots, target: Target) -> Snapshot:
    """The snapshot of a page, with one retry."""
    try:
        snapshot = (await snapshots.snapshot(target)).snapshot
        if not snapshot.facts.unfinished:
            return snapshot
    except (RenderError, OriginError):
        pass
    return (await snapshots.snapshot(target)).snapshot


def _page(url: str, snapshot: Snapshot) -> Page:
    """The content of a page. Raises ValueError if the page does not belong in the files."""
    if snapshot.status != 200:
        raise ValueError(f"status {snapshot.status}")
    if snapshot.facts.unfinished:
        raise ValueError(f"{snapshot.facts.verdict}: {snapshot.facts.why}")
    reading = read(snapshot.body, url)
    if _NOINDEX.search(reading.robots):
        raise ValueError("robots noindex")
    text = _FRONT_MATTER.sub("", markdown_of(snapshot.body, url).decode("utf-8", "replace"))
    return Page(url, _line(reading.title) or url, _line(reading.description), text.strip())


def llms_txt(pages: Iterable[Page]) -> str:
    """A title, a summary and a list of links. Title and summary are those of the home page, or of the
    first page."""
    pages = list(pages)
    fronts = (page for page in pages if URL(page.url).path_qs == "/" and "#" not in page.url)
    front = next(fronts, pages[0])
    lines = [f"# {front.title}", ""]
    if front.description:
        lines += [f"> {front.description}", ""]
    lines += ["## Pages", ""]
    for page in pages:
        title = re.sub(r"([][])", r"\\\1", page.title)
        link = f"- [{title}]({page.url})"
        lines.append(f"{link}: {page.description}" if page.description else link)
    return "\n".join([*lines, ""])


def llms_full_txt(pages: Iterable[Page]) -> str:
    """The texts of all pages, each with its URL and a title."""
    parts = []
    for page in pages:
        heading = "" if page.text.startswith("# ") else f"# {page.title}\n\n"
        parts.append(f"Source: {page.url}\n\n{heading}{page.text}\n")
    return "\n".join(parts)


def _line(text: str) -> str:
    return " ".join(text.split())
