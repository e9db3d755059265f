"""Writes sitemaps (https://www.sitemaps.org/protocol.html), split at their limits. Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from prerender.sitemaps.parsing import MOST_BYTES, MOST_URLS, Listed

_SCHEMA = "http://www.sitemaps.org/schemas/sitemap/0.9"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


def sitemaps(
    entries: Iterable[Listed], most_urls: int = MOST_URLS, most_bytes: int = MOST_BYTES
) -> list[bytes]:
    """The sitemaps of pages, in order; at least one."""
    parts: list[list[bytes]] = [[]]
    head, tail = f'{_HEAD}<urlset xmlns="{_SCHEMA}">\n'.encode(), b"</urlset>\n"
    size = len(head) + len(tail)
    for entry in entries:
        line = _entry("url", entry)
        if len(parts[-1]) >= most_urls or (parts[-1] and size + len(line) > most_bytes):
            parts.append([])
            size = len(head) + len(tail)
        parts[-1].append(line)
        size += len(line)
    return [b"".join([head, *part, tail]) for part in parts]


def index(urls: Sequence[str], now: float) -> bytes:
    """A sitemap index of the sitemaps at ``urls``, written at ``now`` (Unix seconds)."""
    lines = [_entry("sitemap", Listed(url, now)) for url in urls]
    head = f'{_HEAD}<sitemapindex xmlns="{_SCHEMA}">\n'.encode()
    return b"".join([head, *lines, b"</sitemapindex>\n"])


def w3c_date(seconds: float) -> str:
    """Unix seconds as a W3C date and time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _entry(tag: str, entry: Listed) -> bytes:
    changed = "" if entry.lastmod is None else f"<lastmod>{w3c_date(entry.lastmod)}</lastmod>"
    # The protocol requires five characters to be escaped, also where XML does not ("Entity escaping").
    url = escape(entry.url, {'"': "&quot;", "'": "&apos;"})
    return f"  <{tag}><loc>{url}</loc>{changed}</{tag}>\n".encode()
