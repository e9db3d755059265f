"""Types of settings, each with its check.

Each check raises ValueError with what is allowed. load.py adds the name and source of the setting.
"""

import json
import re
from base64 import b64decode
from collections.abc import Mapping
from math import nan
from typing import Annotated, Literal, TypeVar, get_args
from zoneinfo import available_timezones

from pydantic import AfterValidator, BeforeValidator

from prerender.config import page_changes
from prerender.config.lists import strings_of, tables_of
from prerender.http.hop_by_hop import HOP_BY_HOP
from prerender.urls.patterns import comparable

# What a site owner can choose for a class of crawlers.
Action = Literal["forward", "render", "markdown", "refuse"]
# Of [webhooks].
EVENTS = (
    "alert",
    "snapshot.changed",
    "page.failed",
    "page.recovered",
    "page.not_found",
    "snapshots.purged",
)
# https://contentsignals.org
CONTENT_SIGNALS = ("search", "ai-input", "ai-train")
# Of pages without another one.
DEFAULT_LANGUAGE = "en-US"
# For settings that the proxy can determine by itself.
AUTO = "auto"

_Number = TypeVar("_Number", int, float)

_DURATION_UNITS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_WHOLE_NUMBER = re.compile(r"\s*\d{1,18}\s*", re.ASCII)
_PARAMETER = re.compile(r"[^\s&=#?*]+\*?")
_SECRET_NAME = re.compile(r"[\w.~\[\]*-]+", re.ASCII)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,3}", re.ASCII)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?", re.ASCII)
# Headers that the proxy or the browser sets for each request.
_OWN_HEADERS = (
    frozenset(
        {
            *(
                "accept-encoding",
                "content-encoding",
                "content-length",
                "content-type",
                "cookie",
                "expect",
            ),
            *("host", "origin", "range", "x-forwarded-host", "x-forwarded-proto", "x-prerender"),
        }
    )
    | HOP_BY_HOP
)
_OWN_PREFIXES = ("access-control-", "if-", "sec-")
_LONGEST = 365 * 86400
_LARGEST = 2**46
_DURATION_HELP = 'not a duration: give seconds, or for example "30s", "10m", "1h"'
_SIZE_HELP = 'not a size: give bytes, or for example "64KiB", "256MiB", "1GB"'


def _duration(value: object) -> float:
    seconds = _quantity(value, _DURATION_UNITS, _DURATION_HELP)
    if not 0 <= seconds <= _LONGEST:
        raise ValueError("must be from 0 to 365d")
    return float(seconds)


def _positive(quantity: _Number) -> _Number:
    if quantity == 0:
        raise ValueError("must be more than 0")
    return quantity


def _size(value: object) -> int:
    size = _quantity(value, _SIZE_UNITS, _SIZE_HELP)
    if not 0 <= size <= _LARGEST:
        raise ValueError(f"must be from 0 to {_LARGEST // 1024**3}GiB")
    return round(size)


def _size_or_auto(value: object) -> int | str:
    try:
        return "auto" if value == "auto" else _size(value)
    except ValueError as error:
        raise ValueError(f'{error}, or "auto"') from None


