"""Opens the store of visits next to that of snapshots."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from prerender.config import Settings
from prerender.http.forwarding_headers import authority
from prerender.visits.file import FileVisits
from prerender.visits.redis import RedisVisits
from prerender.visits.storage import MemoryVisits, VisitStore


def open_visits(settings: Settings) -> VisitStore:
    """The store of visits. It connects when it is used."""
    cache, site = settings.cache, authority(settings.public_url)
    url = cache.hot_url or cache.url
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme == "file":
        return FileVisits(Path(unquote(urlsplit(url).path)) / f"visits-{site}.sqlite3")
    if scheme in ("redis", "rediss", "unix"):
        return RedisVisits(url, f"prerender:{site}:visits:")
    return MemoryVisits()
