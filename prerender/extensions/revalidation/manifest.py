"""The manifest of a snapshot: what its page was made from, and how to compare it with now. Pure.

An input is a request with its response. What the page's scripts can observe of a response counts:
status, body, and every header except those that describe the transfer. A header whose value differs
although the snapshot stays the same, such as a request ID, is *ignored* from then on.
"""

import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import xxhash
from multidict import CIMultiDict

from prerender.gateway.document import Document
from prerender.gateway.received import ReceivedResponse, digest_of
from prerender.http.caching import Headers
from prerender.http.fields import members
from prerender.snapshots.strict_json import read

_VERSION = 1
# Of the JSON, which is stored compressed.
_MOST_BYTES = 1024 * 1024
_LEVEL = 6
# Of each response anew, and what describes its transfer. Validators are kept apart.
_UNCOUNTED = frozenset({"age", "content-length", "date", "etag", "expires", "last-modified"})
_IGNORED = ""
# What browsers and snapshots obey is never ignored (WHATWG Fetch and HTML).
_OBEYED = re.compile(
    r"content-(?:type|encoding|language|disposition|security-policy.*)|location|refresh|link"
    r"|x-(?:robots-tag|content-type-options|frame-options)|access-control-.*|cross-origin-.*"
    r"|cache-control|cache-tag|surrogate-key|permissions-policy|referrer-policy"
    r"|service-worker-allowed"
)
_SET_COOKIE = "set-cookie"
_VARY = "vary"
# With these, a request is conditional or for a part already.
_CONDITIONS = frozenset(
    {"if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range"}
)

Pairs = tuple[tuple[str, str], ...]


class BadManifest(ValueError):
    """A manifest of another version, or damaged."""


class Fingerprint(NamedTuple):
    """What counts of a response. ``headers``: names and hashes of values, but the whole value of Vary;
    an ignored one has ''."""

    status: int
    digest: str
    headers: Pairs


@dataclass(frozen=True)
class Input:
    """A request of a page, and the response. ``headers``: end-to-end. ``body``: of a POST."""

    method: str
    url: str
    headers: Pairs
    body: str = field(repr=False)
    fingerprint: Fingerprint
    etag: str = ""
    last_modified: str = ""

    @cached_property
    def key(self) -> tuple[str, str, str]:
        """Identifies the request among those of a page."""
        return self.method, self.url, self.body

    @property
    def varies_by_page(self) -> bool:
        """Whether the response depends on which page requests it (RFC 9110 section 12.5.5)."""
        vary = dict(self.fingerprint.headers).get(_VARY, "none")
        # It is not known of one that is ignored.
        return vary == _IGNORED or bool(members(vary) & {"referer", "*"})

    @cached_property
    def of_any_page(self) -> "Input":
        """The same for all pages: without the Referer, unless the response varies by it."""
        if self.varies_by_page:
            return self
        headers = tuple(one for one in self.headers if one[0].lower() != "referer")
        return replace(self, headers=headers)

    @property
    def request_headers(self) -> CIMultiDict[str]:
        """The headers to ask with, without conditions."""
        return CIMultiDict(self.headers)

    @property
    def conditions(self) -> dict[str, str]:
        """The conditional headers to ask with (RFC 9110 section 13.1)."""
        if self.body or any(name.lower() in _CONDITIONS for name, _ in self.headers):
            return {}
        validators = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in validators.items() if value}


@dataclass(frozen=True)
class Manifest:
    """``maker``: what made the snapshot: releases and settings. ``document``: its response, for which
    the renderer asks by itself. ``inputs``: of this page. ``assets``: scripts, styles, images and
    fonts, which many pages share; ``assets_name`` stands for them when they are stored apart.
    """

    maker: str
    document: Fingerprint
    inputs: tuple[Input, ...] = ()
    assets: tuple[Input, ...] = ()
    assets_name: str = ""

    @property
    def all(self) -> tuple[Input, ...]:
        """All inputs."""
        return self.inputs + self.assets


def fingerprint_of(received: ReceivedResponse) -> Fingerprint:
    """What counts of a response."""
    return Fingerprint(received.status, received.digest, _hashes(received.headers))


def fingerprint_of_document(document: Document) -> Fingerprint:
    """What counts of the document of a page."""
    return fingerprint_of(
        ReceivedResponse(document.status, document.headers, digest_of(document.body))
    )


def input_of(method: str, url: str, sent: Headers, body: str, received: ReceivedResponse) -> Input:
    """The input of a request and its response."""
    headers = received.headers
    return Input(
        method,
        url,
        tuple(sent.items()),
        body,
        fingerprint_of(received),
        headers.get("ETag", "") if received.status == 200 else "",
        headers.get("Last-Modified", "") if received.status == 200 else "",
    )


def difference(then: Fingerprint, now: Fingerprint) -> str:
    """What differs: "status", "body", "headers" or ''."""
    if then.status != now.status:
        return "status"
    if then.digest != now.digest:
        return "body"
    ignored = _ignored(then)
    left, right = ([one for one in it.headers if one[0] not in ignored] for it in (then, now))
    return "" if left == right else "headers"