def _quantity(value: object, units: Mapping[str, float], help_text: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in units:
        raise ValueError(help_text)
    return float(match[1]) * units[match[2].lower()]


def whole_number(least: int, most: int, *, word: str | None = None) -> BeforeValidator:
    """A whole number in a range, or ``word``. Pydantic alone would accept true as 1."""

    def parse(value: object) -> int | str:
        if value == word and isinstance(value, str):
            return value
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            also = f', or "{word}"' if word else ""
            raise ValueError(f"give a whole number from {least} to {most}{also}")
        return value

    return BeforeValidator(parse)


def share() -> BeforeValidator:
    """A number from 0 to 1."""

    def parse(value: object) -> float:
        try:
            number = float(value) if isinstance(value, str | int | float) else nan
        except (ValueError, OverflowError):
            number = nan
        if isinstance(value, bool) or not 0 <= number <= 1:
            raise ValueError("give a number from 0 to 1")
        return number

    return BeforeValidator(parse)


def _sitemap_urls(value: object) -> tuple[str, ...]:
    urls = strings_of(value, 'give a list of URLs, for example ["/sitemap.xml"]')
    for url in urls:
        if not re.fullmatch(r"(https?://[^/\s@]+)?/\S*", url):
            raise ValueError(
                f"{url!r}: give a URL of the site, without user and password, or a path that "
                "begins with /"
            )
    return urls


def _patterns(value: object) -> tuple[str, ...]:
    patterns = strings_of(
        value, 'give a list of regular expressions, for example ["build [0-9]+", "token=[0-9a-f]+"]'
    )
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return patterns


def _languages(value: object) -> tuple[str, ...]:
    tags = strings_of(value, 'give a list of language tags, for example ["en", "de-CH"]')
    for tag in tags:
        if not _LANGUAGE.fullmatch(tag):
            raise ValueError(f"{tag!r} is not a language tag (RFC 5646), such as en or de-CH")
    if len({tag.lower() for tag in tags}) < len(tags):
        raise ValueError("a language is listed twice")
    return tags


def _language(value: str) -> str:
    if not _LANGUAGE.fullmatch(value):
        raise ValueError("give a language tag (RFC 5646), such as en-US or de")
    return value


def _headers(value: object) -> tuple[str, ...]:
    """Headers with values that may be secret, so no message quotes them."""
    help_text = 'give a list of headers, for example ["Authorization: Basic dXNlcjpwYXNz"]'
    names: set[str] = set()
    lines = []
    for number, line in enumerate(strings_of(value, help_text), start=1):
        name, colon, text = (part.strip() for part in line.partition(":"))
        if not colon or not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(text):
            raise ValueError(f'number {number} is not "Name: value" in ASCII; {help_text}')
        if name.lower() == "accept-language":
            raise ValueError(f"{name!r}: set [browser] language instead")
        if name.lower() in _OWN_HEADERS or name.lower().startswith(_OWN_PREFIXES):
            raise ValueError(f"{name!r}: the proxy and the browser set it themselves")
        if name.lower() in names:
            raise ValueError(f"{name!r} is listed twice")
        names.add(name.lower())
        lines.append(f"{name}: {text}")
    return tuple(lines)


def _selectors(value: object) -> tuple[str, ...]:
    help_text = 'give a list of CSS selectors, for example ["#cookie-banner", ".chat"]'
    selectors = strings_of(value, help_text)
    for selector in selectors:
        if problem := page_changes.problem_of_selector(selector):
            raise ValueError(f"{selector!r} is not a CSS selector: {problem}")
    return selectors


def _head_tags(value: object) -> tuple[str, ...]:
    help_text = 'give a list of tags, for example [\'<meta name="robots" content="noarchive">\']'
    fragments = strings_of(value, help_text)
    for fragment in fragments:
        try:
            page_changes.tags_of(fragment)
        except ValueError as error:
            raise ValueError(f"{fragment[:60]!r}: {error}") from None
    return fragments


def words(*known: str) -> BeforeValidator:
    """A list of words, each one of ``known``."""
    help_text = f"give a list of some of {json.dumps(known)}"

    def parse(value: object) -> tuple[str, ...]:
        values = strings_of(value, help_text)
        if not set(values) <= set(known):
            raise ValueError(help_text)
        return values

    return BeforeValidator(parse)


def _parameters(value: object) -> tuple[str, ...]:
    names = strings_of(value, 'give a list of query parameter names, for example ["utm_*", "ref"]')
    for name in names:
        if not _PARAMETER.fullmatch(name):
            raise ValueError(f"{name!r} is not a query parameter name; * is allowed at the end")
    return names


def _secret_names(value: object) -> tuple[str, ...]:
    names = strings_of(
        value, 'give a list of query parameter names, for example ["*token*", "key"]'
    )
    for name in names:
        if not _SECRET_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a query parameter name; * is allowed anywhere in it")
    return names


def _page_pattern(value: object) -> str:
    if not isinstance(value, str) or not value.startswith(("/", "*")):
        raise ValueError(f"{value!r}: a path must begin with / or *, which matches any text")
    return comparable(value)


def _page_patterns(value: object) -> tuple[str, ...]:
    patterns = strings_of(value, 'give a list of patterns, for example ["/news/*", "*?print=1"]')
    return tuple(map(_page_pattern, patterns))


def _rules(value: object) -> tuple[tuple[str, float], ...]:
    help_text = 'give a list of tables, for example [{ path = "/news/*", ttl = "5m" }]'
    rules = []
    for rule in tables_of(value, ("path", "ttl"), help_text):
        path, ttl = _page_pattern(rule["path"]), rule["ttl"]
        try:
            rules.append((path, 0.0 if ttl == "never" else _duration(ttl)))
        except ValueError as error:
            raise ValueError(f'{path}: ttl: {error}, or "never"') from None
    return tuple(rules)


def _crawler_names(value: object) -> tuple[tuple[object, str], ...]:
    help_text = 'give a list of tables, for example [{ class = "social", name = "ExampleBot" }]'
    tables = tables_of(value, ("class", "name"), help_text)
    return tuple((table["class"], crawler_name(table["name"])) for table in tables)


def crawler_name(value: object) -> str:
    """A name of a crawler in User-Agent. Shorter ones would match ordinary browsers."""
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or len(value.strip("^ ")) < 3
        or not re.search(r"\w", value, re.ASCII)
    ):
        raise ValueError(f"{value!r}: give at least 3 characters of the crawler's User-Agent")
    return value


