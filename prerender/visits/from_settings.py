"""Opens the store of visits next to that of snapshots."""

from prerender.config import Settings
from prerender.http.forwarding_headers import authority
from prerender.snapshots.stores.from_settings import beside
from prerender.visits.file import FileVisits
from prerender.visits.redis import RedisVisits
from prerender.visits.storage import MemoryVisits, VisitStore


def open_visits(settings: Settings) -> VisitStore:
    """The store of visits. It connects when it is used."""
    site = authority(settings.public_url)
    match beside(settings):
        case None:
            return MemoryVisits()
        case str(url):
            return RedisVisits(url, f"prerender:{site}:visits:")
        case folder:
            return FileVisits(folder / f"visits-{site}.sqlite3")
