"""Changes a page so that its Markdown says what a reader sees: real tables, whole code, no icons. Pure.

Each rule comes from pages of sites and documentation tools: tests/extensions/markdown/test_tidy.py.
"""

import re
from collections.abc import Iterable
from itertools import islice

from lxml.etree import XPath
from lxml.html import Element, HtmlElement

_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_CLASS = 'contains(concat(" ", @class, " "), " {} ")'


def _with_class(*names: str) -> str:
    return " or ".join(_CLASS.format(name) for name in names)


# Links of headings to themselves: Sphinx, MkDocs, VitePress, Docusaurus, GitHub, docsify.
_PERMALINKS = XPath(
    f"//a[{_with_class('headerlink', 'header-anchor', 'hash-link', 'anchor-link')}]"
    ' | //a[starts-with(@href, "#")][not(.//img)]'
)
_PERMALINK_SIGNS = frozenset(" \xa0#¶§🔗\u200b\ufeff\t\n")
_LINE_NUMBERS = XPath(
    f"//pre//*[{_with_class('linenos', 'lineno', 'line-number', 'line-numbers-rows')}]"
    f' | //div[contains(@class, "language-")]/span[{_with_class("lang")}]'
)
# [1] is for speed, see convert.py.
_NUMBERED_CODE = XPath(
    f"//table[not(ancestor::table[1])][.//td[{_with_class('linenos', 'gutter', 'rouge-gutter')}]]"
    f"[.//td[{_with_class('code', 'rouge-code')}]//pre]"
)
_NUMBERED_PRE = XPath(f".//td[{_with_class('code', 'rouge-code')}]//pre")
_FILE_NAME = XPath(f"string(.//*[{_with_class('filename')}])")
_EMPTY_IN_CODE = XPath("//pre/span[not(node())][following-sibling::code]")
_LINES_IN_CODE = XPath("//code[not(ancestor::pre[1])][.//br or .//div or .//li or .//p]")
_COPY = re.compile(r"cop(?:y|ied)(?: code| to clipboard|!)?", re.IGNORECASE)
_BUTTONS = XPath("//button | //*[@role='button'] | //clipboard-copy")
_SIDE_MENUS = XPath(
    f'//*[@role="menu" or @role="menubar"] | //aside[{_with_class("sidebar")}]'
    # What screen readers announce is said on the page, too.
    ' | //*[@aria-live][contains(@style, "clip") or contains(@style, "1px")]'
)
# Panels of tabs and accordions, which a click shows.
_PANELS = XPath('//*[@role="tabpanel" or (@role="region" and @aria-labelledby)]')
_NOT_SHOWN = re.compile(r"display\s*:\s*none\s*(?:!important)?;?", re.IGNORECASE)
_LATE_PICTURES = XPath('//img[not(@src) or starts-with(@src, "data:") or @src=""]')
_LATE_SOURCES = ("data-src", "data-lazy-src", "data-original")
_DECORATIONS = XPath('//img[@alt=""]')
_EMPTY_LINKS = XPath(
    "//a[@href][not(.//text()[not(ancestor::svg[1])][normalize-space(.)]) and not(.//img)]"
)
_FIGURES = XPath(
    '//svg[not(@aria-hidden = "true")][.//text or .//foreignObject or .//foreignobject'
    ' or (@role = "img" and (@aria-label or title))]'
)
_LABELS = XPath(".//text | .//foreignObject | .//foreignobject")
_FORMULAS = XPath('//math[.//annotation[@encoding="application/x-tex"]]')
_TEX = XPath('string(.//annotation[@encoding="application/x-tex"])')
_GRID = '@role="grid" or @role="treegrid" or @role="table"'
_GRIDS = XPath(
    f"//*[{_GRID}][not(self::table) or .//table][not(ancestor::*[{_GRID}][1])]"
    '[not(.//table[not(@role = "presentation" or @role = "none")])]'
)
_ROWS = XPath('.//*[@role="row"]')
_CELLS = XPath(
    './/*[@role="columnheader" or @role="rowheader" or @role="cell" or @role="gridcell"]'
)
_SHOWN_TEXT = XPath(
    ".//text()[normalize-space(.)][not(ancestor::script[1] or ancestor::style[1]"
    ' or ancestor::*[@aria-hidden="true" or (@hidden and @hidden != "until-found")][1])]'
)
_LAYOUT = XPath('//table[@role="presentation" or @role="none" or .//table]')
_PARTS = ("tr", "td", "th", "tbody", "thead", "tfoot", "caption")
_TABLE_PARTS = XPath(" | ".join(f"//{part}" for part in _PARTS))
_CAPTION_EMPHASIS = XPath("//figcaption//em | //figcaption//i")
_TERMS = XPath("//dt[not(.//div or .//p or .//pre or .//dt or .//h2 or .//h3 or .//h4)]")
_RAISED = XPath("//sup[not(.//a or .//img)]")
# Powers, charges and numbers of notes; not ordinals (1st, XXe) or marks (TM).
_POWER = re.compile(
    r"(?=.*[\d+\u2212\u2013-]|[ijkmnpqtxyzT]$)(?!.*[^\W\d_]{2})[\w+\u2212\u2013.,/·()^ -]{1,40}"
)
_NEEDS_NO_BRACKETS = re.compile(r"[+\u2212\u2013-]?(?:[\d.,]+|\w)?[+\u2212\u2013-]?")
_CAN_BE_RAISED = re.compile(r"[\w)}]\Z")
_NEIGHBOURS = XPath("//a | //button | //label")
_SET_APART = frozenset({"a", "button", "label"})
_LONGEST_LABELS = 1000


