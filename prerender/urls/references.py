"""Rewrites URL references in headers and pages from ugly to pretty. Pure.

Contains which references are ugly URLs of the site, what they become, and the targets of redirects.
The mapping itself is in ajax_crawling.py. ``scripts/serialize/pretty.js`` does the same in the page;
both run the vectors of ``tests/urls/scheme_vectors.json``.
"""

import re
from collections.abc import Callable, Collection, Mapping
from urllib.parse import SplitResult, urljoin, urlsplit

from prerender.urls.addresses import after_host
from prerender.urls.ajax_crawling import UGLY_TOKEN, ugly_to_pretty
from prerender.urls.hosts import normalized

# Characters that URL parsers strip from both ends, and remove anywhere (WHATWG URL, section 4.4).
_AROUND = "".join(map(chr, range(0x21)))
_WITHIN = str.maketrans("", "", "\t\n\r")
_SLASHES = re.compile("(https?:|)/{2,}", re.IGNORECASE)
# A link with its parameters, up to the comma (RFC 8288 section 3), and one parameter.
_LINK = re.compile(r"""(?:<[^>]*>?|"(?:[^"\\]|\\.)*"?|[^,<"])+""")
_LINK_PARAMETER = re.compile(r""";\s*([\w*-]+)\s*=\s*(?:"([^"]*)"|([^\s;,"]*))""")
_LINK_REFERENCE = re.compile(r"""(<)([^>]*)|(\banchor\s*=\s*")([^"]*)""", re.IGNORECASE)


def pretty_reference(reference: str, base: str, sites: Collection[str]) -> str:
    """The pretty form of a reference if it is an ugly URL of one of ``sites``; otherwise unchanged.

    ``base``: the absolute base URL. ``sites``: hosts with a port, or without for any port. A relative
    reference stays relative. If an ugly URL has a fragment, a ``#!`` state wins over the value
    of the token, which wins over an anchor.
    """
    text = stripped(reference)
    before, hash_sign, fragment = text.partition("#")
    pretty = ugly_to_pretty(before)
    if pretty is None or not _is_own(text, base, sites):
        return reference
    # A reference without path and query keeps the query of the base (RFC 3986 section 5.2.2).
    path = pretty.path or _page_path(base)
    if fragment.startswith("!"):
        return f"{path}#{fragment}"
    return path + (pretty.location_hash or hash_sign + fragment)


def stripped(reference: str) -> str:
    """A reference without the whitespace that URL parsers ignore."""
    return reference.strip(_AROUND).translate(_WITHIN)


def pretty_links(value: str, base: str, sites: Collection[str]) -> str:
    """The value of a Link header with pretty references (RFC 8288 section 3)."""

    def pretty(match: re.Match[str]) -> str:
        before, reference = (match[1], match[2]) if match[1] else (match[3], match[4])
        return before + pretty_reference(reference, base, sites)

    return _LINK_REFERENCE.sub(pretty, value)


def without_programs(value: str) -> str:
    """The value of a Link header without preloads of scripts, which a snapshot does not have."""
    return _without(value, _is_of_program)


def without_markdown(value: str) -> str:
    """The value of a Link header without the Markdown of its page, which is not that of a state."""
    return _without(value, _is_markdown)


def _without(value: str, is_unwanted: Callable[[Mapping[str, str]], bool]) -> str:
    links = [link.strip() for link in _LINK.findall(value) if not is_unwanted(_parameters(link))]
    return ", ".join(filter(None, links))


def _parameters(link: str) -> dict[str, str]:
    return {
        name.lower(): (quoted or bare).lower()
        for name, quoted, bare in reversed(_LINK_PARAMETER.findall(link.partition(">")[2]))
    }


def _is_of_program(parameters: Mapping[str, str]) -> bool:
    relations = set(parameters.get("rel", "").split())
    is_program = "modulepreload" in relations or parameters.get("as") == "script"
    return is_program and relations <= {"preload", "modulepreload", "prefetch"}


def _is_markdown(parameters: Mapping[str, str]) -> bool:
    return parameters.get("rel") == "alternate" and parameters.get("type") == "text/markdown"


def redirected(page: str, location: str, sites: Collection[str]) -> str:
    """The Location for a page whose document is redirected to ``location``.

    ``page``: an absolute pretty URL. The server did not get its ``#!`` state, so a Location without a
    fragment inherits it, on any site (RFC 9110 section 10.2.2). An ugly Location has its own state,
    which may be empty.
    """
    pretty = pretty_reference(location, page, sites)
    if pretty != location:
        return pretty
    document, _, state = page.partition("#")
    path, hash_sign, _ = location.partition("#")
    if UGLY_TOKEN in location or _resolved(location, page) is None:
        return location
    # Crawlers resolve it against the ugly URL that they requested.
    whole = location if path else after_host(document) + location
    return whole if hash_sign or not state else f"{whole}#{state}"


def redirect_target(page: str, location: str) -> str:
    """The absolute URL that visitors of a pretty URL are redirected to. Raises ValueError."""
    host = normalized(urlsplit(page).hostname or "")
    return urljoin(page, redirected(page, location, (host,)))


def _is_own(reference: str, base: str, sites: Collection[str]) -> bool:
    if (url := _resolved(reference, base)) is None:
        return False
    host = normalized(url.hostname or "")
    return host in sites or f"{host}:{url.port}" in sites


def _resolved(reference: str, base: str) -> SplitResult | None:
    """The resolved http(s) URL of a reference, or None."""
    path, *rest = re.split("(?=[?#])", reference, maxsplit=1)
    # A backslash is a slash, and two or more slashes are followed by a host (WHATWG URL, section 4.4).
    text = "".join([_SLASHES.sub(r"\1//", path.replace("\\", "/")), *rest])
    try:
        url = urlsplit(urljoin(base, text))
        named = urlsplit(text).netloc or not _SLASHES.match(text)
        return url if named and url.scheme in ("http", "https") and url.port != 0 else None
    except ValueError:
        return None


def _page_path(base: str) -> str:
    """A reference to the path of a URL. A path with ``//`` at its start would name a host."""
    document = base.partition("#")[0].partition("?")[0]
    path = after_host(document)
    return document if path.startswith("//") else path
