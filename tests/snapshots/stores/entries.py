"""Entries of stores. Processes that tests start import this, and not all that tests import."""

import time

from prerender.snapshots.entry import Entry
from prerender.snapshots.snapshot import Snapshot


def entry(size: int = 1000, page: str = "/", key: str = "k") -> Entry:
    """An entry whose body is its page's path again and again."""
    body = (page.encode() * size)[:size]
    return Entry(key, page, Snapshot(200, (), body, '"x"', 1), time.time(), time.time() + 100)
