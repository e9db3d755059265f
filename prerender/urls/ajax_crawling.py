"""Google's AJAX crawling scheme, both ways: pretty URL <-> ugly URL.

Lives here: the scheme's token, the mapping of an ugly request target to the pretty URL whose
snapshot it asks for (the server's side), and of a pretty URL to the ugly one that a crawler
requests (the crawler's side). Must not live here: whether a request is rendered, hosts, headers,
HTML. Pure: no I/O, no third-party import.

Source: Google, "AJAX crawling: Full Specification" (deprecated in 2015),
https://developers.google.com/search/docs/ajax-crawling/docs/specification. The rules:

- The token is literal: case sensitive, and ``%5Fescaped_fragment_=`` is another name.
- It is the last query parameter and the only one of its name; a bare ``_escaped_fragment_`` has
  its name too. Anything else is no ugly URL, so that nobody has to guess which token counts.
- The query begins at the first ``?``; only ``&`` separates parameters.
- A ``#`` cannot stand in a request target (RFC 9112, section 3.2), so what has one is no ugly URL:
  its ``/a#!b`` would be the same text as page ``/a`` with the fragment ``b``.
- Only the value is ever unescaped, and once. All else stays byte for byte.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

UGLY_TOKEN = "_escaped_fragment_="  # noqa: S105 - the scheme's own word, no secret
"""Name and equals sign of the parameter that makes a URL ugly."""

_NAME = UGLY_TOKEN.removesuffix("=")
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


def _visible_except(escaped: str) -> str:
    return "".join(character for character in _VISIBLE if character not in escaped)


# What stays as it is; urllib's quote() escapes every other octet, in uppercase.
_KEPT_BY_BROWSERS = _visible_except('"<>`')  # WHATWG URL, fragment percent-encode set
_KEPT_BY_CRAWLERS = _visible_except("#%&+")  # the scheme: %00-20 %23 %25-26 %2B %7F-FF

# "surrogateescape" carries an undecodable octet as U+DC80..U+DCFF; any other lone surrogate comes
# from no octet, and UTF-8 cannot express it.
_FROM_OCTET = re.compile("[\udc80-\udcff]")
_FROM_NOTHING = re.compile("[\ud800-\udc7f\udd00-\udfff]")


@dataclass(frozen=True, slots=True)
class PrettyURL:
    """A page as its users see it, without scheme and host.

    ``path`` is path and query exactly as in the request target (``/p?x=1``); undecodable octets
    are surrogateescape characters. ``fragment`` is the text after ``#!``, unescaped once, or ``''``
    when there is none. Two equal values are one page; two different ones can still be
    (``#!a b`` and ``#!a%20b``): compare ``str()`` where that matters.
    """

    path: str
    fragment: str

    @property
    def location_hash(self) -> str:
        """What ``location.hash`` reads on the page: ``#!`` and the escaped fragment, or ``''``.

        Escaped is what a URL parser escapes in a fragment (WHATWG URL, section 1.3). Tab and line
        ends are too: the parser would strip them, but their escapes are what the crawler saw.
        """
        return f"#!{quote(_utf8(self.fragment), safe=_KEPT_BY_BROWSERS)}" if self.fragment else ""

    def __str__(self) -> str:
        """Path, query and hash, to be put after ``scheme://host``.

        Not to be resolved against a base URL: the path ``//evil`` would name another host there.
        """
        return self.path + self.location_hash


def ugly_to_pretty(target: str) -> PrettyURL | None:
    """The page that an ugly request target asks for; None if the target is not ugly.

    ``target`` is the raw request target in origin form (RFC 9112, section 3.2.1). The ``?`` or
    ``&`` before the token goes with it. In the value ``+`` is a plus sign, malformed escapes stay
    as they are, and octets that are not UTF-8 stay escaped as uppercase ``%XX``. Never raises.
    """
    if UGLY_TOKEN not in target:  # nearly every request ends here
        return None
    path, _, query = target.partition("?")
    others, ampersand, last = query.rpartition("&")
    if not last.startswith(UGLY_TOKEN) or _has_token(others) or "#" in target:
        return None
    kept = f"{path}?{others}" if ampersand else path
    return PrettyURL(kept, _unescape(last.removeprefix(UGLY_TOKEN)))


def pretty_to_ugly(url: str, *, opted_in: bool = False) -> str | None:
    """The URL that a crawler requests for ``url``; None where the scheme has nothing to crawl.

    ``url`` is absolute or relative. With a hash-bang fragment (also an empty one, ``/p#!``) it has
    an ugly URL; without any fragment only if its page has ``opted_in`` by
    ``<meta name="fragment" content="!">``. A URL that already has the token is not pretty: None.
    So ``ugly_to_pretty`` understands every URL that this returns. Never raises.
    """
    page, hash_sign, fragment = url.partition("#")
    _, question_mark, query = page.partition("?")
    crawlable = fragment.startswith("!") or (opted_in and not hash_sign)
    if not crawlable or _has_token(query):
        return None
    value = quote(_utf8(fragment.removeprefix("!")), safe=_KEPT_BY_CRAWLERS)
    return f"{page}{'&' if question_mark else '?'}{UGLY_TOKEN}{value}"


def _has_token(query: str) -> bool:
    return any(parameter.partition("=")[0] == _NAME for parameter in query.split("&"))


def _unescape(value: str) -> str:
    # By octets, so that a character whose octets came half raw and half escaped is one character.
    text = unquote_to_bytes(_utf8(value)).decode("utf-8", "surrogateescape")
    return _FROM_OCTET.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", text)


def _utf8(text: str) -> bytes:
    # U+FFFD is what a browser makes of a lone surrogate (Infra, "scalar value string").
    return _FROM_NOTHING.sub("\ufffd", text).encode("utf-8", "surrogateescape")
