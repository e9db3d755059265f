"""A snapshot as Markdown: its main content, with links, tables and code. Pure.

lxml finds the content and resolves links; html-to-markdown converts it.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from urllib.parse import urljoin

import html_to_markdown
import lxml.html
from lxml.etree import XPath
from lxml.html import Element, HtmlElement

from prerender.extensions.markdown.flatten import flatten
from prerender.extensions.markdown.tidy import drop, tidy
from prerender.snapshots.parsed_html import parse
from prerender.urls.references import stripped

# A part of each key, so that the output of an older version is not used.
FORMAT = "md5"

_MAIN = XPath('//main | //*[@role="main"]')
# Without [1], libxml2 collects all ancestors, which takes seconds for deep pages.
_ARTICLES = XPath("//body//article[not(ancestor::article[1])]")
# The parts around the content of a page that does not mark it.
_AROUND = XPath(
    "//nav | //body//header[not(ancestor::article[1] or ancestor::section[1])]"
    " | //body//footer[not(ancestor::article[1] or ancestor::section[1])]"
    ' | //*[@role="navigation" or @role="banner" or @role="contentinfo" or @role="search"]'
)
_MENUS = XPath('.//nav | .//*[@role="navigation"]')
_NO_CONTENT = XPath(
    "//script | //style | //link | //noscript | //svg | //iframe | //object | //embed | //canvas"
    ' | //dialog[not(@open)] | //*[@hidden and @hidden != "until-found"]'
    ' | //*[@aria-hidden="true"]'
)
_SHOWN_BY_SEARCH = XPath('//*[@hidden="until-found"]')
_SHADOW_ROOTS = XPath("//template[@shadowrootmode]")
_SLOTS = XPath(".//slot")
_TEMPLATES = XPath("//template")
_PICTURES_IN_PLACE = XPath('//img[starts-with(@src, "data:")]')
_LINKS_TO_CODE = XPath('//a[starts-with(normalize-space(@href), "javascript:")]')
_REFERENCES = XPath("//a[@href] | //img[@src]")
_TEXT_LENGTH = XPath("string-length(normalize-space(.))")
_LIKE_MARKUP = XPath(
    './/text()[translate(., "<*_`~]&", "") != .]'
    "[not(ancestor::code[1] or ancestor::pre[1] or ancestor::kbd[1] or ancestor::samp[1])]"
)
_CODE = XPath("//pre/code | //pre[not(code)]")
# lxml parses these characters, but does not accept them in values (XML 1.0 section 2.2).
_NOT_FOR_LXML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# Text that would be read as an element or a comment.
_LIKE_AN_ELEMENT = re.compile(r"<(?=[A-Za-z/!?])")
# Text that would be read as emphasis, code, a link, struck out or an entity. Underscores within a word,
# or anything between spaces, would not (CommonMark, section 6.2).
_LIKE_MARKDOWN = re.compile(
    r"(?<!\w)_++(?!\s)|(?<![\s_])_++(?!\w)|\*(?!\s)|(?<!\s)\*|`|~{2,}|\](?=[(\[:])"
    r"|&(?=#?\w+;)"
)
# The converter doubles backslashes, so noncharacters (Unicode, section 23.7) stand for what is escaped.
_ESCAPED = {ord(character): 0xFDD0 + i for i, character in enumerate("_*`~]&")}
_TO_ESCAPES = {place: f"\\{chr(character)}" for character, place in _ESCAPED.items()}
# How highlighters name the language of code: on the code or on an element around it.
_LANGUAGE = re.compile(r"(?:^|\s)(?:language-|lang-|highlight-source-|brush:\s?)([\w+#.-]+)")
_HLJS = re.compile(r"hljs\s+([\w+#.-]+)")
_NAME = re.compile(r"([\w+#.-]+)")
# The converter ends each block within a cell with a <br>. Text has none: it is escaped.
_LINE_OF_TABLE = re.compile(r"^ *\|.*\|$", re.MULTILINE)
_BREAKS = re.compile(r"<br>(?: ?<br>)+")
# The converter leaves out what is nested deeper, and says so.
_DEEPEST = 200
_TOO_DEEP = "depth_limit_exceeded"
# So does the parser: at the depth of 2048, it ends.
_ENDED = "ERR_RESOURCE_LIMIT"
_OPTIONS = html_to_markdown.ConversionOptions(
    extract_metadata=False,
    hidden_content="drop",
    br_in_tables=True,
    compact_tables=True,
    preprocessing=html_to_markdown.PreprocessingOptions(enabled=False),
    max_depth=_DEEPEST,
)


def markdown_of(html: bytes, url: str) -> bytes:
    """The page at ``url`` in UTF-8: front matter with its title, description and URL, and its content.

    Raises ValueError if it cannot be converted.
    """
    page = parse(html)
    if page is None:
        raise ValueError(f"{url}: is empty")
    ended = page.getroottree().parser.error_log.last_error
    if ended is not None and ended.type_name == _ENDED:
        raise ValueError(f"{url}: is nested too deep")
    base = _base(page, url)
    front = _front_matter(page, url, base)
    options = replace(_OPTIONS, base_url=base)
    _put_shadow_trees_in_place(page)
    tidy(page)
    drop([*_NO_CONTENT(page), *_TEMPLATES(page)])
    for link in _LINKS_TO_CODE(page):
        del link.attrib["href"]
    for element in _REFERENCES(page):
        for name in ("href", "src"):
            if reference := element.get(name):
                element.set(name, stripped(reference))
    for element in _SHOWN_BY_SEARCH(page):
        del element.attrib["hidden"]
    for picture in _PICTURES_IN_PLACE(page):
        picture.drop_tree()
    content = _content(page)
    _name_languages(page)
    _escape(content)
    converted = _converted(content, options, url)
    if converted is None:
        flatten(content)
        converted = _converted(content, options, url)
    if converted is None:
        raise ValueError(f"{url}: is nested too deep")
    converted = _LINE_OF_TABLE.sub(_without_breaks, converted.translate(_TO_ESCAPES))
    return f"{front}\n{converted.strip()}\n".encode("utf-8", "replace")


def _converted(
    content: HtmlElement, options: html_to_markdown.ConversionOptions, url: str
) -> str | None:
    """The content in Markdown; None if it is nested too deep."""
    text = lxml.html.tostring(content, encoding="unicode", with_tail=False)
    try:
        result = html_to_markdown.convert(text, options)
    except Exception as error:  # of several kinds, including bugs of the library
        raise ValueError(f"cannot convert {url} to Markdown: {error!r}") from error
    if any(str(warning.kind) == _TOO_DEEP for warning in result.warnings):
        return None
    return result.content or ""


def _without_breaks(line: re.Match[str]) -> str:
    return _BREAKS.sub("<br>", line[0]).replace("<br> |", " |").replace("| <br>", "| ")


def _front_matter(page: HtmlElement, url: str, base: str) -> str:
    """The metadata of the head as YAML front matter. A JSON string is valid YAML."""
    titles = page.xpath("//head/title")
    named = {
        "title": " ".join(titles[0].text_content().split()) if titles else "",
        "description": " ".join(page.xpath('string(//meta[@name="description"]/@content)').split()),
        "url": _canonical(page, base) or url,
    }
    lines = [
        f"{name}: {json.dumps(text, ensure_ascii=False)}" for name, text in named.items() if text
    ]
    return "\n".join(["---", *lines, "---", ""])


def _canonical(page: HtmlElement, base: str) -> str:
    reference = stripped(page.xpath('string(//link[@rel="canonical"]/@href)'))
    try:
        return reference and urljoin(base, reference)
    except ValueError:
        return ""


def _base(page: HtmlElement, url: str) -> str:
    """The base URL of the document."""
    try:
        return str(urljoin(url, page.xpath("string(//base[@href][1]/@href)")))
    except ValueError:
        return url


def _put_shadow_trees_in_place(page: HtmlElement) -> None:
    """Replace the children of each shadow host by its shadow tree, with the children in its slots."""
    # From the inside out, so that hosts within a shadow tree are already replaced.
    for root in reversed(_SHADOW_ROOTS(page)):
        host = root.getparent()
        if host is None:
            continue
        root.drop_tree()
        root.tail = None
        given = _given(host)
        root.tag = "div"
        host.append(root)
        for slot in _SLOTS(root):
            # Only the first slot of a name gets them, in place of its fallback content.
            content = given.pop(slot.get("name", ""), None)
            if content is not None and (len(content) or (content.text or "").strip()):
                slot[:] = content[:]
                slot.text = content.text
            # The slots of a shadow tree around it are not among these.
            slot.tag = "span"


def _given(host: HtmlElement) -> dict[str, HtmlElement]:
    """What is in a shadow host, taken out of it: an element for each slot, by name."""
    given: defaultdict[str, HtmlElement] = defaultdict(lambda: Element("span"))
    _add_text(given[""], host.text)
    host.text = None
    for child in list(host):
        text, child.tail = child.tail, None
        given[child.get("slot", "")].append(child)
        _add_text(given[""], text)
    return given


def _add_text(element: HtmlElement, text: str | None) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + (text or "")
    else:
        element.text = (element.text or "") + (text or "")


def _content(page: HtmlElement) -> HtmlElement:
    """The element with the main content."""
    body = page.find("body")
    candidates = _MAIN(page) or (_ARTICLES(page) if len(_ARTICLES(page)) == 1 else [])
    best = max(candidates, key=_length, default=None)
    if best is not None and _length(best):
        return _without(best, _MENUS(best))
    whole = page if body is None else body
    return _without(whole, (element for element in _AROUND(page) if element.tag != "body"))


def _without(element: HtmlElement, parts: Iterable[HtmlElement]) -> HtmlElement:
    """The element without the parts that are not content, unless nothing else would be left."""
    candidates = set(parts)
    parts = [part for part in candidates if candidates.isdisjoint(part.iterancestors())]
    if sum(map(_length, parts)) < _length(element):
        drop(parts)
    return element


def _length(element: HtmlElement) -> int:
    return int(_TEXT_LENGTH(element))


def _name_languages(page: HtmlElement) -> None:
    """Name the language of code as the converter expects it: ``<code class="language-x">``."""
    for code in _CODE(page):
        around = [code, *islice(code.iterancestors(), 3)]
        named = (_language_of(element) for element in around if element.tag != "body")
        if language := next(filter(None, named), ""):
            code.set("class", f"language-{language}")


def _language_of(element: HtmlElement) -> str:
    names = element.get("class", "")
    named = element.get("data-language") or element.get("data-lang") or ""
    match = _LANGUAGE.search(names) or _HLJS.fullmatch(names.strip()) or _NAME.fullmatch(named)
    return match[1] if match else ""


def _escape(content: HtmlElement) -> None:
    """Escape text, so that a ``<b>`` or ``__init__`` in it is shown as it is."""
    for text in _LIKE_MARKUP(content):
        element = text.getparent()
        escaped = _NOT_FOR_LXML.sub("", text)
        escaped = _LIKE_MARKDOWN.sub(lambda match: match[0].translate(_ESCAPED), escaped)
        escaped = _LIKE_AN_ELEMENT.sub("&lt;", escaped)
        if text.is_tail:
            element.tail = escaped
        else:
            element.text = escaped
