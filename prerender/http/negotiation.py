"""Headers with quality values: ``a;q=0.5, b`` (RFC 9110 section 12.4.2). Pure."""

import re
from functools import lru_cache

# Longer headers are not genuine, and must not fill the cache.
_LONGEST = 512
_WEIGHT = re.compile(r"q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.ASCII | re.IGNORECASE)


def weights(value: str) -> dict[str, float]:
    """The members of a header in lower case, with their weights.

    Parameters other than the weight belong to the member (``a;x=1``). Of repeated members the
    greatest weight counts; members with a malformed weight are ignored.
    """
    by_member: dict[str, float] = {}
    for member in value.lower().split(","):
        parts = [part.strip(" \t") for part in member.split(";")]
        weight = 1.0
        if len(parts) > 1 and parts[-1].partition("=")[0].rstrip(" \t") == "q":
            match = _WEIGHT.fullmatch(parts.pop())
            weight = float(match[1]) if match else -1.0
        if parts[0] and weight >= 0:
            name = ";".join(parts)
            by_member[name] = max(by_member.get(name, 0.0), weight)
    return by_member


def preferences(value: str) -> list[str]:
    """The members with a weight above 0, best first; equal ones in their order."""
    weighed = weights(value)
    return sorted((name for name, weight in weighed.items() if weight), key=lambda n: -weighed[n])


def prefers_markdown(accept: str) -> bool:
    """Whether an Accept header has text/markdown (RFC 7763) with at least the weight of HTML."""
    return len(accept) <= _LONGEST and _prefers_markdown(accept)


@lru_cache(maxsize=256)
def _prefers_markdown(accept: str) -> bool:
    ranges: dict[str, float] = {}
    for name, weight in weights(accept).items():
        media_type = name.partition(";")[0]
        ranges[media_type] = max(ranges.get(media_type, 0.0), weight)
    markdown = ranges.get("text/markdown", 0.0)
    # The most specific matching range counts (RFC 9110 section 12.5.1).
    html = next((ranges[it] for it in ("text/html", "text/*", "*/*") if it in ranges), 0.0)
    return markdown > 0 and markdown >= html
