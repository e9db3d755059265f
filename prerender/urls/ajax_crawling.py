"""Google's AJAX crawling scheme: pretty URL <-> ugly URL. Pure.

Contains the scheme's token, the mapping of an ugly request target to the pretty URL of the requested
snapshot (the server's part), and of a pretty URL to the ugly one that a crawler requests (the
crawler's part). Does not contain decisions, hosts, headers or HTML.

Source: Google, "AJAX crawling: Full Specification" (deprecated in 2015),
https://developers.google.com/search/docs/ajax-crawling/docs/specification. The rules:

- The token is literal: case-sensitive, and ``%5Fescaped_fragment_=`` is another name.
- It is the last query parameter and the only one with its name, which a bare ``_escaped_fragment_``
  also has. Otherwise the URL is not ugly, so that it is never ambiguous which token counts.
- The query begins at the first ``?``; only ``&`` separates parameters.
- A ``#`` is not allowed in a request target (RFC 9112, section 3.2), so a target with one is not ugly:
  ``/a#!b`` would be the same text as page ``/a`` with the fragment ``b``.
- Only the value is unescaped, once. Everything else stays byte for byte.
"""

import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

UGLY_TOKEN = "_escaped_fragment_="  # noqa: S105 - not a secret
"""Name and equals sign of the parameter that makes a URL ugly."""

_NAME = UGLY_TOKEN.removesuffix("=")
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


def _visible_except(escaped: str) -> str:
    return "".join(character for character in _VISIBLE if character not in escaped)


# Characters that are not escaped; urllib's quote() escapes every other octet in uppercase.
UNESCAPED_IN_STATES = _visible_except('"<>`')  # WHATWG URL, fragment percent-encode set
_UNESCAPED_BY_CRAWLERS = _visible_except("#%&+")  # the scheme: %00-20 %23 %25-26 %2B %7F-FF

# "surrogateescape" maps undecodable octets to U+DC80..U+DCFF; other lone surrogates come from no octet,
# and UTF-8 cannot express them.
_FROM_OCTET = re.compile("[\udc80-\udcff]")
_FROM_NOTHING = re.compile("[\ud800-\udc7f\udd00-\udfff]")


class PrettyURL(NamedTuple):
    """The URL of a page as visitors see it, without scheme and host.

    ``path``: path and query exactly as in the request target (``/p?x=1``); undecodable octets
    are surrogateescape characters. ``fragment``: the text after ``#!``, unescaped once, or ``''``.
    Equal values are the same page; different values can be, too (``#!a b`` and ``#!a%20b``): compare
    ``str()`` where that matters.
    """

    path: str
    fragment: str

    @property
    def location_hash(self) -> str:
        """The value of ``location.hash`` on the page: ``#!`` and the escaped fragment, or ``''``.

        Escapes the same characters as a URL parser in a fragment (WHATWG URL, section 1.3), and also
        tabs and line ends, which the parser would strip although the crawler saw their escapes.
        """
        return f"#!{quote(_utf8(self.fragment), safe=UNESCAPED_IN_STATES)}" if self.fragment else ""

    def __str__(self) -> str:
        """Path, query and hash, to append to ``scheme://host``.

        Do not resolve it against a base URL: the path ``//evil`` would name another host.
        """
        return self.path + self.location_hash


def ugly_to_pretty(target: str) -> PrettyURL | None:
    """The page of an ugly request target; None if the target is not ugly.

    ``target``: the raw request target in origin form (RFC 9112, section 3.2.1). The ``?`` or
    ``&`` before the token is removed with it. In the value, ``+`` is a plus sign, malformed escapes
    stay unchanged, and octets that are not UTF-8 stay escaped as uppercase ``%XX``. Never raises.
    """
    if UGLY_TOKEN not in target:  # nearly every request ends here
        return None
    path, _, query = target.partition("?")
    others, ampersand, last = query.rpartition("&")
    if not last.startswith(UGLY_TOKEN) or _has_token(others) or "#" in target:
        return None
    page = f"{path}?{others}" if ampersand else path
    return PrettyURL(page, _unescape(last.removeprefix(UGLY_TOKEN)))


def pretty_to_ugly(url: str, *, opted_in: bool = False) -> str | None:
    """The URL that a crawler requests for ``url``; None if it has no ugly URL.

    ``url``: absolute or relative. A URL with a hash-bang fragment (also an empty one, ``/p#!``) has
    an ugly URL; a URL without a fragment only if its page has ``opted_in`` by
    ``<meta name="fragment" content="!">``. The result for a URL that already has the token is None.
    ``ugly_to_pretty`` is the inverse. Never raises.
    """
    page, hash_sign, fragment = url.partition("#")
    _, question_mark, query = page.partition("?")
    crawlable = fragment.startswith("!") or (opted_in and not hash_sign)
    if not crawlable or _has_token(query):
        return None
    value = quote(_utf8(fragment.removeprefix("!")), safe=_UNESCAPED_BY_CRAWLERS)
    return f"{page}{'&' if question_mark else '?'}{UGLY_TOKEN}{value}"


def _has_token(query: str) -> bool:
    return any(parameter.partition("=")[0] == _NAME for parameter in query.split("&"))


def _unescape(value: str) -> str:
    # By octets, because some octets of a character may be escaped and others not.
    text = unquote_to_bytes(_utf8(value)).decode("utf-8", "surrogateescape")
    return _FROM_OCTET.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", text)


def _utf8(text: str) -> bytes:
    # Browsers replace lone surrogates by U+FFFD (Infra, "scalar value string").
    return _FROM_NOTHING.sub("\ufffd", text).encode("utf-8", "surrogateescape")
