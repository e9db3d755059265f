"""Takes groups and styles out of content that is nested too deep for the converter. Pure."""

import re

from lxml.etree import strip_tags
from lxml.html import Element, HtmlElement

_GROUPS = ["div", "section", "article", "main", "header", "footer", "aside", "nav", "form"]
_STYLES = ["span", "font", "slot", "label", "b", "strong", "i", "em", "u", "small", "big", "ins"]
# The converter leaves out what these hide.
_HIDES = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])", re.IGNORECASE
)


def flatten(content: HtmlElement) -> None:
    """Take out the elements that only group or style what is in them; groups stay paragraphs."""
    for element in content.xpath("descendant::*[@style]"):
        if _HIDES.search(element.get("style")):
            element.tag = "fieldset"  # stays
    # Without moving what is in the groups, which would take a time that is quadratic in the depth.
    for group in [group for group in content.iter(*_GROUPS) if group is not content]:
        start, end = Element("p"), Element("p")
        start.tail, group.text = group.text, None
        group.insert(0, start)
        end.tail, group.tail = group.tail, None
        group.addnext(end)
    strip_tags(content, *_GROUPS, *_STYLES, *_custom(content))


def _custom(content: HtmlElement) -> set[str]:
    return {element.tag for element in content.iter("*") if "-" in element.tag}
