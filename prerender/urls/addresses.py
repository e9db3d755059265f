"""Absolute URLs of pages, as in commands, the admin API, links and sitemaps. Pure."""

import string
from urllib.parse import quote, urlsplit

from yarl import URL

from prerender.urls.ajax_crawling import PrettyURL, ugly_to_pretty


def url_of(text: str, *, encoded: bool = True) -> URL:
    """A URL from elsewhere. Raises ValueError, and nothing else."""
    try:
        return URL(text, encoded=encoded)
    except IndexError as error:  # of yarl, for http://[]@
        raise ValueError("is not a URL") from error


def ascii_host(text: str) -> str:
    """An absolute URL with an internationalized host in ASCII (RFC 5891), as in requests; otherwise
    unchanged. Raises ValueError.
    """
    scheme, mark, _ = text.partition("://")
    rest = text[len(scheme) + len(mark) :]
    end = min((i for i in map(rest.find, "/?#") if i >= 0), default=len(rest))
    if not mark or rest[:end].isascii():
        return text
    return (
        f"{scheme}://{url_of(f'{scheme}://{rest[:end]}', encoded=False).raw_authority}{rest[end:]}"
    )


def pretty_of(text: str) -> PrettyURL:
    """The pretty URL, without its host, of an absolute pretty or ugly URL. Raises ValueError."""
    path, fragment = parts_of(text)
    if ugly := ugly_to_pretty(path):
        return ugly
    return PrettyURL(path, fragment.removeprefix("!") if fragment.startswith("!") else "")


def searched(text: str) -> tuple[str, ...]:
    """What to look for in casefolded texts: what a person typed, and its form in URLs."""
    escaped = (quote(one, safe=string.punctuation) for one in (text, text.casefold()))
    return tuple(dict.fromkeys(one.casefold() for one in (text, *escaped)))


def parts_of(text: str) -> tuple[str, str]:
    """The path with query, as in a request, and the fragment of an absolute URL. Raises ValueError."""
    try:
        url = url_of(ascii_host(text))
        absolute = url.scheme in ("http", "https") and bool(url.host) and bool(url.port)
    except ValueError:
        absolute = False
    if not absolute or not text.isprintable() or "@" in url.raw_authority:
        raise ValueError(
            "give the absolute URL of a page, http or https, without user and password"
        )
    path, _, fragment = after_host(text).partition("#")
    # Characters that are not allowed in a request are escaped as by browsers.
    return quote(path, safe=string.punctuation), fragment


def after_host(text: str) -> str:
    """The path, query and fragment of an absolute URL, unchanged."""
    rest = text.partition("://")[2]
    start = min((i for i in map(rest.find, "/?#") if i >= 0), default=len(rest))
    return rest[start:] if rest[start:].startswith("/") else f"/{rest[start:]}"


def page_of(url: str) -> str:
    """The pretty form of an absolute URL. Raises ValueError."""
    pretty = pretty_of(url)
    return f"{URL(ascii_host(url), encoded=True).origin()}{pretty}"


def is_ugly(url: str) -> bool:
    """Whether an absolute URL is ugly, regardless of its fragment."""
    return ugly_to_pretty(after_host(url).partition("#")[0]) is not None


def same_page(one: str, other: str) -> bool:
    """Whether two absolute URLs name the same page of the same site."""
    try:
        same = str(pretty_of(one)) == str(pretty_of(other))
    except ValueError:
        return False
    return same and site_of(one) == site_of(other)


def site_of(url: str) -> tuple[str, str]:
    """The scheme and the host with port of an absolute URL."""
    try:
        parts = urlsplit(ascii_host(url))
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
        return parts.scheme, f"{(parts.hostname or '').lower()}:{port}"
    except ValueError:
        return "", url
