"""Status and headers that a page asks for by meta tags. Pure.

They are ``prerender-status-code`` and ``prerender-header``, and Rendertron's forms of them. The page's
serializer reads them (browser/scripts/serialize).
"""

from urllib.parse import urljoin

from yarl import URL

from prerender.browser.page_results import Rendered
from prerender.snapshots.snapshot import Header
from prerender.snapshots.target import Target
from prerender.urls.addresses import url_of
from prerender.urls.references import pretty_reference

# The headers that a page may set. With any other, content injected into the page could control the
# server's response.
_LANGUAGE = "Content-Language"
# Each adds to the others, as also those of the document do.
ROBOTS = "X-Robots-Tag"
_BODILESS = (204, 205, 206, 304)


def status_and_headers(
    target: Target, rendered: Rendered, public: URL, hosts: tuple[str, ...]
) -> tuple[int, list[Header]]:
    """The status of the snapshot, and the headers that the page sets.

    A 3xx needs a Location on the site at ``public``, whose ``hosts`` get pretty URLs.
    """
    status = _status(rendered.status, rendered.status_codes)
    location = None
    language: list[Header] = []
    robots: list[Header] = []
    for line in rendered.headers:
        name, _, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        if not (value.isprintable() and value.isascii()):
            continue
        if name == "location":
            location = location or _own_location(target, value, public, hosts)
        elif name == _LANGUAGE.lower():
            language = [(_LANGUAGE, value)]
        elif name == ROBOTS.lower() and (ROBOTS, value) not in robots:
            robots.append((ROBOTS, value))
    headers = language + robots
    if status // 100 == 3:
        if location is None:
            return rendered.status, headers
        headers.append(("Location", location))
    return status, headers


def _status(origin: int, wanted: tuple[str, ...]) -> int:
    """The page's status if it is valid for a page (200 to 599, with a body), else the origin's."""
    for text in wanted:
        if len(text) == 3 and text.isascii() and text.isdigit():
            status = int(text)
            if 200 <= status <= 599 and status not in _BODILESS:
                return status
    return origin


def _own_location(target: Target, value: str, public: URL, hosts: tuple[str, ...]) -> str | None:
    """A page's Location on the same site, or None: a page must not redirect to another site.

    It inherits no ``#!`` state.
    """
    try:
        location = urljoin(target.url.partition("#")[0], value)
        own = url_of(location).origin() == public.origin()
    except ValueError:
        return None
    return pretty_reference(location, target.url, hosts) if own else None