def tidy(page: HtmlElement) -> None:
    """Change ``page`` in place."""
    _show_panels(page)
    drop(_SIDE_MENUS(page))
    _tidy_code(page)
    _tidy_tables(page)
    _tidy_pictures(page)
    for link in _PERMALINKS(page):
        if set(link.text_content()) <= _PERMALINK_SIGNS:
            link.drop_tree()
        elif any(element.tag in _HEADINGS for element in islice(link.iterancestors(), 3)):
            link.drop_tag()
    for link in _EMPTY_LINKS(page):
        name = link.get("aria-label") or link.get("title") or link.findtext(".//title") or ""
        link[:] = []
        link.text = name
    drop(_EMPTY_LINKS(page))
    for emphasis in _CAPTION_EMPHASIS(page):  # captions are emphasized themselves
        emphasis.drop_tag()
    for term in _TERMS(page):
        strong = Element("strong")
        strong.text, term.text = term.text, None
        strong.extend(list(term))
        term.append(strong)
    for raised in reversed(_RAISED(page)):  # a power within a power comes first
        power = " ".join(raised.text_content().split())
        if _POWER.fullmatch(power) and _CAN_BE_RAISED.search(_text_before(raised)):
            raised[:] = []
            raised.text = f"^{power}" if _NEEDS_NO_BRACKETS.fullmatch(power) else f"^({power})"
    for element in _NEIGHBOURS(page):
        # Styles set them apart.
        following = element.getnext()
        if not element.tail and following is not None and following.tag in _SET_APART:
            element.tail = " "


def _text_before(element: HtmlElement) -> str:
    previous = element.getprevious()
    text = element.getparent().text if previous is None else previous.tail
    return text or ("" if previous is None else str(previous.text_content()))


def _show_panels(page: HtmlElement) -> None:
    for panel in _PANELS(page):
        panel.attrib.pop("hidden", None)
        panel.attrib.pop("aria-hidden", None)
        if "style" in panel.attrib:
            panel.set("style", _NOT_SHOWN.sub("", panel.get("style")))


def _tidy_code(page: HtmlElement) -> None:
    for table in _NUMBERED_CODE(page):
        name = " ".join(_FILE_NAME(table).split())
        code = Element("div", {"class": table.getparent().get("class", "")})
        if name:
            code.append(_element("p", name))
        code.extend(_NUMBERED_PRE(table))
        _put_in_place(code, table)
    drop([*_LINE_NUMBERS(page), *_EMPTY_IN_CODE(page)])
    drop(
        button
        for button in _BUTTONS(page)
        if _COPY.fullmatch(" ".join(button.text_content().split()) or button.get("aria-label", ""))
        or button.tag == "clipboard-copy"
    )
    for code in _LINES_IN_CODE(page):
        pre = Element("pre")
        inner = _element("code", "\n".join(_lines(code)))
        pre.append(inner)
        _put_in_place(pre, code)


