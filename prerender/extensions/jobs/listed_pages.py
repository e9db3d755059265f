"""The pages that sitemaps listed when they were read last, and what has changed since. Pure."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan

from prerender.extensions.jobs.job import MOST_PAGES
from prerender.sitemaps.parsing import Listed
from prerender.snapshots.strict_json import read

# A lastmod that is so recent is the time of the request, if most pages have one: such sitemaps are made
# on request, and say nothing.
_JUST_NOW_SECONDS = 60.0
_FEWEST = 10

# Each page by its path, with its lastmod or NaN.
Known = Mapping[str, float]
_Pairs = tuple[tuple[str, float | None], ...]


@dataclass(frozen=True, slots=True)
class SitemapChanges:
    """What has changed.

    ``pages``: to render, with the moment of their last change as far as it is known; ``new`` and
    ``changed``: how many of them are. ``gone``: paths of pages that are no longer listed. ``missing``:
    how many are not, but are kept, because the sitemaps may be broken. ``known``: the pages after it,
    of those that are kept no more than there is room for beside the listed ones.
    ``by_request``: whether lastmod is the time of the request.
    """

    pages: tuple[Listed, ...]
    new: int
    changed: int
    gone: tuple[str, ...]
    missing: int
    known: Known
    by_request: bool = False


def changes(
    known: Known, listed: Mapping[str, Listed], now: float, *, whole: bool
) -> SitemapChanges:
    """Compare the known pages with those that are listed ``now`` (Unix seconds).

    Pages that are no longer listed are gone if the sitemaps were read as a ``whole``, and at most half
    of the known pages are: a sitemap that is suddenly empty is a fault more often than not.
    """
    recent = sum(page.lastmod is not None and page.lastmod > now - _JUST_NOW_SECONDS
                 for page in listed.values())  # fmt: skip
    by_request = recent >= _FEWEST and recent > len(listed) / 2
    pages = []
    new = changed = 0
    after: dict[str, float] = {}
    for path, page in listed.items():
        lastmod = nan if page.lastmod is None or by_request else page.lastmod
        before = known.get(path)
        if before is None:
            new += 1
            pages.append(Listed(page.url, None if isnan(lastmod) else lastmod))
        elif not isnan(lastmod) and lastmod != before:
            changed += 1
            # Not by comparing lastmod and the time of the snapshot: lastmod is often only a day.
            pages.append(Listed(page.url, lastmod if isnan(before) else now))
        after[path] = before if isnan(lastmod) and before is not None else lastmod
    missing = tuple(path for path in known if path not in listed)
    gone: tuple[str, ...] = ()
    if whole and len(missing) <= len(known) / 2:
        gone, missing = missing, ()
    # Those that are listed come first: what is forgotten would be new at each reading.
    missing = missing[: max(0, MOST_PAGES - len(after))]
    after |= {path: known[path] for path in missing}
    return SitemapChanges(tuple(pages), new, changed, gone, len(missing), after, by_request)


def encode(known: Known) -> bytes:
    """The stored form."""
    pairs = [(path, None if isnan(lastmod) else lastmod) for path, lastmod in known.items()]
    return zlib.compress(json.dumps(pairs, separators=(",", ":")).encode("ascii"))


def decode(data: bytes | None) -> dict[str, float]:
    """Stored pages; none if they cannot be read."""
    try:
        pairs = read(_Pairs, zlib.decompress(data or b""))
    except (ValueError, zlib.error):
        return {}
    return {path: nan if lastmod is None else lastmod for path, lastmod in pairs}
