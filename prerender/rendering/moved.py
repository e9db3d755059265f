"""Pages that changed their own URL: whether they did, and the canonical link to the new one. Pure."""

import re
from html import escape
from urllib.parse import unquote


def has_moved(requested: str, now: str) -> bool:
    """Whether a page changed its own path or the requested ``#!`` state.

    Queries are not compared, nor what is behind ? or # in a state: applications add and remove their
    own parameters.
    """
    if _path(requested) != _path(now):
        return True
    state, new_state = requested.partition("#!")[2], now.partition("#!")[2]
    return bool(state) and _view(state) != _view(new_state)


def _view(state: str) -> str:
    """The part of a state that names a view; a state that is only a query, such as ?page=2, is one."""
    return _plain(re.split("[?#]", state, maxsplit=1)[0] or state)


def _path(url: str) -> str:
    return _plain(url.partition("#")[0].partition("?")[0])


def _plain(text: str) -> str:
    return unquote(text).rstrip("/")


def with_canonical(html: str, at: int, url: str) -> str:
    """The HTML with a canonical link added at the start of its head, unless it has one (``at`` < 0)."""
    if at < 0:
        return html
    return f'{html[:at]}<link rel="canonical" href="{escape(url)}">{html[at:]}'