def _lines(code: HtmlElement) -> list[str]:
    """The lines of code that is not preformatted: lists in it are indented."""
    lines = [""]
    depth = 0

    def add(text: str | None) -> None:
        if text := " ".join((text or "").split()):
            # What follows on the same line, as in "key": 1.
            lines[-1] += text if lines[-1].strip() == "" or text in ",;" else f" {text}"

    def end_line() -> None:
        if lines[-1].strip():
            lines.append("")
        lines[-1] = "  " * depth

    # Without recursion, as documents may be deep. An element that ends is None.
    waiting: list[tuple[HtmlElement, bool]] = [(code, False)]
    while waiting:
        element, ends = waiting.pop()
        if not isinstance(element.tag, str) or element.tag == "button":
            add(element.tail)
            continue
        if ends:
            depth -= element.tag in ("ul", "ol")
            if element.tag in ("ul", "ol", "li", "div", "p"):
                end_line()
            if element is not code:
                add(element.tail)
            continue
        depth += element.tag in ("ul", "ol")
        if element.tag in ("ul", "ol", "li", "br", "p"):
            end_line()
        add(element.text)
        waiting.append((element, True))
        waiting += ((child, False) for child in reversed(element))
    return [line.rstrip() for line in lines if line.strip()]


def _tidy_tables(page: HtmlElement) -> None:
    for grid in _GRIDS(page):
        _tidy_grid(grid)
    layouts = set(_LAYOUT(page))
    parts = [
        part for part in _TABLE_PARTS(page) if next(part.iterancestors("table"), None) in layouts
    ]
    for part in (*layouts, *parts):
        part.tag = "div"


def _tidy_grid(grid: HtmlElement) -> None:
    """Put a table in place of the first row of a grid. What is outside of its rows stays around it."""
    rows = _ROWS(grid)
    if not any(map(_CELLS, rows)):
        return
    table = Element("table")
    rows[0].addprevious(table)
    for around in table.iterancestors():
        # Such as a list, which may not contain a table. Real tables are for layout.
        if around.tag not in ("table", *_PARTS):
            around.tag = "div"
        if around is grid:
            break
    for row in rows:
        line = Element("tr")
        for cell in _CELLS(row):
            cell.tag = "th" if cell.get("role") == "columnheader" else "td"
            line.append(_taken(cell))
        rest = _taken(row)
        if _SHOWN_TEXT(rest):
            # Text beside the cells, or a row without cells, such as "No results".
            rest.tag = "td"
            line.append(rest)
        if len(line):
            table.append(line)


def _taken(element: HtmlElement) -> HtmlElement:
    """The element, without the text after it, which stays in the page."""
    if (element.tail or "").strip():
        element.drop_tree()
    else:  # faster
        element.getparent().remove(element)
    element.tail = None
    return element


def _tidy_pictures(page: HtmlElement) -> None:
    for picture in _LATE_PICTURES(page):
        late = next(filter(None, map(picture.get, _LATE_SOURCES)), "")
        candidate = (picture.get("srcset") or picture.get("data-srcset") or "").split()
        if late or candidate:
            picture.set("src", late or candidate[0].rstrip(","))
    drop(_DECORATIONS(page))
    for figure in _FIGURES(page):
        name = figure.get("aria-label") or figure.findtext("title") or ""
        labels = (" ".join(label.text_content().split()) for label in _LABELS(figure))
        text = name or ", ".join(dict.fromkeys(filter(None, labels)))
        _put_in_place(_element("span", text[:_LONGEST_LABELS]), figure)
    for formula in _FORMULAS(page):
        _put_in_place(_element("code", f"${_TEX(formula).strip()}$"), formula)


def _element(tag: str, text: str) -> HtmlElement:
    element = Element(tag)
    element.text = text
    return element


def _put_in_place(new: HtmlElement, old: HtmlElement) -> None:
    parent = old.getparent()
    if parent is not None:
        new.tail = old.tail
        parent.replace(old, new)


def drop(elements: Iterable[HtmlElement]) -> None:
    """Remove elements, but not the text after them."""
    for element in list(elements):
        if element.getparent() is not None:
            element.drop_tree()
