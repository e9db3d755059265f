"""Why a render failed, as people read it: without names of classes or the page's URL. Pure."""

import re

from prerender.errors import OriginError, OriginTimeout

# What messages begin with: the URL or path of the page, or the request for it.
_PAGE = re.compile(r"(?:https?:/)?/\S*: |[A-Z]{1,20} \S+: ")
_OF_THE_ORIGIN = (OriginError.__name__, OriginTimeout.__name__)


def in_words(error: str, reason: str) -> str:
    """A sentence without its full stop, from the name of an error's class and its message."""
    if not error:
        return reason
    text = _PAGE.sub("", reason, count=1) if _PAGE.match(reason) else reason
    if error in _OF_THE_ORIGIN:
        text = f"no response from your site: {text}"
    text = text or "an internal error, which is in the log"
    return f"{text[0].upper()}{text[1:]}"
