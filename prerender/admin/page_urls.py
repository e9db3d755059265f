"""The pages of the site by URL, as users of the API name them. Pure."""

import re
from contextlib import suppress

from yarl import URL

from prerender.http.forwarding_headers import authority
from prerender.snapshots.entry import Entry
from prerender.snapshots.target import Target
from prerender.snapshots.variants import ORDINARY, Variant
from prerender.urls.addresses import pretty_of
from prerender.urls.ajax_crawling import UGLY_TOKEN
from prerender.urls.tracking import Tracking


class Site:
    """The site at ``public``. ``default``: the variant of a URL that names none."""

    def __init__(self, public: URL, tracking: Tracking, default: Variant = ORDINARY) -> None:
        self.public = public
        self._tracking = tracking
        self._default = default
        # Scheme, host and port.
        self.url = str(public.origin())
        # Also as people write an internationalized name.
        hosts = {
            authority(public),
            authority(public).replace(public.raw_host or "", public.host or ""),
        }
        host = "|".join(map(re.escape, hosts))
        self._named = re.compile(rf"(?:https?://)?(?:{host})(?=[/?#]|\Z)", re.IGNORECASE)

    def path(self, name: str, text: str, *, starts: tuple[str, ...] = ("/",)) -> str:
        """The path in a parameter, without the site's scheme and host.

        As people write URLs, both schemes are the site, and scheme and first slash may be missing.
        Raises ValueError.
        """
        path = text
        if named := self._named.match(text):
            path = text[named.end() :] or "/"
        if path.startswith(("#!", "?")):
            path = f"/{path}"
        if not path.startswith(starts):
            raise ValueError(f"{name}: {text[:200]!r}: give a URL of {self.url}, or a path")
        return path

    def without_host(self, text: str) -> str:
        """A text that is searched for; of a pretty or ugly URL of the site, its stored path."""
        text = text.strip()
        named = self._named.match(text)
        if UGLY_TOKEN in text:
            with suppress(ValueError):
                return self.target(text).path
        if named is None:
            return text
        path, mark, state = text[named.end() :].partition("#!")
        return f"{path.partition('#')[0] or '/'}{mark}{state}"

    def target(self, text: str, variant: Variant | None = None) -> Target:
        """The target of a pretty or ugly URL. Raises ValueError."""
        path = self.path("url", text)
        try:
            pretty = pretty_of(f"{self.url}{path}")
        except ValueError as error:
            raise ValueError(f"url: {text[:200]!r}: {error}") from None
        return Target.of(self.public, pretty, self._tracking, variant or self._default)

    def target_of(self, entry: Entry) -> Target:
        """The target of a stored snapshot, with its variant."""
        pretty = pretty_of(f"{self.url}{entry.path}")
        return Target.of(self.public, pretty, self._tracking, entry.variant)