def without_volatile(old: Manifest, new: Manifest, *, confirmed: bool) -> Manifest:
    """The new manifest, which ignores the headers that the old one ignores. ``confirmed``: the snapshot
    is the same, so those with other values do not matter either."""
    before = {one.key: one.fingerprint for one in old.all}

    def cleaned(key: tuple[str, str, str] | None, now: Fingerprint) -> Fingerprint:
        then = old.document if key is None else before.get(key, now)
        ignored = _ignored(then) | (_changed(then, now) if confirmed else set())
        if not ignored:
            return now
        compared = {name: value for name, value in now.headers if name not in ignored}
        return now._replace(
            headers=tuple(sorted((compared | dict.fromkeys(ignored, _IGNORED)).items()))
        )

    def all_cleaned(inputs: Iterable[Input]) -> tuple[Input, ...]:
        return tuple(replace(one, fingerprint=cleaned(one.key, one.fingerprint)) for one in inputs)

    return replace(
        new,
        document=cleaned(None, new.document),
        inputs=all_cleaned(new.inputs),
        assets=all_cleaned(new.assets),
    )


def has_changed(old: Manifest, new: Manifest) -> bool:
    """Whether an input that both have differs."""
    before = {one.key: one.fingerprint for one in old.all}
    pairs = [(before[one.key], one.fingerprint) for one in new.all if one.key in before]
    return any(difference(then, now) for then, now in [(old.document, new.document), *pairs])


def _ignored(fingerprint: Fingerprint) -> set[str]:
    return {name for name, value in fingerprint.headers if value == _IGNORED}


def _changed(then: Fingerprint, now: Fingerprint) -> set[str]:
    """The headers with other values that nobody has to obey."""
    names = {name for name, _ in set(then.headers) ^ set(now.headers)}
    return {name for name in names if not _OBEYED.fullmatch(name)}


def _hashes(headers: Headers) -> Pairs:
    """Names and hashes of values, sorted. Each cookie is set by a header of its own."""
    values: dict[str, list[str]] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower == _SET_COOKIE:
            lower = f"{_SET_COOKIE}:{value.partition('=')[0].strip()}"
        if lower not in _UNCOUNTED:
            values.setdefault(lower, []).append(value)
    return tuple(
        (name, _ascii(", ".join(texts)) if name == _VARY else _hash("\n".join(texts)))
        for name, texts in sorted(values.items())
    )


def _ascii(value: str) -> str:
    return value.encode("ascii", "replace").decode()


def _hash(value: str) -> str:
    return xxhash.xxh3_64_hexdigest(value.encode("utf-8", "surrogatepass"))[:8]


class _Row(NamedTuple):
    """An input as stored: header lines are numbers of lines in the list."""

    method: str
    url: str
    lines: tuple[int, ...]
    body: str
    status: int
    digest: str
    headers: tuple[int, ...]
    etag: str
    last_modified: str


@dataclass(frozen=True)
class _StoredManifest:
    version: int
    maker: str
    assets: str
    # Pairs of names and values, which many requests and responses share.
    lines: tuple[tuple[str, str], ...]
    document: _Row
    inputs: tuple[_Row, ...]
    # How many of them are not assets; they come first.
    own: int


def encode(manifest: Manifest) -> bytes:
    """The stored form, without the assets if they have a name."""
    lines: dict[tuple[str, str], int] = {}

    def numbers(pairs: Pairs) -> list[int]:
        return [lines.setdefault(pair, len(lines)) for pair in pairs]

    def row(page_input: Input) -> list[object]:
        fingerprint = page_input.fingerprint
        request = [page_input.method, page_input.url, numbers(page_input.headers), page_input.body]
        response = [
            fingerprint.status,
            fingerprint.digest,
            numbers(fingerprint.headers),
            page_input.etag,
            page_input.last_modified,
        ]
        return request + response

    inputs = manifest.inputs if manifest.assets_name else manifest.all
    rows = [row(one) for one in inputs]
    document = row(Input("GET", "", (), "", manifest.document))
    stored = {
        "version": _VERSION,
        "maker": manifest.maker,
        "assets": manifest.assets_name,
        "lines": list(lines),
        "document": document,
        "inputs": rows,
        "own": len(manifest.inputs),
    }
    return zlib.compress(json.dumps(stored, separators=(",", ":")).encode(), _LEVEL)


def decode(data: bytes) -> Manifest:
    """Decode a manifest. Raises only BadManifest."""
    try:
        unpacked = zlib.decompressobj()
        text = unpacked.decompress(data, _MOST_BYTES)
        stored = read(_StoredManifest, text)
        if stored.version != _VERSION or not unpacked.eof:
            raise BadManifest("another version")
        inputs = tuple(_input(row, stored.lines) for row in stored.inputs)
        document = _input(stored.document, stored.lines).fingerprint
    except (zlib.error, ValueError, IndexError) as error:
        raise BadManifest(str(error)) from error
    own = stored.own
    return Manifest(stored.maker, document, inputs[:own], inputs[own:], stored.assets)


def _input(row: _Row, lines: Pairs) -> Input:
    fingerprint = Fingerprint(row.status, row.digest, tuple(lines[n] for n in row.headers))
    return Input(
        row.method,
        row.url,
        tuple(lines[n] for n in row.lines),
        row.body,
        fingerprint,
        row.etag,
        row.last_modified,
    )