def _crawler_ranges(value: object) -> tuple[tuple[str, str], ...]:
    help_text = (
        'give a list of tables, for example [{ name = "GPTBot", file = "/etc/gptbot.json" }]'
    )
    ranges = []
    for table in tables_of(value, ("name", "file"), help_text):
        name, file = table["name"], table["file"]
        if not isinstance(name, str) or not isinstance(file, str) or not name or not file:
            raise ValueError(f"{help_text}; name and file must be strings")
        ranges.append((name, file))
    return tuple(ranges)


def _action(value: object) -> str:
    if value not in ("preset", *get_args(Action)):
        raise ValueError('give "preset", "forward", "render", "markdown" or "refuse"')
    return str(value)


def _token(value: str) -> str:
    if value and not re.fullmatch(r"[!-~]{16,}", value, re.ASCII):
        raise ValueError("give at least 16 ASCII characters, without spaces")
    return value


def _cdn_zone(value: str) -> str:
    if value and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value, re.ASCII):
        raise ValueError("give letters and digits, as the CDN shows them")
    return value


def _webhook_secrets(value: object) -> tuple[str, ...]:
    """Secrets of Standard Webhooks: ``whsec_``, and 24 to 64 bytes in Base64."""
    help_text = (
        'give "whsec_" and 24 to 64 random bytes in Base64, for example the output of: '
        "echo whsec_$(openssl rand -base64 32)"
    )
    secrets = strings_of(value, help_text)
    for secret in secrets:
        try:
            key = b64decode(secret.removeprefix("whsec_"), validate=True)
        except ValueError:
            key = b""
        if not secret.startswith("whsec_") or not 24 <= len(key) <= 64:
            raise ValueError(help_text)
    return secrets


def _timezone(value: str) -> str:
    known = available_timezones()
    # A small container may lack the database. Chromium has its own.
    if value in known or (not known and re.fullmatch(r"[A-Za-z0-9_+/-]{1,64}", value)):
        return value
    raise ValueError("give a name of the IANA time zone database, such as Europe/Paris")


