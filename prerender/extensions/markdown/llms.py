"""llms.txt and llms-full.txt of a site (llmstxt.org): the links and the full text of its pages."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from urllib.parse import unquote, urljoin

from prerender.content.page_metadata import read
from prerender.extensions.markdown.convert import markdown_of
from prerender.http.robots_tags import is_noindex
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.target import Target
from prerender.urls.addresses import page_of, same_page

# The front matter that convert.py adds.
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LlmsPage:
    """A page in the files; ``text`` is Markdown. ``canonical``: its canonical URL, or ''."""

    url: str
    title: str
    description: str
    text: str
    canonical: str = ""

    @property
    def is_canonical(self) -> bool:
        """Whether it names no other page."""
        return not self.canonical or same_page(self.canonical, self.url)


class LlmsPages:
    """The pages of an export for llms.txt, by path."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.by_path: dict[str, LlmsPage] = {}

    def add(self, target: Target, snapshot: Snapshot, _made: float) -> None:
        """Add a page. Raises ValueError if it does not belong in the files."""
        if snapshot.status != 200:
            raise ValueError(f"status {snapshot.status}")
        page = listed(target.url, snapshot)
        text = without_front_matter(markdown_of(snapshot.body, target.url))
        self.by_path[target.path] = replace(page, text=text)

    def keep(self, _path: str) -> bool:
        """There are no pages of an earlier export."""
        return False


def listed(url: str, snapshot: Snapshot) -> LlmsPage:
    """A page without its text. Raises ValueError if robots say noindex."""
    reading = read(snapshot.body, url)
    headers = (value for name, value in snapshot.headers if name.lower() == "x-robots-tag")
    if reading.noindex or is_noindex(headers):
        raise ValueError("robots noindex")
    try:
        canonical = reading.canonical and urljoin(url, reading.canonical)
    except ValueError:
        canonical = ""
    return LlmsPage(url, _line(reading.title) or url, _line(reading.description), "", canonical)


def without_copies(pages: Iterable[LlmsPage]) -> list[LlmsPage]:
    """The pages but those whose canonical URL is that of another one of them."""
    pages = list(pages)
    originals = {_page(page.url) for page in pages if page.is_canonical}
    return [page for page in pages if page.is_canonical or _page(page.canonical) not in originals]


def _page(url: str) -> str:
    try:
        return page_of(url)
    except ValueError:
        return ""


def without_front_matter(markdown: bytes) -> str:
    """The content of a page."""
    return _FRONT_MATTER.sub("", markdown.decode("utf-8", "replace")).strip()


def llms_txt(
    pages: Iterable[LlmsPage], link: Callable[[LlmsPage], str] = lambda page: page.url
) -> str:
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


def _sections(pages: Iterable[LlmsPage]) -> dict[str, list[LlmsPage]]:
    """Pages by folder, named by its index page or itself. A single one is with the home page."""
    folders: dict[str, list[LlmsPage]] = {}
    for page in pages:
        folders.setdefault(_folder(page) or "", []).append(page)
    sections: dict[str, list[LlmsPage]] = {"Pages": []}
    for folder, members in folders.items():
        if not folder or len(members) == 1:
            sections["Pages"] += members
            continue
        index = next(
            (page for page in members if _path(page) in (f"/{folder}", f"/{folder}/")), None
        )
        words = unquote(folder).replace("-", " ").replace("_", " ")
        name = index.title if index else words[:1].upper() + words[1:]
        sections.setdefault(_line(name), []).extend(members)
    return {name: members for name, members in sections.items() if members}


def _path(page: LlmsPage) -> str:
    """Path, query and state; that of ``#!/a`` is ``/a``."""
    return f"/{page.url.split('/', 3)[3]}".replace("/#!/", "/", 1)


def _folder(page: LlmsPage) -> str | None:
    """The first part of the path; None for the home page."""
    path = _path(page)
    return None if path == "/" else path.partition("?")[0].split("/")[1]


def llms_full_txt(pages: Iterable[LlmsPage]) -> str:
    """The texts of all pages, each with its URL and a title."""
    return "\n".join(map(full, pages))


def full(page: LlmsPage) -> str:
    """A page in llms-full.txt."""
    heading = "" if page.text.startswith("# ") else f"# {page.title}\n\n"
    return f"Source: {page.url}\n\n{heading}{page.text}\n"


def _line(text: str) -> str:
    return " ".join(text.split())
