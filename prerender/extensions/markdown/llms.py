"""llms.txt and llms-full.txt of a site (llmstxt.org): the links and the full text of its pages."""

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

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
    page = listed(url, snapshot)
    return replace(page, text=without_front_matter(markdown_of(snapshot.body, url)))


def listed(url: str, snapshot: Snapshot) -> Page:
    """A page without its text. Raises ValueError if robots say noindex."""
    reading = read(snapshot.body, url)
    headers = (value for name, value in snapshot.headers if name.lower() == "x-robots-tag")
    if any(map(_NOINDEX.search, (reading.robots, *headers))):
        raise ValueError("robots noindex")
    return Page(url, _line(reading.title) or url, _line(reading.description), "")


def without_front_matter(markdown: bytes) -> str:
    """The content of a page."""
    return _FRONT_MATTER.sub("", markdown.decode("utf-8", "replace")).strip()


def llms_txt(pages: Iterable[Page], link: Callable[[Page], str] = lambda page: page.url) -> str:
    """A title, a summary and lists of links by folder. Title and summary are those of the home page, or
    of the first page. ``link``: the URL in the list."""
    pages = list(pages)
    front = next((page for page in pages if _folder(page) is None), pages[0])
    lines = [f"# {front.title}", ""]
    if front.description:
        lines += [f"> {front.description}", ""]
    for name, section in _sections(pages).items():
        lines += [f"## {name}", ""]
        for page in section:
            title = re.sub(r"([][])", r"\\\1", page.title)
            description = f": {page.description}" if page.description else ""
            lines.append(f"- [{title}]({link(page)}){description}")
        lines.append("")
    return "\n".join(lines)


def _sections(pages: Iterable[Page]) -> dict[str, list[Page]]:
    """Pages by folder, named by its index page or itself. A single one is with the home page."""
    folders: dict[str, list[Page]] = {}
    for page in pages:
        folders.setdefault(_folder(page) or "", []).append(page)
    sections: dict[str, list[Page]] = {"Pages": []}
    for folder, found in folders.items():
        if not folder or len(found) == 1:
            sections["Pages"] += found
            continue
        index = next((page for page in found if _path(page) in (f"/{folder}", f"/{folder}/")), None)
        words = unquote(folder).replace("-", " ").replace("_", " ")
        name = index.title if index else words[:1].upper() + words[1:]
        sections.setdefault(_line(name), []).extend(found)
    return {name: found for name, found in sections.items() if found}


def _path(page: Page) -> str:
    """Path, query and state; that of ``#!/a`` is ``/a``."""
    return f"/{page.url.split('/', 3)[3]}".replace("/#!/", "/", 1)


def _folder(page: Page) -> str | None:
    """The first part of the path; None for the home page."""
    path = _path(page)
    return None if path == "/" else path.partition("?")[0].split("/")[1]


def llms_full_txt(pages: Iterable[Page]) -> str:
    """The texts of all pages, each with its URL and a title."""
    return "\n".join(map(full, pages))


def full(page: Page) -> str:
    """A page in llms-full.txt."""
    heading = "" if page.text.startswith("# ") else f"# {page.title}\n\n"
    return f"Source: {page.url}\n\n{heading}{page.text}\n"


def _line(text: str) -> str:
    return " ".join(text.split())
