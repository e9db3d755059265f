"""Robots directives in meta tags and in X-Robots-Tag headers. Pure.

https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag
"""

import re
from collections.abc import Iterable

# Directives with a value; other names before a colon are crawlers.
_WITH_VALUE = ("max-snippet", "max-image-preview", "max-video-preview", "unavailable_after")
_CRAWLER = re.compile(r"[a-z][a-z0-9_.-]*")


def is_noindex(values: Iterable[str]) -> bool:
    """Whether a value keeps a page out of the index of all search engines, or of Google's."""
    for value in values:
        crawler = ""
        for part in value.lower().split(","):
            name, colon, directive = (text.strip() for text in part.rpartition(":"))
            if colon and name not in _WITH_VALUE and _CRAWLER.fullmatch(name):
                crawler = name
            elif colon:
                continue
            if directive in ("noindex", "none") and crawler in ("", "googlebot"):
                return True
    return False
