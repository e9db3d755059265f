"""Results of a page: its DOM, the text that a visitor sees, or a screenshot."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prerender.browser.settling.settler import Settled
from prerender.config.page_changes import Tag
from prerender.config.settings import SnapshotSettings


class Resource(NamedTuple):
    """A resource that a page has loaded, from anywhere, as listed by the browser.

    ``status`` and ``size`` (bytes) are 0 if they are hidden from the page. ``start``: seconds of the
    page's time.
    """

    url: str
    initiator: str
    status: int
    size: int
    start: float

    @property
    def is_hidden(self) -> bool:
        """Whether nothing is known of the response. Perhaps there was none."""
        return not self.status and not self.size


@dataclass(frozen=True, slots=True)
class Rendered:
    """A page after it has settled. ``partial``: it was cut off by the wall-clock limit.

    ``parsing``: its document was incomplete. ``pictures``: it shows something besides text.

    ``url``, ``status`` (0: not from a server), ``content_type`` and ``redirected`` are those of its
    last document, for example after a reload. ``own_url``: its URL without the time by which it has
    reloaded itself past caches. ``canonical_at``: the start of the head's content in
    ``html``, or -1 if the page needs no canonical link. ``loading``: it shows that it is loading.
    ``script_failure``: the first of the ``errors`` that ended a script, or kept it from running, or ''.
    ``malformed``: the URLs of needed data that cannot be parsed, which are also among the ``errors``.
    """

    html: str
    canonical_at: int
    url: str
    own_url: str
    status: int
    content_type: str
    redirected: bool
    parsing: bool
    loading: bool
    pictures: bool
    status_codes: tuple[str, ...]
    headers: tuple[str, ...]
    cache_ttls: tuple[str, ...]
    cache_tags: tuple[str, ...]
    resources: tuple[Resource, ...]
    text_length: int
    errors: tuple[str, ...]
    script_failure: str
    malformed: tuple[str, ...]
    partial: bool
    settled: Settled
    serialize_seconds: float

    @property
    def shows_anything(self) -> bool:
        """Whether it shows a text or a picture."""
        return bool(self.text_length) or self.pictures


@dataclass(frozen=True, slots=True)
class SerializeOptions:
    """Options of the serializer (serializer.py).

    ``content``: [snapshot]; ``add``: its tags for the head. ``internal_host``: the origin's host, with
    its port unless it is the scheme's default; ugly URLs on it are the site's, too. ``max_bytes``: the
    maximum length of the text; 0: none.
    Of a page: ``has_policy``: its document has a Content Security Policy, ``refused_styles``: the style
    attributes that it refuses, as indexes in ``document.querySelectorAll("[style]")``. ``attached``:
    what scripts have attached to custom elements (probe/internals.js). ``drawings``: whether canvases
    keep what they show. ``canonical``: the canonical URL, or '' for that at which it is.
    """

    content: SnapshotSettings = field(default_factory=SnapshotSettings)
    add: tuple[Tag, ...] = ()
    internal_host: str = ""
    max_bytes: int = 0
    has_policy: bool = False
    refused_styles: tuple[int, ...] = ()
    attached: Sequence[Any] = ()
    drawings: bool = False
    cache_buster: str = ""

    def as_json(self) -> str:
        """The options as arguments of the script."""
        return json.dumps(
            {
                "flattenShadowDom": self.content.flatten_shadow_dom,
                "cacheBuster": self.cache_buster,
                "addCanonical": self.content.add_canonical,
                "internalHost": self.internal_host,
                "hasPolicy": self.has_policy,
                "refusedStyles": self.refused_styles,
                "attached": self.attached,
                "drawings": self.drawings,
                "remove": self.content.remove,
                "add": self.add,
            }
        )


@dataclass(frozen=True, slots=True)
class Departed:
    """The page went to another document, by script or meta refresh, like a redirect."""

    url: str
    settled: Settled
    serialize_seconds: float = 0.0