def admin_tokens(value: object) -> tuple[str, ...]:
    """Parse a list of tokens, or "auto"."""
    help_text = "give a token, or a list of tokens"
    tokens = strings_of(value, help_text)
    if "" in tokens:
        raise ValueError("a token in the list is empty: remove it")
    try:
        return tokens if tokens == (AUTO,) else tuple(map(_token, tokens))
    except ValueError as error:
        raise ValueError(f'{error} and commas, or "{AUTO}"') from None


def _indexnow_key(value: str) -> str:
    if value and not re.fullmatch(r"[A-Za-z0-9-]{8,128}", value, re.ASCII):
        raise ValueError("give 8 to 128 letters, digits and hyphens, or nothing")
    return value


def _content_signal(value: str) -> str:
    signals = [part.strip().partition("=")[::2] for part in value.split(",")] if value else []
    for name, choice in signals:
        if name not in CONTENT_SIGNALS or choice not in ("yes", "no"):
            allowed = ", ".join(CONTENT_SIGNALS)
            raise ValueError(f"give signals with yes or no, such as ai-train=no; known: {allowed}")
    return ", ".join(f"{name}={choice}" for name, choice in signals)


def _flag(value: object) -> bool:
    """Pydantic alone would accept many other words, and numbers."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError("give true or false")
    return value


class TableKeys(tuple[str, ...]):
    """The keys of a setting that is a list of tables, in the order of its values."""

    __slots__ = ()

    def __new__(cls, *keys: str) -> "TableKeys":
        return super().__new__(cls, keys)


Duration = Annotated[float, BeforeValidator(_duration)]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
Size = Annotated[int, BeforeValidator(_size)]
PositiveSize = Annotated[Size, AfterValidator(_positive)]
SizeOrAuto = Annotated[int | Literal["auto"], BeforeValidator(_size_or_auto)]
Port = Annotated[int, whole_number(0, 65535)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Selectors = Annotated[tuple[str, ...], BeforeValidator(_selectors)]
HeadTags = Annotated[tuple[str, ...], BeforeValidator(_head_tags)]
Language = Annotated[str, AfterValidator(_language)]
RequestHeaders = Annotated[tuple[str, ...], BeforeValidator(_headers)]
Languages = Annotated[tuple[str, ...], BeforeValidator(_languages)]
ParameterNames = Annotated[tuple[str, ...], BeforeValidator(_parameters)]
SecretNames = Annotated[tuple[str, ...], BeforeValidator(_secret_names)]
PagePatterns = Annotated[tuple[str, ...], BeforeValidator(_page_patterns)]
NamedCrawlers = Annotated[
    tuple[tuple[str, str], ...],
    BeforeValidator(_crawler_names),
    TableKeys("class", "name"),
]
CrawlerRanges = Annotated[
    tuple[tuple[str, str], ...], BeforeValidator(_crawler_ranges), TableKeys("name", "file")
]
TriggerAction = Annotated[Action | Literal["preset"], BeforeValidator(_action)]
Rules = Annotated[tuple[tuple[str, float], ...], BeforeValidator(_rules), TableKeys("path", "ttl")]
IndexNowKey = Annotated[str, AfterValidator(_indexnow_key)]
CdnZone = Annotated[str, AfterValidator(_cdn_zone)]
WebhookSecrets = Annotated[tuple[str, ...], BeforeValidator(_webhook_secrets)]
SitemapURLs = Annotated[tuple[str, ...], BeforeValidator(_sitemap_urls)]
ContentSignal = Annotated[str, AfterValidator(_content_signal)]
Timezone = Annotated[str, AfterValidator(_timezone)]
Token = Annotated[str, AfterValidator(_token)]
TokensOrAuto = Annotated[tuple[str, ...], BeforeValidator(admin_tokens)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(_patterns)]
