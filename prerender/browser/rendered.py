"""What a page gives: the DOM of a render, what a person reads on it, or what it looks like."""

import json
from dataclasses import dataclass
from typing import NamedTuple

from prerender.browser.accessibility import Announcement
from prerender.browser.settle import Settled


class Resource(NamedTuple):
    """Something that a page has loaded, wherever from, as the browser lists it.

    ``status`` and ``size`` (bytes) are 0 where the page may not know them. ``start``: seconds of the
    page's time.
    """

    url: str
    initiator: str
    status: int
    size: int
    start: float


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a page was when it had settled. ``partial``: it was cut off by the wall-clock limit.

    ``parsing``: its document had not come to its end. ``pictures``: it shows something besides text.

    ``url``, ``status`` (0: no server sent it), ``content_type`` and ``redirected`` are those of its
    last document, which a reload may have brought.
    """

    html: str
    url: str
    status: int
    content_type: str
    redirected: bool
    parsing: bool
    pictures: bool
    status_codes: tuple[str, ...]
    headers: tuple[str, ...]
    cache_ttls: tuple[str, ...]
    cache_tags: tuple[str, ...]
    resources: tuple[Resource, ...]
    text_length: int
    errors: tuple[str, ...]
    partial: bool
    settled: Settled
    serialize_seconds: float

    @property
    def shows_anything(self) -> bool:
        """Whether there is something to see: a text, or a picture."""
        return bool(self.text_length) or self.pictures


@dataclass(frozen=True, slots=True)
class Seen:
    """What a person gets of a page: each text of it, and whether it is shown; where its links lead."""

    url: str
    title: str
    texts: tuple[tuple[str, bool], ...]
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SerializeOptions:
    """What the serialiser does beyond the necessary (see serializer.py).

    ``internal_host``: the origin's host, with its port if it is not the scheme's own; its ugly URLs are
    the site's too.
    """

    flatten_shadow_dom: bool = False
    add_canonical: bool = False
    internal_host: str = ""

    def as_json(self) -> str:
        """The options as the script takes them."""
        return json.dumps(
            {
                "flattenShadowDom": self.flatten_shadow_dom,
                "addCanonical": self.add_canonical,
                "internalHost": self.internal_host,
            }
        )


@dataclass(frozen=True, slots=True)
class Departed:
    """The page went to another document, by script or by meta refresh, as a redirect does."""

    url: str
    settled: Settled
    serialize_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Screenshot:
    """What a page looks like: a PNG, the text that is seen, and what a screen reader says of it."""

    png: bytes
    text: str
    announced: tuple[Announcement, ...] = ()

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return len(self.png) + 4 * len(self.text) + 500 * len(self.announced)
